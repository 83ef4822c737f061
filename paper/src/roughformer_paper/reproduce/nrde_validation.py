"""Tables 4 and 5: Neural RDE by its step and depth, on validation series of both tasks."""

from pathlib import Path
from typing import Any

from roughformer_paper.reproduce.experiment import (
    Experiment,
    Job,
    Page,
    Preset,
    Row,
    Table,
    Wishes,
    known,
    mean_of,
    spread,
)
from roughformer_paper.reproduce.models import fitted, history_of
from roughformer_paper.reproduce.tasks import Parts, heart_rate_parts, sine_parts
from roughformer_paper.reproduce.timing import step_memory

__all__ = ["EXPERIMENT", "PAPER"]

_TASKS = ("sine", "heart-rate")
_STEPS = {"tiny": (4, 16), "quick": (2, 4, 8, 16, 24), "full": (2, 4, 8, 16, 24)}
_DEPTHS = (2, 3)
_SINE = {
    "tiny": {"n_samples": 20, "n_classes": 2, "length": 64, "n_test": 2},
    "quick": {"n_samples": 400, "n_classes": 10, "length": 500, "n_test": 10},
    "full": {"n_samples": 1000, "n_classes": 100, "length": 2000, "n_test": 100},
}
_MADE_UP = {"tiny": {"n": 20, "length": 64}, "quick": {"n": 300, "length": 1000}, "full": None}
_EPOCHS = {"tiny": 1, "quick": 20, "full": 100}
_SECONDS = {
    "tiny": {"sine": 5.0, "heart-rate": 5.0},
    "quick": {"sine": 10.0, "heart-rate": 10.0},
    "full": {"sine": 600.0, "heart-rate": 1200.0},
}
_WIDTH, _BATCH = 64, 32
_BIDMC_LENGTH = 4000
# (step, depth): validation accuracy in % or validation RMSE, MB, seconds.
PAPER: dict[str, dict[tuple[int, int], tuple[float, float, float]]] = {
    "sine": {
        (2, 2): (17.26, 778.9, 6912.7), (2, 3): (12.21, 770.3, 1194.43),
        (4, 2): (16.35, 382.2, 2702.48), (4, 3): (19.27, 386.16, 574.97),
        (8, 2): (20.99, 193.0, 1321.36), (8, 3): (24.02, 194.17, 332.17),
        (16, 2): (17.15, 97.13, 136.43), (16, 3): (21.59, 98.17, 156.93),
        (24, 2): (17.46, 65.96, 105.94), (24, 3): (20.59, 66.68, 98.97),
    },
    "heart-rate": {
        (2, 2): (2.44, 5044.44, 56492.33), (2, 3): (3.03, 5059.28, 39855.19),
        (4, 2): (3.67, 2515.40, 10765.58), (4, 3): (16.04, 2531.44, 7157.20),
        (8, 2): (5.35, 1259.30, 3723.94), (8, 3): (2.70, 1268.60, 18682.82),
        (16, 2): (3.58, 632.08, 3518.96), (16, 3): (3.64, 636.64, 7922.96),
        (24, 2): (3.86, 422.74, 3710.95), (24, 3): (3.55, 426.83, 6567.02),
    },
}  # fmt: skip
_SCORE = {"sine": "validation accuracy, %", "heart-rate": "validation RMSE"}
_TITLE = {"sine": "Sine (Table 4)", "heart-rate": "Heart rate, random protocol (Table 5)"}


def _jobs(wishes: Wishes) -> list[Job]:
    preset = wishes.preset
    jobs: list[Job] = []
    for task in _TASKS:
        for step in _STEPS[preset]:
            for depth in _DEPTHS:
                for seed in range(wishes.seeds or 1):
                    job: Job = {
                        "task": task, "step": step, "depth": depth, "seed": seed, "width": _WIDTH,
                        "batch_size": _BATCH, "epochs": _EPOCHS[preset],
                        "max_seconds": wishes.seconds or _SECONDS[preset][task],
                    }  # fmt: skip
                    jobs.append(job | _data(task, preset))
    return jobs


def _data(task: str, preset: Preset) -> Job:
    """Which series, and how many points they have."""
    if task == "sine":
        return {"size": _SINE[preset], "length": _SINE[preset]["length"]}
    made_up = _MADE_UP[preset]
    return {"made_up": made_up, "length": made_up["length"] if made_up else _BIDMC_LENGTH}


def _parts(job: Job) -> Parts:
    if job["task"] == "sine":
        return sine_parts(job["size"])
    return heart_rate_parts("random", job["made_up"])


def _run(job: Job, where: Path) -> Row:
    own = {"step": job["step"], "depth": job["depth"]}
    # Before the series are read: that may take more memory than a step, and hide it.
    alike = {
        "task": job["task"], "model": "neural-rde", "model_options": own, "seed": job["seed"],
        "batch_size": job["batch_size"], "width": job["width"], "n_layers": 1, "dropout": 0.0,
        "drop": 0.0,
    }  # fmt: skip
    memory, _ = step_memory(alike, job["length"])
    parts = _parts(job)
    options: dict[str, Any] = {
        "epochs": job["epochs"], "max_seconds": job["max_seconds"], "patience": None,
        "batch_size": job["batch_size"], "d_model": job["width"], "model_options": own,
        "calibrate": False,
    }  # fmt: skip
    kind = "classification" if job["task"] == "sine" else "regression"
    model = fitted(kind, "neural-rde", parts, options, job["seed"], where)
    history = history_of(model)
    if job["task"] == "sine":
        # Epochs without a finite score have none.
        best = max(known(r.get("accuracy") for r in history), default=None)
        score = None if best is None else 100 * best
    else:
        score = min(known(r.get("rmse") for r in history), default=None)
    seen = sum(record["samples_per_second"] * record["seconds"] for record in model.history_)
    return {
        "score": score,
        "history": history,
        "epochs": seen / len(parts["train"]),  # the last one may be a part
        "step_mb": memory,
    }


def _show(rows: list[Row], figures: bool) -> Page:
    of_task = {task: [r for r in rows if r["job"]["task"] == task] for task in _TASKS}
    shown = {task: own for task, own in of_task.items() if own}
    notes = []
    if any(r["job"].get("made_up") for r in rows):
        notes.append("Heart rate: made-up series, to see that all works, not BIDMC.")
    return Page(
        tables=[_table(task, own) for task, own in shown.items()],
        figures=[_figure(task, own) for task, own in shown.items()] if figures else [],
        notes=notes,
    )


def _cases(rows: list[Row]) -> dict[tuple[int, int], list[Row]]:
    """Runs of each (step, depth), in this order."""
    found: dict[tuple[int, int], list[Row]] = {}
    for row in sorted(rows, key=lambda r: (r["job"]["step"], r["job"]["depth"])):
        found.setdefault((row["job"]["step"], row["job"]["depth"]), []).append(row)
    return found


def _means(cases: dict[tuple[int, int], list[Row]]) -> dict[tuple[int, int], float]:
    """Mean scores of the cases that have one."""
    found = {case: mean_of(r["score"] for r in own) for case, own in cases.items()}
    return {case: mean for case, mean in found.items() if mean is not None}


def _table(task: str, rows: list[Row]) -> Table:
    cases = _cases(rows)
    choose = max if task == "sine" else min
    means = _means(cases)
    best = "Best: none" if not means else "Best: step {}, depth {}".format(
        *choose(means, key=lambda case: means[case])
    )  # fmt: skip
    papers = choose(PAPER[task], key=lambda case: PAPER[task][case][0])
    cells = []
    for (step, depth), own in cases.items():
        spent = [r["history"][-1]["seconds"] for r in own]
        epochs = [r["epochs"] for r in own]
        memory = [r["step_mb"] for r in own]
        paper = PAPER[task].get((step, depth), (None, None, None))
        cells.append(
            [
                step, depth, spread([r["score"] for r in own], 2), mean_of(spent),
                mean_of(epochs), sum(spent) / sum(epochs), mean_of(memory), *paper,
            ]
        )  # fmt: skip
    columns = [
        "step", "depth", "score", "s", "epochs", "s / epoch", "MB",
        "paper: score", "MB", "s",
    ]  # fmt: skip
    budgets = sorted({f"{r['job']['max_seconds']:g} s" for r in rows})
    note = (
        f"{best}; paper: step {papers[0]}, depth {papers[1]}. "
        f"Score: {_SCORE[task]}, of the best epoch within {', '.join(budgets)} of training. "
        "MB: rise of the process's peak while it trains on one batch. The paper's "
        "are of a graphics card and of trainings to the end."
    )
    return Table(_TITLE[task], columns, cells, note)


def _figure(task: str, rows: list[Row]) -> tuple[str, str, Any]:
    from matplotlib.ticker import NullLocator

    from roughformer.plots import BLUE, ORANGE
    from roughformer_paper.reproduce.drawing import curves

    figure, (axes,) = curves(1, "step: samples to a window", _SCORE[task], height=3.4)
    cases = _cases(rows)
    for depth, colour in zip(_DEPTHS, (BLUE, ORANGE), strict=True):
        ours = {s: mean for (s, d), mean in _means(cases).items() if d == depth}
        papers = {s: PAPER[task][s, depth][0] for s in ours if (s, depth) in PAPER[task]}
        for points, whose, line in ((ours, "ours", "-"), (papers, "paper", ":")):
            axes.plot(
                list(points), list(points.values()), line, color=colour, marker="o",
                markersize=4, label=f"depth {depth}, {whose}",
            )  # fmt: skip
    axes.set_xscale("log")
    steps = sorted({step for step, _ in cases})
    axes.set_xticks(steps, [str(step) for step in steps])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    caption = f"{_TITLE[task]}: {_SCORE[task]} of Neural RDE by step, for each depth"
    return f"nrde_{task.replace('-', '_')}", caption, figure


EXPERIMENT = Experiment(
    name="nrde-validation",
    title="Neural RDE: which step and which depth?",
    about=(
        "Tables 4 and 5 of the paper: Neural RDE with windows of 2 to 24 samples and "
        "log-signatures of depth 2 and 3, scored on validation series; no test series are touched. "
        "Each training has the same budget of processor time, its schedule compressed to it."
    ),
    jobs=_jobs,
    run=_run,
    show=_show,
    models=("neural-rde",),
    needs_data=lambda job: job["task"] == "heart-rate" and job["made_up"] is None,
)
