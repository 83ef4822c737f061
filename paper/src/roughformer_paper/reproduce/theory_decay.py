"""Factorial decay: ‖S^n‖ <= V^n / n! for a path of 1-variation V.

The paper prints |S^I| = O(1/n!), without V^n. That is more than holds: a straight line of length
V has ‖S^n‖ = V^n / n! exactly.
"""

import math
from typing import Any

import numpy as np

from roughformer import signature
from roughformer.series import SeriesBatch
from roughformer.signatures.algebra import levels
from roughformer_paper.reproduce.experiment import Job, Page, Row, Table
from roughformer_paper.reproduce.theory_common import Array, Part, random_paths, verdict

__all__ = ["PART", "families", "variation"]

_ROUNDING = 1e-10  # a straight line attains the bound: what is above by rounding is no violation


def variation(paths: Array) -> Array:
    """1-variation ``(B,)`` of piecewise-linear paths ``(B, L, d)`` in the Euclidean norm."""
    found: Array = np.linalg.norm(np.diff(paths, axis=1), axis=2).sum(axis=1)
    return found


def families(n: int, length: int, seed: int) -> dict[str, Array]:
    """Paths ``(n, length, 2)`` from tame to wild."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n)
    t = np.linspace(0.0, 1.0, length)
    line = t[:, None] * 2.0 * np.stack([np.cos(angle), np.sin(angle)], axis=1)[:, None, :]
    wave = np.sin(20 * t + angle[:, None])
    return {
        "straight line of length 2": line,
        "smooth, 4 modes": random_paths(n, length, 2, 4, rng),
        "(t, sin 20t)": np.stack([np.broadcast_to(t, wave.shape), wave], axis=2),
        "random walk": rng.standard_normal((n, length, 2)).cumsum(axis=1) / np.sqrt(length),
    }


def _run(job: Job) -> Row:
    depth = job["depth"]
    found: Row = {"families": {}}
    for name, paths in families(job["n_paths"], job["length"], job["seed"]).items():
        words = signature(SeriesBatch.from_tensor(paths), depth)
        v = variation(paths)
        lines = []
        for k, level in enumerate(levels(words, 2, depth), 1):
            norm = np.linalg.norm(level, axis=1)
            bound = v**k / math.factorial(k)
            lines.append(
                {
                    "norm": float(np.median(norm)),
                    "bound": float(np.median(bound)),
                    "closest": float((norm / bound).max()),
                    "violations": int((norm > bound * (1 + _ROUNDING)).sum()),
                    "largest word": float(np.abs(level).max(axis=1).mean()),
                }
            )
        found["families"][name] = {"variation": float(np.median(v)), "levels": lines}
    return found


def _show(rows: list[Row], figures: bool) -> Page:
    first = rows[0]["families"]
    depth = len(next(iter(first.values()))["levels"])
    cells, violations = [], 0
    for name in first:
        own = [row["families"][name] for row in rows]
        every = [line for one in own for line in one["levels"]]
        last = [one["levels"][-1] for one in own]
        broken = sum(line["violations"] for line in every)
        violations += broken
        norms = [np.mean([one["levels"][k]["norm"] for one in own]) for k in range(depth)]
        cells.append(
            [
                name,
                float(np.mean([one["variation"] for one in own])),
                broken,
                max(line["closest"] for line in every),
                int(np.argmax(norms)) + 1,
                float(norms[-1]),
                float(np.mean([line["bound"] for line in last])),
                float(np.mean([line["largest word"] for line in last])) * math.factorial(depth),
            ]
        )
    checked = sum(row["job"]["n_paths"] for row in rows) * len(first) * depth
    line_word: Any = cells[0][-1]
    note = verdict(
        "‖Sⁿ‖ ≤ Vⁿ / n! for a path of 1-variation V.",
        violations == 0,
        f"{violations} violations in {checked} levels. As the paper prints it, |S^I| = O(1/n!), it "
        f"is too strong: n! times the largest word of a line of length 2 is {line_word:.4g} at "
        f"level {depth} and grows like Vⁿ. The bound itself grows until n is about V before it "
        "falls, so it promises that few levels are enough only for paths, or windows, of small "
        "variation; the levels of wild paths stay far below it.",
    )
    columns = [
        "paths", "V, median", "violations", "closest: norm / bound", "largest level",
        f"norm, level {depth}", f"bound, level {depth}", "n! · largest word",
    ]  # fmt: skip
    return Page(
        tables=[Table("Factorial decay of the levels", columns, cells, note)],
        figures=[_figure(rows, depth)] if figures else [],
    )


def _figure(rows: list[Row], depth: int) -> tuple[str, str, Any]:
    from roughformer.plots import BLUE, ORANGE
    from roughformer_paper.reproduce.drawing import curves

    names = list(rows[0]["families"])
    figure, panels = curves(len(names), "level n", "norm of the level", width=11.0, height=3.2)
    at = range(1, depth + 1)
    for axes, name in zip(panels, names, strict=True):
        own = [row["families"][name]["levels"] for row in rows]
        for key, colour, look, label in (
            ("norm", BLUE, "-", "‖Sⁿ‖, median"),
            ("bound", ORANGE, ":", "bound Vⁿ / n!"),  # on top: a line attains it
        ):
            mean = [np.mean([one[k][key] for one in own]) for k in range(depth)]
            axes.plot(at, mean, look, color=colour, label=label, marker="o", markersize=3)
        axes.set_yscale("log")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_title(name)
    panels[0].legend(fontsize=8)
    return "theory_decay", "Norms of the levels of signatures and their bound", figure


PART = Part(
    name="decay",
    cases={
        "tiny": [{"n_paths": 20, "length": 50, "depth": 6}],
        "quick": [{"n_paths": 200, "length": 100, "depth": 10}],
        "full": [{"n_paths": 500, "length": 200, "depth": 12}],
    },
    run=_run,
    show=_show,
)
