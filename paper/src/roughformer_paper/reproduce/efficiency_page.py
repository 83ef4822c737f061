"""Tables and figures of the experiment ``efficiency``."""

import math
from collections.abc import Sequence
from typing import Any

from roughformer_paper.reproduce.experiment import Page, Row, Table
from roughformer_paper.reproduce.models import TITLES

__all__ = ["LINES", "PAPER", "PAPER_RATIO", "TASKS", "power_of", "show"]

# ROCKET has no epochs.
LINES = {name: title for name, title in TITLES.items() if name != "rocket"} | {
    "neural-cde-every": "Neural CDE, every sample"
}
TASKS = {"sine": "Sine", "heart-rate": "Heart rate"}
# Seconds per epoch that the paper prints (RTX 3090), and its Transformer : RFormer.
PAPER: dict[str, dict[str, float]] = {
    "sine": {
        "gru": 0.12, "ode-rnn": 5.39, "neural-cde": 9.83, "neural-rde": 0.85,
        "transformer": 0.77, "rformer": 0.55,
    },
    "heart-rate": {
        "gru": 1.07, "ode-rnn": 50.71, "neural-rde": 9.52, "transformer": 11.71, "rformer": 0.45,
    },
}  # fmt: skip
PAPER_RATIO = {"sine": 1.4, "heart-rate": 26.11}
_SHAPES = (
    "Width 64, one layer (S5: four, as in the other tables), no dropout, which would slow "
    "attention down. Neural RDE has the paper's step and depth. Neural CDE takes at most 2,048 "
    "steps to a series; with more points a step goes along the chord of several, and only there "
    'the line "every sample" is another model. ROCKET has no epochs and is left out.'
)
_BUSY = 0.8  # a training that is alone on its processors uses at least one of them all the time


def show(rows: list[Row], figures: bool) -> Page:
    """Table 2 for each task, the ratios, and the growth with length."""
    epochs = [r for r in rows if r["job"]["part"] == "epoch"]
    growth = [r for r in rows if r["job"]["part"] == "growth"]
    tables = [_epoch_table(task, epochs) for task in TASKS if _of(epochs, task=task)]
    if epochs:
        tables += [table for table in (_ratios(epochs), _memory_table(epochs)) if table.rows]
    if growth:
        tables += [_growth_table(growth, "milliseconds"), _growth_table(growth, "MB")]
    measured = [w for w in ("milliseconds", "MB") if any(_positive(growth, m, w) for m in LINES)]
    drawn = [_growth_figure(growth, what) for what in measured] if figures else []
    threads = sorted({str(r["environment"]["threads"]) for r in rows})
    notes = [f"Threads of a run: {', '.join(threads)}."] if threads else []
    busy = sum(r["cpu_share"] < _BUSY for r in rows)
    if busy:
        notes.append(
            f"{busy} of {len(rows)} runs had less than {_BUSY:.0%} of a processor: other work was "
            "going on, and their times are too long."
        )
    return Page(tables=tables, figures=drawn, notes=notes + _not_run(growth))


def _of(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    return [r for r in rows if all(r["job"][k] == v for k, v in wanted.items())]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _epoch(rows: Sequence[Row]) -> float | None:
    """Mean seconds of an epoch, over all epochs that were timed."""
    return _mean([s for r in rows for s in r["epoch_seconds"]])


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _epoch_table(task: str, rows: list[Row]) -> Table:
    reference = _epoch(_of(rows, task=task, model="rformer", drop=0.0))
    cells = []
    for model, title in LINES.items():
        full = _of(rows, task=task, model=model, drop=0.0)
        dropped = _of(rows, task=task, model=model, drop=0.5)
        if not full and not dropped:
            continue
        seconds, inputs = _epoch(full), _mean([r["inputs_seconds"] for r in full])
        share = _mean([r["inputs_share"] for r in dropped])
        cells.append(
            [
                title, seconds, _sum(seconds, inputs), _epoch(dropped),
                None if share is None else f"{share:.1%}", _timed([*full, *dropped]),
                _ratio(seconds, reference), PAPER[task].get(model),
            ]
        )  # fmt: skip
    columns = [
        "model", "full", "first", "dropped", "inputs", "steps timed", ": RFormer", "paper",
    ]  # fmt: skip
    size = _of(rows, task=task)[0]["job"]
    note = (
        f"{size['n']:,} series of {size['length']:,} points, batches of {size['batch_size']}, mean "
        "over epochs. Steps timed / steps of an epoch: where fewer were timed, they are scaled to "
        "an epoch. First: the first epoch, with the making of the inputs (for RFormer, tokens), "
        "which are kept if no points are dropped. Dropped: half of the points, and inputs are made "
        "in every epoch, partly while the model works; inputs: their share of it. : RFormer: "
        f"times the full epoch of RFormer. {_SHAPES} The paper's times are of an RTX 3090."
    )
    return Table(f"{TASKS[task]}: seconds per epoch", columns, cells, note)


def _memory_table(rows: list[Row]) -> Table:
    cells = []
    for model, title in LINES.items():
        line: list[Any] = [title]
        for task in TASKS:
            full = _of(rows, task=task, model=model, drop=0.0)
            dropped = _of(rows, task=task, model=model, drop=0.5)
            line += [_mean([r["step_mb"] for r in part]) for part in (full, dropped)]
            line.append(_mean([r["inputs_mb"] for r in full]))
        if any(cell is not None for cell in line[1:]):
            cells.append(line)
    kinds = ("step", "dropped", "inputs")
    columns = ["model", *(f"{title}: {kind}" for title in TASKS.values() for kind in kinds)]
    note = (
        "Step: rise of the process's peak while it trains on one batch. Inputs: all of the "
        "training part, which are kept if no points are dropped."
    )
    return Table("Peak memory, MB", columns, cells, note)


def _timed(rows: list[Row]) -> str:
    steps = sorted({r["steps"] for r in rows})
    span = str(steps[0]) if len(steps) == 1 else f"{steps[0]}-{steps[-1]}"
    return f"{span} / {rows[0]['steps_of_epoch']}"


def _ratios(rows: list[Row]) -> Table:
    cells = []
    for task, title in TASKS.items():
        for drop, name in ((0.0, "full"), (0.5, "50 % dropped")):
            slow, ours, papers = (
                _epoch(_of(rows, task=task, model=model, drop=drop))
                for model in ("transformer", "rformer", "rformer-paper")
            )
            paper = PAPER_RATIO[task] if drop == 0 else None
            line = [f"{title}, {name}", _ratio(slow, ours), _ratio(slow, papers), paper]
            if line[1] is not None or line[2] is not None:
                cells.append(line)
    columns = ["task", "Transformer : RFormer", "with the paper's choices", "paper"]
    note = "How many times longer an epoch of the Transformer takes."
    return Table("RFormer beside the Transformer", columns, cells, note)


def _value(point: Row, what: str, batch_size: int) -> float | None:
    """Milliseconds for a series, its inputs and its share of a step, or MB of a step."""
    if what == "MB":
        peak = point["peak_mb"]
        return None if peak is None else float(peak)
    return float(1000 * (point["step_seconds"] + point["encode_seconds"]) / batch_size)


def _points(rows: list[Row], model: str, what: str) -> dict[int, float]:
    """Length -> mean over runs."""
    found: dict[int, list[float]] = {}
    for row in _of(rows, model=model):
        for point in row["points"]:
            value = _value(point, what, row["job"]["batch_size"])
            if value is not None:
                found.setdefault(point["length"], []).append(value)
    return {length: sum(values) / len(values) for length, values in sorted(found.items())}


def _positive(rows: list[Row], model: str, what: str) -> dict[int, float]:
    """What logarithmic axes can show of them."""
    return {x: y for x, y in _points(rows, model, what).items() if y > 0}


def power_of(points: dict[int, float]) -> float | None:
    """p of L^p, by least squares through the logarithms of the last three points."""
    last = [(math.log(x), math.log(y)) for x, y in list(points.items())[-3:] if y > 0]
    if len(last) < 2:
        return None
    mx, my = (sum(v) / len(last) for v in zip(*last, strict=True))
    slope: float = sum((x - mx) * (y - my) for x, y in last) / sum((x - mx) ** 2 for x, _ in last)
    return slope


def _growth_table(rows: list[Row], what: str) -> Table:
    lengths = sorted({length for row in rows for length in row["job"]["lengths"]})
    cells: list[list[Any]] = []
    for model, title in LINES.items():
        points = _points(rows, model, what)
        if points:
            power = power_of(points)
            grows = None if power is None else f"L^{power:.2f}"
            cells.append([title, *(points.get(length) for length in lengths), grows])
    size = rows[0]["job"]["batch_size"]
    if what == "MB":
        title, note = (
            "Peak memory of a step, MB, by points of a series",
            "Rise of the process's peak",
        )
    else:
        title, note = (
            "Milliseconds per series, by its points",
            "Making of inputs and step of training",
        )
    note += f", sine series, batches of {size}. Last column: growth over the last three lengths."
    return Table(title, ["model", *(f"{n:,}" for n in lengths), "grows like"], cells, note)


def _not_run(rows: list[Row]) -> list[str]:
    found = []
    for row in rows:
        stopped = row["stopped"]
        if stopped:
            title = LINES[row["job"]["model"]]
            found.append(f"not run: {title} from {stopped['length']:,} points on: {stopped['why']}")
    return found


def _growth_figure(rows: list[Row], what: str) -> tuple[str, str, Any]:
    from matplotlib.ticker import NullFormatter, NullLocator

    from roughformer_paper.reproduce.drawing import curves, look

    time = what == "milliseconds"
    figure, (axes,) = curves(
        1, "points of a series", "milliseconds per series" if time else "peak MB of a step",
        width=11.0, height=4.2,
    )  # fmt: skip
    for number, (model, title) in enumerate(LINES.items()):
        points = _positive(rows, model, what)
        if points:
            axes.plot(
                list(points), list(points.values()), label=title, markersize=4,
                linewidth=2.4 if model == "rformer" else 1.3, **look(number),
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    lengths = sorted({length for row in rows for length in row["job"]["lengths"]})
    axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    caption = "Time of a series in training" if time else "Peak memory of a step of training"
    name = "growth_time" if time else "growth_memory"
    return name, f"{caption}, against its length", figure
