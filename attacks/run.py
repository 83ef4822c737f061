"""Attack the product and publish what failed: ``make attack``.

    python attacks/run.py [--seconds 480] [--seed 0] [--only NAME] [--publish]

runs every attack in a process of its own (a crash is a failure, not the end), within ``--seconds``
in all with what they take to start, from a seed; ends with 1 if anything failed. ``--publish``
writes results/faults.json and docs/faults.md, if all of them were run. Needs a machine that is not
busy with other things: an attack that takes minutes to start counts as hung.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import doors  # noqa: E402, F401
import kernel  # noqa: E402, F401
import readers  # noqa: E402, F401
import service  # noqa: E402, F401
from _harness import ATTACKS, Target  # noqa: E402

import store  # noqa: E402, F401

_STARTUP = 12.0  # seconds that an attack takes before its first attempt, about
_GRACE = 120.0  # seconds beyond all that, after which an attack counts as hung
_LIMIT = 590.0  # seconds for everything, whatever hangs


def run_one(name: str, seed: int, seconds: float) -> dict:
    """In this process."""
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        target = Target(rng, Path(folder), seconds)
        ATTACKS[name].run(target)
    return {"tried": target.tried, "failures": target.failures, "figures": target.figures}


def run_apart(name: str, seed: int, seconds: float, timeout: float) -> dict:
    """In a process of its own, which is ended after ``timeout``."""
    if timeout < seconds:
        return {"tried": 0, "failures": [], "figures": {}}
    command = [
        sys.executable,
        __file__,
        "--one",
        name,
        "--seed",
        str(seed),
        "--seconds",
        str(seconds),
    ]
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        try:
            done = subprocess.run(
                [*command, "--result", result.name],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            return {"tried": 1, "failures": ["it hung"], "figures": {}}
        try:
            return json.loads(Path(result.name).read_text())
        except ValueError:
            words = f"it ended with {done.returncode}: {done.stderr[-400:]}"
            return {"tried": 1, "failures": [words], "figures": {}}


def page(results: dict) -> str:
    """docs/faults.md of the results."""
    lines = [
        "# Faults tried",
        "",
        "What `make attack` tries, and how often it failed. Every attack runs against the product "
        "itself (the service as a process, stores on disk) from a seed and within a bounded time; "
        "a crash or a hang counts as a failure. Written by `attacks/run.py --publish`; defects "
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
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    ask = parser.parse_args()
    if ask.one:
        ask.result.write_text(json.dumps(run_one(ask.one, ask.seed, ask.seconds)))
        return 0
    chosen = ask.only or list(ATTACKS)
    began, found = time.monotonic(), {}
    for k, name in enumerate(chosen):
        # What is left is shared out anew: an attack that was slow to start costs all the others.
        passed = time.monotonic() - began
        left = ask.seconds - passed - _STARTUP * len(chosen[k:])
        share = ATTACKS[name].share / sum(ATTACKS[other].share for other in chosen[k:])
        seconds = max(left * share, 2.0)
        timeout = min(seconds + _STARTUP + _GRACE, _LIMIT - passed)
        row = run_apart(name, ask.seed, seconds, timeout)
        found[name] = row
        print(
            f"{name}: {row['tried']} tried, {len(row['failures'])} failed {row['figures'] or ''}",
            flush=True,
        )
        for failure in row["failures"]:
            print(f"    {failure}", flush=True)
    results = {
        "seed": ask.seed,
        "seconds": time.monotonic() - began,
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "attacks": found,
    }
    not_run = [name for name, row in found.items() if not row["tried"]]
    if not_run:
        print(f"not run, there was no time left: {', '.join(not_run)}")
    elif ask.publish:
        root = HERE.parent
        (root / "results" / "faults.json").write_text(json.dumps(results, indent=1) + "\n")
        (root / "docs" / "faults.md").write_text(page(results))
    return int(bool(not_run) or any(row["failures"] for row in found.values()))


if __name__ == "__main__":
    sys.exit(main())
