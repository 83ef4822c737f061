"""Killed workers are started again by torchrun's agent: the run ends as if nothing had happened."""

import json
import os
import signal
import time

import numpy as np
import pytest
from test_processes import HERE, started

from command import succeeds
from roughformer.estimators import RFormerClassifier
from small import make_sine

EPOCHS, STEPS = 24, 5  # 33 of 42 series are trained on, in batches of 7
OPTIONS = (
    "--windows", "4", "--epochs", EPOCHS, "--set", f"patience={EPOCHS}", "--batch-size", "7",
    "--drop", "0,0.5", "--threads", "1", "--device", "cpu", "--no-plots", "--quiet",
    "--set", "d_model=8", "--set", "n_heads=2", "--set", "dropout=0",
)  # fmt: skip


def epochs_of(run):
    log = run / "log.jsonl"
    return [json.loads(x) for x in log.read_text().splitlines()] if log.exists() else []


def kill(where, run, rank, after):
    """Kill the process of that number once so many epochs are done; how many were done then."""
    deadline = time.monotonic() + 300
    while len(epochs_of(run)) < after:
        assert time.monotonic() < deadline, "no progress"
        time.sleep(0.01)
    os.kill(int((where / f"process-{rank}.txt").read_text()), signal.SIGKILL)
    return len(epochs_of(run))


@pytest.mark.slow
def test_killed_workers_cost_at_most_one_epoch_each_and_change_nothing(tmp_path):
    series = make_sine(42, n_classes=3, length=40, seed=1)
    series.save(tmp_path / "x.parquet")
    alone, run = tmp_path / "alone", tmp_path / "run"
    succeeds("train", tmp_path / "x.parquet", "--out", alone, *OPTIONS)
    # The command has no --resume: what this launcher began, it goes on with.
    process = started(
        HERE / "forking_agent.py", 3, HERE / "counted_command.py", tmp_path,
        "train", tmp_path / "x.parquet", "--out", run, *OPTIONS,
    )  # fmt: skip
    try:
        first = kill(tmp_path, run, 1, after=3)
        second = kill(tmp_path, run, 0, after=first + 3)
        out, error = process.communicate(timeout=600)
    finally:
        process.terminate()  # does nothing to one that has ended
    assert process.returncode == 0, error
    assert second < EPOCHS, "it was finished before it was killed"
    assert "another process of this training was killed or failed" in error
    steps = len((tmp_path / "steps.txt").read_text().splitlines())
    assert EPOCHS * STEPS <= steps <= EPOCHS * STEPS + 2 * STEPS
    names = ("epoch", "train_loss", "valid_loss", "valid_metric", "learning_rate")
    with_kills, without = ([[r[n] for n in names] for r in epochs_of(x)] for x in (run, alone))
    np.testing.assert_allclose(with_kills, without, rtol=1e-4, atol=1e-5)
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["epochs"] == EPOCHS
    # Not weights: those that change nothing, biases of keys, follow the rounding of gradients.
    models = [RFormerClassifier.load(x / "model") for x in (run, alone)]
    said = [model.predict_proba(series) for model in models]
    np.testing.assert_allclose(*said, rtol=1e-3, atol=1e-4)
    assert out == ""
