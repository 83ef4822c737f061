"""Search with Optuna: trials report after each epoch, are pruned, and are kept in a journal.

The journal is Optuna's (``JournalStorage``; ``optuna-dashboard`` reads it). Worker processes share
it. A search that was killed goes on from it: trials that were running are run again.
"""

import csv
import io
import json
import math
import multiprocessing
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.train import HIGHER_IS_BETTER, better
from roughformer.tune.space import Space
from roughformer.util.checks import optional

JOURNAL = "study.journal"
PRUNERS = ("median", "hyperband", "none")
_RANDOM_TRIALS = 8  # before the sampler models what it has seen
_BEFORE_PRUNING = 4  # finished trials that a trial is compared with
_ATTEMPTS = 3  # a trial during which the search is killed so often is given up
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Problem:
    """What all trials learn.

    Attributes
    ----------
    estimator : type
        Class of the estimators.
    batch : SeriesBatch
        B series.
    target : ndarray (B,) or (B, m)
    groups : ndarray (B,), optional
        Groups that a split keeps together.
    held : (SeriesBatch, ndarray), optional
        Validation series and their targets, instead of a part of ``batch``.
    """

    estimator: Any
    batch: SeriesBatch
    target: Array
    groups: Array | None = None
    held: tuple[SeriesBatch, Array] | None = None


@dataclass(frozen=True)
class Search:
    """A search of ``space`` around ``settings``, whose study is in ``directory``."""

    problem: Problem
    settings: dict[str, Any]
    space: Space
    directory: Path
    pruner: str = "median"

    @property
    def metric(self) -> str:
        """What trials are compared by, on validation."""
        return str(self.problem.estimator.checked_metric(self.settings["training__metric"]))

    def open(self) -> Any:
        """The ``optuna.Study``; a new one begins with ``settings`` themselves."""
        optuna = optional("optuna", "tune")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        path = self.directory / JOURNAL
        try:
            backend = optuna.storages.journal.JournalFileBackend(str(path))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # some versions call the constant liar experimental
                study = optuna.create_study(
                    study_name="roughformer",
                    storage=optuna.storages.JournalStorage(backend),
                    direction="maximize" if self.metric in HIGHER_IS_BETTER else "minimize",
                    pruner=_pruner(optuna, self.pruner, int(self.settings["epochs"])),
                    load_if_exists=True,
                )
                begun = len(study.get_trials(deepcopy=False))
                study.sampler = optuna.samplers.TPESampler(
                    seed=(1000 * int(self.settings["random_state"]) + begun) % 2**32,
                    n_startup_trials=_RANDOM_TRIALS,
                    constant_liar=True,
                )
        except (ValueError, KeyError) as error:
            raise InputError(
                f"{path} is damaged or not the journal of a search ({error}); choose another "
                "directory with --out"
            ) from None
        return study

    def begin(self, configuration: dict[str, Any], *, resume: bool) -> Any:
        """Open the study, refuse one of another ``configuration``, and queue trials that a killed
        search left. Nobody else may be searching in the directory.
        """
        path = self.directory / JOURNAL
        if path.exists() and not resume:
            raise InputError(
                f"{self.directory} holds a search; go on with --resume, or choose another "
                "directory with --out"
            )
        _mend(path)
        study = self.open()
        plain = json.loads(json.dumps(configuration))
        before = study.user_attrs.get("configuration")
        if before is None:
            study.set_user_attr("configuration", plain)
            study.enqueue_trial(self.space.place(self.settings))
        elif before != plain:
            raise InputError(
                f"the search in {self.directory} was started with other settings "
                f"({_difference(before, plain)}); resume it with the same ones, or start another "
                "one with --out"
            )
        _requeue(study)
        return study

    def run(self, trials: int, *, workers: int = 1, callback: Any = None) -> Any:
        """Go on until ``trials`` have ended, in this process or in ``workers`` others; the study.

        ``callback(study, trial)`` is called after each trial, in the process that ran it.
        """
        study = self.open()
        left = trials - len(begun_trials(study))
        if workers == 1:
            self._optimize(left, callback)
        else:
            context = multiprocessing.get_context("spawn")  # forks of torch's threads may hang
            shares = [left // workers + (i < left % workers) for i in range(workers)]
            processes = [
                context.Process(target=self._optimize, args=(share, callback, i), daemon=True)
                for i, share in enumerate(shares)
                if share > 0
            ]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            _requeue(study)  # of a process that was killed
            missing = trials - len(begun_trials(study))
            if missing > 0 and missing < left:
                return self.run(trials, workers=workers, callback=callback)
        return self.open()

    def _optimize(self, count: int, callback: Any, number: int = 0) -> None:
        study = self.open()
        if number:
            study.sampler.reseed_rng()
        if count > 0:
            callbacks = [callback] if callback else None
            study.optimize(self._run_trial, n_trials=count, catch=(Exception,), callbacks=callbacks)

    def _run_trial(self, trial: Any) -> float:
        optuna = optional("optuna", "tune")
        try:
            values = self.space.suggest(trial)
            result = run_trial(self.problem, self.settings | values, trial)
            trial.set_user_attr("result", result)
            return float(result["score"])
        except optuna.TrialPruned:
            raise
        except KeyboardInterrupt:
            trial.set_user_attr("interrupted", True)
            raise
        except Exception as error:
            text = " ".join(str(error).split())
            known = isinstance(error, InputError)
            trial.set_user_attr("failed", text if known else f"{type(error).__name__}: {text}")
            raise


def run_trial(problem: Problem, settings: dict[str, Any], trial: Any) -> dict[str, Any]:
    """Train one model; ``trial`` (of Optuna) hears of each epoch and may prune.

    The result: ``score`` of the best epoch, its number, all its scores, and what it cost.
    """
    optuna = optional("optuna", "tune")
    started = time.perf_counter()
    metric = problem.estimator.checked_metric(settings["training__metric"])
    best: dict[str, Any] = {}

    def after_epoch(record: dict[str, Any]) -> None:
        nonlocal best
        score = record["valid_metric"]
        if score is None:
            raise InputError("there is no validation part with known targets to choose by")
        if record["metric"] != metric:
            raise InputError(
                f"{metric} is not defined on the validation part (one class only?); give more "
                "validation series, or another --metric"
            )
        if better(metric, score, best.get("valid_metric")):
            best = record
        if not math.isnan(score):
            trial.report(float(score), record["epoch"])
            if trial.should_prune():
                raise optuna.TrialPruned

    running = {
        "run_dir": None, "verbose": 0, "training__callbacks": (after_epoch,),
        "training__baselines": False,
    }  # fmt: skip
    estimator = problem.estimator.from_settings(settings | running)
    estimator.fit(
        problem.batch, problem.target, groups=problem.groups, validation_data=problem.held
    )
    if not best:
        raise InputError(f"no epoch had a {metric} that is a number; lower the learning rate")
    return {
        "score": float(best["valid_metric"]),
        "scores": best["valid_scores"],
        "best_epoch": best["epoch"],
        "epochs": len(estimator.history_),
        "weights": sum(p.numel() for p in estimator.predictor_.model.parameters()),
        "seconds": time.perf_counter() - started,
    }


def begun_trials(study: Any) -> list[Any]:
    """All trials but those that wait, or that were interrupted and run again."""
    trials: list[Any] = study.get_trials(deepcopy=False)
    again = {t.user_attrs.get("again") for t in trials}
    return [t for t in trials if t.state.name != "WAITING" and t.number not in again]


def best_trial(study: Any) -> Any:
    """The best of those that ran to their end, the first of equals; None if none did."""
    done = [t for t in study.get_trials(deepcopy=False) if t.state.name == "COMPLETE"]
    sign = -1 if study.direction.name == "MAXIMIZE" else 1
    return min(done, key=lambda trial: (sign * trial.value, trial.number), default=None)


def trial_row(trial: Any, space: Space, *, maximize: bool) -> dict[str, Any]:
    """``trial`` (its number), ``state``, ``score`` (of a pruned one the best so far), what it
    cost, ``parameters``, ``curve`` (score of each epoch), ``failed``: why.
    """
    result = trial.user_attrs.get("result", {})
    curve = {int(step): value for step, value in sorted(trial.intermediate_values.items())}
    score = result.get("score")
    if score is None and curve:
        score = (max if maximize else min)(curve.values())
    spent = trial.duration.total_seconds() if trial.duration else None
    state = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}.get(trial.state.name)
    return {
        "trial": trial.number,
        "state": state or "running",
        "score": score,
        "best_epoch": result.get("best_epoch"),
        "epochs": result.get("epochs", len(curve)),
        "seconds": result.get("seconds", spent),
        "weights": result.get("weights"),
        "scores": result.get("scores", {}),
        "parameters": space.values(trial.params),
        "curve": curve,
        "failed": trial.user_attrs.get("failed"),
    }


def as_csv(rows: list[dict[str, Any]], names: list[str]) -> str:
    """A line for each trial, a column for each parameter; what is no number or word is JSON."""
    plain = ["trial", "state", "score", "best_epoch", "epochs", "seconds", "weights"]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*plain, *names, "failed"])
    for row in rows:
        cells = [row[name] for name in plain]
        cells += [_cell(row["parameters"].get(name)) for name in names]
        table.writerow([*cells, row["failed"]])
    return text.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return "none"
    scalar = isinstance(value, bool | int | float | str)
    return value if scalar else json.dumps(value, default=str)


def search_figures(study: Any, metric: str) -> list[tuple[str, str, Any]]:
    """``(name, caption, Figure)`` of score by trial, parameters that mattered, and all trials."""
    optional("matplotlib", "plots")
    optuna = optional("optuna", "tune")
    draw = optuna.visualization.matplotlib
    pictures = (
        ("history", f"Validation {metric} of each trial, and the best so far",
         draw.plot_optimization_history),
        ("importance", "How much of the score's variance each parameter explains (fANOVA)",
         draw.plot_param_importances),
        ("parallel", "A line for each trial; the darker, the better the score",
         draw.plot_parallel_coordinate),
    )  # fmt: skip
    figures = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these functions are called experimental
        for name, caption, plot in pictures:
            try:
                axes = plot(study, target_name=metric.replace("_", " "))
            except (RuntimeError, ValueError):  # too few trials, or no variance to share out
                continue
            figure = axes.figure
            optional("matplotlib.pyplot", "plots").close(figure)
            figures.append((name, caption, figure))
    return figures


def _pruner(optuna: Any, name: str, epochs: int) -> Any:
    """The schedule of the learning rate makes early epochs poor judges: a quarter is let pass."""
    quiet = max(epochs // 4, 1)
    if name == "median":
        return optuna.pruners.MedianPruner(
            n_startup_trials=_BEFORE_PRUNING, n_warmup_steps=quiet, n_min_trials=2
        )
    if name == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=quiet, max_resource=epochs)
    return optuna.pruners.NopPruner()


def _requeue(study: Any) -> None:
    """Queue the trials that were running when their process died, or was interrupted."""
    optuna = optional("optuna", "tune")
    trials = study.get_trials(deepcopy=False)
    again = {t.user_attrs.get("again") for t in trials}
    for trial in trials:
        attempts = trial.user_attrs.get("attempts", 0)
        if trial.state.name == "RUNNING":
            attempts += 1
            if attempts >= _ATTEMPTS:
                own = optuna.trial.Trial(study, trial._trial_id)
                own.set_user_attr("failed", f"its process died {attempts} times while it ran")
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            if attempts >= _ATTEMPTS:
                continue
        elif not trial.user_attrs.get("interrupted") or trial.number in again:
            continue
        attrs = {"again": trial.number, "attempts": attempts}
        # It may have died before it took the parameters that were queued for it.
        params = trial.system_attrs.get("fixed_params", {}) | trial.params
        study.enqueue_trial(params, user_attrs=attrs)


def _mend(path: Path) -> None:
    """Cut off a line that was being written when its writer was killed, and free its lock."""
    if path.exists():
        whole = path.read_bytes()
        end = whole.rfind(b"\n") + 1
        if end < len(whole):
            with open(path, "r+b") as file:
                file.truncate(end)
    path.with_name(path.name + ".lock").unlink(missing_ok=True)


def _difference(old: dict[str, Any], new: dict[str, Any], inside: str = "") -> str:
    """The first entry that differs, as ``name: old, now new``."""
    for name in dict.fromkeys([*new, *old]):
        was, now = old.get(name), new.get(name)
        if was == now:
            continue
        if isinstance(was, dict) and isinstance(now, dict):
            return _difference(was, now, f"{inside}{name}.")
        return f"{inside}{name}: {json.dumps(was)}, now {json.dumps(now)}"
    return "in its order"
