"""A whole training run: read, fit, score, draw, report."""

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.atomic import write_file
from roughformer.cli._data import Data
from roughformer.cli._options import say
from roughformer.cli._requests import TrainingRequest, named_weights, read_request
from roughformer.cli._runs import is_restart, started_run, write_json
from roughformer.cli._scores import figures_of, predictions, scores_of
from roughformer.cli._settings import settings_of, to_toml
from roughformer.errors import InputError
from roughformer.estimators import estimator_class
from roughformer.estimators.summary import Scores, known_scores, verdict
from roughformer.predictor import Predictor
from roughformer.report import write_report
from roughformer.store import StoredSeries
from roughformer.train import better, current_process_group

__all__ = ["run_training"]

Array = npt.NDArray[Any]
Table = tuple[str, list[str], list[list[Any]], str]
Shown = tuple[str, dict[str, Array], Array]  # title, predictions, targets


def run_training(request: TrainingRequest) -> dict[str, Any]:
    """Train as asked and return what ``metrics.json`` holds.

    Of several processes that a launcher started, the first one writes and prints; the others
    return nothing.
    """
    started = time.perf_counter()
    team = current_process_group()
    resume = team.once(lambda: request.resume or is_restart(request.out))
    request = replace(request, resume=resume, quiet=request.quiet or not team.first)
    asked = read_request(request)
    data, held = asked.data, asked.held
    settings = settings_of(asked.task, asked.preset, asked.given, request.flags, model=asked.model)
    if not request.quiet:
        what = f"{asked.task} of {asked.about['target']!r}"
        say(f"{len(data.batch)} series, {data.batch.n_points:,} points, "
            f"{_count(data.batch.channels)}; {what}")  # fmt: skip

    text = to_toml(settings, {"data": asked.about})
    weights = settings.get("class_weight")
    if isinstance(weights, dict):
        settings = settings | {"class_weight": named_weights(weights, asked.target)}
    running = {
        "run_dir": request.out,
        "resume": request.resume,
        "verbose": 0 if request.quiet else 1,
    }
    estimator: Any = estimator_class(asked.task, asked.model).from_settings(settings | running)
    with ExitStack() as whole:
        with ExitStack() as stack:
            team.once(lambda: _begin(request, text, stack, whole))
            estimator.fit(
                data.batch,
                asked.target,
                groups=data.groups,
                validation_data=None if held is None else (held.batch, held.target),
            )
        if not team.first:
            return {}
        estimator.predictor_.facts["data"] = asked.about
        estimator.save(request.out / "model")
        index = estimator.validation_index_
        # Of several members each has its own validation part, and the others were trained on it.
        readable = not isinstance(data.batch, StoredSeries) or data.batch.holds_series
        if held is None and readable and len(index) and len(estimator.member_histories_) == 1:
            held = replace(data, batch=data.batch[index], target=asked.target[index])
        scored = (("validation", held), ("test", asked.test))
        parts = {name: part for name, part in scored if part and _some_known(part.target)}
        return _close(request, estimator, settings, parts, data, time.perf_counter() - started)


def _begin(request: TrainingRequest, text: str, until: ExitStack, whole: ExitStack) -> None:
    """Make the directory of the run, or say why it must not be written. It is this run's alone for
    the ``whole`` of it; what is left of one that fails ``until`` it is trained is removed.
    """
    resume, force = request.resume, request.force
    until.enter_context(started_run(request.out, resume=resume, force=force, held=whole))
    _keep_config(request, text)


def _some_known(target: Array | None) -> bool:
    """Whether there is anything to score: a regression may lack some targets."""
    return target is not None and not (target.dtype.kind == "f" and np.isnan(target).all())


def _count(channels: tuple[str, ...]) -> str:
    """Named, because a column of a wide table that is no channel would be seen here."""
    shown = ", ".join(channels[:8]) + (", ..." if len(channels) > 8 else "")
    return f"{len(channels)} channel{'s' if len(channels) != 1 else ''} ({shown})"


def _keep_config(request: TrainingRequest, text: str) -> None:
    """Write config.toml; a run that goes on must have the one that it was started with."""
    path = request.out / "config.toml"
    if request.resume and path.exists():
        # Who reads a store changes nothing in the run.
        old, new = (
            [line for line in one.splitlines() if not line.startswith("readers = ")]
            for one in (path.read_text(), text)
        )
        changed = [line for line in new if line not in old] or [
            line for line in old if line not in new
        ]
        if changed:
            raise InputError(
                f"the run in {request.out} was started with other settings ({changed[0]}); resume "
                "it with the same ones, or start another run with --out"
            )
        return
    write_file(path, text.encode())


def _close(
    request: TrainingRequest,
    estimator: Any,
    settings: dict[str, Any],
    parts: dict[str, Data],
    data: Data,
    seconds: float,
) -> dict[str, Any]:
    """Scores, pictures, the report, and at the very end ``metrics.json``."""
    predictor, history = estimator.predictor_, estimator.history_
    scores: dict[str, dict[str, float]] = {}
    figures: list[tuple[str, str, Any]] = []
    notes: list[str] = []
    pictured = "test" if "test" in parts else "validation"
    shown: list[Shown] = []
    for name, part in parts.items():
        assert part.target is not None
        found = predictions(predictor, part.batch, threads=settings["n_jobs"])
        scores[name] = scores_of(predictor, found, part.target)
        if name == pictured:
            shown.append((f"{name} part", found, part.target))
    if request.plots:
        figures, notes = _figures(predictor, history, shown)
    yardsticks = predictor.facts.get("out_of_fold", {})
    if yardsticks:
        scores = {"validation": known_scores(yardsticks["model"])} | scores
    for name, _, figure in figures:
        (request.out / "plots").mkdir(exist_ok=True)
        figure.savefig(request.out / "plots" / f"{name}.png", dpi=130)
    members = estimator.member_histories_
    if len(members) > 1:
        scores = {"validation": _members_score(members)} | scores
        notes.append(
            f"{len(members)} models answer as one. Validation is the mean of what each reached on "
            "the part it was not trained on; the history is that of the first."
        )
    elif "validation" not in scores and history and "valid_scores" in _best(history):
        # A store of tokens has no series to draw and predict again.
        scores = {"validation": _best(history)["valid_scores"]} | scores
    facts = {
        "task": predictor.facts["task"],
        "series": len(data.batch),
        "points": data.batch.n_points,
        "channels": data.batch.n_channels,
        "weights": sum(p.numel() for p in predictor.model.parameters()),
        "seconds": seconds,
    }
    epochs: dict[str, Any] = {"epochs": len(history)}
    if history:
        epochs["best_epoch"] = _best(history)["epoch"]
        facts["epochs"], facts["best epoch"] = len(history), epochs["best_epoch"]
        facts["series per second"] = history[-1]["samples_per_second"]
    if hasattr(predictor.encoder, "n_features"):  # spectra of a model of rates are no tokens
        facts["features of a token"] = predictor.encoder.n_features
    summary = {
        "task": predictor.facts["task"],
        **scores,
        **({"yardsticks": yardsticks} if yardsticks else {}),
        **epochs,
        "seconds": seconds,
        "roughformer": predictor.facts["roughformer"],
    }
    write_report(
        request.out / "report.html",
        title=f"roughformer: {request.out.name}",
        facts=facts,
        metrics=scores,
        figures=[(caption, figure) for _, caption, figure in figures],
        config=settings,
        notes=notes,
        command=request.command or None,
        tables=_yardstick_table(yardsticks),
    )
    write_json(request.out / "metrics.json", summary)
    return summary


def _yardstick_table(scores: Scores) -> list[Table]:
    """The model beside its parts and the majority class or mean, for the report."""
    if not scores:
        return []
    metrics = list(scores["model"])
    rows = [
        [name, *("–" if row[m] is None else f"{row[m]:.4g}" for m in metrics)]
        for name, row in scores.items()
    ]
    note = "On series that were left out when they were predicted. " + verdict(scores)
    return [("Beside yardsticks", ["", *metrics], rows, note)]


def _figures(
    predictor: Predictor, history: list[dict[str, Any]], shown: list[Shown]
) -> tuple[list[tuple[str, str, Any]], list[str]]:
    """Pictures of the training and of the predictions, or a note why there are none."""
    try:
        from roughformer import plots

        figures = []
        if history:
            figures.append(("history", "Training, epoch by epoch", plots.plot_history(history)))
        for title, found, truth in shown:
            figures += figures_of(predictor, found, truth, title)
    except InputError as error:  # matplotlib is an extra
        return [], [f"No pictures: {error}"]
    return figures, []


def _best(history: list[dict[str, Any]]) -> dict[str, Any]:
    """The epoch whose weights were kept: the best on validation, else the last."""
    best = history[0]
    for record in history[1:]:
        value = record["valid_metric"]
        if value is None or better(record["metric"], value, best["valid_metric"]):
            best = record
    return best


def _members_score(members: list[list[dict[str, Any]]]) -> dict[str, float]:
    """The mean of the members' best validation scores, of those that had something to validate."""
    best = [record for record in map(_best, members) if record["valid_metric"] is not None]
    if not best:
        return {}
    return {best[0]["metric"]: float(np.mean([record["valid_metric"] for record in best]))}
