"""A whole training run: read, fit, score, draw, report."""

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.estimators import Scores, compared, estimator_class, known_scores
from roughformer.inference import Predictor
from roughformer.plots.report import write_report
from roughformer.runs.data import Columns, SeriesData, read_data, say
from roughformer.runs.evaluation import figures_of, predictions, scores_of
from roughformer.runs.run import (
    choose_task,
    read_config,
    settings_of,
    started_run,
    to_toml,
    write_json,
)
from roughformer.store import StoredSeries
from roughformer.train import better
from roughformer.util.atomic import write_file

_OF_RUN = ("target", "group", "task", "preset", "model")  # keys of [data] that are no columns


@dataclass(frozen=True)
class TrainingRequest:
    """What the user asked for; None: not said."""

    data: Path
    out: Path
    columns: Columns = field(default_factory=Columns)
    target: str | None = None
    task: str | None = None
    preset: str | None = None
    model: str | None = None
    group: str | None = None
    labels: Path | None = None
    valid: Path | None = None
    test: Path | None = None
    config: Path | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    resume: bool = False
    force: bool = False
    quiet: bool = False
    plots: bool = True
    command: str = ""


@dataclass(frozen=True)
class LoadedRequest:
    """A request whose data are read. ``given``: settings of its configuration file; ``held`` and
    ``test``: the series to validate and to score on, if it names files of them; ``about``: the
    table [data] of a configuration that asks for the same.
    """

    data: SeriesData
    target: npt.NDArray[Any]
    task: str
    model: str
    preset: str
    given: dict[str, Any]
    held: SeriesData | None
    test: SeriesData | None
    about: dict[str, Any]


def read_request(request: TrainingRequest) -> LoadedRequest:
    """Read the configuration and the data."""
    given = {} if request.config is None else read_config(request.config)
    request = _with_config(request, given.pop("data", {}))
    static = request.flags.get("static", given.get("static", ()))
    if not isinstance(static, str | list | tuple):
        raise InputError(f"static must be names of covariates, got {static!r}")
    static = _words(static) if isinstance(static, str) else tuple(static)
    name = request.target or "label"
    if set(static) & set(_words(name)):
        raise InputError(f"{name!r} is the target: it cannot be a static covariate as well")
    columns = replace(request.columns, static=static)
    data = _read_noted(request, request.data, columns, name, group=request.group)
    assert data.target is not None
    task = choose_task(data.target, request.task or "auto")
    known = replace(data.columns, static=())
    others = replace(known, static=static)

    def part(path: Path | None) -> SeriesData | None:
        return None if path is None else _read_noted(request, path, others, name)

    about = known.plain() | {"target": name, "task": task}
    about |= {} if request.group is None else {"group": request.group}
    about |= {} if request.model is None else {"model": request.model}
    return LoadedRequest(
        data, data.target, task, request.model or "rformer", request.preset or "default", given,
        part(request.valid), part(request.test), about,
    )  # fmt: skip


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def named_weights(weights: dict[Any, float], target: npt.NDArray[Any]) -> dict[Any, float]:
    """TOML has texts as keys; classes may be numbers."""
    by_text = {str(label): label for label in np.unique(target).tolist()}
    return {by_text.get(str(key), key): weight for key, weight in weights.items()}


def _with_config(request: TrainingRequest, table: Any) -> TrainingRequest:
    """What the table ``[data]`` of the configuration says, where no option does."""
    if not isinstance(table, dict):
        raise InputError("data must be a table in the configuration: [data]")
    wrong = [k for k in _OF_RUN if k in table and not isinstance(table[k], str)]
    if wrong:
        raise InputError(f"[data] {wrong[0]} must be a text, got {table[wrong[0]]!r}")
    columns = Columns.of({k: v for k, v in table.items() if k not in _OF_RUN})
    of_run: dict[str, Any] = {k: getattr(request, k) or table.get(k) for k in _OF_RUN}
    return replace(request, columns=request.columns.over(columns), **of_run)


def _read_noted(
    request: TrainingRequest, path: Path, columns: Columns, target: str, group: str | None = None
) -> SeriesData:
    data = read_data(path, columns, target=target, group=group, labels=request.labels, lazily=True)
    for note in data.notes:
        say(f"note: {note}")
    if len(data.batch) == 0:
        raise InputError(f"{path} holds no series")
    return data


# A whole training run: read, fit, score, draw, report.

Array = npt.NDArray[Any]
Table = tuple[str, list[str], list[list[Any]], str]
Shown = tuple[str, dict[str, Array], Array]  # title, predictions, targets


def run_training(request: TrainingRequest) -> dict[str, Any]:
    """Train as asked and return what ``metrics.json`` holds."""
    started = time.perf_counter()
    loaded = read_request(request)
    data, held = loaded.data, loaded.held
    cls: Any = estimator_class(loaded.task, loaded.model)
    settings = settings_of(cls, loaded.preset, loaded.given, request.flags)
    if not request.quiet:
        what = f"{loaded.task} of {loaded.about['target']!r}"
        say(f"{len(data.batch)} series, {data.batch.n_points:,} points, "
            f"{_count(data.batch.channels)}; {what}")  # fmt: skip

    text = to_toml(settings, {"data": loaded.about})
    weights = settings.get("class_weight")
    if isinstance(weights, dict):
        settings = settings | {"class_weight": named_weights(weights, loaded.target)}
    running = {
        "run_dir": request.out,
        "training__resume": request.resume,
        "verbose": 0 if request.quiet else 1,
    }
    estimator = cls.from_settings(settings | running)
    # The directory is this run's alone for the whole of it; what is left of one that fails before
    # it is trained is removed.
    with ExitStack() as whole:
        with started_run(request.out, resume=request.resume, force=request.force, held=whole):
            _keep_config(request, text)
            estimator.fit(
                data.batch,
                loaded.target,
                groups=data.groups,
                validation_data=None if held is None else (held.batch, held.target),
            )
        estimator.predictor_.metadata["data"] = loaded.about
        estimator.save(request.out / "model")
        index = estimator.validation_index_
        # Of several members each has its own validation part, and the others were trained on it.
        readable = not isinstance(data.batch, StoredSeries) or data.batch.holds_series
        if held is None and readable and len(index) and len(estimator.member_histories_) == 1:
            held = replace(data, batch=data.batch[index], target=loaded.target[index])
        scored = (("validation", held), ("test", loaded.test))
        parts = {name: part for name, part in scored if part and _any_known(part.target)}
        return _close(request, estimator, settings, parts, data, time.perf_counter() - started)


def _any_known(target: Array | None) -> bool:
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
            [line for line in one.splitlines() if not line.startswith("num_workers = ")]
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
    parts: dict[str, SeriesData],
    data: SeriesData,
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
        predicted = predictions(predictor, part.batch, threads=settings["n_jobs"])
        scores[name] = scores_of(predictor, predicted, part.target)
        if name == pictured:
            shown.append((f"{name} part", predicted, part.target))
    if request.plots:
        figures, notes = _figures(predictor, history, shown)
    yardsticks, of, verdict = compared(predictor)
    if of == "out-of-fold":
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
        "task": predictor.metadata["task"],
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
        "task": predictor.metadata["task"],
        **scores,
        **({"yardsticks": yardsticks, "verdict": verdict} if yardsticks else {}),
        **epochs,
        "seconds": seconds,
        "roughformer": predictor.metadata["roughformer"],
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
        tables=_yardstick_table(yardsticks, f"{of.capitalize()} scores. {verdict}"),
    )
    write_json(request.out / "metrics.json", summary)
    return summary


def _yardstick_table(scores: Scores, note: str) -> list[Table]:
    """The model beside simple baselines, for the report."""
    if not scores:
        return []
    metrics = list(scores["model"])
    rows = [
        [name, *("–" if row[m] is None else f"{row[m]:.4g}" for m in metrics)]
        for name, row in scores.items()
    ]
    return [("Beside simple baselines", ["", *metrics], rows, note)]


def _figures(
    predictor: Predictor, history: list[dict[str, Any]], shown: list[Shown]
) -> tuple[list[tuple[str, str, Any]], list[str]]:
    """Pictures of the training and of the predictions, or a note why there are none."""
    try:
        from roughformer import plots

        figures = []
        if history:
            figures.append(("history", "Training, epoch by epoch", plots.plot_history(history)))
        for title, predicted, truth in shown:
            figures += figures_of(predictor, predicted, truth, title)
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
