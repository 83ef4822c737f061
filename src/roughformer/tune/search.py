"""The search: trials in processes of this machine, proposed by the study."""

import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.estimators import estimator_class
from roughformer.series import SeriesBatch
from roughformer.train import better
from roughformer.tune.study import Ended, Reported, Study

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Problem:
    """What all trials learn: ``batch`` of B series, ``target (B,)`` or ``(B, m)``, ``groups``
    ``(B,)`` that a split keeps together, ``held``: validation series and their targets instead of
    a part of ``batch``.
    """

    task: str
    batch: SeriesBatch
    target: Array
    groups: Array | None = None
    held: tuple[SeriesBatch, Array] | None = None
    model: str = "rformer"


@dataclass(frozen=True)
class Job:
    """A trial to run: its number and all settings of the estimator."""

    number: int
    settings: dict[str, Any]


class Stopped(Exception):
    """The search has given this trial up."""


def run_job(
    problem: Problem,
    settings: dict[str, Any],
    report: Callable[[int, float], bool],
    run_dir: Path | None = None,
) -> dict[str, Any]:
    """Train one model. ``report(epoch, score)``: True to stop, which raises ``Stopped``.

    With ``run_dir`` a trial that was killed goes on from its last epoch. The result: ``score`` of
    the best epoch, its number, all its scores, and what it cost.
    """
    started = time.perf_counter()
    cls = estimator_class(problem.task, problem.model)
    metric = cls.checked_metric(settings["metric"])

    def after_epoch(record: dict[str, Any]) -> None:
        _check(record, metric)
        if report(record["epoch"], float(record["valid_metric"])):
            raise Stopped

    for record in _earlier(run_dir):  # an epoch may have been saved and not yet told
        after_epoch(record)
    running: dict[str, Any] = {"run_dir": run_dir, "resume": run_dir is not None, "verbose": 0}
    running["training__callbacks"] = (after_epoch,)
    estimator = cls.from_settings(settings | running)
    estimator.fit(
        problem.batch, problem.target, groups=problem.groups, validation_data=problem.held
    )
    best = None
    for record in estimator.history_:
        _check(record, metric)
        if better(metric, record["valid_metric"], None if best is None else best["valid_metric"]):
            best = record
    if best is None:
        raise InputError(f"no epoch had a {metric} that is a number; lower the learning rate")
    return {
        "score": float(best["valid_metric"]),
        "scores": best["valid_scores"],
        "best_epoch": best["epoch"],
        "epochs": len(estimator.history_),
        "weights": sum(p.numel() for p in estimator.predictor_.model.parameters()),
        "seconds": time.perf_counter() - started,
    }


def _earlier(run_dir: Path | None) -> list[dict[str, Any]]:
    """Records of the epochs before the process was killed; the last line may be half written."""
    if run_dir is None or not (run_dir / "log.jsonl").exists():
        return []
    lines = (run_dir / "log.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _check(record: dict[str, Any], metric: str) -> None:
    """Trials are compared by one metric, so an epoch that could not have it ends its trial."""
    if record["valid_metric"] is None:
        raise InputError("there is no validation part with known targets to choose by")
    if record["metric"] != metric:
        raise InputError(
            f"{metric} is not defined on the validation part (one class only?); give more "
            "validation series, or another --metric"
        )


def failure(error: BaseException) -> str:
    """Why a trial failed, in one line."""
    words = " ".join(str(error).split())
    return words if isinstance(error, InputError) else f"{type(error).__name__}: {words}"


# Trials in processes of this machine; one that dies takes its trial with it and nothing else.

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


# The search itself: asks the study for trials, has an engine run them, tells the study.


def search(
    study: Study,
    engine: LocalEngine,
    settings: dict[str, Any],
    trials: int,
    told: Callable[[Reported | Ended], None] | None = None,
) -> None:
    """Go on until ``trials`` of the study have ended; those that a killed search left come first.

    ``settings``: of the estimator, which each trial changes; ``told``: of all that happens, after
    the study knows it.
    """
    left = study.unfinished()
    stopped: set[int] = set()
    running = 0
    try:
        while True:
            while running < engine.slots and (left or len(study) < trials):
                number = left.pop(0) if left else study.ask()
                if not study.begin(number):  # it has killed its process too often
                    continue
                engine.start(Job(number, settings | study.values(number)))
                running += 1
            if not running:
                return
            event = engine.wait()
            if isinstance(event, Reported):
                stop = study.report(event.number, event.epoch, event.score)
                if stop:
                    stopped.add(event.number)
                engine.answer(event.number, stop=stop)
            else:
                running -= 1
                study.end(event, pruned=event.number in stopped)
            if told is not None:
                told(event)
    finally:
        engine.close()
