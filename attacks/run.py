"""Attack the product and publish what failed: ``make attack``.

    python attacks/run.py [--seconds 480] [--seed 0] [--only NAME] [--publish]

runs every attack in a process of its own (a crash is a failure, not the end), within ``--seconds``
in all with what they take to start, from a seed; ends with 1 if anything failed. ``--publish``
writes results/faults.json and docs/faults.md, if all of them were run, now or (with ``--only``) in
the run that was published before. Where others use the
machine, starting takes longer: that time, and the time after which an attack counts as hung, are
stretched by how long a loop waits for the processor.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import doors  # noqa: E402, F401
import kernel  # noqa: E402, F401
import readers  # noqa: E402, F401
import service  # noqa: E402, F401
from _harness import ATTACKS, Target, slowdown  # noqa: E402

import store  # noqa: E402, F401

_STARTUP = 12.0  # seconds that an attack takes before its first attempt, about
_GRACE = 120.0  # seconds beyond all that, after which an attack counts as hung
_LIMIT = 590.0  # seconds for everything, whatever hangs, on a machine of our own


def run_one(name: str, seed: int, seconds: float, shared: Path, result: Path) -> None:
    """In this process, which leads a group of its own; ``shared``: a folder of all attacks."""
    os.setsid()
    warnings.simplefilter("ignore")
    try:
        with tempfile.TemporaryDirectory() as folder:
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            target = Target(rng, Path(folder), seconds, shared)
            ATTACKS[name].run(target)
        row = {"tried": target.tried, "failures": target.failures, "figures": target.figures}
    except BaseException:
        row = {"tried": 1, "failures": [traceback.format_exc()[-400:]], "figures": {}}
    result.write_text(json.dumps(row))


def run_apart(name: str, seed: int, seconds: float, timeout: float, shared: Path) -> dict:
    """In a process of its own, which is ended with all that it started after ``timeout``."""
    result = shared / f"{name}.json"
    what = (name, seed, seconds, shared, result)
    process = multiprocessing.get_context("fork").Process(target=run_one, args=what)
    process.start()
    process.join(timeout)
    hung = process.is_alive()
    if hung:
        process.kill()
        process.join()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if not hung and result.exists():
        return json.loads(result.read_text())
    words = "it hung" if hung else f"it ended with {process.exitcode}"
    return {"tried": 1, "failures": [words], "figures": {}}


def page(results: dict) -> str:
    """docs/faults.md of the results."""
    lines = [
        "# Faults tried",
        "",
        "What `make attack` tries, and how often it failed. Every attack runs against the product "
        "itself (the service as a process, stores on disk) from a seed and within a bounded time; "
        "a crash or a hang counts as a failure. A row may be of a run of its own. Written by "
        "`attacks/run.py --publish`; defects "
        "that it found are in the changelog, each with a test.",
        "",
        "| attack | what must hold | tried | failed | measured |",
        "|---|---|--:|--:|---|",
    ]
    for name, row in results["attacks"].items():
        figures = ", ".join(f"{key} {value:g}" for key, value in row["figures"].items())
        lines.append(
            f"| {name} | {ATTACKS[name].promise} | {row['tried']:,} | "
            f"{len(row['failures'])} | {figures} |"
        )
    total = sum(row["tried"] for row in results["attacks"].values())
    failed = sum(len(row["failures"]) for row in results["attacks"].values())
    lines += [
        "",
        f"{total:,} attempts, {failed} failures; seed {results['seed']}, "
        f"{results['seconds']:.0f} s on {results['machine']}.",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=480.0, help="for all attacks together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", help="name of an attack; may be given again")
    parser.add_argument("--publish", action="store_true", help="write the results and the page")
    ask = parser.parse_args()
    chosen = ask.only or list(ATTACKS)
    began, found = time.monotonic(), {}
    passed = 0.0  # as if the machine were ours
    shared = tempfile.TemporaryDirectory()
    for k, name in enumerate(chosen):
        # What is left is shared out anew: an attack that was slow to start costs all the others.
        left = ask.seconds - passed - _STARTUP * len(chosen[k:])
        share = ATTACKS[name].share / sum(ATTACKS[other].share for other in chosen[k:])
        seconds = max(left * share, 2.0)
        slow, started = slowdown(), time.monotonic()
        if passed + seconds > _LIMIT:
            row = {"tried": 0, "failures": [], "figures": {}}
        else:
            timeout = seconds + (_STARTUP + _GRACE) * slow
            row = run_apart(name, ask.seed, seconds, timeout, Path(shared.name))
        rest = time.monotonic() - started - seconds
        passed += seconds + max(rest, 0.0) / max(slow, slowdown())
        found[name] = row
        print(
            f"{name}: {row['tried']} tried, {len(row['failures'])} failed {row['figures'] or ''}",
            flush=True,
        )
        for failure in row["failures"]:
            print(f"    {failure}", flush=True)
    shared.cleanup()
    results = {
        "seed": ask.seed,
        "seconds": time.monotonic() - began,
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "attacks": found,
    }
    file = HERE.parent / "results" / "faults.json"
    if ask.only and file.exists():  # the other rows stay
        before = json.loads(file.read_text())
        results["seconds"] += before["seconds"]
        found = {name: found.get(name, before["attacks"].get(name)) for name in ATTACKS}
        results["attacks"] = found = {name: row for name, row in found.items() if row}
    not_run = [name for name, row in found.items() if not row["tried"]]
    if not_run:
        print(f"not run, there was no time left: {', '.join(not_run)}")
    elif ask.publish and found.keys() == ATTACKS.keys():
        file.write_text(json.dumps(results, indent=1) + "\n")
        (HERE.parent / "docs" / "faults.md").write_text(page(results))
    return int(bool(not_run) or any(row["failures"] for row in found.values()))


if __name__ == "__main__":
    sys.exit(main())
