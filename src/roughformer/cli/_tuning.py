"""A whole search: read, search, train the winner, report."""

import hashlib
import os
import shutil
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from roughformer.atomic import write_file
from roughformer.cli._options import say
from roughformer.cli._requests import TrainingRequest, named_weights, read_request
from roughformer.cli._settings import by_setting, read_config, settings_of, to_toml
from roughformer.cli._training import run_training
from roughformer.cli._tuning_report import write_results
from roughformer.cli._tuning_told import Told
from roughformer.errors import InputError
from roughformer.estimators import RFormerClassifier, estimator_class
from roughformer.reproduce.alone import only_one
from roughformer.series import SeriesBatch
from roughformer.store import StoredSeries
from roughformer.train import HIGHER_IS_BETTER
from roughformer.tune import (
    LocalEngine,
    Problem,
    Space,
    Study,
    default_space,
    open_study,
    parse_space,
    search,
    trial_directory,
)

__all__ = ["TuningRequest", "run_tuning"]

_NOT_COMPARED = ("n_jobs", "device")  # where trials run, not what they are


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


@dataclass(frozen=True)
class _Plan:
    """What is searched. ``settings``: of the first trial; ``about``: table [data] of best.toml."""

    problem: Problem
    settings: dict[str, Any]
    space: Space
    metric: str
    about: dict[str, Any]


def run_tuning(request: TuningRequest) -> dict[str, Any]:
    """Search as asked; what ``tune.json`` holds."""
    plan = _plan(request)
    if request.out.exists() and not request.out.is_dir():
        raise InputError(f"{request.out} is a file; choose a directory with --out")
    quiet, work = request.training.quiet, request.out / "trials"
    with closing(_engine(request, plan.problem, work)) as engine, only_one(request.out):
        study = _study(request, plan)
        if not quiet:
            batch = plan.problem.batch
            say(
                f"{len(batch)} series, {batch.n_points:,} points; {plan.problem.task}; "
                f"{len(plan.space)} parameters, {request.trials} trials"
                + (f", {len(study)} of them begun before" if len(study) else "")
            )
        write_file(request.out / "space.toml", to_toml(plan.space.plain(), {}).encode())
        settings = plan.settings
        weights = settings.get("class_weight")
        if isinstance(weights, dict):
            settings = settings | {"class_weight": named_weights(weights, plan.problem.target)}
        with Told(study, plan.metric, request.trials, work, quiet=quiet) as told:
            search(study, engine, settings, request.trials, told)
        best = study.best
        if best is None:
            raise InputError(_nothing(study))
        text = to_toml(plan.settings | study.values(best.number), {"data": plan.about})
        write_file(request.out / "best.toml", text.encode())
        scores = _train_winner(request, work, best.number)
        return write_results(request, study, plan.metric, scores)


def _plan(request: TuningRequest) -> _Plan:
    flags, source = request.training.flags, request.training.data
    asked = read_request(request.training)
    data, held, task, preset = asked.data, asked.held, asked.task, asked.preset
    cls = estimator_class(task, asked.model)
    if isinstance(data.batch, StoredSeries):
        raise InputError(
            "each trial of a search holds all series in memory, which a store is not for; give "
            f"tune a table of some of the series instead of {source}"
        )

    def settings_with(*layers: dict[str, Any]) -> dict[str, Any]:
        return settings_of(task, preset, *layers, model=asked.model)

    fixed = cls.settings(flags)
    space: Space | None = None
    if request.space is not None:
        table = by_setting(cls, read_config(request.space))
        space, more = parse_space(table, lambda name, value: settings_with({name: value})[name])
        both = [name for name in (*space, *more) if name in fixed]
        if both:
            raise InputError(
                f"{both[0].replace('__', '.')} is in {request.space} and also fixed by an option; "
                "leave one out"
            )
        fixed |= more
    settings = settings_with(asked.given, fixed)
    if asked.model == "rformer":
        settings = _resolved(settings, data.batch)
    if settings["members"] != 1:
        raise InputError(
            "a search compares single models: leave members out, and set it when you train with "
            "best.toml"
        )
    if held is None and not settings["validation"] > 0:
        raise InputError("a search chooses by validation: set validation above 0, or give --valid")
    if space is None:
        space = default_space(data.batch, settings, fixed)
        if not space:
            raise InputError("every parameter is fixed by --set: nothing is left to search")
    validation = None if held is None else (held.batch, held.target)
    problem = Problem(
        task,
        data.batch,
        asked.target,
        data.groups,
        validation,  # type: ignore[arg-type]
        asked.model,
    )
    metric = cls.checked_metric(settings["metric"])
    return _Plan(problem, settings, space, metric, asked.about)


def _resolved(settings: dict[str, Any], batch: SeriesBatch) -> dict[str, Any]:
    """With what "auto" means for these series where the search needs a value to start from."""
    from roughformer.estimators.automatic import token_config
    from roughformer.tokens import TokenConfig

    names = {"static": "static", "context": "context"}
    names |= {
        name: RFormerClassifier.setting_name(f"tokens.{name}") for name in TokenConfig.options()
    }
    options = {name: settings[setting] for name, setting in names.items()}
    config = token_config(batch, options, bool(settings["causal"]))
    chosen = [n for n in ("windows", "depth", "basepoint") if options[n] == "auto"]
    return settings | {names[name]: getattr(config, name) for name in chosen}


def _study(request: TuningRequest, plan: _Plan) -> Study:
    settings = {k: v for k, v in plan.settings.items() if k not in _NOT_COMPARED}
    configuration = {
        "data": _fingerprint(plan.problem),
        "settings": {name: repr(value) for name, value in settings.items()},
        "space": plan.space.plain(),
        "metric": plan.metric,
        "pruner": request.pruner,
    }
    return open_study(
        request.out,
        configuration,
        plan.space,
        start=plan.settings,
        maximize=plan.metric in HIGHER_IS_BETTER,
        seed=int(plan.settings["random_state"]),
        epochs=int(plan.settings["epochs"]),
        pruner=request.pruner,
        resume=request.resume,
    )


def _fingerprint(problem: Problem) -> str:
    digest = hashlib.blake2b(digest_size=16)
    parts = [(problem.batch, problem.target), *([] if problem.held is None else [problem.held])]
    for batch, target in parts:
        for array in (batch.times, batch.values, batch.offsets, batch.static):
            if array is not None:
                digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(repr(target.tolist()).encode())
    return digest.hexdigest()


def _engine(request: TuningRequest, problem: Problem, work: Path) -> LocalEngine:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    threads = request.threads or max(cores // request.workers, 1)
    return LocalEngine(problem, work, request.workers, threads)


def _nothing(study: Study) -> str:
    failed = [t.user_attrs.get("failed") for t in study.trials]
    first = next((reason for reason in failed if reason), "all were pruned")
    return f"none of the {len(study)} trials ran to its end; the first reason: {first}"


def _train_winner(request: TuningRequest, work: Path, number: int) -> dict[str, Any]:
    """The run ``best``: it goes on from the trial's last state, which is its end."""
    out = request.out / "best"
    state = trial_directory(work, number) / "state"
    shutil.rmtree(out, ignore_errors=True)
    if state.is_dir():
        out.mkdir()
        shutil.copytree(state, out / "state")
    chosen = replace(
        request.training, config=request.out / "best.toml", flags={}, resume=True, preset=None,
        quiet=True,
    )  # fmt: skip
    return run_training(chosen)
