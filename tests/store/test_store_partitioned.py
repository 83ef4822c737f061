"""Files in directories such as ``patient=17/``: the path tells a column that the file has not."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from store_data import COLUMNS, expect, make, rows_of, shuffled, table

import roughformer as rf
from command import fails, succeeds
from roughformer.errors import InputError
from roughformer.store import TableColumns


def partitioned(data, directory, names=("id",)):
    """As pyarrow and Spark write it."""
    kinds = pa.schema([data.schema.field(name) for name in names])
    ds.write_dataset(
        data, directory, format="parquet", partitioning=ds.partitioning(kinds, flavor="hive")
    )
    return directory


def whole(data, **roles):
    return rf.SeriesBatch.from_table(
        data, series_id="id", time="time", channels=("x", "y"), **roles
    )


@pytest.mark.parametrize("texts", [False, True])
def test_ids_may_be_told_by_directories(tmp_path, texts):
    data = table(15, texts=texts, gaps=True)
    partitioned(shuffled(data), tmp_path / "data")
    first = next((tmp_path / "data").rglob("*.parquet"))
    assert "id" not in pq.read_schema(first).names
    built = make(tmp_path / "data", tmp_path / "out", series=True)
    assert not built.shuffled  # each file has one series
    expect(tmp_path / "out", whole(data))
    again = make(tmp_path / "data", tmp_path / "out", series=True)
    assert again.made == 0


def test_a_series_may_be_in_several_files_and_labels_in_paths(tmp_path):
    data = table(12)
    late = pc.greater(data["time"], 20)
    data = data.append_column("part", pc.if_else(late, "late", "early"))
    partitioned(data, tmp_path / "data", ("part", "kind", "id"))
    columns = TableColumns("id", "time", ("x", "y"), static=("age",), label="kind")
    make(tmp_path / "data", tmp_path / "out", columns=columns, series=True)
    expect(tmp_path / "out", whole(data, label="kind", static=("age",)))


def test_what_a_path_tells_belongs_to_the_data(tmp_path):
    data = table(3)
    partitioned(data, tmp_path / "data")
    make(tmp_path / "data", tmp_path / "out", series=True)
    (tmp_path / "data" / "id=6").rename(tmp_path / "data" / "id=8")
    assert make(tmp_path / "data", tmp_path / "out", series=True).made
    assert sorted(rows_of(tmp_path / "out")[1]) == [0, 3, 8]


def test_names_with_zeros_are_no_numbers(tmp_path):
    data = table(2)
    for name, part in (("id=007", data.slice(0, 3)), ("id=8", data.slice(3, 3))):
        (tmp_path / "data" / name).mkdir(parents=True)
        one = part.drop_columns(["id"]).set_column(0, "time", pa.array([0.0, 1.0, 2.0]))
        pq.write_table(one, tmp_path / "data" / name / "a.parquet")
    make(tmp_path / "data", tmp_path / "out")
    assert sorted(rows_of(tmp_path / "out")[1]) == ["007", "8"]


@pytest.mark.parametrize("name", ["elsewhere", "id=__HIVE_DEFAULT_PARTITION__"])
def test_a_path_that_does_not_tell_is_named(tmp_path, name):
    partitioned(table(3), tmp_path / "data")
    (tmp_path / "data" / "id=3").rename(tmp_path / "data" / name)
    with pytest.raises(InputError, match=f"'id' is a key in the paths of files .*{name}"):
        make(tmp_path / "data", tmp_path / "out", columns=COLUMNS)


def test_the_command_takes_them(tmp_path):
    data = table(6).drop_columns(["age", "kind"])
    data = data.append_column("year", pa.array([2024] * len(data)))
    partitioned(data, tmp_path / "data", ("year", "id"))
    out = tmp_path / "out"
    done = succeeds("features", tmp_path / "data", "--out", out, "--windows", "4", "--workers", "1")
    assert "6 series" in done.out
    assert rows_of(out)[0].channels == ("x", "y")  # the year is none
    failed = fails(
        "features", tmp_path / "data", "--out", out, "--windows", "4", "--series-id", "nobody"
    )
    assert "no column 'nobody'" in failed
    assert "'year', 'id'" in failed


def test_a_column_that_looks_like_an_id_goes_before_a_directory(tmp_path):
    data = table(4).drop_columns(["age", "kind"]).rename_columns(["patient", "time", "x", "y"])
    where = tmp_path / "id=5"
    where.mkdir()
    pq.write_table(data, where / "a.parquet")
    succeeds("features", where / "a.parquet", "--out", tmp_path / "out", "--windows", "4")
    manifest, found = rows_of(tmp_path / "out")
    assert sorted(found) == [0, 3, 6, 9]
    assert manifest.channels == ("x", "y")


def test_channels_may_be_told_by_directories(tmp_path):
    for name in ("hr", "bp"):
        (tmp_path / f"channel={name}").mkdir()
        rows = pa.table({"id": [1, 1, 2], "t": [0.0, 1.0, 0.0], "value": [1.0, 2.0, 3.0]})
        pq.write_table(rows, tmp_path / f"channel={name}" / "a.parquet")
    options = ("--channel", "channel", "--value", "value", "--windows", "2", "--workers", "1")
    succeeds("features", tmp_path, "--out", tmp_path.parent / "o7", *options)
    assert set(rows_of(tmp_path.parent / "o7")[0].channels) == {"hr", "bp"}
    wrong = ("--channel", "nobody", *options[2:])
    text = fails("features", tmp_path, "--out", tmp_path.parent / "o8", *wrong)
    assert "has no column 'nobody'" in text
