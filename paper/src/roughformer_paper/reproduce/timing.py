"""How long a training takes and how much memory, measured through the estimators themselves.

Time depends on the sizes of series and not on their values, so heart-rate series are made up.
"""

import math
import statistics
import time
from typing import Any

import numpy as np

from roughformer.series import SeriesBatch
from roughformer_paper.datasets import make_sine
from roughformer_paper.reproduce.experiment import Job, Row
from roughformer_paper.reproduce.models import Estimator, settings_of
from roughformer_paper.reproduce.spending import peak_mb
from roughformer_paper.reproduce.tasks import pulse_like

__all__ = ["KINDS", "forecast", "growth_of", "series_of", "step_memory", "time_of_epoch"]

# Lines of the tables that are a known model with other options.
KINDS = {"rformer-paper": "rformer", "neural-cde-every": "neural-cde"}
_LEAST_STEPS = 3
_MOST_STEPS = 10  # at one length of series
_DIFFERENT = 256  # made-up series; more are the same ones again


def series_of(task: str, n: int, length: int) -> SeriesBatch:
    """``n`` labelled series of the sine task, or of the shape of the heart-rate task."""
    if task == "sine":
        return make_sine(n, length=length, seed=0)
    return pulse_like(min(n, _DIFFERENT), length, seed=0)[np.arange(n) % _DIFFERENT]


def _fit(job: Job, series: SeriesBatch, epochs: int) -> Estimator:
    """The job's model, trained on the series for so many epochs; nothing validates."""
    task = "classification" if job["task"] == "sine" else "regression"
    model = "neural-cde" if job["model"] == "neural-cde-every" else job["model"]
    options = {
        "model_options": job["model_options"], "d_model": job["width"],
        "n_layers": job["n_layers"], "drop": job["drop"], "batch_size": job["batch_size"],
        "epochs": epochs, "validation": 0.0, "patience": None, "calibrate": False,
        "random_state": job["seed"],
    }  # fmt: skip
    if not model.startswith(("neural-cde", "neural-rde")):  # they have no dropout
        options["dropout"] = job["dropout"]
    cls, settings = settings_of(task, model, options)
    estimator = cls.from_settings(settings)
    estimator.fit(series, series.labels)
    return estimator


def _warm_up(job: Job, length: int) -> None:
    """What is done once in a process (imports, threads, tables) is not what we measure."""
    _fit(job, series_of(job["task"], 2, min(length, 32)), 1)


def _risen(before: float | None) -> float | None:
    """MB by which the peak of the process has risen."""
    after = peak_mb()
    return None if before is None or after is None else after - before


def step_memory(job: Job, length: int) -> tuple[float | None, float]:
    """Peak MB of training on one batch, with its inputs, and seconds of a step."""
    _warm_up(job, length)
    batch = series_of(job["task"], job["batch_size"], length)
    before = peak_mb()
    estimator = _fit(job, batch, 2)
    return _risen(before), float(estimator.history_[1]["seconds"])


def time_of_epoch(job: Job) -> Row:
    """Seconds of an epoch of ``job["n"]`` series, each epoch that was timed.

    If a whole epoch does not fit into ``job["seconds"]``, as many steps as do are timed (at least
    3, after two others) and scaled to an epoch. Inputs that do not change are made before the first
    epoch: ``inputs_seconds``. With dropping they are made in every epoch, and are within its time.
    """
    n, size, length = job["n"], job["batch_size"], job["length"]
    memory, step = step_memory(job, length)
    in_epoch = math.ceil(n / size)
    affordable = max(int(job["seconds"] / step), _LEAST_STEPS)
    steps = min(affordable, in_epoch)
    epochs = min(max(affordable // in_epoch, 1), job["epochs"])
    series = series_of(job["task"], min(steps * size, n), length)
    clocks = _clocks()
    estimator = _fit(job, series, epochs)
    share = _cpu_share(clocks)
    scale = n / len(series)
    history = estimator.history_
    spent = sum(record["seconds"] for record in history)
    encoder, drop = estimator.predictor_.encoder, job["drop"]
    inputs = encoder.encode(series[:size])
    stored = sum(tensor.numel() * tensor.element_size() for tensor in inputs.values())
    return {
        "epoch_seconds": [record["seconds"] * scale for record in history],
        "steps": steps * epochs,
        "steps_of_epoch": in_epoch,
        "step_mb": memory,
        "inputs_mb": stored / min(size, len(series)) * n / 2**20,
        "inputs_seconds": None if drop else _encode_seconds(encoder, series) * scale,
        "inputs_share": sum(r["encode_seconds"] for r in history) / spent if drop else None,
        "cpu_share": share,
    }


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _cpu_share(since: tuple[float, float]) -> float:
    """Seconds of processors for each second of time: below 1 the machine is busy with others."""
    wall, cpu = (now - then for now, then in zip(_clocks(), since, strict=True))
    return cpu / wall


def _encode_seconds(encoder: Any, series: SeriesBatch) -> float:
    start = time.perf_counter()
    encoder.encode(series)
    return time.perf_counter() - start


def growth_of(job: Job) -> Row:
    """Time and memory of a step for each of ``job["lengths"]``, as far as they can be afforded.

    From the first length whose step would take more than ``job["seconds"]`` or ``job["most_mb"]``,
    by the lengths before it, nothing is run: ``stopped``.
    """
    lengths = job["lengths"]
    _warm_up(job, lengths[0])
    before, clocks = peak_mb(), _clocks()
    stopped: Row | None = None
    points: list[Row] = []
    for length in lengths:
        seconds = forecast(points, "step_seconds", length)
        memory = forecast(points, "peak_mb", length)
        if seconds > job["seconds"]:
            stopped = {"length": length, "why": f"a step would take about {seconds:.0f} s"}
        elif memory > job["most_mb"]:
            stopped = {"length": length, "why": f"a step would need about {memory / 1024:.0f} GB"}
        if stopped:
            break
        afford = int(job["seconds"] / seconds) if seconds else _LEAST_STEPS
        steps = min(max(afford, _LEAST_STEPS), _MOST_STEPS)
        batch = series_of(job["task"], job["batch_size"], length)
        estimator = _fit(job, batch, 1 + steps)  # an epoch is a step; the first is to warm up
        encoder = estimator.predictor_.encoder
        step = [record["seconds"] for record in estimator.history_[1:]]
        points.append(
            {
                "length": length,
                "step_seconds": statistics.median(step),
                "encode_seconds": min(_encode_seconds(encoder, batch) for _ in range(2)),
                "peak_mb": _risen(before),
                "steps": steps,
            }
        )
    return {"points": points, "stopped": stopped, "cpu_share": _cpu_share(clocks)}


def forecast(points: list[Row], what: str, length: int) -> float:
    """``what`` at a greater length, from the two points before; 0 if nothing is known.

    It grows like L^p, p as between these two, but at least 1 and at most 2; 2 after one point.
    """
    known = [(p["length"], p[what]) for p in points[-2:] if p[what]]
    if not known:
        return 0.0
    last, value = known[-1]
    power = 2.0
    if len(known) == 2:
        first, earlier = known[0]
        power = min(max(math.log(value / earlier) / math.log(last / first), 1.0), 2.0)
    return float(value * (length / last) ** power)
