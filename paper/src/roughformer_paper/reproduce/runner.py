"""Runs the jobs of an experiment, some at a time, each in a process of its own; resumable."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from roughformer.io import directory_lock
from roughformer_paper.datasets import data_root
from roughformer_paper.reproduce.child import run_job
from roughformer_paper.reproduce.experiment import Experiment, Job, Row, key_of
from roughformer_paper.reproduce.results import Results, environment
from roughformer_paper.reproduce.spending import spent

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
    again: bool = False,
) -> list[Row]:
    """Run every job that ``results`` lacks; the rows of those that failed, others go on.

    ``work``: directories of trainings under way, by key, removed when their job is done; no other
    command may use it meanwhile. ``told(job, row, done, all)`` is called after each job.
    ``in_process``: all here, one by one, for jobs so small that starting a process would be most of
    the work. ``again``: all jobs anew, from their beginning; an old row stays until there is a new
    one. ``MissingDataError`` before the first job if one needs data that are not there.
    """
    with directory_lock(work) as lock:
        results.read()  # another command may have ended while we waited
        todo = [job for job in jobs if again or results.get(job) is None]
        if any(experiment.needs_data(job) for job in todo):
            data_root("bidmc")
        if again:
            _forget(experiment, todo, work)
        children = _Children(threads, lock, waits=not experiment.timed)
        started = environment()

        def one(job: Job) -> Row:
            where = work / key_of(job)
            where.mkdir(parents=True, exist_ok=True)
            if in_process:
                row = _run_here(experiment.name, job, where)
            else:
                row = children.run(experiment.name, job, where)
            row.setdefault("environment", started)
            if "failed" not in row:
                shutil.rmtree(where, ignore_errors=True)
            return row

        done, failed = len(jobs) - len(todo), []
        with ThreadPoolExecutor(1 if in_process else workers) as pool:
            waiting = {pool.submit(one, job): job for job in todo}
            try:
                for finished in as_completed(waiting):
                    row = finished.result()
                    results.add(row)
                    if "failed" in row:
                        failed.append(row)
                    done += 1
                    if told is not None:
                        told(waiting[finished], row, done, len(jobs))
            except BaseException:
                for future in waiting:
                    future.cancel()
                children.kill()
                raise
        return failed


def _forget(experiment: Experiment, jobs: list[Job], work: Path) -> None:
    """Remove what earlier runs of these jobs left to go on from."""
    shared = {experiment.shared(job) for job in jobs} - {None}
    for name in [key_of(job) for job in jobs] + [str(name) for name in shared]:
        shutil.rmtree(work / name, ignore_errors=True)


def _failed(job: Job, reason: str, where: Path) -> Row:
    return {"key": key_of(job), "job": job, "failed": reason, **spent(where)}


def _run_here(name: str, job: Job, where: Path) -> Row:
    try:
        return run_job(name, job, where)
    except Exception as error:
        words = " ".join(str(error).split())
        return _failed(job, f"{type(error).__name__}: {words}", where)


class _Children:
    """The processes of jobs; all can be ended at once."""

    def __init__(self, threads: int | None, lock: tuple[int, ...], waits: bool) -> None:
        self.lock = lock
        # Threads of OpenMP that wait for each other run in circles at first. That is processor
        # time: on a busy machine most of a budget, spent on nothing. So they sleep, unless it is
        # times of the wall that are measured.
        sleeping = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"} if waits else {}
        self.variables = sleeping | dict(os.environ)
        if threads is not None:
            for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "ROUGHFORMER_NUM_THREADS"):
                self.variables[name] = str(threads)
        self.running: set[subprocess.Popen[bytes]] = set()
        self.ended = False
        self.change = threading.Lock()

    def kill(self) -> None:
        """End all, and let none start any more."""
        with self.change:
            self.ended = True
            for child in self.running:
                child.kill()

    def run(self, name: str, job: Job, where: Path) -> Row:
        """The row that a process found, or why it did not."""
        job_file, row_file, log = where / "job.json", where / "row.json", where / "output.log"
        job_file.write_text(json.dumps(job))
        row_file.unlink(missing_ok=True)
        # Not "-m": the package has imported the module by then, and runpy would warn of it.
        command = [
            sys.executable,
            "-c",
            "from roughformer_paper.reproduce.child import main; main()",
        ]
        command += [name, *(str(path) for path in (job_file, row_file, where))]
        with open(log, "a") as output:
            with self.change:
                if self.ended:
                    return _failed(job, "interrupted", where)
                # It ends when the pipe closes, and that is when we end (see alone.py).
                child = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=output, stderr=output,
                    env=self.variables, pass_fds=self.lock,
                )  # fmt: skip
                self.running.add(child)
            code = child.wait()
            with self.change:
                self.running.discard(child)
            assert child.stdin is not None
            child.stdin.close()
        if code == 0 and row_file.exists():
            row: Row = json.loads(row_file.read_text())
            return row
        lines = log.read_text(errors="replace").strip().splitlines()
        reason = f"killed by signal {-code}" if code < 0 else lines[-1] if lines else f"exit {code}"
        return _failed(job, reason, where)
