"""roughformer tune: what it leaves, that it repeats itself, goes on after kill -9, and refuses."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
import tomllib

import pytest
from tuning import TINY, TINY_SPACE

from command import fails, succeeds
from roughformer.estimators import RFormerClassifier
from small import make_sine


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Series, a space, and one finished search with all its files."""
    where = tmp_path_factory.mktemp("tune")
    make_sine(30, n_classes=2, length=30).save(where / "x.parquet")
    make_sine(12, n_classes=2, length=30, seed=1).save(where / "test.parquet")
    (where / "space.toml").write_text(TINY_SPACE)
    drawn = [word for word in TINY if word != "--no-plots"]
    done = succeeds(*tune(where, "a", drawn), "--test", where / "test.parquet", "--trials", 4)
    assert "[4/4] trial 3" in done.err
    assert f"model: {where / 'a' / 'best'}" in done.out
    return where


def tune(where, name, options=TINY):
    space = where / "space.toml"
    return ["tune", where / "x.parquet", "--out", where / name, "--space", space, *options]


def read(path):
    return json.loads(path.read_text())


def test_a_search_leaves_everything(files):
    out = files / "a"
    held = {path.name for path in out.iterdir()}
    assert held >= {
        "study.journal", "best.toml", "best", "trials.json", "trials.csv", "report.html",
        "tune.json", "space.toml", "plots",
    }  # fmt: skip
    assert {p.name for p in (out / "plots").iterdir()} == {
        "history.png", "importance.png", "parallel.png",
    }  # fmt: skip
    rows = read(out / "trials.json")
    with open(out / "trials.csv") as file:
        assert [int(row["trial"]) for row in csv.DictReader(file)] == [0, 1, 2, 3]
    summary = read(out / "tune.json")
    assert summary["score"] == min(r["score"] for r in rows if r["state"] == "complete")
    page = (out / "report.html").read_text()
    assert "Best trials" in page
    assert "data:image/png;base64," in page


def test_the_winner_is_the_model_of_its_trial_and_is_tested_once(files):
    summary, run = read(files / "a" / "tune.json"), files / "a" / "best"
    metrics = read(run / "metrics.json")
    assert metrics["test"] == summary["test"]
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert min(r["valid_metric"] for r in records) == summary["score"]
    assert "scored once" in (files / "a" / "report.html").read_text()
    assert succeeds("predict", run, files / "test.parquet").out.startswith('"series_id"')


def test_best_toml_trains_the_same_model(files, tmp_path):
    best = files / "a" / "best.toml"
    read_back = tomllib.loads(best.read_text())
    read_back.pop("data")
    settings = RFormerClassifier.settings(read_back)
    for name, value in read(files / "a" / "tune.json")["parameters"].items():
        assert settings[name] == value
    succeeds("train", files / "x.parquet", "--config", best, "--out", tmp_path / "run",
             "--threads", "1", "--no-plots", "-q")  # fmt: skip
    weights = [p / "model" / "model.safetensors" for p in (tmp_path / "run", files / "a" / "best")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.slow
def test_a_search_that_is_killed_goes_on(files):
    """kill -9 of the search in the middle; its processes end with it."""
    command = [sys.executable, "-c", "from roughformer.cli import main; main()"]
    command += [str(word) for word in (*tune(files, "killed"), "--trials", 4, "-q")]
    journal = files / "killed" / "study.journal"
    child = subprocess.Popen(command)
    wanted = random.SystemRandom().randrange(4, 16)  # lines of the journal: in trial 0, 1 or 2
    while child.poll() is None and _lines(journal) < wanted:
        time.sleep(0.01)
    workers = _children(child.pid)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    _wait_for_end(workers)
    succeeds(*tune(files, "killed"), "--trials", 4, "--resume", "-q")
    rows = read(files / "killed" / "trials.json")
    assert len(rows) == 4, wanted
    assert {row["state"] for row in rows} <= {"complete", "pruned"}
    # What was queued is kept; what the trial was still to draw may be drawn anew.
    queued = read(files / "a" / "trials.json")[0]["parameters"]["learning_rate"]
    assert queued in [row["parameters"]["learning_rate"] for row in rows]
    assert (files / "killed" / "best" / "model" / "model.safetensors").exists()


def _lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def _wait_for_end(processes, seconds=60):
    until = time.monotonic() + seconds
    while any(os.path.exists(f"/proc/{pid}") for pid in processes):
        assert time.monotonic() < until, "processes of the search outlived it"
        time.sleep(0.05)


@pytest.mark.slow
def test_trials_at_a_time_and_the_default_space(files):
    done = succeeds(
        "tune", files / "x.parquet", "--out", files / "wide", "--trials", 3, "--workers", 2,
        *TINY, "--set", "d_model=8", "--metric", "accuracy",
    )  # fmt: skip
    assert "30 series, 900 points; classification" in done.err
    summary = read(files / "wide" / "tune.json")
    assert summary["metric"] == "accuracy"
    assert summary["trials"]["failed"] == 0
    assert not {"model__d_model", "windows", "depth"} & set(summary["parameters"])
    assert {"learning_rate", "views", "model__n_layers"} <= set(summary["parameters"])


@pytest.mark.slow
def test_failed_trials_do_not_end_a_search(files):
    (files / "some.toml").write_text("n_heads = [2, 3]\nlearning_rate = [1e-3, 2e-3, 4e-3]")
    options = [word for word in TINY if word != "n_heads=2"]
    at = [i for i, word in enumerate(options[:-1]) if word == "--set" and options[i + 1] == "--set"]
    for i in reversed(at):
        del options[i]
    command = tune(files, "some", options)
    command[command.index("--space") + 1] = files / "some.toml"
    done = succeeds(*command, "--trials", 5)
    rows = read(files / "some" / "trials.json")
    failed = [row for row in rows if row["parameters"]["model__n_heads"] == 3]
    assert failed
    assert all("n_heads" in row["failed"] for row in failed)
    assert "failed:" in done.err
    assert read(files / "some" / "tune.json")["parameters"]["model__n_heads"] == 2


def test_what_cannot_be_searched_is_refused(files, tmp_path):
    again = tune(files, "a")
    assert "holds a search; go on with --resume" in fails(*again)
    assert "other settings (settings.epochs" in fails(*again, "--resume", "--epochs", 3)
    fresh = tune(files, tmp_path / "new")
    assert "fixed by an option" in fails(*fresh, "--set", "d_model=8")
    assert "single models" in fails(*fresh, "--set", "n_estimators=3")
    told = fails(*fresh, "--target", "age", "--static", "age")
    assert "'age' is the target: it cannot be a static covariate" in told
    assert "chooses by validation" in fails(*fresh, "--set", "validation=0")
    assert "metric must be" in fails(*fresh, "--metric", "speed")
    assert "--pruner" in fails(*fresh, "--pruner", "axe", code=2)
    (tmp_path / "bad.toml").write_text("d_modle = [1, 2]")
    bad = [tmp_path / "bad.toml" if str(w).endswith("space.toml") else w for w in fresh]
    assert "did you mean 'model.d_model'" in fails(*bad)
    assert not (tmp_path / "new").exists()


def test_where_no_trial_ends_the_reason_is_told(files, tmp_path):
    (tmp_path / "s.toml").write_text("n_heads = [3, 5]")
    command = ["tune", files / "x.parquet", "--out", tmp_path / "n", "--space", tmp_path / "s.toml"]
    said = fails(*command, "--trials", 2, "-q", "--set", "d_model=8", "--epochs", 1)
    assert "none of the 2 trials ran to its end; the first reason:" in said
    assert "n_heads" in said
