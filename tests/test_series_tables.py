"""SeriesBatch.from_table: long and wide tables of pandas, polars and pyarrow mean the same."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roughformer.errors import InputError
from roughformer.series import SeriesBatch

WIDE = {
    "who": ["b", "a", "b", "a", "b"],
    "when": [3.0, 1.0, 1.0, 2.0, 2.0],
    "x": [1.0, 2.0, None, 4.0, 5.0],
    "y": [1, 2, 3, 4, 5],
    "age": [50, 60, 50, 60, 50],
    "sick": ["no", "yes", "no", "yes", "no"],
}


def as_pyarrow(columns):
    return pa.table(columns)


def as_pandas(columns):
    return pytest.importorskip("pandas").DataFrame(columns)


def as_polars(columns):
    return pytest.importorskip("polars").DataFrame(columns)


def as_lazy(columns):
    return pytest.importorskip("polars").LazyFrame(columns)


def as_chunks(columns):
    table = pa.table(columns)
    return pa.concat_tables([table[:2], table[2:3], table[3:]])


@pytest.mark.parametrize("library", [as_pyarrow, as_pandas, as_polars, as_lazy, as_chunks, dict])
def test_a_wide_table_is_grouped_by_series_and_sorted_by_time(library):
    batch = SeriesBatch.from_table(
        library(WIDE), series_id="who", time="when", static=["age"], label="sick"
    )
    assert batch.ids.tolist() == ["b", "a"]
    assert batch.channels == ("x", "y")
    assert batch.times.tolist() == [1, 2, 3, 1, 2]
    np.testing.assert_array_equal(batch.values, [[np.nan, 3], [5, 5], [1, 1], [2, 2], [4, 4]])
    assert batch.static.tolist() == [[50], [60]]
    assert batch.static_names == ("age",)
    assert batch.labels.tolist() == ["no", "yes"]


@pytest.mark.parametrize("library", [as_pyarrow, as_pandas, as_polars, as_chunks])
def test_a_long_table_merges_the_rows_of_a_point(library):
    long = {
        "who": ["b", "a", "b", "b", "b"],
        "when": [1, 1, 2, 1, 3],
        "what": ["y", "x", "x", "x", "y"],
        "value": [3.0, 2.0, 5.0, None, 1.0],
    }
    batch = SeriesBatch.from_table(
        library(long), series_id="who", time="when", channel="what", value="value"
    )
    assert batch.channels == ("y", "x")
    assert batch.ids.tolist() == ["b", "a"]
    assert batch.times.tolist() == [1, 2, 3, 1]
    nan = np.nan
    np.testing.assert_array_equal(batch.values, [[3, nan], [nan, 5], [1, nan], [nan, 2]])


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 3), st.integers(1, 6))
def test_any_order_of_rows_of_either_form_gives_back_the_batch(seed, n_series, n_channels, longest):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, size=n_series)
    names = [f"c{c}" for c in range(n_channels)]
    batch = SeriesBatch.from_arrays(
        [rng.normal(size=(n, n_channels)) for n in lengths],
        [np.sort(rng.choice(6, size=n, replace=False)) for n in lengths],
        ids=np.arange(n_series),
        channels=names,
    )
    series = np.repeat(np.arange(n_series), lengths)
    wide = pa.table(
        {"id": series, "t": batch.times, **dict(zip(names, batch.values.T, strict=True))}
    )
    long = pa.table(
        {
            "id": np.tile(series, n_channels),
            "t": np.tile(batch.times, n_channels),
            "channel": np.repeat(names, batch.n_points),
            "value": batch.values.T.reshape(-1),
        }
    )
    wide = wide.take(rng.permutation(len(wide)))
    long = long.take(rng.permutation(len(long)))
    for found in (
        SeriesBatch.from_table(wide, series_id="id", time="t"),
        SeriesBatch.from_table(
            long, series_id="id", time="t", channel="channel", value="value", channels=names
        ),
    ):
        assert found[np.argsort(found.ids)].equals(batch)


def test_dates_of_each_kind_are_understood():
    for stamps in (
        pa.array([dt.date(2020, 1, 1), dt.date(2020, 1, 2)]),
        pa.array(np.array(["2020-01-01", "2020-01-02"], "M8[s]")),
        pa.array(
            [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 2)], pa.timestamp("us", "Asia/Tokyo")
        ),
    ):
        batch = SeriesBatch.from_table({"t": stamps, "x": [1.0, 2.0]}, series_id=None, time="t")
        assert batch.times.tolist() == [0, 86400]
        assert batch.time_origin == np.datetime64("2020-01-01", "ns")
    spans = pa.array([dt.timedelta(seconds=1), dt.timedelta(seconds=3)])
    batch = SeriesBatch.from_table({"t": spans, "x": [1.0, 2.0]}, series_id=None, time="t")
    assert batch.times.tolist() == [1, 3]


def test_categories_come_in_order_of_appearance_and_float32_stays():
    table = pa.table(
        {
            "id": pa.array(["b", "a"]).dictionary_encode(),
            "t": [0, 0],
            "x": pa.array([1, 2], pa.float32()),
        }
    )
    pandas = pytest.importorskip("pandas")
    frame = table.to_pandas()
    frame["id"] = pandas.Categorical(["b", "a"], categories=["a", "b"])
    for source in (table, frame):
        batch = SeriesBatch.from_table(source, series_id="id", time="t")
        assert batch.ids.tolist() == ["b", "a"]
        assert batch.values.dtype == np.float32


def test_float16_and_bool_columns_are_numbers():
    table = pa.table({"t": [0, 1], "x": pa.array(np.array([1, 2], np.float16)), "z": [True, False]})
    only = SeriesBatch.from_table(table, series_id=None, time="t", channels=["x"])
    assert only.values.dtype == np.float32
    both = SeriesBatch.from_table(table, series_id=None, time="t")
    assert both.values.tolist() == [[1, 1], [2, 0]]


def test_an_empty_table_is_an_empty_batch():
    for series_id in ("id", None):
        table = pa.table({"t": pa.array([], pa.float64()), "x": pa.array([], pa.float64())})
        if series_id:
            table = table.append_column("id", pa.array([], pa.string()))
        batch = SeriesBatch.from_table(table, series_id=series_id, time="t")
        assert len(batch) == 0
        assert batch.channels == ("x",)


LONG = {"id": [1, 1, 2], "t": [0, 1, 0], "c": ["x", "y", "x"], "v": [1.0, 2.0, 3.0]}
LONG_ROLES = {"series_id": "id", "time": "t", "channel": "c", "value": "v"}
WIDE_ROLES = {"series_id": "who", "time": "when"}


@pytest.mark.parametrize(
    ("change", "roles", "words"),
    [
        (
            {**LONG, "t": [0, 0, 0], "c": ["x", "x", "x"]},
            LONG_ROLES,
            "a channel can have one value at a time, got two for channel 'x' at time 0.0 of series "
            "0 (id 1); average them or keep one",
        ),
        (
            LONG,
            {**LONG_ROLES, "channels": ["z"]},
            "channel 'z' is not in column 'c', which has 'x', 'y'",
        ),
        (
            LONG,
            {**LONG_ROLES, "channels": ["y"]},
            "each series needs at least one row of the chosen channels, got none in series 1 "
            "(id 2); leave it out of the table or choose more channels",
        ),
        (
            LONG,
            {"series_id": "id", "time": "t", "channel": "c"},
            "a long table needs both channel= and value=, a wide one neither; "
            "got channel='c', value=None",
        ),
        (
            {**LONG, "id": [1, None, 2]},
            LONG_ROLES,
            "column 'id' must have an entry in each row, got null in row 1; "
            "name the series or channel of each row",
        ),
        (
            {**LONG, "t": [0, 1, None]},
            LONG_ROLES,
            "column 't' must have an entry in each row, got null in row 2; "
            "drop the row or give it a time",
        ),
        (
            {**LONG, "t": [0, float("nan"), 1]},
            LONG_ROLES,
            "times in column 't' must be finite, got nan in row 1; drop the row or give it a time",
        ),
        (
            {**LONG, "t": ["a", "b", "c"]},
            LONG_ROLES,
            "times in column 't' must be numbers, dates or durations, got the text 'a' "
            "in row 0; write dates as 2024-03-30T14:05:00, or parse them first, e.g. with "
            "pandas.to_datetime",
        ),
        (
            WIDE,
            {"series_id": "patient", "time": "when"},
            "the table must have one column 'patient', got 0 of that name; its columns are 'who', "
            "'when', 'x', 'y', 'age', 'sick'",
        ),
        (
            WIDE,
            {"series_id": "who", "time": "who"},
            "column 'who' was given 2 roles; name each column once",
        ),
        (
            pa.table([[0, 1], [1.0, 2.0], [3.0, 4.0]], names=["t", "x", "x"]),
            {"series_id": None, "time": "t"},
            "the table must have one column 'x', got 2 of that name; its columns are 't', 'x', 'x'",
        ),
        (
            WIDE,
            WIDE_ROLES,
            "column 'sick' must hold numbers, got the text 'no' in row 0; convert it, leave it out "
            "by naming the channels, or give it another role",
        ),
        (
            WIDE,
            {**WIDE_ROLES, "static": ["y"], "label": "sick"},
            "column 'y' must not change within a series, got 3.0 in row 2 and 1.0 before in series "
            "0 (id 'b'); write one value in all rows of a series, or give it as a channel",
        ),
        (
            {**WIDE, "when": [1.0, 1.0, 1.0, 2.0, 2.0]},
            {**WIDE_ROLES, "label": "sick"},
            "times must strictly increase within a series, got 1.0 twice, at position 1 of series "
            "0 (id 'b') and just before; merge the two points or drop one",
        ),
    ],
)
def test_the_error_names_column_row_and_remedy(change, roles, words):
    with pytest.raises(InputError) as caught:
        SeriesBatch.from_table(change, **roles)
    assert str(caught.value) == words


def test_what_is_no_table_is_refused():
    with pytest.raises(InputError, match="expected a table of pandas, polars or pyarrow"):
        SeriesBatch.from_table(3, series_id="a", time="b")
    pandas = pytest.importorskip("pandas")
    mixed = pandas.DataFrame({"t": [0, 1], "x": [1.0, "a"]})
    with pytest.raises(InputError, match="cannot be read as columns of one kind each"):
        SeriesBatch.from_table(mixed, series_id=None, time="t")
