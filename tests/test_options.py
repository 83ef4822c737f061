"""Options that cannot be meant are refused in words, before anything is computed."""

from datetime import datetime

import numpy as np
import pytest
import torch

import roughformer as rf

X = np.random.default_rng(0).normal(size=(2, 12, 2)).cumsum(axis=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depth": None}, "depth must be a whole number from 1 to 12, got None"),
        ({"depth": "x"}, "depth must be a whole number"),
        ({"depth": True}, "depth must be a whole number"),
        ({"windows": float("nan")}, "windows must be a whole number of windows"),
        ({"drop": "a"}, "fraction of points to drop must be in"),
        ({"drop": 0.5, "seed": None}, "the seed must be a whole number"),
        ({"drop": 0.5, "seed": 1.5}, "the seed must be a whole number"),
        ({"max_memory": "1GB"}, "max_memory must be a whole number"),
        ({"threads": 0}, "threads must be a whole number >= 1"),
        ({"lifts": ["speed"]}, "unknown lift 'speed'"),
        ({"lifts": [3]}, "a lift is one of"),
    ],
)
def test_options_are_refused_in_words(options, words):
    with pytest.raises(rf.InputError, match=words):
        rf.multiview_signature(X, **({"windows": 3, "depth": 2} | options))


@pytest.mark.parametrize(
    "make",
    [
        lambda: rf.Counts(float("nan")),
        lambda: rf.Time(0),
        lambda: rf.Lag(-1.0),
        lambda: rf.Clock(0),
        lambda: rf.Clock(2, spacing=float("inf")),
        lambda: rf.Windows.by_count(float("nan")),
        lambda: rf.Windows.by_duration("1 h"),
        lambda: rf.RunningSignatures(2, 1, 13),
    ],
)
def test_objects_that_make_no_sense_are_not_made(make):
    with pytest.raises(rf.InputError, match="must be"):
        make()


def test_one_lift_needs_no_list():
    want = rf.multiview_signature(X, 3, 2, lifts=[rf.Time()])
    for lifts in (rf.Time(), "time", {"global": "time", "local": rf.Time()}):
        np.testing.assert_array_equal(rf.multiview_signature(X, 3, 2, lifts=lifts), want)
    np.testing.assert_array_equal(
        rf.multiview_signature(X, 3, 2, lifts=None), rf.multiview_signature(X, 3, 2)
    )


def test_more_windows_than_memory_holds_are_refused_before_they_are_made():
    with pytest.raises(rf.CapacityError, match="1000000000000 windows"):
        rf.multiview_signature(X, 10**12, 2)


def test_a_list_of_tensors_does_not_lose_its_gradient_silently():
    with pytest.raises(rf.InputError, match="must not require a gradient"):
        rf.signature([torch.zeros(4, 2, requires_grad=True)], 2)


def test_a_table_is_read_as_series_batch_reads_it():
    table = {"time": [0.0, 1.0, 0.0, 3.0], "id": [1, 1, 2, 2], "x": [1.0, 2.0, 5.0, 4.0]}
    words = rf.signature(table, 2)
    assert np.array_equal(words, rf.signature(rf.SeriesBatch.of(table), 2))
    assert words[:, 0].tolist() == [1.0, -1.0]


def test_cut_times_may_be_dates_where_the_series_have_dates():
    start = np.datetime64("2024-01-01T00:00:00", "s")
    dates = start + np.array([0, 10, 25, 40]).astype("timedelta64[s]")
    x = np.array([[0.0], [1.0], [3.0], [2.0]])
    batch = rf.SeriesBatch.from_arrays([x], [dates])
    want = rf.multiview_signature(batch, [0.0, 10.0, 40.0], 2)
    assert want.any()
    for cuts in (dates[[0, 1, 3]], [d.item() for d in dates[[0, 1, 3]]]):
        assert isinstance(cuts, np.ndarray) or isinstance(cuts[0], datetime)
        np.testing.assert_array_equal(rf.multiview_signature(batch, cuts, 2), want)
    gaps = np.array([0, 10_000, 40_000]).astype("timedelta64[ms]")
    np.testing.assert_array_equal(rf.multiview_signature(batch, gaps, 2), want)
    with pytest.raises(rf.InputError, match="the cut times are dates"):
        rf.multiview_signature(X, dates, 2)


def test_cut_times_that_are_no_times_are_refused():
    for cuts in (np.array([0, 1j]), np.array(["a", "b"]), np.array([False, True])):
        with pytest.raises(rf.InputError, match="must be numbers or dates"):
            rf.multiview_signature(X, cuts, 2)


def test_a_channel_called_time_does_not_share_its_name_with_the_lift():
    names = rf.feature_names(["time", "x"], 2, lifts="time")
    assert len(set(names)) == len(names)


def test_running_signatures_do_not_write_where_they_must_not():
    running = rf.RunningSignatures(2, 1, 2)
    locked = np.zeros((2, 4), np.float32)
    locked.flags.writeable = False
    with pytest.raises(rf.InputError, match="writeable"):
        running.read(out=locked)
    with pytest.raises(rf.InputError, match="writeable"):
        running.read(out=[[0.0]])


def test_clock_words_are_as_precise_as_the_sums_asked_for():
    rng = np.random.default_rng(0)
    t = np.cumsum(1 + 5e-9 * rng.uniform(-1, 1, size=2000))
    x = rng.normal(size=(2000, 1)).cumsum(axis=0)
    options = {"times": [t], "lifts": rf.Clock(frequencies=[3.0, 62.8])}
    fast = rf.multiview_signature([x], 1, 1, "local", engine="native", **options)
    slow = rf.multiview_signature([x], 1, 1, "local", engine="torch", **options)
    np.testing.assert_allclose(fast, slow, atol=1e-10)
    single = [x.astype(np.float32)]
    wide = rf.multiview_signature(single, 1, 1, "local", dtype="float64", **options)
    precise = rf.multiview_signature(single, 1, 1, "local", precise=True, **options)
    want = rf.multiview_signature([single[0].astype(np.float64)], 1, 1, "local", **options)
    np.testing.assert_allclose(wide, want, atol=1e-10)
    np.testing.assert_array_equal(precise, want.astype(np.float32))
