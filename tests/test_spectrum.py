"""Whole-path clock words by FFT: the plain words are the oracle, on even and on any frequencies."""

import numpy as np
import pytest
import torch

import roughformer as rf
from reference import make_batch
from roughformer.series import keep_mask
from roughformer.signatures import library, spectrum
from roughformer.signatures.points import Dropping
from roughformer.signatures.spectrum import PAD, bump_of, plan_for, spectrum_words

TOLERANCE = {np.float32: 1e-5, np.float64: 1e-9}
EVEN = 0.2 * np.arange(1, 201)
LOG = np.geomspace(0.02, 30.0, 150)
GRIDS = {
    "even": EVEN,
    "even, from 40 on": EVEN[40:],
    "even, from a half": 0.2 * (np.arange(120) + 0.5),
    "even, from a third of a step": 0.2 * (np.arange(120) + 1 / 3),
    "even, with gaps": EVEN[[3, 8, 9, 50, 120]],
    "even, wider than the path is short": 3.0 * np.arange(1, 30),
    "log": LOG,
    "linear, from anywhere": np.linspace(0.731, 33.0, 140),
    "with zero": np.concatenate([[0.0], LOG]),
    "even with zero": 0.2 * np.arange(100),
    "negative": np.concatenate([-LOG[::-1], LOG]),
    "negative, even": 0.2 * np.arange(-60, 61),
    "unordered and twice": np.array([3.0, 0.1, 3.0, 7.7]),
    "one": np.array([2.5]),
    "one, slow": np.array([1e-7]),
}


@pytest.fixture(params=["fast", "chosen"])
def route(request, monkeypatch):
    """``fast``: the grid serves even where the plain sum would be cheaper."""
    if rf.engine_info()["engine"] != "native":
        pytest.skip("the fast route is the native engine's")
    if request.param == "fast":
        always_fast(monkeypatch)
    return request.param


def always_fast(monkeypatch):
    def choose(batch, omega, drop, kind):
        duration = max(np.ptp(batch.series(b)[0]) for b in range(len(batch)))
        if duration == 0 or not omega.any():
            return None
        return plan_for(omega, duration, kind == np.float64)

    monkeypatch.setattr(spectrum, "_choose", choose)


def plain(batch, omega, **options):
    n, c, j = len(batch), batch.n_channels, len(omega)
    words = rf.multiview_signature(
        batch, 1, 1, "local", lifts=[rf.Clock(frequencies=omega)], dtype="float64", **options
    )
    return words[:, 0, -2 * j * c :].reshape(n, c, j, 2)


def assert_words(found, want):
    scale = np.abs(want).max(axis=(2, 3), keepdims=True)
    worst = np.abs(found - want) - TOLERANCE[found.dtype.type] * scale
    assert found.shape == want.shape
    assert (worst <= 1e-30).all(), (np.abs(found - want) / np.maximum(scale, 1e-300)).max()


@pytest.mark.parametrize("omega", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("drop", [0.0, 0.5])
def test_words_are_the_plain_ones_on_ragged_irregular_series(route, omega, dtype, drop):
    batch = make_batch(3, n_series=9, n_channels=2, longest=150, shortest=1)
    found = spectrum_words(batch, omega, drop=drop, seed=5, dtype=dtype)
    assert found.dtype == dtype
    assert_words(found, plain(batch, omega, drop=drop, seed=5))


@pytest.mark.parametrize("omega", [EVEN, LOG], ids=["even", "log"])
def test_every_instruction_set_gives_the_words(instruction_set, monkeypatch, omega):
    always_fast(monkeypatch)
    batch = make_batch(1, n_series=19, n_channels=3, longest=90, shortest=40, dtype=np.float32)
    for dtype in (np.float32, np.float64):
        found = spectrum_words(batch, omega, drop=0.3, seed=1, dtype=dtype)
        assert_words(found, plain(batch, omega, drop=0.3, seed=1))


@pytest.mark.parametrize("kind", ["noise", "walk"])
@pytest.mark.parametrize("top", [60.0, 5.0, 0.2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_epoch_stamps_and_slow_frequencies_lose_nothing(native, kind, top, dtype):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 2, 4000)).astype(np.float32)
    x = np.cumsum(x, axis=2) if kind == "walk" else x
    batch = rf.SeriesBatch.from_numpy3d(x, 1.7e9 + np.arange(4000) / 125)
    omega = 2 * np.pi * np.geomspace(top / 100, top, 200)
    for drop in (0.0, 0.5):
        found = spectrum_words(batch, omega, drop=drop, dtype=dtype)
        assert_words(found, plain(batch, omega, drop=drop))


def test_dropping_by_rate_is_dropping_before(route):
    batch = make_batch(7, n_series=20, n_channels=1, longest=300, shortest=2)
    found = spectrum_words(batch, EVEN, drop=0.6, seed=9, dtype=np.float64)
    before = batch.drop_points(0.6, seed=9)
    assert_words(found, spectrum_words(before, EVEN, dtype=np.float64))


@pytest.mark.parametrize("drop", [0.0, 0.4])
@pytest.mark.filterwarnings("ignore::roughformer.UnobservedWarning")
def test_gaps_are_filled_between_what_is_kept(route, drop):
    batch = make_batch(2, n_series=8, n_channels=3, longest=120, shortest=2, nan=0.4)
    found = spectrum_words(batch, LOG, drop=drop, seed=2, series=np.arange(8) + 11)
    mask = keep_mask(batch.lengths, drop, 2, series=np.arange(8) + 11)
    assert_words(found, plain(batch, LOG, keep=mask))


def test_a_part_is_thinned_as_in_the_whole(route):
    batch = make_batch(5, n_series=30, n_channels=2, longest=200, shortest=50)
    whole = spectrum_words(batch, EVEN, drop=0.5, seed=4, dtype=np.float64)
    numbers = np.array([28, 3, 17])
    part = spectrum_words(batch[numbers], EVEN, drop=0.5, seed=4, series=numbers, dtype=np.float64)
    assert_words(part, whole[numbers])
    assert not np.allclose(part, spectrum_words(batch[numbers], EVEN, drop=0.5, seed=4))


@pytest.mark.parametrize("omega", [EVEN, LOG], ids=["even", "log"])
def test_any_number_of_threads_gives_the_same_bits(route, omega):
    batch = make_batch(6, n_series=50, n_channels=2, longest=200)
    want = spectrum_words(batch, omega, drop=0.5, threads=1)
    before = torch.get_num_threads()
    try:
        for threads in (2, 3, 8):
            torch.set_num_threads(min(threads, 2))
            found = spectrum_words(batch, omega, drop=0.5, threads=threads)
            np.testing.assert_array_equal(found, want)
    finally:
        torch.set_num_threads(before)


def test_many_chunks_are_one_batch(route, monkeypatch):
    batch = make_batch(6, n_series=23, n_channels=2, longest=100)
    want = spectrum_words(batch, LOG, drop=0.5)
    monkeypatch.setattr(spectrum, "_CHUNK", 20000)
    np.testing.assert_allclose(spectrum_words(batch, LOG, drop=0.5), want, atol=1e-6)


def test_a_shared_grid_of_times_is_read_in_place(route):
    batch = make_batch(8, n_series=6, longest=130, shared=True)
    assert batch.grid is not None
    for drop in (0.0, 0.5):
        found = spectrum_words(batch, LOG, drop=drop, dtype=np.float64)
        assert_words(found, plain(batch, LOG, drop=drop))


def test_jumps_between_points_a_hair_apart_are_exact(route):
    t = np.cumsum([0.0, 1.0, 1e-12, 2.0, 1e-7, 1e-5, 1e-3, 0.5, 4.0])
    x = np.array([0.0, 1.0, 5.0, 4.0, -3.0, 2.0, 2.5, 0.0, 1.0])[:, None]
    batch = rf.SeriesBatch.from_arrays([x], [t])
    for omega in (EVEN, LOG):
        found = spectrum_words(batch, omega, dtype=np.float64)
        assert_words(found, plain(batch, omega))


def test_the_zero_frequency_is_the_increment(route):
    batch = make_batch(9, n_series=5, n_channels=2, longest=60, shortest=2)
    found = spectrum_words(batch, 0.3 * np.arange(40), drop=0.5, dtype=np.float64)
    want = [batch.series(b)[1][-1] - batch.series(b)[1][0] for b in range(5)]
    np.testing.assert_allclose(found[:, :, 0, 0], want, rtol=1e-12)
    assert not found[:, :, 0, 1].any()
    still = spectrum_words(batch, [0.0, 0.0], dtype=np.float64)
    np.testing.assert_allclose(still[:, :, 0, 0], want, rtol=1e-12)


def test_series_of_one_point_and_empty_batches_have_no_words(engine):
    ones = rf.SeriesBatch.from_arrays([np.ones((1, 2)), np.full((1, 2), 3.0)], layout="time_first")
    for omega in (EVEN, LOG, [1.0]):
        found = spectrum_words(ones, omega, engine=engine)
        assert found.shape == (2, 2, len(omega), 2)
        assert not found.any()
        none = spectrum_words(make_batch(0, 0, 3), omega, drop=0.5, engine=engine)
        assert none.shape == (0, 3, len(omega), 2)
        assert none.dtype == np.float32


def test_the_torch_engine_gives_the_same_words():
    batch = make_batch(4, n_series=5, n_channels=2, longest=60, nan=0.1, shortest=20)
    for dtype in (np.float32, np.float64):
        found = spectrum_words(batch, LOG, drop=0.4, seed=1, engine="torch", dtype=dtype)
        assert found.dtype == dtype
        assert_words(found, plain(batch, LOG, drop=0.4, seed=1))


def test_inputs_are_left_alone(route):
    batch = make_batch(4, n_series=5, longest=60)
    values, times, omega = batch.values.copy(), batch.times.copy(), -LOG
    asked = omega.copy()
    spectrum_words(batch, omega, drop=0.5)
    np.testing.assert_array_equal(batch.values, values)
    np.testing.assert_array_equal(batch.times, times)
    np.testing.assert_array_equal(omega, asked)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"frequencies": []}, "at least one"),
        ({"frequencies": [[1.0]]}, "one dimension"),
        ({"frequencies": [1.0, np.nan]}, "finite"),
        ({"frequencies": [np.inf]}, "finite"),
        ({"frequencies": ["a"]}, "must be numbers"),
        ({"drop": 1.0}, r"in \[0, 1\)"),
        ({"threads": 0}, "threads must be"),
        ({"dtype": np.int32}, "dtype must be float32 or float64"),
        ({"engine": "gpu"}, "engine must be"),
        ({"series": [1, 2]}, "series must be 3 whole numbers"),
        ({"series": [0.5, 1, 2]}, "series must be 3 whole numbers"),
        ({"series": [-1, 1, 2]}, "from 0 to"),
        ({"seed": 0.5, "drop": 0.5}, "seed"),
    ],
)
def test_wrong_arguments_are_refused_with_words(wrong, words):
    batch = make_batch(0, n_series=3, longest=20)
    options = {"frequencies": LOG, **wrong}
    with pytest.raises(rf.InputError, match=words):
        spectrum_words(batch, **options)


# ---- what it stands on -------------------------------------------------------------------------


def test_the_kernel_draws_the_mask_of_the_rule(native):
    lengths = np.array([1, 2, 3, 31, 32, 33, 64, 100, 1000, 7, 5, 5, 5, 5, 5, 5, 5, 90])
    for drop in (0.1, 0.5, 0.97):
        dropping = Dropping(None, drop, 12, np.arange(len(lengths)) * 7)
        found = library.thin(lengths, drop, dropping.keys(len(lengths)))
        np.testing.assert_array_equal(found, keep_mask(lengths, drop, 12, dropping.series))
    assert len(library.thin(lengths[:0], 0.5, dropping.keys(0)[:0])) == 0


@pytest.mark.parametrize("lifts", [[], ["time", rf.Lag(0.4)], [rf.Clock(3)]])
@pytest.mark.parametrize("nan", [0.0, 0.2])
def test_signatures_of_a_part_are_thinned_as_in_the_whole(engine, lifts, nan):
    batch = make_batch(5, n_series=12, n_channels=2, longest=60, shortest=30, nan=nan)
    options = {"windows": 3, "lifts": lifts, "drop": 0.5, "seed": 6, "engine": engine}
    whole = rf.multiview_signature(batch, **options)
    numbers = [11, 4]
    part = rf.multiview_signature(batch[numbers], series=numbers, **options)
    np.testing.assert_allclose(part, whole[numbers], rtol=1e-12, atol=1e-12)
    with pytest.raises(rf.InputError, match="series must be 12 whole numbers"):
        rf.multiview_signature(batch, series=numbers, **options)


@pytest.mark.parametrize(("width", "error"), [(8, 4e-7), (16, 1e-12)])
def test_the_bump_has_unit_area_and_its_step_rises_from_0_to_1(width, error):
    bump = bump_of(width)
    x = (np.arange(width * 2000) + 0.5) / 2000 - width / 2
    theta = np.linspace(0, np.pi / 2, 7)
    want = (bump(x)[:, None] * np.cos(x[:, None] * theta)).mean(axis=0) * width
    np.testing.assert_allclose(bump.transform(theta), want, rtol=1e-6)
    ends = bump.step.sum(axis=0), (bump.step.T * (-1.0) ** np.arange(bump.degree + 1)).sum(axis=1)
    np.testing.assert_allclose(ends[0][:-1], ends[1][1:], atol=1e-10)  # at z = 1 and z = 0
    assert abs(ends[0][PAD + width - 1] - 1) < 1e-10
    # What folds onto the used half of the band, relative to what belongs there.
    folded = abs((bump(x)[:, None] * np.cos(x[:, None] * (2 * np.pi - theta))).mean(axis=0) * width)
    assert (folded / bump.transform(theta)).max() < error


def test_an_engine_that_is_not_there_is_replaced_by_torch(monkeypatch):
    monkeypatch.setattr(library, "load", lambda: None)
    batch = make_batch(4, n_series=3, longest=30)
    found = spectrum_words(batch, LOG, drop=0.5, dtype=np.float64)
    assert_words(found, plain(batch, LOG, drop=0.5, engine="torch"))
