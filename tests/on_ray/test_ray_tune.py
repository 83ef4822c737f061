"""Trials on a Ray cluster: a node that dies costs time and no trial."""

import json
import threading
import time

import pytest

from command import succeeds
from roughformer.io import make_sine
from roughformer.tune.jobs import Job, Problem
from roughformer.tune.ray_engine import RayEngine

pytestmark = pytest.mark.slow
SETTINGS = (
    "--epochs", "12", "--set", "windows=4", "--set", "depth=1", "--set", "spectrum=none", "--set",
    "clock=0", "--set", "n_heads=2", "--set", "device=cpu", "--threads", "1", "--no-plots",
    "--set", "batch_size=2",
)  # fmt: skip


def reports(journal):
    """Scores of epochs that the study knows."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    return sum('"intermediate_value"' in line for line in lines)


def test_trials_of_a_dead_node_are_repeated(two_nodes, tmp_path):
    make_sine(60, n_classes=2, length=60).save(tmp_path / "x.parquet")
    (tmp_path / "space.toml").write_text(
        "learning_rate = { low = 1e-3, high = 1e-2, log = true }\nd_model = [8, 16]"
    )
    out, kills = tmp_path / "search", two_nodes.kills
    command = [
        "tune", tmp_path / "x.parquet", "--out", out, "--space", tmp_path / "space.toml",
        *SETTINGS, "--pruner", "none", "-q",
    ]  # fmt: skip

    def kill_when_at_work():
        while reports(out / "study.journal") < 4:
            time.sleep(0.02)
        two_nodes.kill()

    watcher = threading.Thread(target=kill_when_at_work)
    watcher.start()
    succeeds(
        *command, "--trials", 4, "--engine", "ray", "--workers", 2, "--address", two_nodes.address
    )
    watcher.join()
    assert two_nodes.kills == kills + 1
    rows = json.loads((out / "trials.json").read_text())
    assert [row["state"] for row in rows] == ["complete"] * 4
    assert all(list(row["curve"]) == [str(e) for e in range(1, 13)] for row in rows)
    # The winner is trained again here, and reaches what its trial did there.
    log = [json.loads(line) for line in (out / "best" / "log.jsonl").read_text().splitlines()]
    best = json.loads((out / "tune.json").read_text())
    assert min(record["valid_metric"] for record in log) == pytest.approx(best["score"])

    succeeds(*command, "--trials", 5, "--resume")  # the same study goes on without the cluster
    again = json.loads((out / "trials.json").read_text())
    assert again[:4] == rows
    assert again[4]["state"] == "complete"


def test_closing_ends_trials_and_may_be_done_twice(two_nodes):
    ray = pytest.importorskip("ray")
    batch = make_sine(60, n_classes=2, length=60)
    problem = Problem("classification", batch, batch.labels)
    settings = {"epochs": 10_000, "patience": None, "batch_size": 2, "n_jobs": 1, "windows": 4}
    ray.init(address=two_nodes.address, logging_level="ERROR", log_to_driver=False)
    try:
        engine = RayEngine(problem, 2, 1, None)
        for number in range(2):
            engine.start(Job(number, settings | {"random_state": number}))
        engine.answer(engine.wait().number, stop=False)  # a trial is at work
        engine.close()
        engine.close()
        assert ray.is_initialized()  # the connection is the caller's
        for _ in range(300):
            if ray.available_resources().get("CPU") == 2:
                break
            time.sleep(0.1)
        assert ray.available_resources()["CPU"] == 2
    finally:
        ray.shutdown()
