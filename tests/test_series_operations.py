"""SeriesBatch: parts, sums, thinning and filling agree with doing it series by series."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import roughformer as rf
from roughformer.errors import InputError
from roughformer.series import SeriesBatch, UnobservedWarning, blocks, keep_mask
from roughformer.signatures import library


def make(seed, n_series, n_channels, longest, nan=0.0, dtype=np.float64, shared=False):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, size=n_series)
    if shared:
        lengths[:] = longest
    grid = np.cumsum(rng.uniform(0.1, 1, size=longest))
    arrays, times = [], []
    for n in lengths:
        values = rng.normal(size=(n, n_channels)).astype(dtype)
        values[rng.random(values.shape) < nan] = np.nan
        arrays.append(values)
        times.append(np.cumsum(rng.uniform(0.1, 1, size=n)))
    return SeriesBatch.from_arrays(
        arrays,
        grid if shared else times,
        channels=[f"c{i}" for i in range(n_channels)],
        ids=np.arange(n_series) + 100,
        static=rng.normal(size=(n_series, 2)),
        labels=rng.integers(0, 9, size=(n_series, 3)),
    )


batches = st.builds(
    make,
    seed=st.integers(0, 10**6),
    n_series=st.integers(0, 6),
    n_channels=st.integers(1, 3),
    longest=st.integers(1, 8),
    nan=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    dtype=st.sampled_from([np.float32, np.float64]),
    shared=st.booleans(),
)


def assert_is(batch, numbers, part):
    """``part`` is the series ``numbers`` of ``batch``, one by one."""
    assert len(part) == len(numbers)
    assert part.ids.tolist() == batch.ids[numbers].tolist()
    np.testing.assert_array_equal(part.static, batch.static[numbers])
    np.testing.assert_array_equal(part.labels, batch.labels[numbers])
    assert part.n_points == part.offsets[-1]
    for k, b in enumerate(numbers):
        rows = slice(batch.offsets[b], batch.offsets[b + 1])
        times, values = part.series(k)
        np.testing.assert_array_equal(times, batch.times[rows])
        np.testing.assert_array_equal(values, batch.values[rows])
    assert part.missing == bool(np.isnan(part.values).any())
    assert part.values.dtype == batch.values.dtype
    assert not part.values.flags.writeable


@given(batches, st.data())
def test_every_way_to_choose_series_gives_these_series(batch, data):
    n = len(batch)
    cut = data.draw(st.slices(n))
    assert_is(batch, list(range(n))[cut], batch[cut])
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=bool)
    assert_is(batch, np.flatnonzero(mask), batch[mask])
    if n:
        numbers = data.draw(st.lists(st.integers(-n, n - 1), max_size=8))
        assert_is(batch, [i % n for i in numbers], batch[numbers])
        i = data.draw(st.integers(-n, n - 1))
        assert_is(batch, [i % n], batch[i])
        assert (batch[i].grid is None) == (batch.grid is None)


@given(batches, st.data())
def test_pieces_put_together_again_are_the_batch(batch, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(batch)), max_size=4)))
    bounds = [0, *cuts, len(batch)]
    pieces = [batch[a:b] for a, b in pairwise(bounds)]
    whole = SeriesBatch.concatenate(pieces)
    assert whole.equals(batch)
    assert (whole.grid is None) == (batch.grid is None)
    assert whole.missing == batch.missing


def test_iterating_over_a_batch_gives_its_series():
    batch = make(0, 3, 1, 4)
    assert [b.ids[0] for b in batch] == [100, 101, 102]


def test_a_run_of_series_shares_memory_and_choosing_wrongly_is_refused():
    batch = make(0, 4, 2, 5)
    assert np.shares_memory(batch[1:3].values, batch.values)
    with pytest.raises(IndexError, match="series 4 asked for, but the batch has 4 series"):
        batch[4]
    with pytest.raises(IndexError, match="series -5 asked for"):
        batch[[0, -5]]
    with pytest.raises(InputError, match="one entry for each of the 4 series, got 3"):
        batch[np.array([True, False, True])]
    with pytest.raises(InputError, match="chosen by a number, a slice, a 1-D list"):
        batch["a"]
    with pytest.raises(InputError, match="chosen by a number, a slice, a 1-D list"):
        batch[1.5]


def dated(start, n=2):
    stamps = np.datetime64(start, "s") + np.arange(n)
    return SeriesBatch.from_arrays([np.zeros((n, 1))], [stamps])


def test_dates_are_counted_from_the_earliest_origin_after_concatenation():
    both = SeriesBatch.concatenate([dated("2020-01-02"), dated("2020-01-01")])
    assert both.time_origin == np.datetime64("2020-01-01", "ns")
    assert both.times.tolist() == [86400, 86401, 0, 1]


def test_times_that_would_merge_when_rebased_are_refused():
    fine = SeriesBatch.from_arrays([np.zeros((2, 1))], [np.array([0, 1], "M8[ns]") + 10**18])
    with pytest.raises(InputError, match=r"times of batch 1 lie too close together"):
        SeriesBatch.concatenate([dated("1980-01-01"), fine])


def test_batches_that_do_not_fit_together_are_refused():
    plain = SeriesBatch.from_numpy3d(np.zeros((1, 1, 2)))
    cases = {
        "must have the same channels, got .'x0',. in batch 0 and .'y',. in batch 1": (
            SeriesBatch.from_numpy3d(np.zeros((1, 1, 2)), channels=["y"])
        ),
        "must all have labels or all have none, got none in batch 0": plain.with_labels([1]),
        "must all have dates or all have none": dated("2020-01-01"),
    }
    for words, other in cases.items():
        with pytest.raises(InputError, match=words):
            SeriesBatch.concatenate([plain, other])
    with pytest.raises(InputError, match="labels to concatenate must be of one kind and shape"):
        SeriesBatch.concatenate([plain.with_labels([1]), plain.with_labels(["a"])])
    with pytest.raises(InputError, match="at least one batch, got none"):
        SeriesBatch.concatenate([])


def test_equals_sees_each_difference_but_not_how_times_are_stored():
    x = np.array([[[1.0, np.nan]]])
    batch = SeriesBatch.from_numpy3d(x, labels=[1])
    assert batch.equals(SeriesBatch.from_numpy3d(x.copy(), [[0, 1]], labels=[1]))
    assert not batch.equals(SeriesBatch.from_numpy3d(x, [[0, 2]], labels=[1]))
    assert not batch.equals(SeriesBatch.from_numpy3d(x, [0, 2], labels=[1]))
    assert not batch.equals(SeriesBatch.from_numpy3d(x))
    assert not batch.equals(SeriesBatch.from_numpy3d(x.astype(np.float32), labels=[1]))
    assert not batch.equals(SeriesBatch.from_numpy3d(np.nan_to_num(x), labels=[1]))
    assert not batch.equals(SeriesBatch.from_numpy3d(x, labels=[1], channels=["y"]))
    assert not batch.equals(x)


# Thinning


@given(batches, st.floats(0, 0.99), st.integers(0, 2**40))
def test_dropping_points_keeps_the_ends_and_exactly_the_points_of_the_rule(batch, fraction, seed):
    thin = batch.drop_points(fraction, seed)
    keep = keep_mask(batch.lengths, fraction, seed)
    np.testing.assert_array_equal(thin.values, batch.values[keep])
    np.testing.assert_array_equal(thin.times, batch.times[keep])
    dropped = np.minimum(np.floor(fraction * batch.lengths + 0.5), np.maximum(batch.lengths - 2, 0))
    assert (batch.lengths - thin.lengths).tolist() == dropped.tolist()
    for ours, theirs in zip(thin.span, batch.span, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert thin.ids.tolist() == batch.ids.tolist()
    assert thin.equals(batch.drop_points(mask=keep))
    assert thin.missing == bool(np.isnan(thin.values).any())


def test_a_mask_that_drops_an_end_point_is_refused():
    batch = make(0, 2, 1, 4, shared=True)
    mask = np.ones(8, dtype=bool)
    mask[4] = False
    with pytest.raises(InputError, match=r"drops one of series 1 \(id 101\); set mask"):
        batch.drop_points(mask=mask)
    with pytest.raises(InputError, match=r"must be bool of shape \(8,\), True = keep, got dtype i"):
        batch.drop_points(mask=np.arange(8))
    with pytest.raises(InputError, match="needs a fraction and a seed"):
        batch.drop_points(0.5)
    with pytest.raises(InputError, match="or a mask, not both"):
        batch.drop_points(0.5, 0, mask)
    with pytest.raises(InputError, match=r"must be in \[0, 1\), got 1"):
        batch.drop_points(1.0, 0)


# Filling


def interpolated(batch, keep):
    """The oracle: np.interp, series by series and channel by channel."""
    out = np.zeros(batch.values.shape)
    for b in range(len(batch)):
        rows = slice(batch.offsets[b], batch.offsets[b + 1])
        t, x = batch.times[rows], batch.values[rows].astype(np.float64)
        for c in range(batch.n_channels):
            seen = ~np.isnan(x[:, c]) & keep[rows]
            if seen.any():
                out[rows, c] = np.interp(t, t[seen], x[seen, c])
    return out


@given(batches, st.sampled_from([None, 0.5]), st.integers(0, 9), st.sampled_from([1, 7, 1 << 18]))
@pytest.mark.parametrize("native", [True, False])
def test_gaps_are_linear_between_the_observations_of_each_channel(native, batch, kept, seed, block):
    keep = None
    if kept is not None:
        keep = np.random.default_rng(seed).random(batch.n_points) < kept
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", UnobservedWarning)
        patch.setattr(blocks, "__defaults__", (block,))
        if not native:
            patch.setattr(library, "load", lambda: None)
        dense = rf.fill_gaps(batch, keep)
    everything = np.ones(batch.n_points, dtype=bool)
    expected = interpolated(batch, everything if keep is None else keep)
    assert dense.dtype == batch.values.dtype
    tolerance = 1e-12 if dense.dtype == np.float64 else 1e-6
    np.testing.assert_allclose(dense, expected, rtol=tolerance, atol=tolerance)
    seen = ~np.isnan(batch.values) & (everything if keep is None else keep)[:, None]
    np.testing.assert_array_equal(dense[seen], batch.values[seen])


@given(batches)
def test_unobserved_names_the_channels_without_any_observation(batch):
    expected = [np.isnan(batch.series(b)[1]).all(axis=0) for b in range(len(batch))]
    assert batch.unobserved().tolist() == [e.tolist() for e in expected]


def test_a_complete_batch_is_filled_without_a_copy():
    batch = make(0, 2, 2, 5)
    assert rf.fill_gaps(batch) is batch.values


def test_a_channel_never_observed_is_zero_and_one_warning_says_so():
    x = np.array([[[1.0, 2.0], [np.nan, np.nan]], [[np.nan, 4.0], [5.0, np.nan]]])  # (B, C, L)
    batch = SeriesBatch.from_numpy3d(x, channels=["a", "b"])
    with pytest.warns(UnobservedWarning) as caught:
        dense = rf.fill_gaps(batch)
    assert len(caught) == 1
    assert str(caught[0].message) == (
        "never observed, taken as constant 0: channel 'b' in 1 of 2 series; "
        "see SeriesBatch.unobserved()"
    )
    assert caught[0].filename == __file__
    assert dense.tolist() == [[1, 0], [2, 0], [4, 5], [4, 5]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rf.fill_gaps(batch[1])


def test_filling_neither_overflows_nor_moves_a_constant():
    huge = SeriesBatch.from_numpy3d([[[1.7e308, np.nan, -1.7e308]]])
    assert rf.fill_gaps(huge)[:, 0].tolist() == [1.7e308, 0, -1.7e308]
    x = np.full((1, 1, 1000), np.nan)
    x[..., [0, -1]] = 0.1
    assert (rf.fill_gaps(SeriesBatch.from_numpy3d(x)) == 0.1).all()


def test_float32_values_are_interpolated_in_float64():
    x = np.array([[[16777216.0, np.nan, 16777220.0]]], dtype=np.float32)
    times = np.array([1.7e9, 1.7e9 + 0.25, 1.7e9 + 0.5])  # one and the same float32
    assert rf.fill_gaps(SeriesBatch.from_numpy3d(x, times))[1, 0] == 16777218.0
