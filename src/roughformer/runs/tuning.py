"""A whole search: read, search, train the winner, report."""

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roughformer.errors import InputError
from roughformer.estimators import RFormerClassifier, estimator_class
from roughformer.plots.report import write_report
from roughformer.runs.data import say
from roughformer.runs.run import read_config, settings_of, to_toml, write_json
from roughformer.runs.training import TrainingRequest, named_weights, read_request, run_training
from roughformer.series import SeriesBatch
from roughformer.store import StoredSeries
from roughformer.train import HIGHER_IS_BETTER, run_fingerprint
from roughformer.tune import (
    Problem,
    Search,
    Space,
    as_csv,
    begun_trials,
    best_trial,
    default_space,
    parse_space,
    search_figures,
    trial_row,
)
from roughformer.util.atomic import directory_lock, write_file

_NOT_COMPARED = ("n_jobs", "device")  # where trials run, not what they are
_SHOWN = 12  # trials in the report's table


@dataclass(frozen=True)
class TuningRequest:
    """What the user asked for. ``training``: data, settings and what to do with the winner."""

    training: TrainingRequest
    out: Path
    trials: int
    space: Path | None = None
    pruner: str = "median"
    workers: int = 1
    threads: int | None = None
    resume: bool = False


def run_tuning(request: TuningRequest) -> dict[str, Any]:
    """Search as asked; what ``tune.json`` holds."""
    search, about = _plan(request)
    out, quiet = request.out, request.training.quiet
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; choose a directory with --out")
    out.mkdir(parents=True, exist_ok=True)
    with directory_lock(out):
        study = search.begin(_configuration(search), resume=request.resume)
        before = len(begun_trials(study))
        if not quiet:
            batch = search.problem.batch
            say(
                f"{len(batch)} series, {batch.n_points:,} points; {search.problem.estimator.task}; "
                f"{len(search.space)} parameters, {request.trials} trials"
                + (f", {before} of them begun before" if before else "")
            )
        write_file(out / "space.toml", to_toml(search.space.plain(), {}).encode())
        progress = None if quiet else _TuneProgress(search.space, search.metric, request.trials)
        study = _as_run(search, request).run(
            request.trials, workers=request.workers, callback=progress
        )
        best = best_trial(study)
        if best is None:
            raise InputError(_nothing(study))
        settings = search.settings | search.space.values(best.params)
        write_file(out / "best.toml", to_toml(settings, {"data": about}).encode())
        shutil.rmtree(out / "best", ignore_errors=True)
        winner = run_training(
            replace(request.training, config=out / "best.toml", flags={}, preset=None, quiet=True)
        )
        return _write_results(request, search, study, winner)


@dataclass(frozen=True)
class _TuneProgress:
    """Prints a line for each trial that ended."""

    space: Space
    metric: str
    trials: int

    def __call__(self, study: Any, trial: Any) -> None:
        row = trial_row(trial, self.space, maximize=study.direction.name == "MAXIMIZE")
        text = f"trial {row['trial']}"
        if row["state"] == "failed":
            text += f" failed: {row['failed']}"
        elif row["score"] is not None:
            text += f": {self.metric} {row['score']:.4g}"
            if row["state"] == "pruned":
                text += f", pruned after epoch {row['epochs']}"
            else:
                text += f" in epoch {row['best_epoch']} of {row['epochs']}, {row['seconds']:.0f} s"
        best = best_trial(study)
        done = sum(t.state.is_finished() for t in begun_trials(study))
        mark = " *" if best is not None and best.number == trial.number else ""
        say(f"[{done}/{self.trials}] {text}{mark}")


def _as_run(search: Search, request: TuningRequest) -> Search:
    """The search with settings as trials take them: threads, and classes by their own kind."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    threads = request.threads or max(cores // request.workers, 1)
    settings = search.settings | {"n_jobs": threads}
    weights = settings.get("class_weight")
    if isinstance(weights, dict):
        settings["class_weight"] = named_weights(weights, search.problem.target)
    return replace(search, settings=settings)


def _plan(request: TuningRequest) -> tuple[Search, dict[str, Any]]:
    """What is searched, around the settings of the first trial; table [data] of best.toml."""
    flags, source = request.training.flags, request.training.data
    loaded = read_request(request.training)
    data, held, task, preset = loaded.data, loaded.held, loaded.task, loaded.preset
    cls = estimator_class(task, loaded.model)
    if isinstance(data.batch, StoredSeries):
        raise InputError(
            "each trial of a search holds all series in memory, which a store is not for; give "
            f"tune a table of some of the series instead of {source}"
        )

    def settings_with(*layers: dict[str, Any]) -> dict[str, Any]:
        return settings_of(cls, preset, *layers)

    fixed = cls.settings(flags)
    space: Space | None = None
    if request.space is not None:
        table = cls.settings(read_config(request.space))
        space, more = parse_space(table, lambda name, value: settings_with({name: value})[name])
        both = [name for name in (*space, *more) if name in fixed]
        if both:
            raise InputError(
                f"{both[0].replace('__', '.')} is in {request.space} and also fixed by an option; "
                "leave one out"
            )
        fixed |= more
    settings = settings_with(loaded.given, fixed)
    if loaded.model == "rformer":
        settings = _resolved(settings, data.batch)
    if settings["training__n_estimators"] != 1:
        raise InputError(
            "a search compares single models: leave n_estimators out, and set it when you train "
            "with best.toml"
        )
    if held is None and not settings["validation"] > 0:
        raise InputError("a search chooses by validation: set validation above 0, or give --valid")
    if space is None:
        space = default_space(data.batch, settings, fixed)
        if not space:
            raise InputError("every parameter is fixed by --set: nothing is left to search")
    validation = None if held is None else (held.batch, held.target)
    problem = Problem(cls, data.batch, loaded.target, data.groups, validation)  # type: ignore[arg-type]
    cls.checked_metric(settings["training__metric"])
    return Search(problem, settings, space, request.out, request.pruner), loaded.about


def _resolved(settings: dict[str, Any], batch: SeriesBatch) -> dict[str, Any]:
    """With what "auto" means for these series where the search needs a value to start from."""
    from roughformer.estimators import token_config
    from roughformer.tokens import TokenConfig

    names = {"static": "static"} | {
        name: RFormerClassifier.setting_name(f"tokens.{name}") for name in TokenConfig.options()
    }
    options = {name: settings[setting] for name, setting in names.items()}
    config = token_config(batch, options, bool(settings["causal"]))
    chosen = [n for n in ("windows", "depth", "basepoint") if options[n] == "auto"]
    return settings | {names[name]: getattr(config, name) for name in chosen}


def _configuration(search: Search) -> dict[str, Any]:
    """What must be the same for a search to go on."""
    settings = {k: v for k, v in search.settings.items() if k not in _NOT_COMPARED}
    problem = search.problem
    series = [(problem.batch, problem.target), *([problem.held] if problem.held else [])]
    data = [part for batch, target in series for part in (batch, repr(target.tolist()))]
    return {
        "data": run_fingerprint(*data),
        "settings": {name: repr(value) for name, value in settings.items()},
        "space": search.space.plain(),
        "metric": search.metric,
        "pruner": search.pruner,
    }


def _nothing(study: Any) -> str:
    trials = begun_trials(study)
    failed = [t.user_attrs.get("failed") for t in trials]
    first = next((reason for reason in failed if reason), "all were pruned")
    return f"none of the {len(trials)} trials ran to its end; the first reason: {first}"


def _write_results(
    request: TuningRequest, search: Search, study: Any, winner: dict[str, Any]
) -> dict[str, Any]:
    """trials.json, trials.csv, plots, report.html, and last the summary. ``winner``: metrics of
    the best trial's run.
    """
    out, metric, names = request.out, search.metric, list(search.space)
    up, seed = metric in HIGHER_IS_BETTER, int(search.settings["random_state"])
    rows = [trial_row(trial, search.space, maximize=up) for trial in begun_trials(study)]
    write_json(out / "trials.json", rows)
    write_file(out / "trials.csv", as_csv(rows, names).encode())
    chosen = best_trial(study).number
    best = next(row for row in rows if row["trial"] == chosen)
    count = {
        state: sum(r["state"] == state for r in rows) for state in ("complete", "pruned", "failed")
    }
    figures, notes = _figures(request, study, metric)
    notes.append(
        "Trials were compared on validation only; test series were scored once, at the end."
    )
    failed = [r for r in rows if r["state"] == "failed"]
    notes += [f"Trial {r['trial']} failed: {r['failed']}" for r in failed[:_SHOWN]]
    order = sorted(
        (r for r in rows if r["state"] == "complete"), key=lambda r: r["score"], reverse=up
    )
    write_report(
        out / "report.html",
        title=f"roughformer: search {out.name}",
        facts={
            "trials": len(rows), **count, "chosen by": metric, "best trial": best["trial"],
            "best score": best["score"], "seed": seed,
            "seconds of all trials": sum(r["seconds"] or 0.0 for r in rows),
        },
        metrics={part: winner[part] for part in ("validation", "test") if part in winner},
        figures=[(caption, figure) for _, caption, figure in figures],
        config={"best": best["parameters"], "space": search.space.plain()},
        notes=notes,
        command=request.training.command or None,
        tables=[(
            "Best trials", ["trial", metric, *names, "epochs", "s"],
            [[r["trial"], r["score"], *(_shown(r["parameters"].get(n)) for n in names), r["epochs"],
              r["seconds"]] for r in order[:_SHOWN]],
            "",
        )],
    )  # fmt: skip
    summary = {
        "trial": best["trial"], "metric": metric, "score": best["score"],
        "parameters": best["parameters"], "validation": winner.get("validation", {}),
        "test": winner.get("test", {}), "trials": count, "seed": seed,
    }  # fmt: skip
    write_json(out / "tune.json", summary)
    return summary


def _shown(value: Any) -> Any:
    """A table's cell: small numbers keep their digits, a choice of none is a word."""
    return "none" if value is None else str(value) if isinstance(value, dict) else value


def _figures(
    request: TuningRequest, study: Any, metric: str
) -> tuple[list[tuple[str, str, Any]], list[str]]:
    if not request.training.plots:
        return [], []
    try:
        figures = search_figures(study, metric)
    except InputError as error:  # matplotlib is an extra
        return [], [f"No pictures: {error}"]
    for name, _, figure in figures:
        (request.out / "plots").mkdir(exist_ok=True)
        figure.savefig(request.out / "plots" / f"{name}.png", dpi=130)
    return figures, []
