"""One job in a process of its own: its memory is measured, and its death harms nothing else."""

import json
import sys
from pathlib import Path

from roughformer_paper.reproduce.alone import end_with_parent
from roughformer_paper.reproduce.experiment import Job, Row, key_of
from roughformer_paper.reproduce.results import environment, finite
from roughformer_paper.reproduce.spending import Spending, peak_mb

__all__ = ["main", "run_job"]


def run_job(name: str, job: Job, where: Path) -> Row:
    """The row of a job: its results, time, peak memory and surroundings.

    Time and memory are also of earlier processes that worked on the job and were killed.
    """
    from roughformer_paper.reproduce.catalogue import experiment_of

    before, around = peak_mb(), environment()  # a checkout may change while the job runs
    with Spending(where) as spending:
        found = experiment_of(name).run(job, where)
    return {
        "key": key_of(job),
        "job": job,
        **found,
        **spending.so_far(),
        "peak_mb_before": before,
        "environment": around,
    }


def main() -> None:
    """Arguments: the experiment, files of the job and for its row, a directory to work in."""
    end_with_parent()
    name, job_file, row_file, where = sys.argv[1:]
    row = run_job(name, json.loads(Path(job_file).read_text()), Path(where))
    Path(row_file).write_text(json.dumps(finite(row)))
