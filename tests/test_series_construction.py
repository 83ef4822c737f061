"""SeriesBatch: the ways in give the flat layout that each input means, and change nothing."""

import datetime as dt
import pickle
import re
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import roughformer as rf
from roughformer.errors import InputError
from roughformer.series import SeriesBatch


def test_importing_the_module_imports_neither_torch_nor_pandas_nor_polars():
    code = (
        "import sys, roughformer.series; "
        "print([m for m in ('torch', 'pandas', 'polars') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("size", [(0, 2, 3), (1, 1, 1), (2, 1, 4), (3, 2, 1), (3, 4, 5)])
def test_numpy3d_is_stored_point_by_point_on_one_shared_grid(size):
    x = np.random.default_rng(0).normal(size=size)
    batch = SeriesBatch.from_numpy3d(x)
    n_series, n_channels, length = size
    assert (len(batch), batch.n_channels, batch.n_points) == (
        n_series,
        n_channels,
        n_series * length,
    )
    assert batch.grid.tolist() == list(range(length))
    assert batch.times.tolist() == list(range(length)) * n_series
    for b in range(n_series):
        times, values = batch.series(b)
        assert times.tolist() == list(range(length))
        np.testing.assert_array_equal(values, x[b].T)
    assert batch.channels == tuple(f"x{c}" for c in range(n_channels))
    assert batch.values.flags.c_contiguous


def test_times_for_each_series_are_kept_apart_and_shared_times_are_stored_once():
    x = np.zeros((2, 1, 3))
    apart = SeriesBatch.from_numpy3d(x, [[0, 1, 2], [5, 7, 9]])
    assert apart.grid is None
    assert apart.times.tolist() == [0, 1, 2, 5, 7, 9]
    assert [s.tolist() for s in apart.span] == [[0, 5], [2, 9]]
    shared = SeriesBatch.from_numpy3d(x, [0.5, 1, 2])
    assert shared.grid.tolist() == [0.5, 1, 2]
    assert [s.tolist() for s in shared.span] == [[0.5, 0.5], [2, 2]]


def test_a_list_of_arrays_is_ragged_and_both_layouts_say_the_same():
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=(n, 2)) for n in (3, 1, 4)]
    batch = SeriesBatch.from_arrays(arrays, [[0, 1, 2], [7], [0, 2, 4, 8]])
    assert batch.offsets.tolist() == [0, 3, 4, 8]
    assert batch.lengths.tolist() == [3, 1, 4]
    assert batch.times.tolist() == [0, 1, 2, 7, 0, 2, 4, 8]
    np.testing.assert_array_equal(batch.values, np.concatenate(arrays))
    turned = SeriesBatch.from_arrays(
        [a.T for a in arrays], [[0, 1, 2], [7], [0, 2, 4, 8]], layout="channels_first"
    )
    assert turned.equals(batch)
    counted = SeriesBatch.from_arrays(arrays)
    assert counted.times.tolist() == [0, 1, 2, 0, 0, 1, 2, 3]


def test_equal_arrays_in_a_list_share_one_grid():
    arrays = [np.ones((3, 1)), np.zeros((3, 1))]
    assert SeriesBatch.from_arrays(arrays).grid.tolist() == [0, 1, 2]
    assert SeriesBatch.from_arrays(arrays, [0, 1, 9]).grid.tolist() == [0, 1, 9]


def test_no_series_at_all_is_a_batch():
    for batch in (
        SeriesBatch([], np.empty((0, 2)), [0]),
        SeriesBatch.from_arrays([], channels=["a", "b"]),
        SeriesBatch.from_numpy3d(np.empty((0, 2, 0))),
    ):
        assert (len(batch), batch.n_points, batch.n_channels) == (0, 0, 2)
        assert rf.fill_gaps(batch).shape == (0, 2)
        assert batch.unobserved().shape == (0, 2)
        assert batch.span[0].shape == (0,)
        assert not batch.missing
        assert "0 series" in repr(batch)


def test_the_padding_of_a_tensor_is_cut_off_and_never_looked_at():
    torch = pytest.importorskip("torch")
    x = torch.arange(12.0).reshape(2, 3, 2)
    x[0, 2] = float("inf")
    t = torch.tensor([[0.0, 1.0, float("nan")], [0.0, 5.0, 6.0]])
    batch = SeriesBatch.from_tensor(x, t, torch.tensor([2, 3]))
    assert batch.lengths.tolist() == [2, 3]
    assert batch.times.tolist() == [0, 1, 0, 5, 6]
    assert batch.values.dtype == np.float32
    assert batch.values[:, 0].tolist() == [0, 2, 6, 8, 10]
    assert SeriesBatch.from_tensor(x, [0, 1, 2], [2, 2]).grid.tolist() == [0, 1]
    assert SeriesBatch.from_tensor(x, [0, 1, 2], [2, 3]).times.tolist() == [0, 1, 0, 1, 2]


def test_a_contiguous_tensor_is_shared_not_copied():
    torch = pytest.importorskip("torch")
    x = torch.randn(2, 3, 2)
    batch = SeriesBatch.from_tensor(x)
    assert batch.values.ctypes.data == x.data_ptr()
    assert SeriesBatch.from_tensor(x.to(torch.bfloat16)).values.dtype == np.float32


@pytest.mark.parametrize(
    ("given_dtype", "stored"),
    [
        ("f4", "f4"),
        ("f8", "f8"),
        ("f2", "f4"),
        ("i4", "f8"),
        ("u1", "f8"),
        ("?", "f8"),
        (">f4", "f4"),
    ],
)
def test_values_become_float32_or_float64(given_dtype, stored):
    batch = SeriesBatch.from_numpy3d(np.ones((1, 1, 2), dtype=given_dtype))
    assert batch.values.dtype == np.dtype(stored)
    assert batch.values.tolist() == [[1], [1]]


def test_masked_entries_are_not_observed():
    x = np.ma.masked_equal(np.array([[[1, 2, 3]]]), 2)
    np.testing.assert_array_equal(SeriesBatch.from_numpy3d(x).values[:, 0], [1, np.nan, 3])


def test_the_batch_is_read_only_and_the_arrays_of_the_caller_stay_writable_and_unchanged():
    times, values, offsets = np.arange(3.0), np.arange(6.0).reshape(3, 2), np.array([0, 3])
    before = [a.copy() for a in (times, values, offsets)]
    batch = SeriesBatch(times, values, offsets, ids=["a"], labels=[1], static=[[1.0]])
    for array in (batch.times, batch.values, batch.offsets, batch.ids, batch.labels, batch.static):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[0]
    with pytest.raises(AttributeError):
        batch.values = values
    batch.drop_points(0.5, seed=0)
    rf.fill_gaps(batch, np.array([True, False, True]))
    for array, old in zip((times, values, offsets), before, strict=True):
        assert array.flags.writeable
        np.testing.assert_array_equal(array, old)
    assert batch.values.base is not None
    assert np.shares_memory(batch.values, values)


def test_a_pickled_batch_comes_back_equal_and_read_only():
    batch = SeriesBatch.from_numpy3d(np.ones((2, 1, 3)), labels=["a", "b"])
    again = pickle.loads(pickle.dumps(batch))
    assert again.equals(batch)
    assert not again.values.flags.writeable


def test_names_ids_static_and_labels_are_kept():
    batch = SeriesBatch.from_numpy3d(
        np.zeros((2, 2, 3)),
        channels=["PPG", "ECG"],
        ids=np.array(["p", "q"], dtype=object),
        static=[[1, 2], [3, np.nan]],
        labels=[[1, 2], [3, 4]],
    )
    assert batch.channels == ("PPG", "ECG")
    assert batch.ids.tolist() == ["p", "q"]
    assert batch.ids.dtype.kind == "U"
    assert batch.static_names == ("s0", "s1")
    assert batch.static.dtype == np.float64
    assert batch.labels.shape == (2, 2)
    assert batch.with_labels(["u", "v"]).labels.tolist() == ["u", "v"]
    assert batch.with_labels(None).labels is None
    assert repr(batch) == (
        "SeriesBatch(2 series, 2 channels (PPG, ECG), 3 points each, float64, shared times, "
        "2 static, labels int64)"
    )


# Times


@given(
    st.lists(st.integers(0, 10**15), min_size=1, max_size=20, unique=True),
    st.integers(-(10**18), 10**18),
)
def test_nanosecond_stamps_keep_every_nanosecond_relative_to_the_origin(steps, epoch):
    stamps = np.array(sorted(steps), dtype=np.int64) + epoch
    batch = SeriesBatch.from_arrays([np.zeros((len(steps), 1))], [stamps.view("datetime64[ns]")])
    assert batch.time_origin == stamps[:1].view("datetime64[ns]")[0]
    np.testing.assert_array_equal(np.rint(batch.times * 1e9).astype(np.int64), stamps - stamps[0])


def test_the_origin_is_the_earliest_stamp_of_the_whole_batch_whatever_the_unit():
    batch = SeriesBatch.from_arrays(
        [np.zeros((2, 1)), np.zeros((1, 1))],
        [np.array(["2020-01-02", "2020-01-03"], "M8[D]"), np.array(["2020-01-01T12"], "M8[h]")],
    )
    assert batch.time_origin == np.datetime64("2020-01-01T12", "ns")
    assert batch.times.tolist() == [43200, 129600, 0]


def test_python_datetimes_are_understood_and_aware_ones_are_taken_to_utc():
    zone = dt.timezone(dt.timedelta(hours=2))
    stamps = [
        dt.datetime(2020, 1, 1, 2, tzinfo=zone),
        dt.datetime(2020, 1, 1, 0, 0, 30, tzinfo=dt.UTC),
    ]
    batch = SeriesBatch.from_arrays([np.zeros((2, 1))], [stamps])
    assert batch.time_origin == np.datetime64("2020-01-01T00", "ns")
    assert batch.times.tolist() == [0, 30]


def test_python_dates_and_durations_are_understood():
    x = np.zeros((1, 1, 2))
    days = SeriesBatch.from_numpy3d(x, [dt.date(2020, 1, 1), dt.date(2020, 1, 3)])
    assert days.times.tolist() == [0, 2 * 86400]
    steps = SeriesBatch.from_numpy3d(x, [dt.timedelta(seconds=1), dt.timedelta(seconds=2.5)])
    assert steps.times.tolist() == [1, 2.5]
    with pytest.raises(InputError, match="all datetimes or all durations, got both"):
        SeriesBatch.from_numpy3d(x, np.array([dt.date(2020, 1, 1), dt.timedelta(1)], dtype=object))


def test_pandas_stamps_keep_their_nanoseconds():
    pd = pytest.importorskip("pandas")
    stamps = [pd.Timestamp("2020-01-01T00:00:00.000000001"), pd.Timestamp("2020-01-01T00:00:01")]
    batch = SeriesBatch.from_numpy3d(np.zeros((1, 1, 2)), np.array(stamps, dtype=object))
    assert batch.time_origin == np.datetime64("2020-01-01T00:00:00.000000001", "ns")
    assert batch.times.tolist() == [0, 0.999999999]


def test_durations_become_seconds_and_a_given_origin_is_used():
    x = np.zeros((1, 1, 2))
    lasting = SeriesBatch.from_numpy3d(x, np.array([0, 1500], "m8[ms]"))
    assert lasting.times.tolist() == [0, 1.5]
    assert lasting.time_origin is None
    dated = SeriesBatch.from_numpy3d(
        x,
        np.array(["2020-01-01T01", "2020-01-01T02"], "M8[h]"),
        time_origin=dt.datetime(2020, 1, 1),
    )
    assert dated.times.tolist() == [3600, 7200]
    assert dated.time_origin == np.datetime64("2020-01-01", "ns")


def test_integers_that_float64_cannot_hold_are_refused_with_a_way_out():
    stamps = np.array([1_700_000_000_000_000_000, 1_700_000_000_000_000_001])
    with pytest.raises(
        InputError, match=r"within ±2\*\*53.*give times.astype\('datetime64\[ns\]'\)"
    ):
        SeriesBatch.from_arrays([np.zeros((2, 1))], [stamps])
    assert SeriesBatch.from_arrays([np.zeros((1, 1))], [[2**53]]).times.tolist() == [2.0**53]


# The one door


def test_of_recognises_each_kind_of_input():
    torch = pytest.importorskip("torch")
    pa = pytest.importorskip("pyarrow")
    x = np.random.default_rng(0).normal(size=(2, 3, 4))  # (B, C, L)
    batch = SeriesBatch.from_numpy3d(x)
    assert SeriesBatch.of(batch) is batch
    time_first = x.transpose(0, 2, 1)
    for array in (time_first, torch.tensor(time_first), list(time_first), time_first.tolist()):
        assert SeriesBatch.of(array).equals(batch)
        assert SeriesBatch.of(array, layout="time_first").equals(batch)
    for array in (x, torch.tensor(x), list(x), x.tolist()):
        assert SeriesBatch.of(array, layout="channels_first").equals(batch)
    assert SeriesBatch.of(time_first, lengths=[4, 2]).lengths.tolist() == [4, 2]
    objects = np.empty(2, dtype=object)
    objects[:] = [x[0].T, x[1].T[:2]]
    assert SeriesBatch.of(objects).lengths.tolist() == [4, 2]
    table = pa.table({"t": [0, 1], "y": [1.0, 2.0]})
    assert SeriesBatch.of(table, series_id=None, time="t").channels == ("y",)


def test_more_channels_than_points_are_refused_with_both_readings():
    torch = pytest.importorskip("torch")
    x = np.zeros((137, 3, 206))
    readings = (
        "206 channels of 3 points as 'time_first' (B, L, C), and 3 channels of 206 points as "
        "'channels_first' (B, C, L). Give layout='time_first' or layout='channels_first'"
    )
    for array in (x, torch.tensor(x)):
        with pytest.raises(InputError, match=re.escape(readings)):
            SeriesBatch.of(array)
    assert SeriesBatch.of(x, layout="time_first").n_channels == 206
    assert SeriesBatch.of(x, layout="channels_first").n_channels == 3
    listed = "shape (3, 206) of series 0 is 206 channels of 3 points as 'time_first' (L, C)"
    with pytest.raises(InputError, match=re.escape(listed)):
        SeriesBatch.of(list(x))


def test_more_channels_than_points_are_taken_where_something_shows_that_they_are_meant():
    x = np.zeros((4, 3, 5))
    assert SeriesBatch.of(x, times=[0.0, 1.0, 2.0]).n_channels == 5
    assert SeriesBatch.of(x, channels=list("abcde")).n_channels == 5
    short = [np.zeros((3, 5)), np.zeros((4, 5))]  # not twice as many channels
    assert SeriesBatch.of(short).n_channels == 5
    assert SeriesBatch.of([np.zeros((1, 5)), np.zeros((9, 5))]).n_channels == 5
    with pytest.raises(InputError, match=r"expected 3 channels, .*; give layout='channels_first'"):
        SeriesBatch.of(x, channels=list("abc"))


def test_a_list_of_equal_shapes_and_its_array_are_read_alike_by_every_way_in():
    x = np.zeros((4, 3, 5))
    ways = (SeriesBatch.of, SeriesBatch.from_tensor, SeriesBatch.from_arrays)
    for build, series in zip((SeriesBatch.of, *ways), (list(x), x, x, list(x)), strict=True):
        with pytest.raises(InputError, match="cannot tell which axis is time"):
            build(series)
        assert build(series, layout="time_first").n_channels == 5
        assert build(series, layout="channels_first").n_channels == 3
        assert build(series, channels=list("abcde")).n_channels == 5


def test_what_has_its_own_order_takes_no_layout():
    batch = SeriesBatch.of(np.zeros((2, 5, 3)))
    with pytest.raises(InputError, match="already has its times, layout and names"):
        SeriesBatch.of(batch, layout="time_first")
    with pytest.raises(InputError, match="layout= is for arrays"):
        SeriesBatch.of({"id": [0], "t": [0.0], "x": [1.0]}, layout="time_first")


def test_validation_of_a_large_input_needs_little_memory():
    x = np.zeros((500, 20_000, 2), dtype=np.float32)  # 80 MB
    x[::7, ::5] = np.nan
    times = np.tile(np.arange(20_000.0), (500, 1))  # 80 MB
    tracemalloc.start()
    batch = SeriesBatch.from_tensor(x, times)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32e6
    assert batch.missing
    assert np.shares_memory(batch.values, x)
    assert np.shares_memory(batch.times, times)
