"""Cut times: by count, by duration, by points and explicit, and what each refuses."""

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import roughformer as rf
from reference import make_batch
from roughformer import algebra
from roughformer.signatures.paths import Cuts

seeds = st.integers(0, 2**32)
batches = st.builds(
    make_batch,
    seed=seeds,
    n_series=st.integers(1, 5),
    longest=st.sampled_from([1, 2, 9]),
    shared=st.booleans(),
)


def rows(windows, batch):
    cuts = rf.Windows.of(windows).place(batch)
    return [cuts.of(b) for b in range(len(batch))]


def rows_since_start(windows, batch):
    """Cut times counted from the first point, where they are exact; and the times so counted."""
    cuts = rf.Windows.of(windows).place(batch)
    since = cuts.since(batch.span[0])
    for b in range(len(batch)):
        t = batch.series(b)[0]
        yield since[b, : cuts.n_windows[b] + 1], t - t[0]


@given(batch=batches, n=st.integers(1, 12))
def test_by_count_cuts_each_span_evenly_and_ends_exactly_at_its_end(batch, n):
    for row, t in rows_since_start(n, batch):
        np.testing.assert_allclose(row, np.linspace(t[0], t[-1], n + 1), rtol=1e-12, atol=1e-12)
        assert row[0] == t[0]
        assert row[-1] == t[-1]
        assert (np.diff(row) >= 0).all()


@given(batch=batches, duration=st.floats(0.05, 20.0))
def test_by_duration_steps_from_the_first_point_and_cuts_the_last_window_short(batch, duration):
    for row, t in rows_since_start(rf.Windows.by_duration(duration), batch):
        assert row[0] == t[0]
        assert row[-1] == t[-1]
        np.testing.assert_allclose(np.diff(row)[:-1], duration, rtol=1e-9)
        assert np.diff(row)[-1] <= duration * (1 + 1e-9)
        if t[-1] > t[0]:
            assert (np.diff(row) > 0).all()


@pytest.mark.parametrize(
    ("span", "duration", "n"), [(0.3, 0.1, 3), (1.0, 0.1, 10), (1.0, 0.3, 4), (7, 7, 1)]
)
def test_rounding_adds_no_sliver_of_a_window(span, duration, n):
    for start in (0.0, 1.7e9):
        end = start + span
        batch = rf.SeriesBatch.from_arrays([np.zeros((2, 1))], [[start, end]])
        if start and end - start != span:
            continue  # such a span does not exist that far from zero
        assert len(rows(rf.Windows.by_duration(duration), batch)[0]) == n + 1


def test_durations_of_dates_are_seconds_or_timedeltas():
    dates = np.datetime64("2024-01-01", "s") + np.arange(0, 100, 10).astype("timedelta64[s]")
    batch = rf.SeriesBatch.from_arrays([np.zeros((10, 1))], [dates])
    for wish in (30, timedelta(seconds=30), np.timedelta64(30, "s"), np.timedelta64(30000, "ms")):
        np.testing.assert_array_equal(rows(rf.Windows.by_duration(wish), batch)[0], [0, 30, 60, 90])


@given(batch=batches, n=st.integers(1, 12))
def test_by_points_ends_windows_at_every_nth_observation(batch, n):
    for row, t in rows_since_start(rf.Windows.by_points(n), batch):
        want = [*t[::n]] if (len(t) - 1) % n == 0 else [*t[::n], t[-1]]
        np.testing.assert_array_equal(row, want if len(t) > 1 else [t[0], t[0]])


@given(batch=batches, n=st.integers(1, 4))
def test_windows_by_points_are_slices_of_the_series(engine, batch, n):
    tokens = rf.multiview_signature(batch, rf.Windows.by_points(n), 3, "local", engine=engine)
    for b in range(len(batch)):
        x = batch.series(b)[1]
        for k in range(tokens.shape[1]):
            piece = x[k * n : (k + 1) * n + 1]
            want = algebra.path_signature(piece, 3) if len(piece) else np.zeros(14)
            np.testing.assert_allclose(tokens[b, k], want, rtol=1e-11, atol=1e-12)


@given(batch=batches, amount=st.integers(1, 4))
def test_any_rule_gives_the_tokens_of_its_explicit_cuts(engine, batch, amount):
    if batch.lengths.min() == 1:  # no span: no strictly increasing cuts to say it with
        return
    for windows in (
        amount,
        rf.Windows.by_duration(amount / 2),
        rf.Windows.by_points(amount),
    ):
        found = rf.multiview_signature(batch, windows, 2, engine=engine)
        want = rf.multiview_signature(batch, rows(windows, batch), 2, engine=engine)
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-12)


def test_explicit_cuts_are_shared_or_one_row_for_each_series(engine):
    batch = make_batch(0, n_series=3, shortest=4)
    cuts = np.array([0.5, 1.0, 2.5])
    want = rf.multiview_signature(batch, cuts, 2, engine=engine)
    for same in (list(cuts), tuple(cuts), np.tile(cuts, (3, 1)), [cuts] * 3, [list(cuts)] * 3):
        found = rf.multiview_signature(batch, same, 2, engine=engine)
        np.testing.assert_array_equal(found, want)


def test_series_with_fewer_windows_are_padded_with_zeros(engine):
    batch = make_batch(0, n_series=2, shortest=5)
    found = rf.multiview_signature(batch, [[-9.0, 9.0], [-9.0, 1.0, 9.0]], 2, engine=engine)
    assert found.shape == (2, 2, 12)
    assert found[0, 0].any()
    assert not found[0, 1].any()


def test_whole_numbers_are_counts_of_any_integer_type():
    batch = make_batch(0, n_series=1, shortest=5)
    for n in (4, np.int32(4), np.uint8(4)):
        assert rf.Windows.of(n) == rf.Windows.by_count(4)
        assert len(rows(n, batch)[0]) == 5


def test_padded_cuts_repeat_the_last_one():
    zero, late = np.zeros(2), np.array([0.0, 5.0])
    cuts = Cuts(np.array([0.0, 1, 5, 7]), np.array([0, 2]), np.array([1, 1]), zero, shared=False)
    np.testing.assert_array_equal(cuts.since(zero), [[0, 1], [5, 7]])
    np.testing.assert_array_equal(cuts.since(late), [[0, 1], [0, 2]])
    times = np.array([0.0, 1, 0, 2, 3])
    ragged = Cuts(times, np.array([0, 2]), np.array([1, 2]), late, shared=False)
    np.testing.assert_array_equal(ragged.since(zero), [[0, 1, 1], [5, 7, 8]])
    np.testing.assert_array_equal(ragged.of(1), [5, 7, 8])
    assert ragged.most == 2
    assert not ragged.equal
    assert cuts.equal


@pytest.mark.parametrize(
    ("cuts", "words"),
    [
        ([0.0, 1.0, 1.0, 2.0], r"strictly increasing, got 1.0 then 1.0 at positions 1 and 2; sort"),
        ([0.0, 2.0, 1.0], r"strictly increasing, got 2.0 then 1.0 at positions 1 and 2"),
        ([[0.0, 1.0], [3.0, 3.0]], "cut times of series 1 must be strictly increasing"),
        ([0.0, float("nan")], "must be finite, got nan at position 1"),
        ([[0.0, float("inf")], [0.0, 1.0]], "cut times of series 0 must be finite"),
        ([], "at least one time"),
        (np.zeros((2, 2, 2)), "1-D array"),
    ],
)
def test_cut_times_that_are_no_cuts_are_refused_with_their_place(cuts, words):
    with pytest.raises(rf.InputError, match=words):
        rf.multiview_signature(make_batch(0, n_series=2), cuts, 2)


def test_duplicate_cuts_are_told_what_to_do():
    with pytest.raises(rf.InputError, match="remove duplicates"):
        rf.Windows.explicit([0.0, 0.0])


def test_rows_of_cuts_must_be_as_many_as_series():
    with pytest.raises(rf.InputError, match="given for 2 series, the batch has 3"):
        rf.multiview_signature(make_batch(0, n_series=3), [[0, 1.0], [0, 1.0]], 2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: rf.Windows.by_count(0), "whole number >= 1, got 0"),
        (lambda: rf.Windows.by_count(2.5), "whole number >= 1, got 2.5"),
        (lambda: rf.Windows.by_points(0), "whole number >= 1, got 0"),
        (lambda: rf.Windows.by_duration(0), "must be positive, got 0"),
        (lambda: rf.Windows.by_duration(float("nan")), "must be positive"),
        (lambda: rf.Windows.by_duration(timedelta(0)), "must be positive"),
    ],
)
def test_amounts_that_make_no_window_are_refused(make, words):
    with pytest.raises(rf.InputError, match=words):
        make()


@pytest.mark.parametrize("windows", [7.5, True, "many", None])
def test_what_is_no_rule_for_windows_is_refused_as_an_input_error(windows):
    with pytest.raises(rf.InputError):
        rf.multiview_signature(make_batch(0), windows, 2)


def test_more_windows_than_memory_are_refused_as_a_matter_of_capacity():
    batch = rf.SeriesBatch.from_arrays([np.zeros((2, 1))], [[0.0, 1e9]])
    with pytest.raises(rf.CapacityError):
        rf.multiview_signature(batch, rf.Windows.by_duration(1e-6), 2)


def test_windows_by_points_and_dropping_do_not_go_together():
    with pytest.raises(rf.InputError, match="cannot be combined with dropping"):
        rf.multiview_signature(make_batch(0), rf.Windows.by_points(3), 2, drop=0.5)


def test_rules_are_equal_if_they_say_the_same():
    same = [
        (rf.Windows.explicit([0.0, 5.0]), rf.Windows.explicit(np.array([0, 5]))),
        (
            rf.Windows.explicit([[0.0, 5.0], [1.0, 2.0]]),
            rf.Windows.explicit(np.array([[0, 5], [1, 2]])),
        ),
        (rf.Windows.by_count(3), rf.Windows.of(3)),
    ]
    for one, other in same:
        assert one == other
        assert hash(one) == hash(other)
    rules = [
        *(one for one, _ in same),
        rf.Windows.explicit([0.0, 6.0]),
        rf.Windows.explicit([[0.0, 5.0]]),
        rf.Windows.explicit(np.array([0, 5], dtype="datetime64[ns]")),
        rf.Windows.by_points(3),
    ]
    assert len(set(rules)) == len(rules)
    assert rf.Windows.by_count(3) != 3


def test_a_dict_of_one_entry_is_a_rule():
    assert rf.Windows.of({"duration": 2.0}) == rf.Windows.by_duration(2.0)
    assert rf.Windows.of({"points": 5}) == rf.Windows.by_points(5)
    with pytest.raises(rf.InputError, match="one entry"):
        rf.Windows.of({"count": 5})
