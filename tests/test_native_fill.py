"""Filling of gaps by the kernel is filling by the definition."""

import warnings
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import roughformer as rf
from roughformer.signatures import library

pytestmark = pytest.mark.skipif(library.load() is None, reason="no native library on this machine")


def gappy(seed, dtype, shared):
    rng = np.random.default_rng(seed)
    lengths = [9] * 4 if shared else rng.integers(1, 12, size=20)
    values = []
    for n in lengths:
        x = (rng.normal(size=(n, 3)) * 10.0 ** rng.integers(-3, 4)).astype(dtype)
        x[rng.random(x.shape) < rng.choice([0.0, 0.3, 0.9, 1.0])] = np.nan
        values.append(x)
    times = (
        np.sort(rng.uniform(0, 5, 9))
        if shared
        else [np.cumsum(rng.random(n) + 0.01) for n in lengths]
    )
    return rf.SeriesBatch.from_arrays(values, times)


@given(seed=st.integers(0, 2**32), shared=st.booleans(), thinned=st.booleans())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernel_and_definition_fill_alike(dtype, seed, shared, thinned):
    batch = gappy(seed, dtype, shared)
    keep = np.random.default_rng(seed + 1).random(batch.n_points) < 0.6 if thinned else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rf.UnobservedWarning)
        found = rf.fill_gaps(batch, keep, 2)
        with mock.patch.object(library, "load", return_value=None):
            want = rf.fill_gaps(batch, keep)
    size = np.abs(want).max(axis=0)
    assert (np.abs(found - want) <= max(1e-11, 2 * np.finfo(dtype).eps) * size).all()
    seen = ~np.isnan(batch.values) if keep is None else ~np.isnan(batch.values) & keep[:, None]
    np.testing.assert_array_equal(found[seen], batch.values[seen])
    np.testing.assert_array_equal(want[seen], batch.values[seen])


def test_kernel_says_which_channels_were_never_observed():
    batch = rf.SeriesBatch.from_numpy3d([[[1.0, np.nan], [np.nan, np.nan]]], channels=["a", "b"])
    with pytest.warns(rf.UnobservedWarning, match="channel 'b' in 1 of 1 series"):
        rf.fill_gaps(batch)
