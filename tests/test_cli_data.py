"""Files of series as the command line reads them."""

import gzip

import numpy as np
import pytest

import roughformer as rf
from roughformer.errors import InputError
from roughformer.io import write_table
from roughformer.runs.data import Columns, ids_of, read_data
from roughformer.series import SeriesBatch
from small import make_sine


@pytest.fixture
def batch():
    return make_sine(6, n_classes=3, length=9)


def write(path, text):
    path.write_text(text)
    return path


WIDE = """patient,time,hr,spo2,age,ward,died
a,0,60,97,70,w1,no
a,1,62,,70,w1,no
b,0,80,99,50,w2,yes
"""


def test_a_saved_batch_needs_no_options(tmp_path, batch):
    batch.save(tmp_path / "x.parquet")
    data = read_data(tmp_path / "x.parquet", Columns(), target="label")
    assert np.array_equal(data.batch.values, batch.values)
    assert np.array_equal(data.target, batch.labels)
    assert ids_of(data.batch).tolist() == [0, 1, 2, 3, 4, 5]


def test_read_takes_columns_targets_and_groups_by_name(tmp_path):
    path = write(tmp_path / "x.csv", WIDE)
    data = rf.read(str(path), target="died", group="ward", static=["age"])
    assert data.batch.channels == ("hr", "spo2")
    assert data.target.tolist() == ["no", "yes"]
    assert data.groups.tolist() == ["w1", "w2"]
    assert data.batch.static.tolist() == [[70.0], [50.0]]
    assert data.columns.series_id == "patient"
    only = rf.read(path, target="died", channels=["hr"], series_id="patient", time="time")
    assert only.batch.channels == ("hr",)


def test_a_static_covariate_can_be_the_target_or_the_group(tmp_path, batch):
    batch.save(tmp_path / "x.parquet")
    data = read_data(tmp_path / "x.parquet", Columns(), target="omega", group="omega")
    assert np.array_equal(data.target, batch.static[:, 0])
    assert np.array_equal(data.groups, batch.static[:, 0])


def test_ts_files_have_labels(tmp_path):
    write(tmp_path / "x.ts", "@classLabel true a b\n@data\n1,2,3:a\n4,5,6:b\n")
    data = read_data(tmp_path / "x.ts", Columns(), target="label")
    assert data.target.tolist() == ["a", "b"]


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.tsv", "x.csv.gz"])
@pytest.mark.parametrize("form", ["wide", "long"])
def test_tables_are_told_apart_by_their_columns(tmp_path, batch, form, name):
    plain = SeriesBatch(batch.times, batch.values, batch.offsets, labels=batch.labels)
    write_table(plain, tmp_path / name, form=form)
    data = read_data(tmp_path / name, Columns(), target="label")
    assert data.batch.channels == plain.channels
    assert np.allclose(data.batch.values, plain.values)
    assert data.target.tolist() == batch.labels.tolist()


def test_columns_with_a_role_are_no_channels(tmp_path):
    file = write(tmp_path / "x.csv", WIDE)
    data = read_data(file, Columns(static=("age",)), target="died", group="ward")
    assert data.batch.channels == ("hr", "spo2")
    assert data.target.tolist() == ["no", "yes"]
    assert data.groups.tolist() == ["w1", "w2"]
    assert data.batch.static.tolist() == [[70.0], [50.0]]
    assert data.columns.series_id == "patient"
    assert data.columns.time == "time"


def test_several_targets(tmp_path):
    file = write(tmp_path / "x.csv", WIDE)
    with pytest.raises(InputError, match="names 'age' twice"):
        read_data(file, Columns(channels=("hr",)), target="age, age")
    file = write(tmp_path / "x.csv", WIDE.replace("no", "0").replace("yes", "1"))
    data = read_data(file, Columns(channels=("hr",)), target="age, died")
    assert data.target.tolist() == [[70, 0], [50, 1]]


def test_names_can_be_given(tmp_path):
    file = write(tmp_path / "x.csv", "who,when,what,much\n1,0,a,5\n1,2,b,6\n2,0,a,7\n")
    columns = Columns("who", "when", "what", "much")
    data = read_data(file, columns)
    assert data.batch.channels == ("a", "b")
    assert data.batch.lengths.tolist() == [2, 1]
    assert data.target is None


def test_targets_of_a_table_of_their_own(tmp_path, batch):
    batch.with_labels(None).save(tmp_path / "x.parquet")
    labels = write(tmp_path / "y.csv", "id,died,ward\n0,no,a\n2,yes,b\n1,no,a\n5,no,c\n")
    data = read_data(tmp_path / "x.parquet", Columns(), target="died", group="ward", labels=labels)
    assert data.target.tolist() == ["no", "no", "yes", "no"]
    assert data.groups.tolist() == ["a", "a", "b", "c"]
    assert np.array_equal(data.batch.values, batch[[0, 1, 2, 5]].values)
    assert ids_of(data.batch).tolist() == [0, 1, 2, 5]
    assert data.notes == (f"2 of 6 series have no row in {labels} and are left out",)


def test_the_other_column_of_two_is_the_target(tmp_path, batch):
    batch.save(tmp_path / "x.parquet")
    labels = write(
        tmp_path / "y.csv", "series,rate\n" + "".join(f"{i},{i / 2}\n" for i in range(6))
    )
    data = read_data(tmp_path / "x.parquet", Columns(), target="label", labels=labels)
    assert data.target.tolist() == [0, 0.5, 1, 1.5, 2, 2.5]


def test_semicolons_and_decimal_commas_are_read_with_targets_in_a_table_of_their_own(tmp_path):
    file = write(tmp_path / "x.csv", "id;time;x\n1;0,5;3\n1;1,5;4\n2;0,5;5\n")
    labels = write(tmp_path / "y.csv", "id;rate\n1;0,5\n2;1,5\n")
    data = rf.read(file, target="rate", labels=labels)
    assert data.batch.channels == ("x",)
    assert data.batch.times.tolist() == [0.5, 1.5, 0.5]
    assert data.target.tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("x.csv", "a,time,x\n1,2,3\n", "which column of .* holds the ids of the series: name it"),
        (
            "x.csv",
            "id,a,x\n1,2,3\n",
            "holds the times: name it with --time. Its columns are 'id', 'a'",
        ),
        ("x.csv", "id,time\n1,2\n", "has no column left to be a channel; see --channels"),
        ("x.csv", "id,time,x\n1,2,3,4\n", "cannot be read as"),
        ("x.csv", "", "cannot be read as a table"),
        ("x.csv", "id,time,x\n1,0,3\n1,2,3\n", "has no column 'label'; name the target with"),
        ("x.parquet", "nonsense", "is damaged or no Parquet file"),
        ("x.ts", "nonsense", "expected a line @data"),
        ("x.doc", "nonsense", "cannot tell the format of .*: known are .parquet, .csv"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path, name, text, words):
    file = write(tmp_path / name, text)
    with pytest.raises(InputError, match=words):
        read_data(file, Columns(), target="label")


def test_what_is_missing_is_said(tmp_path, batch):
    file = tmp_path / "x.parquet"
    batch.with_labels(None).save(file)
    with pytest.raises(InputError, match=r"there is no file .*check the path"):
        read_data(tmp_path / "absent.csv", Columns())
    with pytest.raises(InputError, match="has no target 'label'; it has omega"):
        read_data(file, Columns(), target="label")
    with pytest.raises(InputError, match="holds neither WFDB records nor EDF files"):
        read_data(tmp_path, Columns())
    labels = write(tmp_path / "y.csv", "id,died\nx,1\n")
    with pytest.raises(InputError, match=r"no series of the data is in .*'id' must hold their ids"):
        read_data(file, Columns(), target="died", labels=labels)
    with pytest.raises(InputError, match=r"has no column 'born'; name the target with --target"):
        read_data(file, Columns(), target="born", labels=labels)
    twice = write(tmp_path / "z.csv", "id,died\n1,1\n1,0\n")
    with pytest.raises(InputError, match=r"must not change within a series, but series 1 has 0"):
        read_data(file, Columns(), target="died", labels=twice)
    table = write(tmp_path / "w.csv", WIDE)
    with pytest.raises(InputError, match="has no column 'zone' for --group"):
        read_data(table, Columns(channels=("hr",)), target="died", group="zone")


def test_a_directory_of_records(tmp_path):
    wfdb = pytest.importorskip("wfdb")
    for name in ("r1", "r2"):
        wfdb.wrsamp(
            name, fs=10, units=["mV"], sig_name=["ecg"], p_signal=np.zeros((20, 1)),
            fmt=["16"], write_dir=str(tmp_path),
        )  # fmt: skip
    labels = write(tmp_path / "y.csv", "record,sick\nr1,0\nr2,1\n")
    data = read_data(tmp_path, Columns(), target="sick", labels=labels)
    assert data.batch.channels == ("ecg",)
    assert data.target.tolist() == [0, 1]
    one = read_data(tmp_path / "r2.hea", Columns())
    assert ids_of(one.batch).tolist() == ["r2"]


def test_names_that_were_given_go_before_those_that_were_kept():
    kept = Columns("id", "t", channels=("a",))
    given = Columns(time="when", static=("age",))
    assert given.over(kept) == Columns("id", "when", channels=("a",), static=("age",))
    assert Columns.of(kept.plain()) == kept


def test_a_damaged_gzip_is_one_error(tmp_path):
    file = tmp_path / "x.csv.gz"
    file.write_bytes(gzip.compress(WIDE.encode())[:-12])
    with pytest.raises(InputError, match="cannot be read"):
        read_data(file, Columns(), target="died")


def test_a_kept_index_is_no_channel_and_a_running_number_is_pointed_out(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = np.arange(12)
    table = pa.table(
        {"id": rows // 6, "t": rows % 6, "x": np.sin(rows), "__index_level_0__": rows, "row": rows}
    )
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.warns(UserWarning, match="channel 'row' is a running number of the rows"):
        data = read_data(tmp_path / "x.parquet", Columns())
    assert data.columns == Columns("id", "t", channels=("x", "row"))


def test_an_index_that_a_csv_kept_is_no_channel(tmp_path):
    rows = "".join(f"{i},{i // 6},{i % 6},{i * i}\n" for i in range(12))
    for name in ("", "Unnamed: 0", "index"):
        file = write(tmp_path / "x.csv", f"{name},id,t,x\n{rows}")
        assert read_data(file, Columns()).columns == Columns("id", "t", channels=("x",))


def test_series_without_ids_are_one_only_where_they_are_forecast(tmp_path):
    rows = "".join(f"{i // 5},{i},{i % 3}\n" for i in range(20))
    file = write(tmp_path / "x.csv", "stay,time,x\n" + rows)
    labels = write(tmp_path / "y.csv", "stay,died\n0,1\n1,0\n2,1\n3,0\n")
    for options in ({"target": "died", "labels": labels}, {}, {"one_series": None}):
        with pytest.raises(InputError, match="holds the ids of the series"):
            read_data(file, Columns(), **options)
    one = write(tmp_path / "one.csv", "time,x\n" + "".join(f"{i},{i % 3}\n" for i in range(20)))
    assert len(read_data(one, Columns(), one_series=None).batch) == 1
    with pytest.raises(InputError, match="holds the ids of the series"):
        read_data(one, Columns())
