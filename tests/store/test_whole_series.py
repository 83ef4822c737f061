"""Series read piece by piece are those of the whole table, or refused with the same words."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roughformer.errors import CapacityError, InputError
from roughformer.series import SeriesBatch
from roughformer.store import TableColumns
from roughformer.store.ingest import ascending_rows, whole_series

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


def by_pieces(
    data: pa.Table, step: int, memory: int = 1 << 30, **clip: object
) -> list[SeriesBatch]:
    slices = (data.slice(k, step) for k in range(0, len(data), step))
    tables = whole_series(ascending_rows(slices, "id", **clip), memory)
    return [COLUMNS.batch(part, None) for part in tables]


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


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    step=st.integers(1, 60),
    kind=st.sampled_from(["int", "text", "codes"]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_pieces_of_any_size_give_the_series_of_the_whole_table(lengths, step, kind, dtype):
    data = table(lengths, kind, dtype)
    # Texts that change with each row are taken for mixed ones, unless they may be sorted.
    assert_same(by_pieces(data, step, sort=True), data)


def test_no_rows_no_batches():
    assert by_pieces(table([]), 5) == []


def test_some_series_only():
    data = table([3, 4, 5, 6])
    batch = SeriesBatch.concatenate(by_pieces(data, 2, after=3, until=9))
    assert batch.ids.tolist() == [6, 9]
    assert batch.lengths.tolist() == [4, 5]


def test_times_out_of_order_are_sorted_and_missing_values_seen():
    data = table([5, 7, 3])
    order = np.array([4, 2, 0, 1, 3, *range(5, 12), 14, 12, 13])
    assert_same(by_pieces(data.take(pa.array(order)), 4), data)
    x = data["x"].to_numpy().copy()
    x[6] = np.nan
    gaps = data.set_column(2, "x", pa.array(x))
    assert_same(by_pieces(gaps, 4), gaps)
    nulls = data.set_column(2, "x", pa.array(x, mask=np.arange(len(x)) == 2))
    assert_same(by_pieces(nulls, 4), nulls)


def test_a_series_that_begins_later_than_the_one_before_ends_is_in_order():
    data = table([2, 2]).set_column(1, "t", pa.array([0.0, 1.0, 2.0, 3.0]))
    assert_same(by_pieces(data, 1), data)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("x", np.inf, "finite, or NaN for 'not observed', got inf in channel 'x'"),
        ("t", np.nan, "times in column 't' must be finite, got nan"),
        ("t", np.inf, "times in column 't' must be finite, got inf"),
        ("t", 1.0, "1.0 twice, at .*id 6"),
    ],
)
def test_what_is_wrong_is_told_as_of_a_table(column, value, words):
    data = table([3, 3]).set_column(1, "t", pa.array([0.0, 1.0, 2.0, 0.5, 1.0, 2.0]))
    wrong = data[column].to_numpy().copy()
    wrong[5] = value
    data = data.set_column(data.column_names.index(column), column, pa.array(wrong))
    with pytest.raises(InputError, match=words):
        by_pieces(data, 2)


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.duration("ns")])
def test_no_date_is_told(kind):
    times = pa.array([0, 1, 2, -(2**63)]).view(kind)  # NaT, which is not null
    data = table([3, 1]).set_column(1, "t", times)
    with pytest.raises(InputError, match=r"times must be finite, got nan at .* \(id 6\)"):
        by_pieces(data, 10)


def test_a_series_that_is_too_long_is_refused_by_name():
    with pytest.raises(CapacityError, match=r"series 6 has .* more than a worker may hold"):
        by_pieces(table([3, 100]), 10, memory=16 * 50)
