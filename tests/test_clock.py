"""Clock words: the native kernel against torch, where its shortcuts begin and end."""

import numpy as np
import pytest

import roughformer as rf
from reference import make_batch
from roughformer.signatures import library

native = pytest.mark.skipif(library.load() is None, reason="no native library on this machine")


def both(batch, windows, view, clock, **options):
    ask = {"depth": 1, "views": view, "lifts": [clock], "dtype": "float64", **options}
    fast = rf.multiview_signature(batch, windows, engine="native", **ask)
    return fast, rf.multiview_signature(batch, windows, engine="torch", **ask)


@native
@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
@pytest.mark.parametrize("view", ["global", "local"])
@pytest.mark.parametrize("count", [1, 5, 16, 33])
def test_native_words_are_those_of_torch(isa, view, count):
    lib = library.load()
    before = lib.rf_isa()
    if not lib.rf_set_isa(isa.encode()):
        pytest.skip(f"this processor has no {isa}")
    try:
        batch = make_batch(4, n_series=6, n_channels=2, longest=40)
        fast, slow = both(batch, 5, view, rf.Clock(count))
    finally:
        lib.rf_set_isa(before)
    np.testing.assert_allclose(fast, slow, atol=1e-10)


@native
@pytest.mark.parametrize("omega", [0.0, 1e-9, 0.3, 50.0, 1e4, -7.0])
def test_any_frequency_is_exact_on_long_and_short_pieces(omega):
    t = np.cumsum([0.0, 1e-6, 1e-3, 1.0, 30.0, 1e-3])
    x = np.array([0.0, 2.0, -1.0, 0.5, 4.0, 3.0])
    found = rf.multiview_signature(
        [x[:, None]], 1, 1, "local", times=[t], lifts=[rf.Clock(frequencies=[omega])]
    )[0, 0, 1:]
    slope = np.diff(x) / np.diff(t)
    if omega == 0:
        want = [x[-1] - x[0], 0.0]
    else:  # sin b - sin a without cancellation
        middle, half = (t[1:] + t[:-1]) / 2, np.diff(t) / 2
        factor = slope * 2 * np.sin(omega * half) / omega
        want = [(factor * np.cos(omega * middle)).sum(), (factor * np.sin(omega * middle)).sum()]
    np.testing.assert_allclose(found, want, atol=1e-9)


@native
def test_regular_sampling_reuses_its_factor_without_changing_the_result():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 1, 200)).cumsum(axis=2)
    grid = 1.7e9 + np.arange(200) / 125
    jittered = grid + np.where(np.arange(200) % 7 == 3, 1e-3, 0.0)
    for times in (grid, jittered):
        fast, slow = both(rf.SeriesBatch.from_numpy3d(x, times), 3, "local", rf.Clock(20))
        np.testing.assert_allclose(fast, slow, atol=1e-6)


@native
def test_float32_words_agree_with_float64():
    batch = make_batch(1, n_series=5, n_channels=3, longest=300)
    single = rf.SeriesBatch.from_arrays(
        [batch.series(i)[1].astype(np.float32) for i in range(5)],
        [batch.series(i)[0] for i in range(5)],
    )
    options = {"windows": 4, "depth": 1, "views": "global", "lifts": [rf.Clock(64, spacing=0.5)]}
    found = rf.multiview_signature(single, **options)
    want = rf.multiview_signature(single, **options, dtype="float64")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, want, atol=2e-5 * np.abs(want).max())


@native
@pytest.mark.parametrize("view", ["global", "local"])
def test_windows_begin_and_end_on_points_between_them_and_outside(view):
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 40, 60)
    times = [1.7e9 + np.cumsum(rng.integers(1, 4, n)) / 8 for n in lengths]
    batch = rf.SeriesBatch.from_arrays([rng.normal(size=(n, 2)) for n in lengths], times)
    cuts = [t[0] + np.sort(rng.choice(np.arange(-8, 200), 13, replace=False)) / 16 for t in times]
    fast, slow = both(batch, rf.Windows.explicit(cuts), view, rf.Clock(3))
    np.testing.assert_allclose(fast, slow, atol=1e-10)
    options = {"depth": 1, "views": view, "lifts": [rf.Clock(300)], "dtype": "float64"}
    alone, shared = (rf.multiview_signature(batch, 50, **options, threads=n) for n in (1, 3))
    assert np.array_equal(alone, shared)
