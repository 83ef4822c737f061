"""What can be said without learning."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import lombscargle
from sklearn.metrics import pairwise_distances_argmin

import roughformer as rf
from roughformer.errors import InputError, MissingDataError
from roughformer_paper import naive
from roughformer_paper.datasets import data_root, heart_rate_split, load_heart_rate, make_sine
from roughformer_paper.naive import (
    fourier_features,
    lomb_scargle,
    most_frequent,
    nearest_neighbour,
    periodogram,
    r_peak_rate,
    raw_features,
    training_mean,
)


def test_the_mean_of_known_targets_is_said_of_every_series():
    np.testing.assert_array_equal(training_mean([1.0, np.nan, 5.0], 2), [3.0, 3.0])
    np.testing.assert_array_equal(training_mean([[1, 2], [3, 6]], 2), [[2, 4], [2, 4]])
    assert training_mean([1.0], 0).shape == (0,)
    with pytest.raises(InputError, match="at least one training target"):
        training_mean([], 3)


def test_the_most_frequent_class_is_said_of_every_series():
    assert most_frequent(["b", "a", "b"], 2).tolist() == ["b", "b"]
    assert most_frequent([2, 1], 1).tolist() == [1]
    with pytest.raises(InputError, match="at least one training label"):
        most_frequent([], 3)


def test_the_nearest_neighbour_is_scikit_learns():
    rng = np.random.default_rng(0)
    train, asked, y = rng.normal(size=(50, 4)), rng.normal(size=(20, 4)), np.arange(50)
    expected = y[pairwise_distances_argmin(asked, train)]
    np.testing.assert_array_equal(nearest_neighbour(train, y, asked), expected)
    np.testing.assert_array_equal(nearest_neighbour(train, y, train), y)
    assert nearest_neighbour(train, y, asked[:0]).shape == (0,)
    with pytest.raises(InputError, match="as many targets as training rows"):
        nearest_neighbour(train, y[:3], asked)


def test_raw_features_are_the_values_on_an_even_grid():
    x = np.random.default_rng(0).normal(size=(3, 2, 7))
    batch = rf.SeriesBatch.from_numpy3d(x)
    np.testing.assert_allclose(raw_features(batch, 7), x.transpose(0, 2, 1).reshape(3, -1))
    assert raw_features(batch[:0], 5).shape == (0, 10)


def test_fourier_features_do_not_change_when_a_series_is_shifted_in_time_or_value():
    rng = np.random.default_rng(0)
    t, x = np.sort(rng.uniform(0, 5, 200)), rng.normal(size=(200, 2))
    batch = rf.SeriesBatch.from_arrays([x, x + 9.0, 0 * x], [t, t + 100.0, t])
    found = fourier_features(batch, np.arange(1, 20))
    assert found.shape == (3, 38)
    np.testing.assert_allclose(found[1], found[0], atol=1e-3)
    np.testing.assert_array_equal(found[2], np.zeros(38))


def irregular(n=3, seed=0):
    rng = np.random.default_rng(seed)
    times = [np.sort(rng.uniform(0, 10, rng.integers(30, 60))) for _ in range(n)]
    values = [rng.normal(size=(len(t), 2)) for t in times]
    for x in values:
        x[rng.random(x.shape) < 0.2] = np.nan
    return rf.SeriesBatch.from_arrays(values, times)


def oracle(batch, omega, c):
    found = []
    for b in range(len(batch)):
        t, x = batch.series(b)
        seen = ~np.isnan(x[:, c])
        y = x[seen, c] - x[seen, c].mean()
        found.append(np.atleast_1d(lombscargle(t[seen], y, omega)))
    return np.array(found)


@pytest.mark.parametrize(
    "omega",
    [np.linspace(0.3, 20, 50), np.linspace(1, 9, 4), np.array([3.0]), np.geomspace(1, 30, 9)],
)
def test_the_periodogram_is_scipys(omega):
    batch = irregular()
    for c in (0, 1):
        expected = oracle(batch, omega, c)
        np.testing.assert_allclose(lomb_scargle(batch, omega, c), expected, rtol=2e-3, atol=1e-3)
    assert lomb_scargle(batch[:0], omega).shape == (0, len(omega))


def test_on_one_shared_grid_it_is_the_same():
    x = np.random.default_rng(0).normal(size=(4, 1, 80))
    batch, omega = rf.SeriesBatch.from_numpy3d(x), np.linspace(0.2, 3, 30)
    expected = oracle(batch, omega, 0)
    np.testing.assert_allclose(lomb_scargle(batch, omega), expected, rtol=2e-3, atol=1e-3)


def test_in_blocks_is_at_once(monkeypatch):
    batch, omega = irregular(7), np.linspace(1, 9, 20)
    whole = lomb_scargle(batch, omega)
    monkeypatch.setattr("roughformer_paper.common._AT_ONCE", 130)
    np.testing.assert_allclose(lomb_scargle(batch, omega), whole, rtol=1e-4, atol=1e-5)


def test_a_series_without_variation_has_no_power():
    batch = rf.SeriesBatch.from_arrays([np.ones((5, 1)), np.zeros((1, 1))])
    np.testing.assert_array_equal(lomb_scargle(batch, [0.0, 1.0, 2.0]), np.zeros((2, 3)))


@pytest.mark.parametrize("drop", [0.0, 0.5, 0.85])
def test_the_sine_task_needs_no_learning(drop):
    batch, omega = make_sine(100, seed=5), np.linspace(10, 500, 100)
    thinned = batch.drop_points(drop, seed=1) if drop else batch
    np.testing.assert_array_equal(periodogram(thinned, omega), batch.labels)


def heart(bpm, seconds=32.0, rate=125.0, seed=0):
    """An ECG of sharp R and broad T waves, with drift and noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * rate)) / rate
    beats = np.arange(0.2, seconds + 2, 60 / bpm)
    x = np.exp(-0.5 * ((t[:, None] - beats) / 0.012) ** 2).sum(axis=1)
    x += 0.4 * np.exp(-0.5 * ((t[:, None] - beats - 0.25) / 0.05) ** 2).sum(axis=1)
    return t, x + 0.5 * np.sin(1.3 * t) + 0.02 * rng.normal(size=len(t))


# A slow heart with half of its points has a T wave or two among its beats.
@pytest.mark.parametrize(("drop", "within"), [(0.0, 0.002), (0.5, 0.02)])
def test_r_peaks_are_counted_at_any_rate_full_and_thinned(drop, within):
    bpm = np.array([45.0, 60.0, 88.3, 121.7, 170.0])
    made = [heart(rate, seed=i) for i, rate in enumerate(bpm)]
    batch = rf.SeriesBatch.from_arrays(
        [x[:, None] for _, x in made], [t for t, _ in made], channels=["ECG"]
    )
    thinned = batch.drop_points(drop, seed=0) if drop else batch
    np.testing.assert_allclose(r_peak_rate(thinned), bpm, rtol=within)


def test_a_missed_beat_and_an_irregular_rhythm_do_not_change_the_mean_rate():
    rng = np.random.default_rng(0)
    t = np.arange(4000) / 125
    beats = np.cumsum(rng.uniform(0.6, 0.9, 50))
    seen = np.delete(beats, 11)
    x = np.exp(-0.5 * ((t[:, None] - seen) / 0.012) ** 2).sum(axis=1)
    batch = rf.SeriesBatch.from_arrays([x[:, None]], [t])
    inside = np.diff(beats[beats < 31.9])
    np.testing.assert_allclose(r_peak_rate(batch, 0), 60 / inside.mean(), rtol=0.01)


def test_ragged_stretches_are_answered_as_alone():
    made = [heart(70, 20), heart(90, 32), heart(80, 8)]
    batch = rf.SeriesBatch.from_arrays([x[:, None] for _, x in made], [t for t, _ in made])
    together = r_peak_rate(batch, channel=0)
    alone = [r_peak_rate(batch[i], channel=0)[0] for i in range(3)]
    np.testing.assert_allclose(together, [70, 90, 80], rtol=0.01)
    np.testing.assert_allclose(together, alone, rtol=0.005)


def test_without_beats_no_rate_is_told():
    flat = rf.SeriesBatch.from_arrays([np.ones((500, 1)), np.ones((1, 1)), np.ones((2, 1))])
    assert np.isnan(r_peak_rate(flat, 0)).all()
    assert r_peak_rate(flat[:0], 0).shape == (0,)


@pytest.fixture(scope="module")
def recordings():
    """Some windows of the training recordings of BIDMC; the test part is for published tables."""
    pytest.importorskip("wfdb")
    named = os.environ.get("ROUGHFORMER_DATA") or Path(__file__).parents[2].parent / "shared/data"
    try:
        root = data_root("bidmc", named)
    except MissingDataError as error:
        pytest.skip(str(error))
    return load_heart_rate(root, verify=False)[heart_rate_split("patient")["train"][::25]]


@pytest.mark.parametrize("drop", [0.0, 0.5])
def test_on_real_hearts_half_of_the_errors_are_below_half_a_beat(recordings, drop):
    thinned = recordings.drop_points(drop, seed=0) if drop else recordings
    bpm = np.arange(40, 180.5, 0.5)
    peak = bpm[periodogram(thinned, 2 * np.pi * bpm / 60, "PPG")]
    for found in (r_peak_rate(thinned), peak):
        assert np.median(np.abs(found - recordings.labels)) < 0.5


def test_what_cannot_be_is_refused_with_words():
    batch = irregular()
    with pytest.raises(InputError, match="there is no channel 'ECG'; channels are x0, x1"):
        r_peak_rate(batch)
    with pytest.raises(InputError, match="channel must be a whole number from 0 to 1, got 2"):
        lomb_scargle(batch, [1.0], 2)
    with pytest.raises(InputError, match="frequencies must be finite"):
        lomb_scargle(batch, [np.nan])
    with pytest.raises(InputError, match="rate must be a positive number of points per second"):
        r_peak_rate(batch, 0, rate=0)


def test_sizes_of_the_fourier_transform_are_those_of_the_linear_path():
    rng = np.random.default_rng(3)
    times = [np.cumsum(rng.uniform(0.1, 0.4, n)) for n in (30, 17)]
    values = [rng.normal(size=(len(t), 2)) + 5 for t in times]
    batch = rf.SeriesBatch.from_arrays(values, times)
    omega = np.array([0.7, 2.0, 5.5])
    found = naive.fourier_features(batch, omega, log=False).reshape(2, 2, 3)
    for b, (t, x) in enumerate(zip(times, values, strict=True)):
        fine = np.linspace(t[0], t[-1], 200_001)
        for c in range(2):
            path = np.interp(fine, t, x[:, c] - x[:, c].mean())
            wave = np.exp(1j * omega[:, None] * (fine - t[0]))
            size = np.abs(np.trapezoid(wave * path, fine, axis=1))
            np.testing.assert_allclose(found[b, c], size / np.sqrt((size**2).sum()), rtol=1e-4)
