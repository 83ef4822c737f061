"""Trials in processes of this machine; one that dies takes its trial with it and nothing else."""

import multiprocessing
import os
import threading
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from roughformer.tune.jobs import Ended, Job, Problem, Reported, Stopped, failure, run_job

__all__ = ["LocalEngine", "trial_directory"]

_ENDED = 70  # exit code of a process whose search is gone
_SECONDS = 5.0  # that an ended process may take to be gone


def trial_directory(where: Path, number: int) -> Path:
    """What a trial goes on from if its search is killed."""
    return where / f"{number:04d}"


class LocalEngine:
    """``workers`` processes with ``threads`` threads each, which run one trial after another."""

    def __init__(self, problem: Problem, where: Path, workers: int, threads: int) -> None:
        """``where``: directory of the trials under way."""
        self.problem, self.where, self.slots, self.threads = problem, where, workers, threads
        self._context = multiprocessing.get_context("spawn")  # forks of torch's threads may hang
        self._free: list[_Worker] = []
        self._busy: dict[int, _Worker] = {}

    def start(self, job: Job) -> None:
        """Begin a trial in a process that is free, or in a new one."""
        worker = self._free.pop() if self._free else self._hire()
        self._busy[job.number] = worker
        worker.connection.send(job)

    def wait(self) -> Reported | Ended:
        """What a process says, or that it died."""
        by_connection: dict[Any, int] = {w.connection: n for n, w in self._busy.items()}
        ready = wait(list(by_connection))
        number = min(by_connection[connection] for connection in ready)
        worker = self._busy[number]
        try:
            event: Reported | Ended = worker.connection.recv()
        except (EOFError, OSError):
            del self._busy[number]
            worker.process.join()
            code = worker.process.exitcode or 0
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            return Ended(number, failed=f"its process {how} (out of memory?)")
        if isinstance(event, Ended):
            self._free.append(self._busy.pop(number))
        return event

    def answer(self, number: int, *, stop: bool) -> None:
        """Let the trial go on, or not. If its process died meanwhile, ``wait`` will find out."""
        try:
            self._busy[number].connection.send(stop)
        except OSError:
            return

    def close(self) -> None:
        """End all processes."""
        for worker in [*self._free, *self._busy.values()]:
            worker.process.kill()
            worker.process.join(_SECONDS)
            worker.connection.close()
        self._free, self._busy = [], {}

    def _hire(self) -> "_Worker":
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_work, args=(theirs, self.problem, self.where, self.threads), daemon=True
        )
        process.start()
        theirs.close()  # so that the death of the process closes the pipe
        return _Worker(process, ours)


class _Worker:
    def __init__(self, process: Any, connection: Connection) -> None:
        self.process, self.connection = process, connection


def _work(connection: Connection, problem: Problem, where: Path, threads: int) -> None:
    """A process: one trial after another until its search is gone."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            job: Job = connection.recv()
        except EOFError:
            return
        connection.send(_one(connection, problem, job, where, threads))


def _one(connection: Connection, problem: Problem, job: Job, where: Path, threads: int) -> Ended:
    def report(epoch: int, score: float) -> bool:
        connection.send(Reported(job.number, epoch, score))
        return bool(connection.recv())

    try:
        settings = job.settings | {"n_jobs": job.settings["n_jobs"] or threads}
        found = run_job(problem, settings, report, trial_directory(where, job.number))
        return Ended(job.number, result=found)
    except Stopped:
        return Ended(job.number)
    except (Exception, MemoryError) as error:
        return Ended(job.number, failed=failure(error))


def _end_with_parent() -> None:
    """The search may be killed in the middle of an epoch: then this process ends at once."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(_ENDED)
