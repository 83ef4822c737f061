"""Runs the jobs of an experiment, some at a time, each in a process of its own; resumable."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from roughformer.reproduce.child import run_job
from roughformer.reproduce.experiment import Experiment, Job, Row, key_of
from roughformer.reproduce.results import Results, environment

__all__ = ["run_jobs"]

Told = Callable[[Job, Row, int, int], None]


def run_jobs(
    experiment: Experiment,
    jobs: list[Job],
    results: Results,
    work: Path,
    *,
    workers: int = 1,
    threads: int | None = None,
    told: Told | None = None,
    in_process: bool = False,
) -> None:
    """Run every job that ``results`` lacks; a failed one is noted in its row, others go on.

    ``work``: directories of trainings under way, by key, removed when their job is done.
    ``told(job, row, done, all)`` is called after each job. ``in_process``: all here, one by one,
    for jobs so small that starting a process would be most of the work.
    """
    todo = [job for job in jobs if results.get(job) is None]
    children: set[subprocess.Popen[str]] = set()
    started = environment()

    def one(job: Job) -> Row:
        where = work / key_of(job)
        where.mkdir(parents=True, exist_ok=True)
        if in_process:
            row = run_job(experiment.name, job, where)
        else:
            row = _run_child(experiment.name, job, where, threads, children)
            row.setdefault("environment", started)
        if "failed" not in row:
            shutil.rmtree(where, ignore_errors=True)
        return row

    done = len(jobs) - len(todo)
    with ThreadPoolExecutor(1 if in_process else workers) as pool:
        waiting = {pool.submit(one, job): job for job in todo}
        try:
            for finished in as_completed(waiting):
                row = finished.result()
                results.add(row)
                done += 1
                if told is not None:
                    told(waiting[finished], row, done, len(jobs))
        except BaseException:
            for future in waiting:
                future.cancel()
            for child in list(children):
                child.kill()
            raise


def _run_child(
    name: str, job: Job, where: Path, threads: int | None, children: set[subprocess.Popen[str]]
) -> Row:
    job_file, row_file, log = where / "job.json", where / "row.json", where / "output.log"
    job_file.write_text(json.dumps(job))
    row_file.unlink(missing_ok=True)
    variables = dict(os.environ)
    if threads is not None:
        wish = str(threads)
        variables |= {"OMP_NUM_THREADS": wish, "MKL_NUM_THREADS": wish}
        variables["ROUGHFORMER_NUM_THREADS"] = wish
    command = [sys.executable, "-m", "roughformer.reproduce.child", name]
    command += [str(path) for path in (job_file, row_file, where)]
    start = time.perf_counter()
    with open(log, "a") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, text=True,
            env=variables,
        )  # fmt: skip
        children.add(child)
        code = child.wait()
        children.discard(child)
    if code == 0 and row_file.exists():
        row: Row = json.loads(row_file.read_text())
        return row
    lines = log.read_text(errors="replace").strip().splitlines()
    reason = f"killed by signal {-code}" if code < 0 else lines[-1] if lines else f"exit {code}"
    return {
        "key": key_of(job),
        "job": job,
        "failed": reason,
        "seconds": time.perf_counter() - start,
    }
