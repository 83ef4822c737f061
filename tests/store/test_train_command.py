"""Parquet -> store -> run -> predictions, by the commands."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from test_stored import made_up
from typer.testing import CliRunner

from roughformer.cli import app
from roughformer.io import write_table

SMALL = [
    "--epochs", "2", "--set", "d_model=8", "--set", "n_heads=2", "--no-plots", "--threads", "1",
]  # fmt: skip


def command(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("commands")
    write_table(made_up(60, static=False), place / "data.parquet")
    for name, more in {"tokens": [], "both": ["--series"]}.items():
        done = command(
            "features", place / "data.parquet", "--out", place / name, "--windows", 5,
            "--label", "label", "--workers", 1, *more,
        )  # fmt: skip
        assert done.exit_code == 0, done.output
    return place


@pytest.mark.parametrize("name", ["tokens", "both"])
def test_a_run_from_a_store_predicts_from_raw_series(place, name):
    run = place / f"run-{name}"
    done = command("train", place / name, "--out", run, *SMALL)
    assert done.exit_code == 0, done.output
    summary = json.loads((run / "metrics.json").read_text())
    assert 0 <= summary["validation"]["accuracy"] <= 1
    done = command("predict", run, place / "data.parquet", "--out", place / f"{name}.parquet")
    assert done.exit_code == 0, done.output
    assert pq.read_table(place / f"{name}.parquet").num_rows == 60


def test_both_stores_give_the_same_run(place):
    scores = []
    for name in ("tokens", "both"):
        run = place / f"again-{name}"
        command("train", place / name, "--out", run, *SMALL)
        lines = (run / "log.jsonl").read_text().splitlines()
        scores.append([json.loads(line)["train_loss"] for line in lines])
    np.testing.assert_allclose(*scores, rtol=1e-6)


def test_points_are_dropped_where_the_store_has_series(place):
    done = command("train", place / "both", "--out", place / "d", "--drop", "0.5", *SMALL)
    assert done.exit_code == 0, done.output
    with pytest.raises(Exception, match="holds tokens only, and drop"):
        command("train", place / "tokens", "--out", place / "e", "--drop", "0.5", *SMALL)


def test_predictions_of_a_store_with_series(place):
    command("train", place / "both", "--out", place / "f", *SMALL)
    of_file, of_store = place / "1.parquet", place / "2.parquet"
    command("predict", place / "f", place / "data.parquet", "--out", of_file)
    done = command("predict", place / "f", place / "both", "--out", of_store)
    assert done.exit_code == 0, done.output
    by_id = {r["series_id"]: r for r in pq.read_table(of_file).to_pylist()}
    for row in pq.read_table(of_store).to_pylist():
        assert row["prediction"] == by_id[row["series_id"]]["prediction"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--target", "other"], r"has one target, label; got other"),
        (["--group", "ward"], "--group and --labels are for tables"),
    ],
)
def test_what_a_store_does_not_have_is_said(place, more, words):
    with pytest.raises(Exception, match=words):
        command("train", place / "both", "--out", place / "g", *more, *SMALL)


def test_a_store_without_labels_is_no_training_data(place):
    done = command(
        "features", place / "data.parquet", "--out", place / "bare", "--windows", 5,
        "--channels", "a,b", "--workers", 1,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    with pytest.raises(Exception, match="has no labels; make it with roughformer features --label"):
        command("train", place / "bare", "--out", place / "h", *SMALL)


def test_uris_are_read_as_paths_are(place):
    copy = place / "copy"
    shutil.copytree(place / "both", copy)
    done = command("train", copy.as_uri(), "--out", place / "i", *SMALL)
    assert done.exit_code == 0, done.output


def test_the_answer_is_never_a_channel(place):
    """A column called label, or like the labels of a table of labels, holds them."""
    write_table(made_up(60, static=False), place / "named.parquet", label="died")
    (place / "labels.csv").write_text(
        "series_id,died\n" + "".join(f"s{i},{i % 2}\n" for i in range(60))
    )
    for data, more in (("data", []), ("named", ["--label", "died"])):
        out = place / f"leak-{data}"
        done = command(
            "features", place / f"{data}.parquet", "--out", out, "--windows", 5, "--workers", 1,
            "--labels", place / "labels.csv", *more,
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        assert json.loads((out / "manifest.json").read_text())["channels"] == ["a", "b"]
    done = command(
        "train", place / "named.parquet", "--labels", place / "labels.csv", "--target", "died",
        "--out", place / "leak", *SMALL,
    )  # fmt: skip
    assert "2 channels (a, b)" in done.output


def test_a_run_goes_on_with_other_readers(place):
    words = ["train", place / "both", "--out", place / "j", "--drop", "0.3", *SMALL]
    command(*words)
    done = command(*words, "--set", "num_workers=1", "--resume")
    assert done.exit_code == 0, done.output


def test_what_is_missing_of_a_store_is_made_again(place):
    out = place / "missing"
    words = ["features", place / "data.parquet", "--out", out, "--windows", 5, "--workers", 1]
    command(*words)
    before = (out / "shard-00000.parquet").read_bytes()
    (out / "shard-00000.parquet").unlink()
    done = command(*words)
    assert done.exit_code == 0, done.output
    assert (out / "shard-00000.parquet").read_bytes() == before


def test_an_unfinished_store_is_told_from_other_directories(place):
    out = place / "unfinished"
    shutil.copytree(place / "both", out)
    (out / "manifest.json").rename(out / "building.json")
    with pytest.raises(Exception, match="is not finished; run the command roughformer features"):
        command("train", out, "--out", place / "k", *SMALL)


def test_a_search_is_not_for_stores(place):
    with pytest.raises(Exception, match="which a store is not for"):
        command("tune", place / "both", "--out", place / "l", "--trials", 1)
