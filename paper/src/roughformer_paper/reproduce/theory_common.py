"""What the parts of ``theory`` share: random paths, ridge regression, deviations of signatures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from roughformer.signatures.algebra import levels
from roughformer_paper.reproduce.experiment import Job, Page, Preset, Row

__all__ = ["Array", "Part", "deviation", "mean_over_seeds", "random_paths", "ridge", "verdict"]

Array = npt.NDArray[np.float64]
_PENALTIES = 10.0 ** np.arange(-16.0, 1.0)  # of ridge regression, over the largest eigenvalue


@dataclass(frozen=True)
class Part:
    """One claim: its jobs by preset (without name and seed), how one is run, what is shown."""

    name: str
    cases: Mapping[Preset, Sequence[Job]]
    run: Callable[[Job], Row]
    show: Callable[[list[Row], bool], Page]


def random_paths(n: int, length: int, channels: int, modes: int, rng: np.random.Generator) -> Array:
    """Random paths ``(n, length, channels)`` on an even grid over [0, 1]:

        x(t) = x_0 + Σ_{k <= modes} a_k √2 sin((k - ½)πt) / ((k - ½)π),

    a_k uniform with variance 1, x_0 uniform with variance ¼. Few modes: smooth; very many:
    Brownian motion. The coefficients are bounded, so these paths form a compact set.
    """
    rate = (np.arange(1, modes + 1) - 0.5) * np.pi
    t = np.linspace(0.0, 1.0, length)
    basis = np.sqrt(2.0) * np.sin(t[:, None] * rate) / rate  # (length, modes)
    bound = np.sqrt(3.0)
    start = rng.uniform(-bound / 2, bound / 2, (n, 1, channels))
    found: Array = start + basis @ rng.uniform(-bound, bound, (n, modes, channels))
    return found


def ridge(x: Array, y: Array, x_held: Array, y_held: Array) -> Callable[[Array], Array]:
    """Linear regression of ``y (n, m)`` on ``x (n, p)``; the penalty of each target is the best
    on the held-out part. Returns the function ``(k, p) -> (k, m)`` that predicts.

    Columns are standardised; constant ones are left out.
    """
    middle, scale = x.mean(axis=0), x.std(axis=0)
    varies = scale > 1e-12 * np.abs(x).max(axis=0, initial=0.0)
    middle, scale = middle[varies], scale[varies]

    def standard(some: Array) -> Array:
        return np.asarray((some[:, varies] - middle) / scale)

    z, level = standard(x), y.mean(axis=0)
    turn = None
    if z.shape[1] > z.shape[0]:  # only the span of the rows matters: n coordinates, not p
        turn = np.linalg.qr(z.T)[0]  # (p, n)
        z = z @ turn
    u, s, v = np.linalg.svd(z, full_matrices=False)
    seen = u.T @ (y - level)  # (r, m)
    largest = float(s.max(initial=0.0)) ** 2 or 1.0
    shrunk = [(s / (s**2 + share * largest))[:, None] * seen for share in _PENALTIES]
    back = v.T if turn is None else turn @ v.T  # (p, r)
    held = standard(x_held) @ back
    errors = np.stack([((held @ w + level - y_held) ** 2).mean(axis=0) for w in shrunk])
    best = errors.argmin(axis=0)
    weights = back @ np.stack([shrunk[b][:, i] for i, b in enumerate(best)], axis=1)
    return lambda some: standard(some) @ weights + level


def deviation(found: Array, expected: Array, d: int, n: int) -> float:
    """The largest over the levels k of ‖found_k - expected_k‖ / ‖expected_k‖, norms over all."""
    worst = 0.0
    for a, b in zip(levels(found, d, n), levels(expected, d, n), strict=True):
        worst = max(worst, float(np.linalg.norm(a - b) / np.linalg.norm(b)))
    return worst


def verdict(claim: str, holds: bool | None, evidence: str) -> str:
    """The note under a table: what is claimed, and whether it was seen (None: in part)."""
    said = {True: "Holds here", False: "Does not hold here", None: "Holds in part"}[holds]
    return f"Claim: {claim} {said}: {evidence}"


def mean_over_seeds(rows: Sequence[Row], key: str) -> Array:
    """Mean of an entry of rows: a number or nested lists of them."""
    return np.asarray(np.mean([row[key] for row in rows], axis=0))
