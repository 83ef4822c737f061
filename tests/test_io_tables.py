"""Parquet and CSV tables."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roughformer.errors import InputError
from roughformer.io import read_table, write_table
from roughformer.series import SeriesBatch

ENDS = [".parquet", ".csv", ".csv.gz", ".tsv"]
WIDE = {"series_id": "series_id", "time": "time"}
LONG = WIDE | {"channel": "channel", "value": "value"}


def _batch(**options):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(n, 2)) for n in (3, 1, 4)]
    arrays[0][1, 0] = np.nan
    times = [np.sort(rng.uniform(0, 9, size=len(a))) for a in arrays]
    fields = {
        "channels": ["hr", "bp"],
        "ids": ["p", "q", "r"],
        "static": [[1.0], [np.nan], [3.5]],
        "static_names": ["age"],
        "labels": [0, 1, 0],
    }
    return SeriesBatch.from_arrays(arrays, times, **(fields | options))


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("form", ["wide", "long"])
def test_what_is_written_reads_back_exactly(tmp_path, end, form):
    batch = _batch()
    path = tmp_path / f"t{end}"
    write_table(batch, path, form=form)
    roles = WIDE if form == "wide" else LONG
    channels = None if form == "long" else ["hr", "bp"]
    again = read_table(path, **roles, channels=channels, static=["age"], label="label")
    assert again.equals(batch)


@pytest.mark.parametrize("form", ["wide", "long"])
def test_dates_survive_parquet_to_the_nanosecond(tmp_path, form):
    start = np.datetime64("2020-02-29T12:00:00.000000001", "ns")
    times = start + np.arange(4) * np.timedelta64(8_000_001, "ns")
    batch = SeriesBatch.from_numpy3d(np.ones((2, 1, 4)), times)
    write_table(batch, tmp_path / "t.parquet", form=form)
    roles = WIDE if form == "wide" else LONG
    again = read_table(tmp_path / "t.parquet", **roles)
    assert again.time_origin == start
    np.testing.assert_array_equal(again.times, batch.times)


def test_what_was_not_observed_is_an_empty_field_or_null(tmp_path):
    batch = SeriesBatch.from_arrays([np.array([[np.nan, 1.5]])], channels=["a", "b"])
    write_table(batch, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().splitlines()[1] == "0,0,,1.5"
    write_table(batch, tmp_path / "t.parquet")
    assert pq.read_table(tmp_path / "t.parquet")["a"].null_count == 1


def test_dates_in_a_csv_file_are_recognised(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("who,when,x\na,2020-01-01 00:00:00,1\na,2020-01-01 00:00:30,\n")
    batch = read_table(path, series_id="who", time="when")
    assert batch.times.tolist() == [0.0, 30.0]
    assert batch.time_origin == np.datetime64("2020-01-01", "ns")
    np.testing.assert_array_equal(batch.values, [[1.0], [np.nan]])


def test_several_files_make_one_table(tmp_path):
    (tmp_path / "1.csv").write_text("s,t,x\n1,0,5\n2,0,6\n")
    (tmp_path / "2.csv").write_text("s,t,x\n1,1,7.5\n3,0,?\n")  # floats after integers
    batch = read_table([tmp_path / "1.csv", tmp_path / "2.csv"], series_id="s", time="t")
    assert batch.ids.tolist() == [1, 2, 3]
    assert batch.lengths.tolist() == [2, 1, 1]
    np.testing.assert_array_equal(batch.values[:, 0], [5, 7.5, 6, np.nan])


def test_other_columns_are_not_read(tmp_path):
    path = tmp_path / "t.parquet"
    table = {"s": [1, 1], "t": [0.0, 1.0], "x": [1.0, 2.0], "note": ["a", "b"]}
    pq.write_table(pa.table(table), path)
    batch = read_table(path, series_id="s", time="t", channels=["x"])
    assert batch.channels == ("x",)


def test_series_without_ids_are_numbered(tmp_path):
    write_table(_batch(ids=None, labels=None, static=None, static_names=None), tmp_path / "t.csv")
    assert read_table(tmp_path / "t.csv", **WIDE).ids.tolist() == [0, 1, 2]


def test_what_cannot_be_read_is_refused_with_words(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("s,t,x\n1,0,5\n")
    with pytest.raises(InputError, match=r"no column 'y'; its columns are 's', 't', 'x'"):
        read_table(path, series_id="s", time="t", channels=["y"])
    with pytest.raises(InputError, match="needs both"):
        read_table(path, series_id="s", time="t", channel="x")
    with pytest.raises(InputError, match="found nothing"):
        read_table(tmp_path / "absent.csv", series_id="s", time="t")
    with pytest.raises(InputError, match="empty list"):
        read_table([], series_id="s", time="t")
    (tmp_path / "t.xls").write_text("")
    with pytest.raises(InputError, match="cannot tell the format"):
        read_table(tmp_path / "t.xls", series_id="s", time="t")
    (tmp_path / "bad.parquet").write_text("no parquet")
    with pytest.raises(InputError, match=r"cannot be read as a table"):
        read_table(tmp_path / "bad.parquet", series_id="s", time="t")
    path.write_text("")
    with pytest.raises(InputError, match=r"cannot be read as a table"):
        read_table(path, series_id="s", time="t")


def test_what_a_table_cannot_hold_is_refused(tmp_path):
    with pytest.raises(InputError, match="same name"):
        write_table(_batch(), tmp_path / "t.csv", time="hr")
    with pytest.raises(InputError, match="one label per series"):
        write_table(_batch(labels=np.zeros((3, 2))), tmp_path / "t.csv")
    with pytest.raises(InputError, match="'wide' or 'long'"):
        write_table(_batch(), tmp_path / "t.csv", form="broad")


def test_importing_the_readers_imports_nothing_heavy():
    code = "import sys, roughformer.io; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "pandas", "polars", "wfdb", "pyedflib"} & set(out.stdout.split())


@pytest.mark.parametrize(
    "text",
    ["id,t,x\n1,0,0.5\n1,1,1.5\n",
     "id;t;x\n1;0;0,5\n1;1;1,5\n", "id\tt\tx\n1\t0\t0.5\n1\t1\t1.5\n"],
    ids=["commas", "semicolons and decimal commas", "tabs"],
)  # fmt: skip
def test_csv_separators_and_decimal_marks_are_told_apart(tmp_path, text):
    file = tmp_path / "table.csv"
    file.write_text(text)
    batch = read_table(file, series_id="id", time="t")
    assert batch.values[:, 0].tolist() == [0.5, 1.5]
