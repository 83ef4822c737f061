"""Peak memory of a call beyond its input and output (Linux: /proc/self)."""

import ctypes
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from _contender import Contender, Skip
from _contenders import contenders
from _tasks import TASKS, make_problem

__all__ = ["available", "measure_peaks", "peak_of", "peaks_in_subprocess"]


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def available() -> int:
    """Bytes that could still be taken."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 1 << 62


def _settle() -> int:
    """Give back what is free, forget the peak so far; resident bytes now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _output_bytes(name: str, problem: Any) -> int:
    task = problem.task
    if task.kind == "stream":
        return task.series * task.words * 2 * 4
    tokens = task.series * 75 * 2 * task.features * 4
    if task.kind != "backward":
        return tokens
    return problem.x.nbytes + (tokens if name.endswith("_step") else 0)


def peak_of(contender: Contender, usage: str, problem: Any) -> int:
    """Bytes beyond input and output that a first call takes, buffers it keeps included.

    Of a backward: beyond what the forward left behind.
    """
    build = contender.usages[usage]
    build(problem.part(slice(0, 2)))()  # loads libraries and starts threads
    before = _settle()
    run = build(problem)
    if problem.task.kind == "backward":
        before = _settle()
    result = run()
    peak = _status("VmHWM")
    del result
    return max(0, peak - before - _output_bytes(contender.name, problem))


def measure_peaks(task: str, quick: bool, chosen: dict[str, str]) -> dict[str, float]:
    """Megabytes of each contender named in ``chosen`` (name -> usage)."""
    problem = make_problem(TASKS[task], quick)
    inputs = {"dropped": ("batch", "thinned"), "backward": ("gradient",), "stream": ()}
    for name in inputs.get(problem.task.kind, ("batch",)):
        getattr(problem, name)  # made before anything is measured
    found = {}
    for contender in contenders(problem.task.kind):
        if contender.name in chosen:
            try:
                found[contender.name] = peak_of(contender, chosen[contender.name], problem) / 2**20
            except Skip:
                continue
    return found


def peaks_in_subprocess(
    task: str, quick: bool, chosen: dict[str, str]
) -> tuple[dict[str, float], str | None]:
    """The same in a process of its own, where nothing else has touched memory; or what failed."""
    script = str(Path(__file__).with_name("signature.py"))
    command = [sys.executable, script, "--peaks", json.dumps([task, quick, chosen])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {}, (done.stderr.splitlines() or ["no message"])[-1]
    return dict(json.loads(done.stdout.splitlines()[-1])), None
