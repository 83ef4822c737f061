"""Made-up pulses: the rate is in the signal, and what is asked is what comes."""

import numpy as np
import pytest
from scipy.signal import find_peaks

from roughformer.errors import InputError
from roughformer.serve.pulse import Disturbance, make_pulse, pulse_signal


def peaks(ecg):
    """Number of R peaks: what stands out of the 0.12 s around it."""
    x = ecg - np.convolve(ecg, np.full(15, 1 / 15), "same")
    return len(find_peaks(x, height=0.5 * np.quantile(x, 0.995), distance=30)[0])


@pytest.mark.parametrize("bpm", [45.0, 72.0, 150.0])
def test_there_are_as_many_beats_as_the_rate_says(bpm):
    t = np.arange(60 * 125) / 125
    for seed in range(3):
        ecg = pulse_signal(t, np.full(len(t), bpm), seed)[:, 1]
        assert abs(peaks(ecg) - bpm) <= 1


def test_a_changing_rate_has_its_integral_of_beats():
    t = np.arange(90 * 125) / 125
    rate = 60 + t
    ecg = pulse_signal(t, rate, seed=4)[:, 1]
    assert abs(peaks(ecg) - (60 * 90 + 90**2 / 2) / 60) <= 1


def test_both_channels_repeat_with_the_period_of_the_rate():
    t = np.arange(40 * 125) / 125
    values = pulse_signal(t, np.full(len(t), 75.0), seed=1)  # 100 samples a beat
    for channel in (0, 1):
        x = values[:, channel]
        x = (x - np.convolve(x, np.full(100, 0.01), "same"))[100:-100]  # without breathing
        alike = {lag: np.corrcoef(x[lag:], x[:-lag])[0, 1] for lag in (50, 100, 150, 200)}
        assert min(alike[100], alike[200]) > 0.6
        assert max(alike[50], alike[150]) < 0.4


def test_a_channel_that_is_off_is_not_observed_and_the_other_stays_as_it_was():
    t = np.arange(20 * 125) / 125
    rate = np.full(len(t), 70.0)
    plain = pulse_signal(t, rate, 3)
    off = pulse_signal(t, rate, 3, (Disturbance("PPG", 5.0, 8.0, "off"),))
    inside = (t >= 5) & (t < 8)
    np.testing.assert_array_equal(np.isnan(off[:, 0]), inside)
    np.testing.assert_array_equal(off[:, 1], plain[:, 1])
    moved = pulse_signal(t, rate, 3, (Disturbance("ECG", 5.0, 8.0),))
    np.testing.assert_array_equal(moved[~inside], plain[~inside])
    assert np.abs(moved[inside, 1] - plain[inside, 1]).max() > 0.3


def test_labels_are_mean_rates_and_series_last_as_asked():
    batch = make_pulse(30, 10.0, seed=2, low=50, high=120, shortest=4.0)
    start, end = batch.span
    assert set(end - start) <= set(np.arange(4.0, 11.0))
    assert len(set(end - start)) > 2
    assert batch.channels == ("PPG", "ECG")
    assert batch.values.dtype == np.float32
    assert (np.asarray(batch.labels) > 20).all()
    assert (np.asarray(batch.labels) < 300).all()
    assert make_pulse(1, 10.0, disturbed=0.0).lengths.tolist() == [1251]


def test_a_series_depends_on_its_seed_and_number_alone():
    few, many = make_pulse(2, 4.0, seed=5), make_pulse(6, 4.0, seed=5)
    assert many[:2].equals(few)
    assert not np.array_equal(make_pulse(2, 4.0, seed=6).labels, few.labels)


@pytest.mark.parametrize("size", [0, 1])
def test_no_and_one_moment_are_fine(size):
    assert pulse_signal(np.zeros(size), np.full(size, 60.0), 0).shape == (size, 2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: make_pulse(0), "n_samples must be at least 1"),
        (lambda: make_pulse(1, 10.0, shortest=20.0), "shortest <= seconds"),
        (lambda: make_pulse(1, 0.5), "shortest <= seconds"),
        (lambda: make_pulse(1, low=90, high=80), "low <= high"),
        (lambda: make_pulse(1, disturbed=1.5), "a share from 0 to 1"),
        (lambda: pulse_signal([0, 1], [60], 0), "one shape"),
        (lambda: pulse_signal([0, 1], [60, np.nan], 0), "positive and finite"),
        (lambda: pulse_signal([0], [60], 0, (Disturbance("x", 0, 1),)), "PPG or ECG"),
        (lambda: pulse_signal([0], [60], 0, (Disturbance("ECG", 0, 1, "x"),)), "'motion' or 'off'"),
    ],
)
def test_what_makes_no_sense_is_refused(call, words):
    with pytest.raises(InputError, match=words):
        call()
