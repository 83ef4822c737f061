"""A signature depends on its own path only: not on other series, padding, threads or units."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import roughformer as rf
from reference import (
    assert_tokens_close,
    assert_within,
    cuts_for,
    fill,
    level_bounds,
    make_batch,
    variations,
)
from signature_cases import cases, rebuilt, seeds


@given(case=cases(n_series=(2, 5, 19)), drop=st.sampled_from([0.0, 0.5]))
def test_a_series_does_not_see_the_others_of_its_batch(engine, case, drop):
    batch, n, seed = case
    cuts = cuts_for(seed, batch)
    keep = rf.SeriesBatch(batch.times, batch.values, batch.offsets)  # same batch, no shared grid
    mask = np.random.default_rng(seed).random(batch.n_points) >= drop
    mask[batch.offsets[:-1]] = mask[batch.offsets[1:] - 1] = True
    together = rf.multiview_signature(keep, cuts, n, "local", keep=mask, engine=engine)
    scale = variations(keep.drop_points(mask=mask), cuts)
    for b in range(0, len(batch), 3):
        rows = slice(batch.offsets[b], batch.offsets[b + 1])
        alone = rf.multiview_signature(
            batch[b], cuts[b], n, "local", keep=mask[rows], engine=engine
        )
        w = len(cuts[b]) - 1
        assert_tokens_close(
            together[b, :w], alone[0], scale[b, :w], batch.n_channels, n, alone.dtype
        )
        np.testing.assert_array_equal(together[b, w:], 0)


@given(case=cases(n_series=(2, 5, 19)))
def test_what_stands_in_the_padding_of_a_tensor_does_not_matter(engine, case):
    batch, n, seed = case
    rng = np.random.default_rng(seed)
    lengths = batch.lengths
    x = rng.normal(size=(len(batch), lengths.max(), batch.n_channels)).astype(batch.values.dtype)
    x[...] = rng.choice([np.nan, np.inf, 1e30, 0.0])
    t = np.full(x.shape[:2], rng.choice([np.nan, 0.0, -1e30]))
    for b in range(len(batch)):
        t[b, : lengths[b]], x[b, : lengths[b]] = batch.series(b)
    found = rf.multiview_signature(
        torch.from_numpy(x), 3, n, times=torch.from_numpy(t), lengths=lengths, engine=engine
    )
    want = rf.multiview_signature(batch, 3, n, engine=engine)
    bound = np.broadcast_to(np.abs(want).max(axis=(1, 2), keepdims=True), want.shape)
    assert_within(found.numpy(), want, bound, want.dtype)


@given(case=cases(n_series=(2, 5, 19)))
def test_the_order_of_the_series_does_not_matter(engine, case):
    batch, n, seed = case
    order = np.random.default_rng(seed).permutation(len(batch))
    cuts = cuts_for(seed, batch)
    want = rf.multiview_signature(batch, cuts, n, "local", engine=engine)
    found = rf.multiview_signature(
        batch[order], [cuts[i] for i in order], n, "local", engine=engine
    )
    scale = variations(batch, cuts)[order]
    assert_tokens_close(found, want[order], scale, batch.n_channels, n, want.dtype)


@given(case=cases(), drop=st.sampled_from([0.0, 0.4]), seed=seeds)
def test_two_threads_give_the_same_bits_as_one(native, case, drop, seed):
    batch, n, _ = case
    options = {"lifts": ["time"], "drop": drop, "seed": seed, "engine": native}
    one = rf.multiview_signature(batch, 4, n, threads=1, **options)
    two = rf.multiview_signature(batch, 4, n, threads=2, **options)
    np.testing.assert_array_equal(one, two)


@given(case=cases(nan=0.4))
@pytest.mark.filterwarnings("ignore::roughformer.UnobservedWarning")
def test_a_missing_value_lies_on_the_line_between_its_channels_own_observations(engine, case):
    batch, n, seed = case
    parts = []
    for b in range(len(batch)):
        t, x = batch.series(b)
        parts.append(np.stack([fill(t, c) for c in x.T.astype(np.float64)], axis=1))
    dense = rebuilt(batch, np.concatenate(parts))
    cuts = cuts_for(seed, batch)
    want = rf.multiview_signature(dense, cuts, n, "local", engine=engine)
    found = rf.multiview_signature(batch, cuts, n, "local", engine=engine)
    # Filled values are as exact as values are: relative to their size, not to their differences.
    largest = np.abs(dense.values).max(initial=0.0) * batch.n_channels
    scale = variations(dense, cuts)
    scale = np.where(scale > 0, scale + largest, 0.0)
    assert_tokens_close(found, want, scale, batch.n_channels, n, found.dtype)


@given(case=cases(), drop=st.sampled_from([0.0, 0.5]))
def test_float32_results_are_float64_results_rounded(engine, case, drop):
    batch, n, seed = case
    options = {"drop": drop, "seed": seed, "lifts": ["time"], "engine": engine}
    exact = rf.multiview_signature(batch, 3, n, dtype="float64", **options)
    assert exact.dtype == np.float64
    precise = rf.multiview_signature(batch, 3, n, dtype="float32", precise=True, **options)
    assert precise.dtype == np.float32
    np.testing.assert_array_equal(precise, exact.astype(np.float32))


CLOCKS = [2.0**k for k in (-30, -20, -10, 0, 10, 20, 30)]  # 1e-9 ... 1e9


@given(seed=seeds, tick=st.sampled_from(CLOCKS), size=st.sampled_from([(1, 4), (2, 3), (3, 2)]))
def test_the_unit_and_the_origin_of_time_do_not_matter(engine, seed, tick, size):
    channels, n = size
    rng = np.random.default_rng(seed)
    ticks = np.cumsum(rng.integers(1, 50, size=(5, 40)), axis=1).astype(np.float64)
    x = torch.from_numpy(np.cumsum(rng.normal(size=(5, 40, channels)), axis=1).astype(np.float32))

    def tokens(times):
        return rf.multiview_signature(
            x, 7, n, times=times, lifts=["time"], engine=engine, drop=0.3, seed=1
        ).numpy()

    want = tokens(ticks)
    # A multiple of the tick near 1.7e9: the sums are exact as far as float64 can hold them.
    offset = np.floor(1.7e9 / tick) * tick if tick >= 2.0**-20 else 0.0
    stamps = ticks * tick + offset
    assert (np.diff(stamps, axis=1) == np.diff(ticks, axis=1) * tick).all()
    scale = np.abs(np.diff(x.numpy(), axis=1)).sum(axis=(1, 2))[:, None] + 1.0
    bound = level_bounds(np.repeat(scale, 7, axis=1), channels + 1, n)
    assert_within(tokens(stamps), want, np.concatenate([bound, bound], axis=-1), np.float32)


def test_nanosecond_dates_of_today_are_told_apart(engine):
    rng = np.random.default_rng(0)
    ticks = np.cumsum(rng.integers(1, 50, size=40))
    x = [np.cumsum(rng.normal(size=(40, 2)), axis=0).astype(np.float32)]
    dates = np.datetime64("2023-11-14T22:13:20", "ns") + ticks.astype("timedelta64[ns]")
    found = rf.multiview_signature(x, 5, 3, times=[dates], lifts=["time"], engine=engine)
    want = rf.multiview_signature(
        x, 5, 3, times=[ticks.astype(np.float64)], lifts=["time"], engine=engine
    )
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_a_large_offset_of_the_values_costs_no_digits_in_float64(engine):
    batch = make_batch(3, n_series=4, n_channels=2, longest=50)
    exact = np.round(batch.values * 1024) / 1024
    near = rf.multiview_signature(rebuilt(batch, exact), 6, 3, dtype="float32", engine=engine)
    far = rf.multiview_signature(rebuilt(batch, exact + 1e9), 6, 3, dtype="float32", engine=engine)
    np.testing.assert_allclose(far, near, rtol=1e-6, atol=1e-6)
