"""roughformer features: the file holds exactly what the engine says."""

import numpy as np
import pyarrow.parquet as pq
import pytest

import roughformer as rf
from command import fails, succeeds
from roughformer.io import write_table
from roughformer.runs import features
from small import make_sine


@pytest.fixture
def batch():
    return make_sine(7, n_classes=3, length=40)


@pytest.fixture
def file(tmp_path, batch):
    batch.save(tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


def tokens_of(table, names):
    return np.stack([table.column(name).to_numpy() for name in names], axis=1)


@pytest.mark.parametrize("at_once", [1, 2000, 1 << 26])
@pytest.mark.parametrize("drop", [0.0, 0.5])
def test_rows_are_windows_and_columns_are_words(tmp_path, monkeypatch, batch, file, at_once, drop):
    monkeypatch.setattr(features, "_BYTES_AT_ONCE", at_once)
    out = tmp_path / "t.parquet"
    done = succeeds(
        "features", file, "--windows", "5", "--drop", str(drop), "--seed", "3", "--out", out
    )
    assert done.out.startswith("7 series, 35 windows, 12 features: 1.68 kB\n")
    table = pq.read_table(out)
    names = rf.feature_names(batch.channels, 2, lifts="time")
    assert table.column_names == ["series_id", "window", "start", "end", "label", *names]
    expected = rf.multiview_signature(batch, 5, 2, lifts="time", drop=drop, seed=3)
    assert np.array_equal(tokens_of(table, names), expected.reshape(35, 12))
    assert table.column("label").to_numpy().tolist() == np.repeat(batch.labels, 5).tolist()
    assert table.column("window").to_numpy().tolist() == list(range(5)) * 7
    assert np.allclose(table.column("start").to_numpy()[:5], np.arange(5) * 6 / 5)
    assert np.allclose(table.column("end").to_numpy()[:5], np.arange(1, 6) * 6 / 5)
    groups = pq.ParquetFile(out).num_row_groups
    assert groups == {1: 7, 2000: 1, 1 << 26: 1}[at_once]


def test_ragged_series_have_as_many_rows_as_windows(tmp_path):
    batch = rf.SeriesBatch.from_arrays(
        [np.ones((5, 2)), np.ones((9, 2))], ids=["a", "b"], channels=["u", "v"]
    )
    batch.save(tmp_path / "x.parquet")
    out = tmp_path / "t.parquet"
    command = ("features", tmp_path / "x.parquet", "--out", out, "--lift", "time,counts,clock:2")
    succeeds(*command, "--window-duration", "2")
    table = pq.read_table(out)
    assert table.column("series_id").to_pylist() == ["a"] * 2 + ["b"] * 4
    assert "label" not in table.column_names
    assert "local:sin2*v" in table.column_names
    succeeds(*command, "--window-points", "4", "--force", "--transform", "logsignature")
    table = pq.read_table(out)
    assert table.column("series_id").to_pylist() == ["a"] + ["b"] * 2
    assert "global:[time*u]" in table.column_names


def test_dates_stay_dates_and_labels_may_be_a_column(tmp_path):
    rows = "id,time,x,y\n" + "".join(f"a,2024-01-01 00:00:0{s},{s},k\n" for s in range(5))
    (tmp_path / "x.csv").write_text(rows)
    out = tmp_path / "t.parquet"
    succeeds("features", tmp_path / "x.csv", "--windows", "2", "--label", "y", "--out", out)
    table = pq.read_table(out)
    ends = table.column("end").to_numpy().astype("datetime64[s]").astype(str).tolist()
    assert ends == ["2024-01-01T00:00:02", "2024-01-01T00:00:04"]
    assert table.column("label").to_pylist() == ["k", "k"]
    assert "global:x" in table.column_names
    assert "global:y" not in table.column_names


def test_labels_of_another_table_keep_the_ids(tmp_path, file):
    (tmp_path / "y.csv").write_text("id,label\n6,b\n2,a\n")
    out = tmp_path / "t.parquet"
    done = succeeds(
        "features", file, "--labels", tmp_path / "y.csv", "--windows", "1", "--out", out
    )
    assert "5 of 7 series have no row in" in done.err
    table = pq.read_table(out)
    assert table.column("series_id").to_pylist() == [2, 6]
    assert table.column("label").to_pylist() == ["a", "b"]


def test_an_estimate_writes_nothing(tmp_path, file):
    out = tmp_path / "t.parquet"
    assert (
        "7 series, 525 windows, 12 features"
        in succeeds("features", file, "--estimate", "--out", out).out
    )
    assert not out.exists()


def test_what_does_not_fit_is_refused_before_anything_is_computed(tmp_path):
    rng = np.random.default_rng(0)
    wide = rf.SeriesBatch.from_numpy3d(rng.normal(size=(2, 50, 4)))
    write_table(wide, tmp_path / "x.csv")
    out = tmp_path / "t.parquet"
    words = fails("features", tmp_path / "x.csv", "--depth", "4", "--out", out)
    assert "a file of more than 50,000 columns is of no use; lower --depth" in words
    assert not out.exists()


def test_too_little_memory_and_disk_are_said(tmp_path, monkeypatch, file):
    out = tmp_path / "t.parquet"
    monkeypatch.setattr(features, "over_limit", lambda need, limit: 1000)
    assert "the tokens of one series need 3.6 kB, and the memory has 1 kB" in fails(
        "features", file, "--out", out
    )
    monkeypatch.undo()
    monkeypatch.setattr(features.shutil, "disk_usage", lambda where: type("D", (), {"free": 5}))
    assert "has 5 bytes left" in fails("features", file, "--out", out)


def test_a_failure_leaves_no_file_behind(tmp_path, monkeypatch, file):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(features, "multiview_signature", fail)
    before = set(tmp_path.iterdir())
    assert "No space left on device" in fails("features", file, "--out", tmp_path / "t.parquet")
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--out", "t.csv"], "cannot write t.csv: the name must end in .parquet"),
        (["--lift", "space"], "--lift space: unknown; known are time"),
        (["--lift", "lag:x"], "--lift lag:x: a number is needed after the colon"),
        (["--lift", "lag:-1"], "a positive duration"),
        (["--views", "inner"], "views must be one or both"),
        (["--transform", "sum"], "transform must be 'signature' or 'logsignature'"),
        (["--window-points", "3", "--drop", "0.5"], "--drop cannot be combined with"),
        (["--drop", "1"], "must be in [0, 1), got 1.0"),
        (["--label", "mood"], "has no target 'mood'"),
    ],
)  # fmt: skip
def test_what_cannot_be_computed_is_said_in_one_line(tmp_path, monkeypatch, file, options, words):
    monkeypatch.chdir(tmp_path)
    assert words in fails("features", file, *options)


def test_an_existing_file_is_not_replaced_unasked(tmp_path, file):
    out = tmp_path / "t.parquet"
    succeeds("features", file, "--out", out)
    assert "exists; replace it with --force, or choose another place with --out" in fails(
        "features", file, "--out", out
    )
    succeeds("features", file, "--out", out, "--force")


def test_channels_that_are_never_observed_are_told_once(tmp_path, monkeypatch):
    monkeypatch.setattr(features, "_BYTES_AT_ONCE", 1)
    values = np.ones((4, 2, 6))
    values[1:3, 1] = np.nan
    rf.SeriesBatch.from_numpy3d(values, channels=["a", "b"]).save(tmp_path / "x.parquet")
    done = succeeds("features", tmp_path / "x.parquet", "--out", tmp_path / "t.parquet")
    (line,) = done.err.splitlines()
    assert line.startswith("note: never observed, taken as constant 0: channel 'b' in 2 of 4")
