"""One job in a process of its own: its memory is measured, and its death harms nothing else.

python -m roughformer.reproduce.child EXPERIMENT JOB_FILE ROW_FILE WORK_DIRECTORY
"""

import json
import sys
import time
from pathlib import Path

from roughformer.reproduce.experiment import Job, Row, key_of
from roughformer.reproduce.results import environment, finite

__all__ = ["main", "peak_mb", "run_job"]


def run_job(name: str, job: Job, where: Path) -> Row:
    """The row of a job: its results, time, peak memory (of this process) and surroundings."""
    from roughformer.reproduce.catalogue import experiment_of

    before = peak_mb()
    start = time.perf_counter()
    found = experiment_of(name).run(job, where)
    return {
        "key": key_of(job),
        "job": job,
        **found,
        "seconds": time.perf_counter() - start,
        "peak_mb": peak_mb(),
        "peak_mb_before": before,
        "environment": environment(),
    }


def peak_mb() -> float | None:
    """The most memory that this process has had so far; None where it is not told."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def main() -> None:
    """See the module."""
    name, job_file, row_file, where = sys.argv[1:]
    row = run_job(name, json.loads(Path(job_file).read_text()), Path(where))
    Path(row_file).write_text(json.dumps(finite(row)))


if __name__ == "__main__":
    main()
