"""Figure 1: accuracy per epoch on the sine task, full and with half the points dropped.

Paper: RFormer learns faster than the Transformer and keeps working when half of the points go; GRU
and ODE-RNN fail, Neural CDE and Neural RDE stand in between. Its figure has no numbers.
"""

from pathlib import Path
from typing import Any

from roughformer_paper.reproduce.experiment import (
    Experiment,
    Job,
    Page,
    Row,
    Table,
    Wishes,
    known,
    mean_of,
    spread,
)
from roughformer_paper.reproduce.models import (
    TASK_TITLES,
    count_parameters,
    fitted,
    history_of,
    own_options,
)
from roughformer_paper.reproduce.recipes import epochs_and_pace, recipes_note
from roughformer_paper.reproduce.tasks import sine_parts

__all__ = ["EXPERIMENT"]

_SIZES = {
    "tiny": {"n_samples": 60, "n_classes": 3, "length": 60, "n_test": 30},
    "quick": {"n_samples": 400, "n_classes": 10, "length": 500, "n_test": 200},
    "full": {"n_samples": 1000, "n_classes": 100, "length": 2000, "n_test": 1000},
}
_SEEDS = {"tiny": 1, "quick": 1, "full": 3}
_SECONDS = {"tiny": 5.0, "quick": 20.0, "full": 1800.0}
_EPOCHS = {"tiny": 2, "quick": 20, "full": 60}
_DROPS = (0.0, 0.5)
_YARDSTICKS = ("chance", "1-NN", "periodogram")


def _jobs(wishes: Wishes) -> list[Job]:
    preset = wishes.preset
    models = wishes.models or (*_YARDSTICKS, *TASK_TITLES)
    jobs = []
    for model in models:
        once = model in _YARDSTICKS  # nothing is drawn
        for drop in _DROPS:
            for seed in range(1 if once else wishes.seeds or _SEEDS[preset]):
                job: Job = {"model": model, "drop": drop, "seed": seed, "size": _SIZES[preset]}
                if not once:
                    job["epochs"] = _EPOCHS[preset]
                    job["max_seconds"] = wishes.seconds or _SECONDS[preset]
                    job |= own_options(model, "sine", drop)
                jobs.append(job)
    return jobs


def _options(job: Job) -> dict[str, Any]:
    own = {"model_options": job["model_options"]} if "model_options" in job else {}
    return {
        "epochs": job["epochs"], "max_seconds": job["max_seconds"], "drop": job["drop"],
        "patience": None, "calibrate": False, **own,
    }  # fmt: skip


def _run(job: Job, where: Path) -> Row:
    parts = sine_parts(job["size"])
    if job["model"] in _YARDSTICKS:
        return {"accuracy": _without_learning(job["model"], parts, job["drop"])}
    model = fitted("classification", job["model"], parts, _options(job), job["seed"], where)
    test = parts["test"]
    if job["drop"]:
        test = test.drop_points(job["drop"], seed=1000 + job["seed"])
    return {
        "accuracy": float(model.score(test, test.labels)),
        "history": history_of(model),
        "parameters": count_parameters(model),
    }


def _without_learning(name: str, parts: dict[str, Any], drop: float) -> float:
    import numpy as np

    train, test = parts["train"], parts["test"]
    if name == "chance":
        return 1.0 / len(np.unique(train.labels))
    from roughformer_paper import naive

    if drop:
        train, test = train.drop_points(drop, seed=999), test.drop_points(drop, seed=1000)
    classes, first = np.unique(train.labels, return_index=True)
    if name == "periodogram":
        omega = np.asarray(train.static)[first, 0]  # the frequencies that the classes mean
        found = classes[naive.periodogram(test, omega)]
    else:
        points = int(np.median(train.lengths))
        known, asked = (naive.raw_features(part, points) for part in (train, test))
        found = naive.nearest_neighbour(known, train.labels, asked)
    return float((found == np.asarray(test.labels)).mean())


def _show(rows: list[Row], figures: bool) -> Page:
    names = {**{n: n for n in _YARDSTICKS}, **TASK_TITLES}
    cells = []
    for model, title in names.items():
        own = [r for r in rows if r["job"]["model"] == model]
        if not own:
            continue
        parts = [[r for r in own if r["job"]["drop"] == drop] for drop in _DROPS]
        scores = [spread([r["accuracy"] for r in part], 3) for part in parts]
        trained = [r for r in own if r.get("history")]
        epochs, paces = zip(*map(epochs_and_pace, parts), strict=True)
        cells.append(
            [
                title, *scores, max(len(known(r["accuracy"] for r in part)) for part in parts),
                *epochs, *paces, trained[0]["parameters"] if trained else None,
            ]
        )  # fmt: skip
    columns = [
        "model", "full", "dropped", "seeds", "epochs", "dropped", "s / epoch", "dropped",
        "parameters",
    ]  # fmt: skip
    sizes = {", ".join(f"{k} {v}" for k, v in r["job"]["size"].items()) for r in rows}
    note = (
        "Of the epoch with the best validation. Dropped: training and test series lose half of "
        "their points, drawn anew in each epoch. Seeds are of models and of points dropped; series "
        "and parts are the same. The paper shows curves only. "
    )
    note += recipes_note("classification", TASK_TITLES, _used(rows))
    drawn = figures and any(r.get("history") for r in rows)
    return Page(
        tables=[Table("Sine, which frequency? Test accuracy", columns, cells, note)],
        figures=[_figure(rows, by_time) for by_time in (False, True)] if drawn else [],
        notes=[f"Sizes: {'; '.join(sorted(sizes))}."],
    )


def _used(rows: list[Row]) -> dict[str, list[dict[str, Any]]]:
    """Model -> its options, without those that the dropping changes."""
    found: dict[str, list[dict[str, Any]]] = {}
    for model in TASK_TITLES:
        found[model] = [_options(r["job"]) for r in rows if r["job"]["model"] == model]
    return found


def _curve(rows: list[Row], by_time: bool) -> list[tuple[float, float]]:
    """(epoch or seconds of training, validation accuracy), means over seeds."""
    own = [r["history"] for r in rows if r.get("history")]
    points = []
    for epoch, several in enumerate(zip(*own, strict=False), start=1):  # to the shortest
        accuracy = mean_of(e.get("accuracy") for e in several)
        if accuracy is not None:  # an epoch without a finite score has none
            seconds = sum(e["seconds"] for e in several) / len(several)
            points.append((seconds if by_time else epoch, accuracy))
    return points


def _figure(rows: list[Row], by_time: bool) -> tuple[str, str, Any]:
    from roughformer_paper.reproduce.drawing import curves, logarithmic, look, whole_ticks

    x = "seconds of training" if by_time else "epoch"
    figure, panels = curves(2, x, "validation accuracy", width=11.0)
    for axes, drop, title in zip(panels, _DROPS, ("full series", "50 % dropped"), strict=True):
        axes.set_title(title)
        for number, (model, name) in enumerate(TASK_TITLES.items()):
            own = [r for r in rows if (r["job"]["model"], r["job"]["drop"]) == (model, drop)]
            points = _curve(own, by_time)
            if points:
                axes.plot(
                    *zip(*points, strict=True), label=name, markersize=4,
                    markevery=max(len(points) // 10, 1), **look(number),
                )  # fmt: skip
        axes.set_ylim(0, 1.02)
        if by_time:
            logarithmic(axes, [10.0**power for power in range(-3, 5)])
        else:
            whole_ticks(axes)
    handles = {
        name: line
        for axes in panels
        for line, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(handles.values()), list(handles), loc="outside right upper", fontsize=8)
    if by_time:
        caption = "Accuracy by time of training on validation series, mean over seeds"
        return "sine_seconds", caption, figure
    caption = "Accuracy per epoch on validation series, mean over seeds (the paper's Figure 1)"
    return "sine_epochs", caption, figure


EXPERIMENT = Experiment(
    name="sine",
    title="The sine task: which frequency has a noisy sine?",
    about=(
        "Figure 1 of the paper. 100 classes, 1000 training series (a fifth of them validates), "
        "2000 points each (full preset). Every model has the same loop and batch size; slow ones "
        "end with their budget of processor time, their schedule compressed to it."
    ),
    jobs=_jobs,
    run=_run,
    show=_show,
    models=(*_YARDSTICKS, *TASK_TITLES),
)
