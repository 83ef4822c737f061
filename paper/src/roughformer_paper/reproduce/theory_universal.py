"""Universality: linear functionals of the signature approximate continuous functionals of paths.

The path is (t, x, y) with a basepoint. Some functionals are linear in the signature at a finite
depth and must then be met exactly; the others only in the limit.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from roughformer import signature
from roughformer.series import SeriesBatch
from roughformer.signatures import word_count
from roughformer_paper.reproduce.experiment import Job, Page, Row, Table
from roughformer_paper.reproduce.theory_common import (
    Array,
    Part,
    mean_over_seeds,
    random_paths,
    ridge,
    verdict,
)

__all__ = ["EXACT_FROM", "FUNCTIONALS", "PART"]

_LARGER = 3.0  # times as large: paths outside of the set that was fitted on
_EXACT = 1e-6


def _integral_of_product(a: Array, b: Array) -> Array:
    """∫ a b dt over [0, 1], exact for piecewise-linear a, b ``(B, L)`` on an even grid."""
    step = 1.0 / (a.shape[1] - 1)
    ends = a[:, :-1] * b[:, :-1] + a[:, 1:] * b[:, 1:]
    cross = a[:, :-1] * b[:, 1:] + a[:, 1:] * b[:, :-1]
    return np.asarray(((2 * ends + cross) / 6).sum(axis=1) * step)


def _area(x: Array, y: Array) -> Array:
    """½ ∫ (x dy - y dx), the signed area seen from the origin."""
    return np.asarray(0.5 * (x[:, :-1] * y[:, 1:] - x[:, 1:] * y[:, :-1]).sum(axis=1))


def _fall(x: Array, y: Array) -> Array:
    """The largest fall of x: max over s <= t of x(s) - x(t)."""
    return np.asarray((np.maximum.accumulate(x, axis=1) - x).max(axis=1))


FUNCTIONALS: dict[str, Callable[[Array, Array], Array]] = {
    "area ½∫(x dy − y dx)": _area,
    "∫ x² dt": lambda x, y: _integral_of_product(x, x),
    "tanh(2 ∫ x y dt)": lambda x, y: np.tanh(2 * _integral_of_product(x, y)),
    "cos(2 x(½))": lambda x, y: np.cos(2 * x[:, x.shape[1] // 2]),
    "max x": lambda x, y: np.asarray(x.max(axis=1)),
    "largest fall of x": _fall,
}
# These are linear in the signature of that depth: x² = 2 S^{xx} and one integral more, ...
EXACT_FROM = {"area ½∫(x dy − y dx)": 2, "∫ x² dt": 3}


def _targets(paths: Array) -> Array:
    x, y = paths[..., 0], paths[..., 1]
    return np.stack([f(x, y) for f in FUNCTIONALS.values()], axis=1)


def _run(job: Job) -> Row:
    rng = np.random.default_rng(job["seed"])
    sizes = {"train": job["n_train"], "validation": job["n_test"], "test": job["n_test"]}
    # An odd number of points: the middle of time is one of them.
    parts = {k: random_paths(n, job["length"], 2, job["modes"], rng) for k, n in sizes.items()}
    parts["larger"] = _LARGER * parts["test"]
    t = np.linspace(0.0, 1.0, job["length"])
    deepest = {
        name: signature(
            SeriesBatch.from_tensor(paths, t=t), job["depth"], lifts=("time", "basepoint")
        )
        for name, paths in parts.items()
    }
    y = {name: _targets(paths) for name, paths in parts.items()}
    size = {name: values.std(axis=0) for name, values in y.items()}
    error: dict[str, list[Any]] = {"rmse": [], "worst": [], "larger": []}
    for depth in range(1, job["depth"] + 1):
        words = {name: all_words[:, : word_count(3, depth)] for name, all_words in deepest.items()}
        predict = ridge(words["train"], y["train"], words["validation"], y["validation"])
        miss = {name: predict(words[name]) - y[name] for name in ("test", "larger")}
        root = {name: np.sqrt((m**2).mean(axis=0)) / size[name] for name, m in miss.items()}
        error["rmse"].append(root["test"].tolist())
        error["worst"].append((np.abs(miss["test"]).max(axis=0) / size["test"]).tolist())
        error["larger"].append(root["larger"].tolist())
    return {"functionals": list(FUNCTIONALS), **error}


def _show(rows: list[Row], figures: bool) -> Page:
    depth = rows[0]["job"]["depth"]
    error = mean_over_seeds(rows, "rmse").T  # (functionals, depths)
    worst, larger = (mean_over_seeds(rows, key)[-1] for key in ("worst", "larger"))
    cells = [
        [name, *error[i].tolist(), float(worst[i]), float(larger[i])]
        for i, name in enumerate(FUNCTIONALS)
    ]
    falls = error[:, -1] < error[:, 0]
    exact = [
        name
        for i, name in enumerate(FUNCTIONALS)
        if EXACT_FROM.get(name, depth + 1) <= depth and error[i, EXACT_FROM[name] - 1] < _EXACT
    ]
    note = verdict(
        "linear functionals of the signature of (t, x) approximate every continuous functional.",
        bool(falls.all()),
        f"{int(falls.sum())} of {len(falls)} functionals have a smaller error at depth {depth} "
        f"than at depth 1. Exact as soon as the algebra says so: {', '.join(exact) or 'none'}; the "
        "others fall slowly. The set of paths must be compact, which the theorem as printed does "
        f"not ask for: on paths {_LARGER:g} times as large (last column) what is not exact fails.",
    )
    columns = [
        "functional", *(f"depth {k}" for k in range(1, depth + 1)), "worst path, deepest",
        f"paths {_LARGER:g}× as large",
    ]  # fmt: skip
    title = "Universality: root mean squared error over the standard deviation, test paths"
    return Page(
        tables=[Table(title, columns, cells, note)],
        figures=[_figure(error)] if figures else [],
    )


def _figure(error: Array) -> tuple[str, str, Any]:
    from roughformer_paper.reproduce.drawing import curves

    figure, (axes,) = curves(1, "depth of the signature", "error / standard deviation", width=11.0)
    depths = range(1, error.shape[1] + 1)
    for number, name in enumerate(FUNCTIONALS):
        label = f"{name}, exact from {EXACT_FROM[name]}" if name in EXACT_FROM else name
        axes.plot(
            depths, error[number], color=f"C{number}", marker="o", markersize=4, label=label
        )  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylim(0.02, 1.5)  # what is exact leaves the picture
    axes.set_xticks(depths)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    caption = "Functionals of paths as linear functionals of the signature: test error by depth"
    return "theory_universality", caption, figure


PART = Part(
    name="universality",
    cases={
        "tiny": [{"n_train": 300, "n_test": 100, "length": 51, "modes": 3, "depth": 4}],
        "quick": [{"n_train": 1500, "n_test": 500, "length": 101, "modes": 4, "depth": 5}],
        "full": [{"n_train": 6000, "n_test": 2000, "length": 101, "modes": 4, "depth": 6}],
    },
    run=_run,
    show=_show,
)
