"""Table 3: windows, depth, views and learning rate chosen on validation; and what each part is
worth.

Two kinds of tokens: "signatures" are the paper's (signatures of path and time, nothing else),
"rformer" our default (with clocks and spectrum). For each, a search (``search.py``), whose first
two trials are the paper's choice and our default, and ablations: one option changed at a time. All
scores are of the validation part; the test part is never touched here.
"""

import json
import math
from pathlib import Path
from typing import Any

from roughformer_paper.reproduce.ablations import ablation_figure, ablation_table, changes_of
from roughformer_paper.reproduce.experiment import (
    Experiment,
    Job,
    Page,
    Row,
    Table,
    Wishes,
    key_of,
)
from roughformer_paper.reproduce.models import count_parameters, fitted, history_of
from roughformer_paper.reproduce.search import SPACE, VIEWS, begin_trial, end_trial
from roughformer_paper.reproduce.tasks import heart_rate_parts, sine_parts

__all__ = ["EXPERIMENT"]

TASKS = {"sine": "Sine", "heart-rate": "Heart rate, random protocol"}
TOKENS = {"signatures": "signatures alone", "rformer": "with clocks and spectrum"}
# What the paper chose: learning rate, windows, depth, views.
PAPER: dict[str, dict[str, Any]] = {
    "sine": {"learning_rate": 1e-3, "windows": 75, "depth": 2, "views": "both"},
    "heart-rate": {"learning_rate": 1e-3, "windows": 75, "depth": 4, "views": "local"},
}
_DEFAULT: dict[str, Any] = {"learning_rate": 2e-3, "windows": 75, "depth": 2, "views": "both"}
_DATA: dict[str, dict[str, Any]] = {
    "tiny": {
        "sine": {"n_samples": 40, "n_classes": 2, "length": 40, "n_test": 2},
        "heart-rate": {"n": 40, "length": 100},
    },
    "quick": {
        "sine": {"n_samples": 400, "n_classes": 10, "length": 500, "n_test": 2},
        "heart-rate": {"n": 300, "length": 1000},
    },
    # None: BIDMC.
    "full": {
        "sine": {"n_samples": 1000, "n_classes": 100, "length": 2000, "n_test": 2},
        "heart-rate": None,
    },
}
_FEW = {"sine": ("signatures",), "heart-rate": ("rformer",)}  # of the preset tiny
_TRIALS = {
    "tiny": {"sine": 3, "heart-rate": 3},
    "quick": {"sine": 8, "heart-rate": 8},
    "full": {"sine": 30, "heart-rate": 16},
}
_EPOCHS = {"tiny": 1, "quick": 10, "full": 25}
_SECONDS = {"tiny": 3.0, "quick": 10.0, "full": 240.0}
# Of the ablations; a trial of the search has one.
_SEEDS = {
    "tiny": {"sine": 1, "heart-rate": 1},
    "quick": {"sine": 1, "heart-rate": 1},
    "full": {"sine": 3, "heart-rate": 1},
}


def _base(task: str, tokens: str) -> dict[str, Any]:
    """The options that an ablation changes one of: the paper's choice, or our default."""
    chosen = PAPER[task] if tokens == "signatures" else _DEFAULT
    extras = {"clock": 0, "spectrum": None} if tokens == "signatures" else {
        "clock": "auto", "spectrum": "auto"
    }  # fmt: skip
    return {
        "windows": chosen["windows"], "depth": chosen["depth"],
        "views": list(VIEWS[chosen["views"]]), "time": "unit", "lags": [], "scaling": "standard",
        **extras,
    }  # fmt: skip


def _jobs(wishes: Wishes) -> list[Job]:
    preset = wishes.preset
    searches, ablations = [], []
    for task in TASKS:
        few = _FEW[task] if preset == "tiny" else tuple(TOKENS)
        for tokens in wishes.models or few:
            common: Job = {
                "task": task, "tokens": tokens, "data": _DATA[preset][task],
                "options": {
                    "epochs": _EPOCHS[preset], "batch_size": 32 if task == "sine" else 64,
                    "max_seconds": wishes.seconds or _SECONDS[preset], "patience": 10,
                },
            }  # fmt: skip
            searches += [
                common | {"part": "search", "trial": number, "seed": 0}
                for number in range(_TRIALS[preset][task])
            ]
            changes = changes_of(_base(task, tokens), task, few=preset == "tiny")
            for change, options in changes.items():
                for seed in range(wishes.seeds or _SEEDS[preset][task]):
                    part = {"part": "ablation", "change": change, "seed": seed}
                    part["options"] = common["options"] | options
                    ablations.append(common | part)
    # Trials of the searches take turns: those that run at a time are then of different searches.
    searches.sort(key=lambda job: job["trial"])
    return searches + ablations


def _study(job: Job) -> str | None:
    """The directory of the search that a trial belongs to."""
    if job["part"] != "search":
        return None
    return f"search-{key_of({k: v for k, v in job.items() if k != 'trial'})}"


def _run(job: Job, where: Path) -> Row:
    study = _study(job)
    if study is None:
        return _scores(job, job["options"], where)
    directory = where.parent / study
    given = [PAPER[job["task"]], _DEFAULT]
    known = _finished(where.parent.parent / "results.json", study)
    parameters = begin_trial(directory, job["trial"], given, job["seed"], known)
    options = _base(job["task"], job["tokens"]) | job["options"] | parameters
    found = _scores(job, options | {"views": list(VIEWS[parameters["views"]])}, where)
    # A trial that broke is as bad as can be, for the trials after it.
    loss = math.inf if found["loss"] is None else found["loss"]
    end_trial(directory, job["trial"], parameters, loss)
    return {"parameters": parameters, **found}


def _finished(results: Path, study: str) -> dict[int, tuple[dict[str, Any], float | None]]:
    """Trials of the search that results tell, by number: their files may be elsewhere."""
    rows = json.loads(results.read_text())["rows"] if results.exists() else []
    return {
        row["job"]["trial"]: (row["parameters"], math.inf if row["loss"] is None else row["loss"])
        for row in rows
        if "failed" not in row and _study(row["job"]) == study
    }


def _scores(job: Job, options: dict[str, Any], where: Path) -> Row:
    """``score`` of the validation part (accuracy or RMSE), and ``loss``, which decides: log loss,
    which is finer than accuracy, or RMSE; both of the best epoch. None if no epoch had finite ones.
    """
    sine = job["task"] == "sine"
    parts = sine_parts(job["data"]) if sine else heart_rate_parts("random", job["data"])
    task = "classification" if sine else "regression"
    model = fitted(task, "rformer", parts, options, job["seed"], where)
    history = history_of(model)
    loss, score = ("log_loss", "accuracy") if sine else ("rmse", "rmse")
    scored = [record for record in history if record.get(loss) is not None]
    best = min(scored, key=lambda record: record[loss], default={})
    return {
        "loss": best.get(loss), "score": best.get(score), "history": history,
        "parameters_of_model": count_parameters(model),
    }  # fmt: skip


def _show(rows: list[Row], figures: bool) -> Page:
    trials = [r for r in rows if r["job"]["part"] == "search"]
    ablations = [r for r in rows if r["job"]["part"] == "ablation"]
    tables, drawn = [_chosen(trials)], []
    for task, title in TASKS.items():
        for tokens, words in TOKENS.items():
            own = [r for r in trials if _is(r, task, tokens)]
            if own:
                tables.append(_best_trials(f"{title}, {words}: best trials", task, own))
        own = [r for r in ablations if r["job"]["task"] == task]
        if own:
            tables.append(ablation_table(title, task, TOKENS, own))
    if figures:
        drawn = [_search_figure(task, trials) for task in TASKS if _any(trials, task)]
        drawn += [
            ablation_figure(TASKS[task], task, TOKENS, ablations)
            for task in TASKS
            if _any(ablations, task)
        ]
    notes = ["Every figure here is of the validation part; the test part was not touched."]
    if any(r["job"]["task"] == "heart-rate" and r["job"]["data"] for r in rows):
        notes.append("Heart rate is made up here: its figures mean nothing.")
    return Page(tables=tables, figures=drawn, notes=notes)


def _loss(row: Row) -> float:
    """For comparing: a trial that broke is the worst."""
    return math.inf if row["loss"] is None else float(row["loss"])


def _any(rows: list[Row], task: str) -> bool:
    return any(r["job"]["task"] == task for r in rows)


def _is(row: Row, task: str, tokens: str) -> bool:
    return (row["job"]["task"], row["job"]["tokens"]) == (task, tokens)


def _chosen(trials: list[Row]) -> Table:
    cells: list[list[Any]] = []
    for task, title in TASKS.items():
        for tokens, words in TOKENS.items():
            own = [r for r in trials if _is(r, task, tokens)]
            if not own:
                continue
            best = min(own, key=_loss)
            published = next((r for r in own if r["job"]["trial"] == 0), None)
            cells.append([title, f"{words}, chosen", *_line(best), len(own)])
            if published is not None:
                cells.append([title, f"{words}, the paper's choice", *_line(published), None])
    return Table(
        "Chosen on validation",
        ["task", "tokens", "learning rate", "windows", "depth", "views", "score", "s", "trials"],
        cells,
        "Score: accuracy (sine), RMSE (heart rate). The paper chose 1e-3, 75 windows and depth 2 "
        "with both views for sine; 1e-3, 75 windows and depth 4 with the local view for heart rate."
        " By log loss (sine) and RMSE, one seed a trial: differences of the size of the spread "
        "over seeds in the ablations mean nothing.",
    )


def _line(row: Row) -> list[Any]:
    p = row["parameters"]
    rate = f"{p['learning_rate']:.1e}"
    return [rate, p["windows"], p["depth"], p["views"], row["score"], row["seconds"]]


def _best_trials(title: str, task: str, trials: list[Row]) -> Table:
    order = sorted(trials, key=_loss)
    score = "accuracy" if task == "sine" else "RMSE"
    return Table(
        title,
        ["trial", "learning rate", "windows", "depth", "views", score, "s", "parameters"],
        [[r["job"]["trial"], *_line(r), r["parameters_of_model"]] for r in order[:8]],
    )


def _search_figure(task: str, trials: list[Row]) -> tuple[str, str, Any]:
    from roughformer.plots import BLUE, GREY, ORANGE
    from roughformer_paper.reproduce.drawing import curves

    score = "validation accuracy" if task == "sine" else "validation RMSE"
    figure, panels = curves(3, "", score)
    own = [r for r in trials if r["job"]["task"] == task]
    names = {"windows": "windows", "depth": "depth", "learning_rate": "learning rate"}
    looks = dict(zip(VIEWS, ((BLUE, "o"), (ORANGE, "^"), (GREY, "s")), strict=True))
    for axes, (name, label) in zip(panels, names.items(), strict=True):
        axes.set_xlabel(label)
        if name == "learning_rate":
            axes.set_xscale("log")
            axes.set_xlim(SPACE[name][0] / 1.2, SPACE[name][1] * 1.2)
        else:
            choices = SPACE[name]
            axes.set_xticks(range(len(choices)), [str(choice) for choice in choices])
            axes.set_xlim(-0.5, len(choices) - 0.5)
        for views, (colour, marker) in looks.items():
            for tokens in TOKENS:
                some = [
                    r for r in own
                    if r["parameters"]["views"] == views and r["job"]["tokens"] == tokens
                    and r["score"] is not None
                ]  # fmt: skip
                if some:
                    axes.plot(
                        [_place(name, r["parameters"][name]) for r in some],
                        [r["score"] for r in some], marker, color=colour, markersize=5,
                        markerfacecolor=colour if tokens == "rformer" else "none", label=views,
                    )  # fmt: skip
    # Each views once; filled, if it has filled points.
    shown = dict(zip(*panels[0].get_legend_handles_labels()[::-1], strict=True))
    figure.legend(list(shown.values()), list(shown), title="views", loc="outside right upper")
    caption = (
        f"{TASKS[task]}: every trial of the search; filled: {TOKENS['rformer']}, hollow: "
        f"{TOKENS['signatures']}"
    )
    return f"search_{task.replace('-', '_')}", caption, figure


def _place(name: str, value: Any) -> Any:
    """Where it stands on its axis: choices are evenly spaced."""
    return value if name == "learning_rate" else SPACE[name].index(value)


EXPERIMENT = Experiment(
    name="hyperparameters",
    title="Hyperparameters and ablations, on validation",
    about=(
        "Table 3 of the paper: learning rate, number of windows, depth and views, chosen on the "
        "validation part by a seeded search (Optuna's TPE), for the paper's tokens and for ours; "
        "then one option changed at a time: views, depth, windows, scaling, lifts. The training "
        "recipe is ours in all of them (AdamW, one-cycle)."
    ),
    jobs=_jobs,
    run=_run,
    show=_show,
    models=tuple(TOKENS),
    needs_data=lambda job: job["task"] == "heart-rate" and job["data"] is None,
    shared=_study,
)
