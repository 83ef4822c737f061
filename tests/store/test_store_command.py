"""roughformer features --out DIR: what it makes, says and refuses."""

import os
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_data import expect, rows_of, table, write

import roughformer as rf
from command import fails, succeeds
from roughformer.store import build
from roughformer.store.storage import Place

ONE = ("--workers", "1", "--windows", "4")


@pytest.fixture
def data(tmp_path):
    return write(table(20), tmp_path / "data")


def test_the_command_makes_a_store_and_then_has_nothing_to_do(tmp_path, data):
    out = tmp_path / "store"
    command = ("features", data, "--out", out, "--channels", "x,y", "--label", "kind", "--series")
    done = succeeds(*command, *ONE)
    rows = len(table(20))
    assert f"20 series, {rows:,} observations, 80 windows of 24 features, 1 shards" in done.out
    assert "observations/s" in done.out
    whole = rf.SeriesBatch.from_table(
        table(20), series_id="id", time="time", channels=("x", "y"), label="kind"
    )
    manifest = expect(out, whole)
    assert manifest.holds == ("tokens", "series")
    assert manifest.tokenizer.config.time == "unit"
    assert "is complete, of these data and options; nothing to do" in succeeds(*command, *ONE).out
    assert "all 1 shards were read and are whole" in succeeds(*command, *ONE, "--verify").err
    assert "give one of them" in fails(*command, *ONE, "--verify", "--force")
    assert "wrote" in succeeds(*command, *ONE, "--depth", "1").out
    assert "wrote" in succeeds(*command, *ONE, "--depth", "1", "--force").out


def test_several_files_labels_of_a_table_and_covariates(tmp_path, data):
    (tmp_path / "y.csv").write_text("id,outcome\n0,1.5\n6,2.5\n")
    out = tmp_path / "store"
    done = succeeds(
        "features", data / "part-0.parquet", f"{data}/part-[12].parquet", "--out", out, *ONE,
        "--channels", "x,y", "--labels", tmp_path / "y.csv", "--static", "age",
        "--lift", "time:span,counts,clock:2,lag:0.5", "--transform", "logsignature",
    )  # fmt: skip
    assert "18 series have no row in" in done.err
    manifest, found = rows_of(out)
    assert {key: row[3] for key, row in found.items()} == {0: 1.5, 6: 2.5}
    config = manifest.tokenizer.config
    assert (config.time, config.counts, config.clock, config.lags) == ("span", True, 2, (0.5,))
    assert config.static == ("age",)


def test_an_estimate_reads_footers_only(tmp_path, data):
    done = succeeds("features", data, "--out", tmp_path / "store", "--channels", "x", "--estimate")
    assert f"{len(table(20)):,} rows in 3 files" in done.out
    assert "in the order of the series" in done.out
    assert not (tmp_path / "store").exists()


def test_a_long_table_is_known_by_its_columns(tmp_path):
    rows = {"id": [1, 1, 2, 2], "t": [0.0, 1.0, 0.0, 2.0], "channel": ["a", "b", "a", "a"],
            "value": [1.0, 2.0, 3.0, 4.0]}  # fmt: skip
    pq.write_table(pa.table(rows), tmp_path / "x.parquet")
    succeeds("features", tmp_path / "x.parquet", "--out", tmp_path / "store", *ONE)
    assert rows_of(tmp_path / "store")[0].channels == ("a", "b")
    words = fails("features", tmp_path / "x.parquet", "--out", tmp_path / "s2", "--channels", "z")
    assert "no row is of channel 'z'; the channels are a, b" in words


def test_an_index_that_pandas_kept_is_no_channel_of_a_store(tmp_path):
    data = table(20).select(["id", "time", "x", "y"])
    numbered = data.append_column("index", pa.array(np.arange(len(data))))
    pq.write_table(numbered, tmp_path / "x.parquet", row_group_size=100)
    succeeds("features", tmp_path / "x.parquet", "--out", tmp_path / "store", *ONE)
    assert rows_of(tmp_path / "store")[0].channels == ("x", "y")


def with_null_id(data):
    ids = pa.array([None, *data.column("id").to_pylist()[1:]], pa.int64())
    return data.set_column(0, "id", ids)


BAD = {
    "no id": (lambda t: t.drop_columns(["id"]), "which column of .* holds the ids"),
    "no channel": (lambda t: t.drop_columns(["x"]), "has no column 'x'"),
    "text values": (
        lambda t: t.set_column(2, "x", t.column("x").cast(pa.string())), "must hold numbers"
    ),
    "float ids": (
        lambda t: t.set_column(0, "id", t.column("id").cast(pa.float64())),
        "must hold whole numbers or texts to name series, got double",
    ),
    "null id": (with_null_id, "must name the series of each row, got 1 rows without it"),
    "no rows": (lambda t: t.slice(0, 0), "there are no rows"),
    "twice": (lambda t: pa.concat_tables([t, t]), "strictly increase within a series.*twice"),
    "label changes": (
        lambda t: t.set_column(5, "kind", pa.array(list(map(str, range(len(t)))))),
        "column 'kind' must not change within a series",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_bad_tables_are_refused_in_one_line(tmp_path, what):
    change, words = BAD[what]
    write(change(table(6)), tmp_path / "data", files=1)
    command = ("features", tmp_path / "data", "--out", tmp_path / "store", *ONE)
    line = fails(*command, "--channels", "x,y", "--label", "kind")

    assert re.search(words, line), line
    assert not (tmp_path / "store" / "manifest.json").exists()


def test_files_that_differ_in_kind_are_refused(tmp_path, data):
    other = table(3, texts=True)
    pq.write_table(other, data / "z.parquet")
    line = fails("features", data, "--out", tmp_path / "store", "--channels", "x")
    assert "column 'id' is int64 in" in line
    assert "write the files with columns of one kind" in line


def test_a_damaged_file_is_named(tmp_path, data):
    victim = data / "part-1.parquet"
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-100])
    assert "part-1.parquet is damaged or no Parquet file" in fails(
        "features", data, "--out", tmp_path / "store", "--channels", "x"
    )
    garbage = np.random.default_rng(0).bytes(1000)
    victim.write_bytes(whole[:200] + garbage + whole[1200:])
    assert "part-1.parquet is damaged, rows cannot be read" in fails(
        "features", data, "--out", tmp_path / "store", "--channels", "x,y", *ONE
    )


def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path, data):
    out = tmp_path / "store"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    assert "holds 'thesis.tex', which is not part of a feature store" in fails(
        "features", data, "--out", out, "--channels", "x"
    )
    (out / "thesis.tex").rename(out / "shard-00000.parquet")
    assert "is not a shard of a feature store" in fails(
        "features", data, "--out", out, "--channels", "x"
    )
    (tmp_path / "file").write_text("x")
    assert "is a file; a store is a directory" in fails(
        "features", data, "--out", tmp_path / "file", "--channels", "x"
    )
    assert (out / "shard-00000.parquet").read_text() == "years of work"


def test_a_full_disk_is_said_and_leaves_nothing_half(tmp_path, data, monkeypatch):
    def full(self, data):
        raise OSError(28, "No space left on device")

    out = tmp_path / "store"
    real = build.write_shard
    monkeypatch.setattr(build, "write_shard", lambda place, *rest: Place.put(place, None))
    monkeypatch.setattr(Place, "put", full)
    assert "No space left on device" in fails(
        "features", data, "--out", out, "--channels", "x", *ONE
    )
    assert os.listdir(out) == []
    monkeypatch.undo()
    assert build.write_shard is real
    succeeds("features", data, "--out", out, "--channels", "x", *ONE)


def test_two_builds_of_one_store_do_not_meet(tmp_path, data):
    from roughformer.store.build import building

    out = tmp_path / "store"
    with building(Place.of(out), "key"):
        assert "another process is making" in fails(
            "features", data, "--out", out, "--channels", "x", *ONE
        )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--memory", "much"], "--memory must be such as 500MB or 2GB, got 'much'"),
        (["--memory", "1KB"], "--memory"),
        (["--lift", "space"], "--lift space: unknown; known are time"),
        (["--lift", "lag:x"], "a number is needed after the colon"),
        (["--engine", "abacus"], "the engine must be 'local' or 'ray', got 'abacus'"),
        (["--no-tokens"], "a store holds tokens, series or both; neither was asked for"),
        (["--window-points", "3", "--drop", "0.5"], "--drop cannot be combined with"),
        (["--views", "inner"], "views"),
    ],
)
def test_options_that_cannot_be_are_refused(tmp_path, data, options, words):
    chosen = [w for w in ONE if not (w in ("--windows", "4") and "--window-points" in options)]
    line = fails(
        "features", data, "--out", tmp_path / "store", "--channels", "x", *chosen, *options
    )
    assert words in line


def test_what_is_no_table_is_told_the_way(tmp_path):
    batch = rf.SeriesBatch.from_numpy3d(np.ones((2, 1, 5)))
    batch.save(tmp_path / "b.parquet")
    assert "written by SeriesBatch.save, whose ids and labels are no columns" in fails(
        "features", tmp_path / "b.parquet", "--out", tmp_path / "store"
    )
    (tmp_path / "x.csv").write_text("id,time,x\n1,0,1\n")
    assert "is no .parquet: a store is made of Parquet tables" in fails(
        "features", tmp_path / "x.csv", "--out", tmp_path / "store"
    )
    assert "one file of tokens is made of one DATA, got 2" in fails(
        "features", tmp_path / "x.csv", tmp_path / "b.parquet", "--out", tmp_path / "t.parquet"
    )
