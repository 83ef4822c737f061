"""``results.json``: every number with its job, machine, time and memory; whole at every moment."""

import json
import os
import platform
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

from roughformer import InputError
from roughformer.io import write_file
from roughformer_paper.reproduce.experiment import Job, Row, key_of

__all__ = ["Results", "environment", "finite", "machines_of"]


def environment() -> dict[str, Any]:
    """Where and with what a number was measured."""
    import torch

    from roughformer import __version__

    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "roughformer": __version__,
        "commit": _git("rev-parse", "--short", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--", ".")),  # since that commit
        "clock": "processor",  # of budgets and epochs; rows without it: of the wall
        "machine": _processor(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def machines_of(rows: list[Row]) -> list[str]:
    """``AMD EPYC, 2 cores (14 runs)``, for each machine that rows were measured on."""
    count = Counter(
        f"{row['environment']['machine']}, {row['environment']['cores']} cores" for row in rows
    )
    return [f"{machine} ({n} run{'s' if n > 1 else ''})" for machine, n in count.items()]


def _git(*command: str) -> str | None:
    """What git says of the source; None if it is no checkout."""
    here = Path(__file__).resolve().parents[1]
    try:
        done = subprocess.run(["git", *command], cwd=here, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() or None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def finite(data: Any) -> Any:
    """JSON that every reader takes: NaN and infinity become None."""
    if isinstance(data, dict):
        return {str(k): finite(v) for k, v in data.items()}
    if isinstance(data, list | tuple):
        return [finite(v) for v in data]
    if isinstance(data, float) and data - data != 0:
        return None
    return data


class Results:
    """Rows of one experiment, in a file that is written after each."""

    def __init__(self, path: Path, experiment: str) -> None:
        """Take up what is there."""
        self.path, self.experiment = path, experiment
        self.rows: list[Row] = []
        self.read()

    def read(self) -> None:
        """Take up what is in the file now."""
        if not self.path.exists():
            return
        try:
            found = json.loads(self.path.read_text())
            owner, rows = found["experiment"], found["rows"]
            if not all("key" in row and isinstance(row["job"], dict) for row in rows):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(
                f"{self.path} holds no results of an experiment; choose another place"
            ) from None
        if owner != self.experiment:
            raise InputError(f"{self.path} holds results of {owner!r}, not of {self.experiment!r}")
        self.rows = rows

    def get(self, job: Job) -> Row | None:
        """The finished row of a job."""
        key = key_of(job)
        return next((r for r in self.rows if r["key"] == key and "failed" not in r), None)

    def add(self, row: Row) -> None:
        """Keep a row in place of an older one of the same job, and write all.

        A failed row does not take the place of a finished one.
        """
        if "failed" in row and self.get(row["job"]) is not None:
            return
        self.rows = [r for r in self.rows if r["key"] != row["key"]] + [row]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(finite({"experiment": self.experiment, "rows": self.rows}), indent=1)
        write_file(self.path, (text + "\n").encode())
