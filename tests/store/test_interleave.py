"""Rows laid down piece by piece: the same series as from the whole table, or the same words."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roughformer.errors import CapacityError, InputError
from roughformer.series import SeriesBatch
from roughformer.signatures import library
from roughformer.store import TableColumns, ingest
from roughformer.store.ingest import BufferPool, ascending_rows, interleave, interleaved_series

COLUMNS = TableColumns("id", "t", ("x", "y"))


def table(lengths: list[int], kind: str = "int", dtype: type = np.float32, seed: int = 0):
    """Series of these lengths, ids 3, 6, 9, ..., in order of id and time."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    ids = np.repeat(3 * np.arange(1, len(lengths) + 1), lengths)
    t = np.concatenate([np.cumsum(rng.uniform(0.1, 1, k)) for k in lengths] or [np.zeros(0)])
    names = ids if kind == "int" else np.array([f"s{i:04d}" for i in ids], dtype=str)
    column = pa.array(names)
    if kind == "codes":
        column = column.dictionary_encode()
    x, y = rng.normal(size=(2, n)).astype(dtype)
    return pa.table({"id": column, "t": t, "x": x, "y": y})


def laid(data: pa.Table, step: int, memory: int = 1 << 30, **clip: object) -> list[SeriesBatch]:
    slices = (data.slice(k, step) for k in range(0, len(data), step))
    return list(
        interleaved_series(
            ascending_rows(slices, "id", **clip), COLUMNS, None, memory, BufferPool()
        )
    )


def assert_same(found: list[SeriesBatch], data: pa.Table) -> None:
    whole = COLUMNS.batch(data, None)
    one = SeriesBatch.concatenate(found)
    assert one.ids.tolist() == whole.ids.tolist()
    assert one.channels == whole.channels
    assert one.missing == whole.missing
    assert one.values.dtype == whole.values.dtype
    np.testing.assert_array_equal(one.offsets, whole.offsets)
    np.testing.assert_array_equal(one.times, whole.times)
    np.testing.assert_array_equal(one.values, whole.values)


@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    step=st.integers(1, 60),
    block=st.sampled_from([1, 400, 1 << 20]),
    kind=st.sampled_from(["int", "text", "codes"]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_pieces_of_any_size_give_the_series_of_the_whole_table(lengths, step, block, kind, dtype):
    data = table(lengths, kind, dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "_BLOCK", block)
        # Texts that change with each row are taken for mixed ones, unless they may be sorted.
        assert_same(laid(data, step, sort=True), data)


def test_no_rows_no_batches():
    assert laid(table([]), 5) == []


def test_blocks_end_where_series_do(monkeypatch):
    monkeypatch.setattr(ingest, "_BLOCK", 16 * 10)  # ten rows of 8 + 2 * 4 bytes
    found = laid(table([4, 4, 4, 4, 30, 1]), 5)
    assert [len(batch) for batch in found] == [3, 2, 1]


def test_some_series_only():
    data = table([3, 4, 5, 6])
    (batch,) = laid(data, 2, after=3, until=9)
    assert batch.ids.tolist() == [6, 9]
    assert batch.lengths.tolist() == [4, 5]


@pytest.mark.parametrize("engine", ["native", "numpy"])
def test_times_out_of_order_are_sorted_and_missing_values_seen(engine, monkeypatch):
    if engine == "numpy":
        monkeypatch.setattr(ingest, "load", lambda: None)
    data = table([5, 7, 3])
    order = np.array([4, 2, 0, 1, 3, *range(5, 12), 14, 12, 13])
    assert_same(laid(data.take(pa.array(order)), 4), data)
    x = data["x"].to_numpy().copy()
    x[6] = np.nan
    gaps = data.set_column(2, "x", pa.array(x))
    assert_same(laid(gaps, 4), gaps)
    nulls = data.set_column(2, "x", pa.array(x, mask=np.arange(len(x)) == 2))
    assert_same(laid(nulls, 4), nulls)


def test_a_series_that_begins_later_than_the_one_before_ends_is_in_order():
    data = table([2, 2]).set_column(1, "t", pa.array([0.0, 1.0, 2.0, 3.0]))
    assert_same(laid(data, 1), data)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("x", np.inf, "finite, or NaN for 'not observed', got inf in channel 'x'"),
        ("t", np.nan, "times in column 't' must be finite, got nan"),
        ("t", np.inf, "times in column 't' must be finite, got inf"),
        ("t", 1.0, "1.0 twice, at .*series 1 .id 6"),
    ],
)
def test_what_is_wrong_is_told_as_of_a_table(column, value, words):
    data = table([3, 3]).set_column(1, "t", pa.array([0.0, 1.0, 2.0, 0.5, 1.0, 2.0]))
    wrong = data[column].to_numpy().copy()
    wrong[5] = value
    data = data.set_column(data.column_names.index(column), column, pa.array(wrong))
    with pytest.raises(InputError, match=words):
        laid(data, 2)


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.duration("ns")])
def test_no_date_is_told(kind):
    times = pa.array([0, 1, 2, -(2**63)]).view(kind)  # NaT, which is not null
    data = table([3, 1]).set_column(1, "t", times)
    with pytest.raises(InputError, match="must be dates or durations, got NaT in row 3"):
        laid(data, 10)


def test_a_series_that_is_too_long_is_refused_by_name():
    with pytest.raises(CapacityError, match=r"series 6 has .* more than a worker may hold"):
        laid(table([3, 100]), 10, memory=16 * 50)


@pytest.mark.parametrize("isa", library.engine_info().get("available", []))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 9])
def test_native_interleaving_is_what_numpy_does(isa, dtype, channels):
    native = library.load()
    assert native is not None
    rng = np.random.default_rng(channels)
    was = native.rf_isa()
    native.rf_set_isa(isa.encode())
    try:
        for n in (0, 1, 2, 511, 512, 513, 1500):
            for odd in ([], [np.nan], [np.inf], [-np.inf, np.nan]):
                times = rng.normal(size=n).round(1)
                columns = [rng.normal(size=n).astype(dtype) for _ in range(channels)]
                for value in odd[: n or 0]:
                    columns[rng.integers(channels)][rng.integers(n)] = value
                    if rng.random() < 0.5:
                        times[rng.integers(n)] = value
                # Anywhere in larger arrays, whose other rows stay as they are.
                first = int(rng.integers(9))
                rooms = [(np.full(n + 9, 7.0), np.full((n + 9, channels), 7, dtype)) for _ in "ab"]
                outs = [[array[first : first + n] for array in pair] for pair in rooms]
                seen = interleave(times, columns, *outs[0])
                expected = ingest._interleave_in_numpy(times, columns, *outs[1])
                assert seen == expected
                for one, other in zip(*rooms, strict=True):
                    np.testing.assert_array_equal(one, other)
    finally:
        native.rf_set_isa(was)
