"""Table 1: heart rate from PPG and ECG (BIDMC), by both protocols, full and 50 % dropped.

"random" is the paper's protocol: windows of all patients are mixed, so that most test windows
overlap training windows of the same patient, and recognising a patient pays. "patient" is the
archive's split by recording. Yardsticks without learning stand beside the models.
"""

from pathlib import Path
from typing import Any

from roughformer.reproduce.experiment import (
    Experiment,
    Job,
    Page,
    Row,
    Table,
    Wishes,
    spread,
)
from roughformer.reproduce.models import TITLES, count_parameters, fitted, history_of
from roughformer.reproduce.tasks import heart_rate_parts

__all__ = ["EXPERIMENT", "RECIPES"]

_PROTOCOLS = ("random", "patient")
_DROPS = (0.0, 0.5)
_YARDSTICKS = ("training mean", "1-NN", "1-NN on spectra", "periodogram", "R-peaks")
_SEEDS = {"tiny": 1, "quick": 1, "full": 5}
_SECONDS = {"tiny": 5.0, "quick": 60.0, "full": 3600.0}
_EPOCHS = {"tiny": 2, "quick": 3, "full": 30}
_MADE_UP = {"tiny": {"n": 60, "length": 500}, "quick": None, "full": None}
# One training at all shares of dropping serves both columns: sampling may change afterwards.
RECIPES: dict[str, dict[str, Any]] = {
    # New patients: a model that commutes with tempo.
    "patient": {
        "rate_like": True, "rate_unit": 1 / 60, "warp": 0.26, "drop": (0.0, 0.5), "draws": 2,
        "epochs": 8, "batch_size": 64, "learning_rate": 3e-3,
    },
    # Known patients: an ordinary model, which may recognise them.
    "random": {
        "drop": (0.0, 0.5), "draws": 3, "epochs": 30, "batch_size": 64, "views": ("local",),
        "d_model": 128,
    },
}  # fmt: skip
# Root mean squared errors that the paper prints, (full, 50 % dropped): random protocol.
PAPER = {
    "rformer": ("3.04 ± 0.03", "3.31 ± 0.05"),
    "transformer": ("8.24 ± 2.24", "21.01 ± 3.81"),
    "gru": ("13.06 ± 0.00", "13.06 ± 0.00"),
    "ode-rnn": ("13.06 ± 0.00", "13.06 ± 0.00"),
    "neural-cde": ("9.82 ± 0.34", None),
    "neural-rde": ("2.97 ± 0.45 / 4.04 ± 0.11", "4.67 ± 0.40"),
}


def _jobs(wishes: Wishes) -> list[Job]:
    preset = wishes.preset
    models = wishes.models or (*_YARDSTICKS, *TITLES)
    jobs = []
    for protocol in _PROTOCOLS:
        for model in models:
            once = model in _YARDSTICKS
            # RFormer is trained once, at all shares of dropping, and tested at both.
            drops: tuple[Any, ...] = ("both",) if model == "rformer" else _DROPS
            for drop in drops:
                for seed in range(1 if once else wishes.seeds or _SEEDS[preset]):
                    job: Job = {
                        "protocol": protocol, "model": model, "drop": drop, "seed": seed,
                        "made_up": _MADE_UP[preset],
                    }  # fmt: skip
                    if not once:
                        job["options"] = _options(wishes, model, protocol, drop)
                    jobs.append(job)
    return jobs


def _options(wishes: Wishes, model: str, protocol: str, drop: Any) -> dict[str, Any]:
    budget = {"max_seconds": wishes.seconds or _SECONDS[wishes.preset]}
    if model == "rformer":
        recipe = dict(RECIPES[protocol])
        recipe["epochs"] = min(recipe["epochs"], _EPOCHS[wishes.preset])
        return recipe if wishes.preset == "full" else recipe | budget
    plain = {"drop": drop, "epochs": _EPOCHS[wishes.preset], "batch_size": 32, "patience": 10}
    return plain | budget


def _run(job: Job, where: Path) -> Row:
    import numpy as np

    parts = heart_rate_parts(job["protocol"], job["made_up"])
    levels = _DROPS if job["drop"] == "both" else (job["drop"],)
    test = parts["test"]
    truth = np.asarray(test.labels, dtype=float)
    recording = np.asarray(test.static)[:, 0].astype(int)
    found: Row = {"rmse": {}, "median": {}, "recordings": {}}
    if job["model"] in _YARDSTICKS:
        answers = {level: _without_learning(job["model"], parts, level) for level in levels}
    else:
        options = {
            k: tuple(v) if isinstance(v, list) else v for k, v in job["options"].items()
        }  # JSON has lists only
        model = fitted("regression", job["model"], parts, options, job["seed"], where)
        found["history"] = history_of(model)
        found["parameters"] = count_parameters(model)
        answers = {
            level: model.predict(test.drop_points(level, 1000 + job["seed"]) if level else test)
            for level in levels
        }
    for level, answer in answers.items():
        error = np.asarray(answer) - truth
        found["rmse"][str(level)] = float(np.sqrt((error**2).mean()))
        found["median"][str(level)] = float(np.median(np.abs(error)))
        if job["protocol"] == "patient":
            found["recordings"][str(level)] = {
                str(r): float(np.sqrt((error[recording == r] ** 2).mean()))
                for r in np.unique(recording)
            }
    return found


def _without_learning(name: str, parts: dict[str, Any], drop: float) -> Any:
    import numpy as np

    from roughformer import yardsticks

    train, test = parts["train"], parts["test"]
    mean = yardsticks.training_mean(train.labels, len(test))
    if name == "training mean":
        return mean
    if drop:
        train, test = train.drop_points(drop, seed=999), test.drop_points(drop, seed=1000)
    per_minute = np.linspace(40, 180, 561)
    omega = 2 * np.pi * per_minute / 60
    if name == "periodogram":
        return per_minute[yardsticks.periodogram(test, omega)]
    if name == "R-peaks":
        found = yardsticks.r_peak_rate(test)
        return np.where(np.isnan(found), mean, found)
    if name == "1-NN":
        known, asked = (yardsticks.raw_features(part, 1000) for part in (train, test))
    else:
        turns = 2 * np.pi * np.linspace(0.5, 8, 240)
        known, asked = (yardsticks.fourier_features(part, turns) for part in (train, test))
    return yardsticks.nearest_neighbour(known, train.labels, asked)


def _show(rows: list[Row], figures: bool) -> Page:
    tables = [_table(protocol, rows) for protocol in _PROTOCOLS]
    own = [r for r in rows if _is(r, "patient", "rformer")]
    notes = []
    if own:
        tables.append(_worst(own))
    drawn = [_figure(rows)] if figures and rows else []
    if any(r["job"]["made_up"] for r in rows):
        notes.append("Made-up series, to see that all works: these figures mean nothing.")
    return Page(tables=tables, figures=drawn, notes=notes)


def _is(row: Row, protocol: str, model: str) -> bool:
    return (row["job"]["protocol"], row["job"]["model"]) == (protocol, model)


def _at(rows: list[Row], what: str, level: float) -> list[float]:
    return [r[what][str(level)] for r in rows if str(level) in r[what]]


def _table(protocol: str, rows: list[Row]) -> Table:
    names = {**{n: n for n in _YARDSTICKS}, **TITLES}
    cells = []
    for model, title in names.items():
        own = [r for r in rows if _is(r, protocol, model)]
        if not own:
            continue
        trained = [r for r in own if r.get("history")]
        epochs = [len(r["history"]) for r in trained]
        pace = [r["history"][-1]["seconds"] / len(r["history"]) for r in trained]
        line: list[Any] = [title]
        line += [spread(_at(own, "rmse", level), 2) for level in _DROPS]
        line += [spread(_at(own, "median", level), 2) for level in _DROPS]
        line += [
            max(len(_at(own, "rmse", level)) for level in _DROPS),
            f"{min(epochs)}-{max(epochs)}" if epochs else None,
            sum(pace) / len(pace) if pace else None,
        ]
        if protocol == "random":
            line += PAPER.get(model, (None, None))
        cells.append(line)
    columns = [
        "model", "RMSE, full", "50 % dropped", "median error, full", "dropped", "seeds", "epochs",
        "s / epoch",
    ]  # fmt: skip
    if protocol == "random":
        return Table(
            "Random protocol (the paper's)",
            [*columns, "paper, full", "paper, dropped"],
            cells,
            "Most test windows overlap training windows of the same patient. Two figures of the "
            "paper: as published before, and its own reproduction.",
        )
    return Table(
        "Patient protocol (the archive's)",
        columns,
        cells,
        "Whole recordings are held out for validation and for test. Best published: 9.42.",
    )


def _worst(rows: list[Row]) -> Table:
    names = list(rows[0]["recordings"]["0.0"])
    mean = {
        n: [sum(r["recordings"][str(x)][n] for r in rows) / len(rows) for x in _DROPS]
        for n in names
    }
    order = sorted(names, key=lambda n: -mean[n][0])
    return Table(
        "RFormer by patient: recordings, worst first",
        ["recording", "RMSE, full", "50 % dropped"],
        [[n, *mean[n]] for n in order[:8]],
    )


def _figure(rows: list[Row]) -> tuple[str, str, Any]:
    from roughformer.plots._figure import BLUE, ORANGE
    from roughformer.reproduce.drawing import curves

    names = {**{n: n for n in _YARDSTICKS}, **TITLES}
    figure, panels = curves(2, "test RMSE, beats per minute", "", height=4.2)
    shown = [m for m in names if any(r["job"]["model"] == m for r in rows)][::-1]
    for axes, protocol in zip(panels, _PROTOCOLS, strict=True):
        axes.set_title(f"{protocol} protocol")
        for place, model in enumerate(shown):
            own = [r for r in rows if _is(r, protocol, model)]
            for shift, level, colour in ((0.17, 0.0, BLUE), (-0.17, 0.5, ORANGE)):
                values = _at(own, "rmse", level)
                if values:
                    label = ("full", "50 % dropped")[level > 0] if place == 0 else None
                    mean = sum(values) / len(values)
                    axes.barh(place + shift, mean, 0.32, color=colour, label=label)
        axes.set_yticks(range(len(shown)), [names[m] for m in shown])
        axes.set_xlim(left=0)
    panels[0].legend(fontsize=8, loc="lower right")
    caption = "Test RMSE of all models and yardsticks, by protocol (the paper's Table 1)"
    return "heart_rate", caption, figure


EXPERIMENT = Experiment(
    name="heart-rate",
    title="Heart rate from PPG and ECG",
    about=(
        "Table 1 of the paper: BIDMC, 7,949 windows of 32 s. The paper mixes the windows of all "
        "patients before it splits; that protocol rewards recognising patients, so the archive's "
        "split by patient stands beside it, and yardsticks that learn nothing beside both."
    ),
    jobs=_jobs,
    run=_run,
    show=_show,
    needs_data=True,
    models=(*_YARDSTICKS, *TITLES),
)
