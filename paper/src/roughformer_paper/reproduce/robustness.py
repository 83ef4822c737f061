"""Trained on full series, tested on series that were sampled otherwise; not in the paper.

Points dropped (0 to 90 %), times of a Poisson process, other sampling rates, wrong time stamps, a
channel that is missing. Each model is trained once a seed and tested under all conditions;
"RFormer, trained at all rates" is trained with 0 to 80 % of the points dropped.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roughformer.series import SeriesBatch, UnobservedWarning
from roughformer_paper.reproduce.experiment import Experiment, Job, Page, Row, Table, Wishes, spread
from roughformer_paper.reproduce.heart_rate import RECIPES
from roughformer_paper.reproduce.models import (
    TITLES,
    count_parameters,
    fitted,
    history_of,
    own_options,
)
from roughformer_paper.reproduce.recipes import options_of, recipes_note
from roughformer_paper.reproduce.resampling import finer, jittered, poisson, rarer, without_channel
from roughformer_paper.reproduce.tasks import Parts, heart_rate_parts, sine_parts

__all__ = ["CONDITIONS", "EXPERIMENT"]

TASKS = {"sine": "Sine", "heart-rate": "Heart rate, random protocol"}
_ALL_RATES = "rformer-all-rates"
_YARDSTICK = "yardstick"
NAMES = {
    "rformer": TITLES["rformer"],
    _ALL_RATES: "RFormer, trained at all rates",
    **{name: title for name, title in TITLES.items() if name != "rformer"},
    _YARDSTICK: "No learning",
}
_DATA: dict[str, dict[str, Any]] = {
    "tiny": {
        "sine": {"n_samples": 30, "n_classes": 2, "length": 40, "n_test": 6},
        "heart-rate": {"n": 30, "length": 60},
    },
    "quick": {
        "sine": {"n_samples": 300, "n_classes": 10, "length": 1000, "n_test": 100},
        "heart-rate": {"n": 400, "length": 1000},
    },
    # None: BIDMC.
    "full": {
        "sine": {"n_samples": 1000, "n_classes": 100, "length": 2000, "n_test": 500},
        "heart-rate": None,
    },
}
_FEW = ("rformer", _ALL_RATES, "gru", _YARDSTICK)  # heart rate of the preset tiny
_EPOCHS = {"tiny": 1, "quick": 15, "full": 30}
_SECONDS = {"tiny": 3.0, "quick": 20.0, "full": 1200.0}
_MOST_TESTED = 400  # series of the test part: slow models meet them under 18 conditions
DROPS = tuple(i / 10 for i in range(10))
Change = Callable[[SeriesBatch, int], SeriesBatch]
CONDITIONS: dict[str, Change] = {
    "Poisson times": poisson,
    "twice the rate": lambda batch, seed: finer(batch),
    "half the rate": lambda batch, seed: rarer(batch, 2),
    "a quarter of it": lambda batch, seed: rarer(batch, 4),
    "wrong stamps": jittered,
}


def _dropped(share: float) -> str:
    return f"{share:.0%} dropped"


def _conditions(channels: tuple[str, ...]) -> dict[str, Change]:
    """All conditions by title; a channel can be missing only beside another."""

    def drop(share: float) -> Change:
        return lambda batch, seed: batch.drop_points(share, seed) if share else batch

    def hide(name: str) -> Change:
        return lambda batch, seed: without_channel(batch, name)

    hidden = {f"no {name}": hide(name) for name in channels} if len(channels) > 1 else {}
    return {_dropped(share): drop(share) for share in DROPS} | CONDITIONS | hidden


def _jobs(wishes: Wishes) -> list[Job]:
    preset = wishes.preset
    jobs = []
    for task in TASKS:
        few = _FEW if (preset, task) == ("tiny", "heart-rate") else tuple(NAMES)
        for model in wishes.models or few:
            own = {"tiny": 1, "quick": 1, "full": 3 if model.startswith("rformer") else 1}[preset]
            learns = model != _YARDSTICK
            for seed in range((wishes.seeds or own) if learns else 1):
                job: Job = {"task": task, "model": model, "seed": seed, "data": _DATA[preset][task]}
                if learns:
                    job["options"] = _options(wishes, task, model)
                jobs.append(job)
    return jobs


def _options(wishes: Wishes, task: str, model: str) -> dict[str, Any]:
    preset = wishes.preset
    found: dict[str, Any] = {
        "epochs": _EPOCHS[preset], "max_seconds": wishes.seconds or _SECONDS[preset],
        "patience": None,
    }  # fmt: skip
    if task == "heart-rate" and model in ("rformer", _ALL_RATES):
        own = {
            k: v for k, v in RECIPES["rformer-wide"].items() if k not in ("drop", "draws", "epochs")
        }
        found |= {k: list(v) if isinstance(v, tuple) else v for k, v in own.items()}
    if model == _ALL_RATES:
        found["drop"] = [0.0, 0.8]
    if model == "neural-cde" and task == "heart-rate":
        # The default skips samples of long series, and would skip as many of those that are left.
        return found | {"model_options": {"max_steps": None}}
    return found | own_options(model, task)


def _run(job: Job, where: Path) -> Row:
    import numpy as np

    sine = job["task"] == "sine"
    parts = sine_parts(job["data"]) if sine else heart_rate_parts("random", job["data"])
    # Evenly over the part: it may be in order of patients.
    which = np.linspace(0, len(parts["test"]) - 1, min(len(parts["test"]), _MOST_TESTED))
    test = parts["test"][np.unique(which.astype(int))]
    truth = np.asarray(test.labels)
    found: Row = {"tested": len(test), "scores": {}, "blind": _blind(parts, truth, sine)}
    if job["model"] == _YARDSTICK:
        answer = _without_learning(parts, sine)
    else:
        name = "rformer" if job["model"] == _ALL_RATES else job["model"]
        task = "classification" if sine else "regression"
        model = fitted(task, name, parts, job["options"], job["seed"], where)
        found |= {"history": history_of(model), "parameters": count_parameters(model)}
        answer = model.predict
    with warnings.catch_warnings():
        # A channel that is never observed: that is the point.
        warnings.simplefilter("ignore", UnobservedWarning)
        for title, change in _conditions(tuple(test.channels)).items():
            given = np.asarray(answer(change(test, 1000 + job["seed"])))
            if sine:
                found["scores"][title] = float((given == truth).mean())
            else:
                found["scores"][title] = float(np.sqrt(((given - truth) ** 2).mean()))
    return found


def _blind(parts: Parts, truth: Any, sine: bool) -> float:
    """The score of one who sees nothing: chance, or the RMSE of the training mean."""
    import numpy as np

    labels = np.asarray(parts["train"].labels)
    if sine:
        return 1.0 / len(np.unique(labels))
    return float(np.sqrt(((labels.mean() - truth) ** 2).mean()))


def _without_learning(parts: Parts, sine: bool) -> Callable[[SeriesBatch], Any]:
    """The peak of the Lomb-Scargle periodogram at the frequencies of the classes; R peaks of the
    ECG, where there are none the mean of the training part.
    """
    import numpy as np

    from roughformer_paper import naive

    train = parts["train"]
    labels = np.asarray(train.labels)
    if not sine:

        def by_peaks(batch: SeriesBatch) -> Any:
            found = naive.r_peak_rate(batch)
            return np.where(np.isnan(found), labels.mean(), found)

        return by_peaks
    assert train.static is not None
    classes, first = np.unique(labels, return_index=True)
    omega = np.asarray(train.static)[first, 0]
    return lambda batch: classes[naive.periodogram(batch, omega)]


def _show(rows: list[Row], figures: bool) -> Page:
    tables, drawn, notes = [], [], []
    for task, title in TASKS.items():
        own = [r for r in rows if r["job"]["task"] == task]
        if not own:
            continue
        every = list(dict.fromkeys(c for r in own for c in r["scores"]))
        dropped = [_dropped(share) for share in DROPS]
        others = [c for c in every if c not in dropped]
        score = "accuracy" if task == "sine" else "RMSE"
        blind = own[0]["blind"]
        yardstick = (
            "the periodogram's peak among the frequencies of the classes"
            if task == "sine"
            else "R peaks of the ECG"
        )
        note = (
            f"Seeing nothing: {blind:.3g}. No learning: {yardstick}. Models are trained on full "
            f"series, but for the one trained at all rates; {own[0]['tested']} test series. "
        )
        first = note + _recipes(task, own)
        tables += [
            _table(f"{title}: {score} with points dropped", task, dropped, own, first),
            _table(f"{title}: {score}, sampled otherwise", task, [dropped[0], *others], own, note),
        ]
        if figures:
            drawn.append(_figure(task, dropped, others, own))
    if any(r["job"]["task"] == "heart-rate" and r["job"]["data"] for r in rows):
        notes.append("Heart rate is made up here: its figures mean nothing.")
    return Page(tables=tables, figures=drawn, notes=notes)


def _recipes(task: str, rows: list[Row]) -> str:
    used = {m: options_of([r for r in rows if r["job"]["model"] == m]) for m in NAMES}
    note = recipes_note("classification" if task == "sine" else "regression", NAMES, used)
    if task == "heart-rate" and note:
        note += (
            " RFormer's two lines have the recipe that was made for this task, the others the "
            "defaults of all tasks; Neural RDE has the step and depth that the paper chose."
        )
    return note


def _at(rows: list[Row], model: str, condition: str) -> list[float]:
    # A score that is not finite was kept as None.
    found = (r["scores"].get(condition) for r in rows if r["job"]["model"] == model)
    return [score for score in found if score is not None]


def _table(title: str, task: str, conditions: list[str], rows: list[Row], note: str) -> Table:
    digits = 3 if task == "sine" else 2
    cells = []
    for model, name in NAMES.items():
        count = sum(r["job"]["model"] == model for r in rows)
        if count:
            scores = [spread(_at(rows, model, c), digits) for c in conditions]
            cells.append([name, *scores, count])
    short = ["full" if c == _dropped(0.0) else c.removesuffix(" dropped") for c in conditions]
    return Table(title, ["model", *short, "seeds"], cells, note)


def _figure(
    task: str, dropped: list[str], others: list[str], rows: list[Row]
) -> tuple[str, str, Any]:
    from roughformer.plots import GREY
    from roughformer_paper.reproduce.drawing import curves, look

    score = "test accuracy" if task == "sine" else "test RMSE"
    figure, panels = curves(2, "points dropped, %", score, width=11.0, height=4.4)
    panels[1].set_xlabel("")
    blind, highest = rows[0]["blind"], 0.0
    shown = [model for model in NAMES if any(r["job"]["model"] == model for r in rows)]
    for number, (model, name) in enumerate(NAMES.items()):
        for axes, conditions in zip(panels, (dropped, others), strict=True):
            scores = [_at(rows, model, c) for c in conditions]
            points = [(i, sum(s) / len(s)) for i, s in enumerate(scores) if s]
            if points:
                # Side by side where there is no curve, so that equal ones are seen.
                left = axes is panels[0]
                shift = 0.0 if left else 0.06 * (shown.index(model) - (len(shown) - 1) / 2)
                highest = max(highest, *(y for _, y in points))
                axes.plot(
                    [i + shift for i, _ in points], [y for _, y in points],
                    linestyle="-" if left else "", markersize=5, label=name, **look(number),
                )  # fmt: skip
    for axes in panels:
        axes.axhline(blind, color=GREY, linewidth=0.9, linestyle="--")
    panels[0].set_xticks(range(len(dropped)), [f"{100 * share:.0f}" for share in DROPS])
    panels[1].set_xticks(range(len(others)), others, rotation=30, ha="right")
    # Models that break can be wrong without limit; what is worse than 2.5 times blind is off.
    most = 1.05 * max(highest, blind)
    panels[0].set_ylim(0, 1.02 if task == "sine" else min(most, 2.5 * blind))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    caption = f"{TASKS[task]}: trained on full series, tested otherwise; dashed: seeing nothing"
    return f"robustness_{task.replace('-', '_')}", caption, figure


EXPERIMENT = Experiment(
    name="robustness",
    title="Robustness: trained on full series, tested on others",
    about=(
        "What happens when the instrument changes after training: points are lost, times become "
        "irregular, the rate changes, stamps are wrong by up to half a step, a channel is missing. "
        "No model is told. The last row of RFormer was trained with 0 to 80 % of the points "
        "dropped."
    ),
    jobs=_jobs,
    run=_run,
    show=_show,
    models=tuple(NAMES),
    needs_data=lambda job: job["task"] == "heart-rate" and job["data"] is None,
)
