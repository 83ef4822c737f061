"""Aliasing: is it why dropping half of the points costs accuracy on the sine task?

The paper says so in a footnote. The Lomb-Scargle periodogram, which learns nothing, looks for
the frequency of each series in the band of the task, on a fine grid. Points kept at random are
compared with as many on a regular grid, where ω and its mirrors 2πm/Δ ± ω look the same.
"""

from typing import Any

import numpy as np

from roughformer import spectrum_words
from roughformer.series import SeriesBatch
from roughformer_paper.datasets import make_sine
from roughformer_paper.naive import lomb_scargle
from roughformer_paper.reproduce.experiment import Job, Page, Row, Table
from roughformer_paper.reproduce.theory_common import Array, Part, mean_over_seeds, verdict

__all__ = ["PART", "folded"]

_LOW, _HIGH, _CLASSES, _LENGTH, _SPAN = 10.0, 500.0, 100, 2000, 6.0  # the paper's task
_APART = (_HIGH - _LOW) / (_CLASSES - 1)
_KEPT = (1, 2, 4, 8, 16)  # one point of so many stays


def _clock_power(batch: SeriesBatch, omega: Array) -> Array:
    """The same from clock words of the interpolated path, |∫ exp(iωt) dx|² / ω²."""
    words = spectrum_words(batch, omega, dtype=np.float64)[:, 0]  # (B, J, 2)
    found: Array = (words**2).sum(axis=2) / omega**2
    return found


def folded(omega: Array, sampling: float) -> Array:
    """What ω looks like on a regular grid of sampling frequency ``sampling``: in [0, half of it].

    Frequencies with the same value are mirrors of each other.
    """
    return np.asarray(np.abs((omega + sampling / 2) % sampling - sampling / 2))


def _run(job: Job) -> Row:
    n, every = job["n_series"], job["every"]
    batch = make_sine(n, _CLASSES, _LENGTH, _SPAN, _LOW, _HIGH, seed=20_000 + job["seed"])
    assert batch.static is not None
    truth = batch.static[:, 0]
    omega = np.arange(_LOW, _HIGH + job["step"] / 2, job["step"])
    t = np.linspace(0.0, _SPAN, _LENGTH)[::every]
    regular = SeriesBatch.from_tensor(batch.values.reshape(n, _LENGTH, 1)[:, ::every].copy(), t=t)
    share = 1.0 - 1.0 / every
    irregular = batch.drop_points(share, job["seed"]) if every > 1 else batch
    peak = {
        "random": omega[lomb_scargle(irregular, omega).argmax(axis=1)],
        "random, interpolated": omega[_clock_power(irregular, omega).argmax(axis=1)],
        "regular": omega[lomb_scargle(regular, omega).argmax(axis=1)],
    }
    # Found: nearer to the own class than to any other.
    right = {name: np.abs(found - truth) < _APART / 2 for name, found in peak.items()}
    sampling = 2 * np.pi / (t[1] - t[0])
    apart = np.abs(folded(peak["regular"], sampling) - folded(truth, sampling))
    return {
        "nyquist": float(sampling / 2),
        "above": float((truth > sampling / 2).mean()),
        **{name: float(which.mean()) for name, which in right.items()},
        "mirror": float((~right["regular"] & (apart < _APART / 2)).mean()),
    }


def _show(rows: list[Row], figures: bool) -> Page:
    shares = sorted({row["job"]["every"] for row in rows})
    keys = ("nyquist", "above", "random", "random, interpolated", "regular", "mirror")
    cells: list[list[Any]] = []
    for every in shares:
        own = [row for row in rows if row["job"]["every"] == every]
        mean = [float(mean_over_seeds(own, key)) for key in keys]
        cells.append([f"{100 * (1 - 1 / every):.4g} %", *mean])
    by = dict(zip(shares, cells, strict=True))
    half = by.get(2, cells[0])
    holds = half[3] < 0.99
    note = verdict(
        "the accuracy lost when half of the points go is likely due to aliasing.",
        holds,
        f"with {half[0]} dropped even a regular grid resolves {half[1]:.0f} rad, more than the "
        f"task's {_HIGH:.0f}, and points kept at random have no mirror frequencies: the "
        f"periodogram finds {half[3]:.1%}.",
    )
    further = [line for every, line in by.items() if every > 2]
    if further:
        note += (
            " At " + ", ".join(line[0] for line in further) + " it finds "
            + ", ".join(f"{line[3]:.1%}" for line in further) + "; on a regular grid of as many "
            "points " + ", ".join(f"{line[5]:.1%}" for line in further) + ", and "
            + ", ".join(f"{line[6]:.1%}" for line in further) + " at a mirror. What suffers from "
            "sparse points is their linear interpolation, which damps all that is faster than the "
            "points: the samples tell the frequency when the spectrum of the path no longer does, "
            f"but at {half[0]} that does too ({half[4]:.1%}). The data "
            "of our version of the task hold the answer; a loss there is the model's."
        )  # fmt: skip
    columns = [
        "dropped", "Nyquist frequency of the mean rate", "series above it", "random: found",
        "random, interpolated path: found", "regular: found", "regular: at a mirror",
    ]  # fmt: skip
    title = f"Aliasing: which of {_LOW:.0f} … {_HIGH:.0f} rad has a noisy sine? No learning."
    return Page(tables=[Table(title, columns, cells, note)])


PART = Part(
    name="aliasing",
    cases={
        "tiny": [{"n_series": 100, "step": 0.5, "every": every} for every in (1, 2, 4)],
        "quick": [{"n_series": 200, "step": 0.25, "every": every} for every in _KEPT],
        "full": [{"n_series": 1000, "step": 0.25, "every": every} for every in _KEPT],
    },
    run=_run,
    show=_show,
)
