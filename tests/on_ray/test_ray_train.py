"""Training on a Ray cluster: one process's losses, and a node that dies costs no finished epoch."""

import json
import threading
import time

import pytest

from command import fails, succeeds
from roughformer.io import make_sine

pytestmark = pytest.mark.slow
EPOCHS = 16
SETTINGS = (
    "--windows", "6", "--batch-size", "8", "--device", "cpu", "--no-plots", "--threads", "1",
    "--set", "d_model=16", "--set", "dropout=0", "--set", "patience=none", "--epochs", EPOCHS, "-q",
)  # fmt: skip


def log_of(run):
    path = run / "log.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_training_outlives_a_node(two_nodes, tmp_path):
    make_sine(120, n_classes=3, length=60).save(tmp_path / "x.parquet")
    kills = two_nodes.kills
    command = ["train", tmp_path / "x.parquet", *SETTINGS]
    succeeds(*command, "--out", tmp_path / "one")
    run = tmp_path / "run"

    def kill_when_at_work():
        while len(log_of(run)) < 3:
            time.sleep(0.02)
        two_nodes.kill()

    watcher = threading.Thread(target=kill_when_at_work)
    watcher.start()
    on_ray = ["--engine", "ray", "--workers", 2, "--address", two_nodes.address]
    succeeds(*command, "--out", run, *on_ray)
    watcher.join()
    assert two_nodes.kills == kills + 1
    whole, found = log_of(tmp_path / "one"), log_of(run)
    assert [record["epoch"] for record in found] == list(range(1, EPOCHS + 1))
    for one, other in zip(whole, found, strict=True):
        assert other["train_loss"] == pytest.approx(one["train_loss"], rel=1e-3, abs=1e-5)
    assert json.loads((run / "metrics.json").read_text())["epochs"] == EPOCHS
    assert succeeds("predict", run, tmp_path / "x.parquet").out.startswith('"series_id"')
    assert not (tmp_path / ".run.ray").exists()


def test_what_is_wrong_is_said_once_and_leaves_nothing(two_nodes, tmp_path):
    make_sine(12, n_classes=2, length=30).save(tmp_path / "x.parquet")
    on_ray = ["--engine", "ray", "--workers", 2, "--address", two_nodes.address]
    out = tmp_path / "run"
    said = fails("train", tmp_path / "x.parquet", "--target", "age", "--out", out, *on_ray)
    assert "has no target 'age'" in said
    assert not out.exists()
