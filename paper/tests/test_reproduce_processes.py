"""Processes of jobs: they end with their command, do not meet, and count what they cost."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from roughformer.cli import Interrupted
from roughformer.errors import InputError
from roughformer.io import directory_lock
from roughformer_paper.reproduce import Results, experiment_of, key_of, run_jobs
from roughformer_paper.reproduce.runner import _Children
from roughformer_paper.reproduce.spending import Spending, peak_mb, spent
from roughformer_paper.reproduce_command import (
    _terminated_as_interrupted,
    _usual_threads,
    reproduce,
)

posix = pytest.mark.skipif(sys.platform == "win32", reason="no such signals and locks")
VARIABLES = os.environ | {"OMP_NUM_THREADS": "1", "ROUGHFORMER_NUM_THREADS": "1"}
# A command that has the lock and a process with it, as run_jobs starts them.
COMMAND = """
import subprocess, sys, time
from pathlib import Path
from roughformer.io import directory_lock
child = "from roughformer_paper.reproduce.alone import end_with_parent; end_with_parent(); "
child += "print('up', flush=True); import time; time.sleep(300)"
with directory_lock(Path(sys.argv[1])) as lock:
    made = subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, pass_fds=lock)
    made.stdout.readline()
    print(made.pid, flush=True)
    time.sleep(300)
"""


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:  # a dead one that nobody has waited for is not alive
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return sys.platform != "linux"


def soon(fact):
    for _ in range(300):
        if fact():
            return True
        time.sleep(0.1)
    return False


@posix
def test_a_process_ends_with_its_command(tmp_path):
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(tmp_path)], stdout=subprocess.PIPE, env=VARIABLES
    )
    child = int(command.stdout.readline())
    assert alive(child)
    with (
        pytest.raises(InputError, match=r"another command works in .*--out"),
        directory_lock(tmp_path, patience=0.2),
    ):
        pass
    command.kill()
    command.wait()
    command.stdout.close()
    with directory_lock(tmp_path, patience=30.0):  # free once both have ended
        assert soon(lambda: not alive(child))


@posix
def test_a_process_keeps_the_lock_of_its_dead_command(tmp_path):
    with directory_lock(tmp_path) as lock:
        child = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(300)"], pass_fds=lock
        )
    try:
        with (
            pytest.raises(InputError, match="another command"),
            directory_lock(tmp_path, patience=0.2),
        ):
            pass
    finally:
        child.kill()
        child.wait()
    with directory_lock(tmp_path, patience=0.2):
        pass


@posix
@pytest.mark.slow
def test_a_killed_command_leaves_no_process(tmp_path):
    arguments = ["reproduce", "sine", "--models", "gru", "--seconds", "600", "--out", str(tmp_path)]
    main = "from roughformer.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", main, *arguments], env=VARIABLES, stderr=subprocess.DEVNULL
    ) as command:
        try:
            assert soon(lambda: list(tmp_path.glob("work/*/output.log")))
        finally:
            command.kill()
    with directory_lock(tmp_path / "work", patience=30.0):  # its process had the lock too
        pass


def test_threads_of_a_training_do_not_spend_its_budget_on_waiting(monkeypatch):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    found = _Children(2, (), waits=True).variables
    assert (found["OMP_WAIT_POLICY"], found["GOMP_SPINCOUNT"]) == ("PASSIVE", "0")
    assert found["OMP_NUM_THREADS"] == "2"
    assert "OMP_WAIT_POLICY" not in _Children(2, (), waits=False).variables
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert _Children(2, (), waits=True).variables["OMP_WAIT_POLICY"] == "ACTIVE"


@pytest.mark.parametrize(("wished", "found"), [("3", 3), ("0", 4), ("", 4), ("4,2", 4)])
def test_threads_are_those_of_the_environment_or_a_share_of_the_cores(monkeypatch, wished, found):
    monkeypatch.setenv("OMP_NUM_THREADS", wished)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert _usual_threads(workers=2) == found


@posix
def test_a_termination_is_as_an_interrupt():
    usual = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), _terminated_as_interrupted():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == usual


@posix
@pytest.mark.parametrize("when", ["run", "tell"])
def test_a_termination_at_any_time_says_how_to_go_on(tmp_path, monkeypatch, when):
    def terminated(*args, **kwargs):
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("roughformer_paper.reproduce_command._run", lambda *args, **kwargs: [])
    monkeypatch.setattr(f"roughformer_paper.reproduce_command._{when}", terminated)
    with pytest.raises(Interrupted, match=r"interrupted; finished runs are in .* goes on"):
        reproduce("sine", preset="tiny", out=tmp_path)


def test_costs_of_earlier_processes_are_added(tmp_path):
    (tmp_path / "spent.json").write_text(json.dumps({"seconds": 100.0, "peak_mb": 1e6}))
    with Spending(tmp_path) as spending:
        pass
    found = spending.so_far()
    assert 100 <= found["seconds"] < 101
    assert found["peak_mb"] == 1e6
    assert spent(tmp_path) == pytest.approx(found)
    with Spending(tmp_path) as spending:
        pass
    assert spending.so_far()["seconds"] > found["seconds"]


def test_costs_are_noted_while_a_job_runs(tmp_path):
    with Spending(tmp_path, every=0.01):
        assert soon(lambda: spent(tmp_path)["seconds"] > 0)
    assert spent(tmp_path)["peak_mb"] == pytest.approx(peak_mb(), rel=0.1)


@pytest.mark.parametrize("text", [None, "", "{}", "[]"])
def test_without_a_note_nothing_was_spent(tmp_path, text):
    if text is not None:
        (tmp_path / "spent.json").write_text(text)
    assert spent(tmp_path) == {"seconds": 0.0, "peak_mb": None}


def test_the_row_of_a_job_has_what_all_its_processes_cost(tmp_path):
    """In a process of its own: test_a_job_that_fails_is_told_... of test_reproduce.py."""
    size = {"n_samples": 20, "n_classes": 2, "length": 20, "n_test": 5}
    job = {"model": "chance", "drop": 0.0, "seed": 0, "size": size}
    where = tmp_path / "work" / key_of(job)
    where.mkdir(parents=True)
    (where / "spent.json").write_text(json.dumps({"seconds": 1000.0, "peak_mb": 1e6}))
    results = Results(tmp_path / "results.json", "sine")
    assert run_jobs(experiment_of("sine"), [job], results, tmp_path / "work", in_process=True) == []
    (row,) = results.rows
    assert row["seconds"] > 1000
    assert row["peak_mb"] == 1e6
    assert not where.exists()
