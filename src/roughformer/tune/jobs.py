"""One trial: what it is, how it is run, and what a search and those who run trials tell each other.

An engine runs trials somewhere, ``slots`` at a time. After each epoch of a trial it tells
``Reported`` and waits for ``answer``; at the end it tells ``Ended``.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.estimators import estimator_class
from roughformer.series import SeriesBatch
from roughformer.train.metrics import better

__all__ = ["Ended", "Engine", "Job", "Problem", "Reported", "Stopped", "failure", "run_job"]

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


@dataclass(frozen=True)
class Reported:
    """A trial has ended an epoch (from 1) with this score on validation."""

    number: int
    epoch: int
    score: float


@dataclass(frozen=True)
class Ended:
    """A trial is over: with a ``result``, because it was told to stop, or ``failed``."""

    number: int
    result: dict[str, Any] | None = None
    failed: str | None = None


class Engine(Protocol):
    """Who runs trials."""

    slots: int

    def start(self, job: Job) -> None:
        """Begin a trial; there is a free slot."""

    def wait(self) -> Reported | Ended:
        """The next thing that happens to one of the trials."""

    def answer(self, number: int, *, stop: bool) -> None:
        """After ``Reported``: whether the trial is to stop here."""

    def close(self) -> None:
        """End everything that still runs."""


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
