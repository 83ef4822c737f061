"""Reparametrisation: without time, a signature sees the curve and not its speed or its samples.

Leaving points out is no reparametrisation: it changes the interpolated curve. How much is
measured apart, by the share of points left out.
"""

from typing import Any

import numpy as np

from roughformer import multiview_signature, signature
from roughformer.series import SeriesBatch
from roughformer_paper.reproduce.experiment import Job, Page, Row, Table
from roughformer_paper.reproduce.theory_common import (
    Array,
    Part,
    deviation,
    random_paths,
    verdict,
)

__all__ = ["PART", "random_clock", "with_more_points"]

_DEPTH = 4
_WINDOWS = 5
_CIRCLE, _NOISY = "circle", "smooth + white noise"
_DROPS = (0.1, 0.3, 0.5, 0.7, 0.9)
_EXACT = 1e-10
_FINER = 16  # points of the smooth curve for each sample
_SPEED, _ANEW = "another speed, the same points", "another speed, the curve sampled anew"
_MORE = "as many points more, on the path"
_SEEN = ("signature of x", "signature of (t, x)", "local windows of x")


def random_clock(n: int, length: int, rng: np.random.Generator) -> Array:
    """Increasing times ``(n, length)`` from 0 to 1 with exponential gaps."""
    at = np.cumsum(rng.exponential(size=(n, length - 1)), axis=1)
    return np.concatenate([np.zeros((n, 1)), at / at[:, -1:]], axis=1)


def with_more_points(
    t: Array, x: Array, extra: int, rng: np.random.Generator
) -> tuple[list[Array], list[Array]]:
    """The same piecewise-linear paths, ``extra`` points more of each at random times.

    ``t (n, L)``, ``x (n, L, d)`` -> lists of n times ``(L + extra,)`` and points
    ``(L + extra, d)``.
    """
    times, points = [], []
    for own_t, own_x in zip(t, x, strict=True):
        fresh = rng.uniform(own_t[0], own_t[-1], extra)
        when = np.unique(np.concatenate([own_t, fresh]))
        times.append(when)
        points.append(np.stack([np.interp(when, own_t, c) for c in own_x.T], axis=1))
    return times, points


def _views(batch: SeriesBatch) -> list[tuple[Array, int]]:
    """What is compared, with its number of letters: the three of ``_SEEN``."""
    d = batch.n_channels
    windows = multiview_signature(batch, _WINDOWS, _DEPTH, "local")
    return [
        (signature(batch, _DEPTH), d),
        (signature(batch, _DEPTH, lifts="time"), d + 1),
        (windows.reshape(-1, windows.shape[-1]), d),
    ]


def _run(job: Job) -> Row:
    rng = np.random.default_rng(job["seed"])
    n, length = job["n_paths"], job["length"]
    even = np.broadcast_to(np.linspace(0.0, 1.0, length), (n, length))
    curve = random_paths(n, _FINER * (length - 1) + 1, 2, 4, rng)
    smooth = curve[:, ::_FINER].copy()
    base = _views(SeriesBatch.from_tensor(smooth, t=even[0]))
    times, points = with_more_points(even, smooth, length, rng)
    # The point at time u of the same curve run with another speed: that of time u^p.
    warped = even**3.0 ** rng.uniform(-1.0, 1.0, (n, 1))
    fine = np.linspace(0.0, 1.0, curve.shape[1])
    anew = [
        np.stack([np.interp(when, fine, c) for c in own.T], axis=1)
        for when, own in zip(warped, curve, strict=True)
    ]
    changed = {
        _SPEED: SeriesBatch.from_tensor(smooth, t=warped),
        _ANEW: SeriesBatch.from_arrays(anew, even[0]),
        _MORE: SeriesBatch.from_arrays(points, times),
    }
    found: Row = {"changes": {}, "dropping": {}}
    for name, batch in changed.items():
        found["changes"][name] = [
            deviation(new, old, d, _DEPTH)
            for (new, d), (old, _) in zip(_views(batch), base, strict=True)
        ]
    noise = 0.1 * rng.standard_normal(smooth.shape)
    turns = rng.uniform(0, 2 * np.pi, (n, 1))
    for name, paths in {
        "smooth, 4 modes": smooth,
        f"{_CIRCLE}, {length / 20:g} turns": np.stack(
            [f(np.pi * length / 10 * even + turns) for f in (np.cos, np.sin)], axis=2
        ),
        "random walk": rng.standard_normal(smooth.shape).cumsum(axis=1) / np.sqrt(length),
        _NOISY: smooth + noise,
    }.items():
        batch = SeriesBatch.from_tensor(paths, t=even[0])
        whole = signature(batch, _DEPTH, lifts="time")
        found["dropping"][name] = [
            deviation(
                signature(batch, _DEPTH, lifts="time", drop=drop, seed=job["seed"]),
                whole, 3, _DEPTH,
            )
            for drop in _DROPS
        ]  # fmt: skip
    return found


def _show(rows: list[Row], figures: bool) -> Page:
    changes = {
        name: [max(row["changes"][name][i] for row in rows) for i in range(len(_SEEN))]
        for name in rows[0]["changes"]
    }
    exact = max(changes[name][0] for name in (_SPEED, _MORE))
    speed, anew = changes[_SPEED], changes[_ANEW][0]
    invariance = Table(
        "Reparametrisation: largest relative change of a level",
        ["change of the path", *_SEEN],
        [[name, *line] for name, line in changes.items()],
        verdict(
            "the signature does not change under reparametrisation of time.",
            exact < _EXACT < speed[1],
            f"to {exact:.1e} for the same points at other times and for points added on the path; "
            f"a curve sampled anew keeps the error of sampling ({anew:.1e}). "
            f"With the time channel another speed is seen, as it must be ({speed[1]:.2g}), and "
            f"windows that are cut in time see it too ({speed[2]:.2g}): invariance is a property "
            "of the whole signature without time, not of the multi-view tokens.",
        ),
    )
    dropped = {
        name: np.mean([row["dropping"][name] for row in rows], axis=0).tolist()
        for name in rows[0]["dropping"]
    }
    half = {name: line[_DROPS.index(0.5)] for name, line in dropped.items()}
    circle = next(change for name, change in half.items() if name.startswith(_CIRCLE))
    dropping = Table(
        "Points left out: largest relative change of a level of (t, x)",
        ["paths", *(f"{100 * d:.0f} % dropped" for d in _DROPS)],
        [[name, *line] for name, line in dropped.items()],
        verdict(
            "signatures are robust to irregular sampling because of that invariance.",
            None,
            "dropping points is no reparametrisation, it changes the curve: little where samples "
            f"are dense on a smooth path ({min(half.values()):.1e} at 50 %), much where a turn "
            f"has few of them ({circle:.2g}) or they are noisy ({half[_NOISY]:.2g}). Density "
            "protects, not invariance.",
        ),
    )
    return Page(tables=[invariance, dropping], figures=[_figure(dropped)] if figures else [])


def _figure(dropped: dict[str, list[float]]) -> tuple[str, str, Any]:
    from roughformer_paper.reproduce.drawing import curves

    figure, (axes,) = curves(1, "share of points dropped", "relative change", width=11.0)
    for number, (name, line) in enumerate(dropped.items()):
        axes.plot(_DROPS, line, color=f"C{number}", marker="o", markersize=4, label=name)
    axes.set_yscale("log")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    caption = "How much the signature of (t, x) changes when points are left out, depth 4"
    return "theory_dropping", caption, figure


PART = Part(
    name="invariance",
    cases={
        "tiny": [{"n_paths": 20, "length": 100}],
        "quick": [{"n_paths": 200, "length": 200}],
        "full": [{"n_paths": 1000, "length": 200}],
    },
    run=_run,
    show=_show,
)
