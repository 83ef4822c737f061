"""Dropped points: by mask, by rate and seed, or before the call, the tokens are the same."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import roughformer as rf
from reference import assert_within, cuts_for, make_batch
from roughformer.series import keep_mask

pytestmark = pytest.mark.filterwarnings("ignore::roughformer.UnobservedWarning")
seeds = st.integers(0, 2**32)
fractions = st.sampled_from([0.1, 0.5, 0.8, 0.99])
LIFTS = [
    [],
    ["time"],
    ["time", "basepoint"],
    ["counts"],
    ["time", rf.Lag(0.7)],
    [rf.Lag(0.3), "counts", "basepoint"],
    [rf.Clock(2)],
    {"global": ["time"], "local": ["counts", rf.Clock(1)]},
]


@given(
    lengths=st.lists(st.integers(1, 100), min_size=1, max_size=6),
    fraction=st.floats(0.0, 0.999),
    seed=st.integers(-(2**40), 2**63),
)
def test_a_mask_drops_the_rounded_fraction_and_keeps_the_ends(lengths, fraction, seed):
    mask = keep_mask(lengths, fraction, seed)
    for part, n in zip(np.split(mask, np.cumsum(lengths)[:-1]), lengths, strict=True):
        assert part[0]
        assert part[-1]
        want = min(int(np.floor(fraction * n + 0.5)), max(n - 2, 0))
        assert (~part).sum() == want
    np.testing.assert_array_equal(mask, keep_mask(lengths, fraction, seed))


@given(lengths=st.lists(st.integers(1, 50), min_size=2, max_size=6), seed=seeds)
def test_a_series_loses_the_same_points_in_any_company(lengths, seed):
    parts = np.split(keep_mask(lengths, 0.5, seed), np.cumsum(lengths)[:-1])
    for b, n in enumerate(lengths):
        np.testing.assert_array_equal(keep_mask([n], 0.5, seed, series=[b]), parts[b])


def test_every_inner_point_is_as_likely_to_stay_as_any_other():
    masks = np.stack([keep_mask([12], 0.5, seed) for seed in range(4000)])
    share = masks[:, 1:-1].mean(axis=0)  # 4 of 10 inner points stay
    # five standard deviations of a share of 4000
    assert np.abs(share - 0.4).max() < 5 * np.sqrt(0.4 * 0.6 / 4000)
    pairs = masks[:, 1:-2] & masks[:, 2:-1]
    assert np.abs(pairs.mean(axis=0) - 0.4 * 3 / 9).max() < 5 * np.sqrt(0.13 * 0.87 / 4000)


def test_seeds_and_series_make_a_difference():
    one = keep_mask([200, 200], 0.5, seed=1)
    assert not np.array_equal(one, keep_mask([200, 200], 0.5, seed=2))
    assert not np.array_equal(one, keep_mask([200, 200], 0.5, seed=1 + 2**32))
    assert not np.array_equal(one[:200], one[200:])


@given(
    seed=seeds,
    fraction=fractions,
    lifts=st.sampled_from(LIFTS),
    longest=st.sampled_from([1, 3, 12, 150]),
    nan=st.sampled_from([0.0, 0.0, 0.3]),
    dtype=st.sampled_from([np.float32, np.float64]),
    shared=st.booleans(),
    transform=st.sampled_from(["signature", "logsignature"]),
)
def test_mask_rate_and_thinned_batch_give_the_same_tokens(
    engine, seed, fraction, lifts, longest, nan, dtype, shared, transform
):
    batch = make_batch(seed, 5, 2, longest, dtype, shared, nan)
    cuts = cuts_for(seed, batch)
    mask = keep_mask(batch.lengths, fraction, seed % 1000)
    options = {"lifts": lifts, "transform": transform, "engine": engine}
    before = rf.multiview_signature(batch.drop_points(mask=mask), cuts, 2, **options)
    by_mask = rf.multiview_signature(batch, cuts, 2, keep=mask, **options)
    by_rate = rf.multiview_signature(batch, cuts, 2, drop=fraction, seed=seed % 1000, **options)
    np.testing.assert_array_equal(by_rate, by_mask)
    # Level 1 and 2 of a series side by side: the largest token is the scale of both.
    largest = np.abs(before).max(axis=(1, 2), keepdims=True, initial=1e-3)
    assert_within(by_mask, before, np.broadcast_to(largest, before.shape), dtype)


@given(
    seed=seeds,
    size=st.sampled_from([(1, 3), (2, 4), (3, 2), (3, 5), (9, 2)]),
    fraction=fractions,
    longest=st.sampled_from([2, 40, 200]),
    by_mask=st.booleans(),
)
def test_both_engines_skip_the_same_points(native, seed, size, fraction, longest, by_mask):
    d, n = size
    batch = make_batch(seed, 6, d, longest, shortest=longest // 2)
    # A path near the unit cube, so that all levels are of one size.
    batch = rf.SeriesBatch(batch.times, batch.values / np.sqrt(longest) / d, batch.offsets)
    how = {"drop": fraction, "seed": seed}
    if by_mask:
        how = {"keep": keep_mask(batch.lengths, fraction, seed)}
    cuts = cuts_for(seed, batch)
    found = rf.multiview_signature(batch, cuts, n, engine=native, **how)
    want = rf.multiview_signature(batch, cuts, n, engine="torch", **how)
    largest = np.abs(want).max(axis=(1, 2), keepdims=True, initial=1e-3)
    assert_within(found, want, np.broadcast_to(largest, want.shape), np.float64)


def test_a_dropped_observation_does_not_show_through_a_gap(engine):
    nan = np.nan
    x = np.array([[0.0], [100.0], [nan], [nan], [0.0]])
    batch = rf.SeriesBatch.from_arrays([x])
    mask = np.array([True, False, True, True, True])
    for lifts in ([], [rf.Lag(1.0)], [rf.Clock(1)]):
        found = rf.multiview_signature(batch, 4, 1, keep=mask, lifts=lifts, engine=engine)
        assert not found.any()


def test_a_dropped_observation_is_not_counted(engine):
    batch = rf.SeriesBatch.from_arrays([np.zeros((5, 1))])
    mask = np.array([True, False, True, True, True])
    found = rf.multiview_signature(
        batch, [0, 4], 1, "local", keep=mask, lifts=["counts"], engine=engine
    )
    np.testing.assert_allclose(found[0, 0], [0, 3])


def test_only_the_ends_left_make_a_straight_line(engine):
    batch = make_batch(0, n_series=3, longest=70, shortest=40)
    found = rf.multiview_signature(batch, 5, 2, "local", drop=0.999, seed=1, engine=engine)
    for b in range(3):
        x = batch.series(b)[1]
        np.testing.assert_allclose(found[b, :, :2], np.tile((x[-1] - x[0]) / 5, (5, 1)), rtol=1e-9)


def test_nothing_dropped_is_nothing_changed(engine):
    batch = make_batch(0, n_series=3, longest=40)
    want = rf.multiview_signature(batch, 5, 3, engine=engine)
    for how in ({"drop": 0.0}, {"keep": np.ones(batch.n_points, bool)}):
        found = rf.multiview_signature(batch, 5, 3, engine=engine, **how)
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-12)


def test_a_mask_of_a_padded_tensor_has_one_entry_per_point_of_the_series(engine):
    x = torch.randn(3, 8, 2, dtype=torch.float64)
    lengths = [8, 5, 3]
    batch = rf.SeriesBatch.from_tensor(x, lengths=lengths)
    mask = keep_mask(lengths, 0.4, 0)
    found = rf.multiview_signature(x, 3, 2, lengths=lengths, keep=mask, engine=engine)
    want = rf.multiview_signature(batch.drop_points(mask=mask), 3, 2, engine=engine)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("keep", "words"),
    [
        (np.ones(5), "must be bool of shape"),
        (np.ones(4, bool), r"of shape \(5,\)"),
        (np.array([False, True, True, True, True]), "first and last point of each series"),
        (np.array([True, True, True, True, False]), "first and last point of each series"),
    ],
    ids=["dtype", "shape", "first", "last"],
)
def test_masks_that_do_not_fit_are_refused(keep, words):
    batch = rf.SeriesBatch.from_arrays([np.zeros((5, 1))])
    with pytest.raises(rf.InputError, match=words):
        rf.multiview_signature(batch, 2, 2, keep=keep)


def test_a_mask_and_a_rate_together_are_refused():
    batch = rf.SeriesBatch.from_arrays([np.zeros((5, 1))])
    with pytest.raises(rf.InputError, match="keep= or drop=, not both"):
        rf.multiview_signature(batch, 2, 2, keep=np.ones(5, bool), drop=0.5)
