"""A training that is killed and resumed ends with the same bytes as one that is not.

Run as a program, this file imports torch once, then forks a child for each command, kills it after
a time, and resumes it until it ends.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time

import torch

from roughformer.cli import main
from small import make_sine

STOPS = {  # how a run is stopped, each time at a random moment, before it may end
    "a": (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL),
    "b": (signal.SIGINT, signal.SIGKILL),
}


def command(where, run):
    return [
        "train", str(where / "x.parquet"), "--out", str(run), "--windows", "6", "--epochs", "12",
        "--batch-size", "4", "--drop", "0,0.5", "--set", "d_model=16", "--threads", "1",
        "--device", "cpu", "--no-plots", "--quiet",
    ]  # fmt: skip


def run(arguments):
    sys.argv = ["roughformer", *arguments]
    try:
        main()
    except SystemExit as ended:
        return ended.code
    return 1


def start(arguments):
    """A child that runs the command."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = run(arguments)
        finally:
            os._exit(code)
    return child


def wait(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_and_resumed(where, seed):
    """Run it whole, then stopped and resumed; prints how often a process was stopped."""
    torch.set_num_threads(1)
    # The first one imports what it needs, so that its children are at work when they are stopped.
    assert run(command(where, where / "first")) == 0
    begun = time.perf_counter()
    assert run(command(where, where / "whole")) == 0
    usual = time.perf_counter() - begun
    rng, stopped = random.Random(seed), 0
    for name, signals in STOPS.items():
        arguments = command(where, where / name)
        for sent in signals:
            child = start(arguments)
            time.sleep(rng.uniform(0.05, 0.9 / len(signals)) * usual)
            os.kill(child, sent)
            stopped += wait(child) in (-signal.SIGKILL, 130)
            arguments = [*command(where, where / name), "--resume"]
        assert wait(start(arguments)) == 0, name
    print(json.dumps({"stopped": stopped}))


def test_a_killed_training_resumes_to_the_same_bytes(tmp_path):
    make_sine(32, n_classes=2, length=60).save(tmp_path / "x.parquet")
    seed = random.SystemRandom().randrange(10**6)
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path), str(seed)], capture_output=True, text=True
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    assert json.loads(done.stdout.splitlines()[-1])["stopped"] >= 2, f"seed {seed}"
    assert "Traceback" not in done.stderr, done.stderr
    whole = (tmp_path / "whole" / "model" / "model.safetensors").read_bytes()
    logs = []
    for name in ("whole", *STOPS):
        run = tmp_path / name
        assert (run / "model" / "model.safetensors").read_bytes() == whole, f"{name}, seed {seed}"
        records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        logs.append([(r["epoch"], r["train_loss"], r["valid_metric"]) for r in records])
        metrics = json.loads((run / "metrics.json").read_text())
        assert metrics["epochs"] == 12
    assert all(log == logs[0] for log in logs)


if __name__ == "__main__":
    from pathlib import Path

    killed_and_resumed(Path(sys.argv[1]), int(sys.argv[2]))
