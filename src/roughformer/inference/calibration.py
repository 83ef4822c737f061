"""Calibration on held-out series: temperatures, factors on deviations, conformal prediction.

A model's quantiles at a few levels are a distribution: linear between them on the scale of normal
scores, and beyond them. On held-out series the level u of each true value in its predicted
distribution is known. If the quantiles were right, u would be uniform; as they are not, a level p
is answered by the p-th quantile of the held-out u, with the finite-sample correction of split
conformal prediction. Levels are kept for several ranges of the horizon.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri
from torch import Tensor
from torch.nn import functional as F

from roughformer.errors import InputError

__all__ = [
    "LevelCalibration",
    "conformal_bound",
    "fit_deviation_factor",
    "fit_temperature",
    "level_of",
    "value_at",
]


def fit_temperature(
    logits: Tensor,
    labels: Tensor,
    weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
) -> float:
    """T > 0 that minimises the cross entropy of softmax(logits / T); ``(N, K)``, ``(N,)``,
    ``weight (K,)`` of the classes, ``sample_weight (N,)``.

    As in Platt's scaling the target is not certainty but (N + 1) / (N + K) for the label and
    1 / (N + K) for each other class: N series that are all predicted right do not prove that none
    will be predicted wrong, and T would go to 0. The loss is convex in 1/T; a golden-section search
    over log T in [-4, 4] finds it. 1 without data.
    """
    known = labels >= 0
    logits, labels = logits[known].double(), labels[known]
    each = None if sample_weight is None else sample_weight[known].double()
    if len(labels) == 0 or logits.shape[1] < 2:
        return 1.0

    n, k = logits.shape
    weight = None if weight is None else weight.double()

    def loss(log_t: float) -> float:
        scaled = logits / math.exp(log_t)
        smooth = k / (n + k)
        if each is None:
            return float(F.cross_entropy(scaled, labels, weight, label_smoothing=smooth))
        losses = F.cross_entropy(scaled, labels, weight, label_smoothing=smooth, reduction="none")
        return float((losses * each).sum())

    low, high = -4.0, 4.0
    golden = (math.sqrt(5) - 1) / 2
    a, b = high - golden * (high - low), low + golden * (high - low)
    fa, fb = loss(a), loss(b)
    for _ in range(60):
        if fa < fb:
            high, b, fb = b, a, fa
            a = high - golden * (high - low)
            fa = loss(a)
        else:
            low, a, fa = a, b, fb
            b = low + golden * (high - low)
            fb = loss(b)
    return math.exp((low + high) / 2)


def fit_deviation_factor(
    point: Tensor, deviation: Tensor, target: Tensor, sample_weight: Tensor | None = None
) -> float:
    """The factor on standard deviations under which the validation part is most likely.

    sqrt(mean of ((y - μ) / σ)²), NaN targets left out, weighted by ``sample_weight (N,)``; 1
    without data.
    """
    known = ~target.isnan()
    z = ((target - point) / deviation)[known]
    if len(z) == 0:
        return 1.0
    square = z.double().square()
    if sample_weight is None:
        mean = square.mean()
    else:
        share = sample_weight.double().unsqueeze(-1).expand(target.shape)[known]
        mean = (square * share).sum() / share.sum()
    return float(mean.sqrt().clamp(1e-3, 1e3))


Array = npt.NDArray[np.float64]

_GRID = 400  # steps of the table of levels
_LEAST = 1e-4  # smallest level that is answered
_ENOUGH = 200  # held-out values that a range of horizons needs
_RANGES = 8  # of horizons, at most


def conformal_bound(scores: Array, coverage: float) -> float:
    """The bound that a new score stays below with the probability ``coverage`` or more, if it is
    exchangeable with the held-out ``scores (n,)``: the ⌈(n + 1) coverage⌉-th smallest of them.
    """
    if not 0 < coverage < 1:
        raise InputError(f"coverage must lie between 0 and 1, got {coverage!r}")
    rank = int(np.ceil((len(scores) + 1) * coverage - 1e-9))
    if rank > len(scores):
        least = int(np.ceil(coverage / (1 - coverage) - 1e-9))
        raise InputError(
            f"a coverage of {coverage:g} needs at least {least} held-out series, and the model was "
            f"calibrated on {len(scores)}; calibrate it on more, or ask for less"
        )
    return float(np.sort(scores)[rank - 1])


def level_of(value: Array, quantiles: Array, levels: Array) -> Array:
    """Level of ``value (Q,)`` in the distributions with ``quantiles (Q, k)`` at ``levels (k,)``."""
    score = ndtri(levels)
    segment = np.clip((value[:, None] > quantiles[:, 1:-1]).sum(axis=1), 0, len(levels) - 2)
    row = np.arange(len(value))
    left, right = quantiles[row, segment], quantiles[row, segment + 1]
    share = (value - left) / np.maximum(right - left, 1e-12)
    found: Array = ndtr(score[segment] + share * (score[segment + 1] - score[segment]))
    return found


def value_at(level: Array, quantiles: Array, levels: Array) -> Array:
    """Value at ``level (Q,)`` of the distributions with ``quantiles (Q, k)`` at ``levels (k,)``."""
    score, wanted = ndtri(levels), ndtri(level)
    segment = np.clip(np.searchsorted(score, wanted) - 1, 0, len(levels) - 2)
    row = np.arange(len(level))
    left, right = quantiles[row, segment], quantiles[row, segment + 1]
    share = (wanted - score[segment]) / (score[segment + 1] - score[segment])
    found: Array = left + share * (right - left)
    return found


@dataclass(frozen=True)
class LevelCalibration:
    """Levels to ask a model for, so that the level that was meant holds on new series.

    Parameters
    ----------
    edges : ndarray (n - 1,)
        Horizons at which one range ends and the next begins.
    table : ndarray (n, 401)
        For each range the level to ask for, at evenly spaced levels that are meant.
    n_held : int
        Number of held-out values; 0: nothing is corrected.
    """

    edges: Array
    table: Array
    n_held: int

    @classmethod
    def fit(cls, level: Array, horizon: Array) -> "LevelCalibration":
        """Learn from the levels of held-out values and their horizons, each ``(Q,)``."""
        meant = np.linspace(0, 1, _GRID + 1)
        n_ranges = int(np.clip(len(level) // _ENOUGH, 1, _RANGES))
        if len(level) < 20:
            return cls(np.zeros(0), meant[None], 0)
        shares = np.linspace(0, 1, n_ranges + 1)[1:-1]
        edges = np.unique(np.quantile(horizon, shares, method="lower"))
        edges = edges[np.isfinite(edges)]  # a channel that was never seen is infinitely far
        of_range = np.searchsorted(edges, horizon, side="left")
        kept = [np.sort(level[of_range == r]) for r in range(len(edges) + 1)]
        # Equal horizons may leave a range empty; it is answered as all together.
        kept = [u if len(u) >= 20 else np.sort(level) for u in kept]
        return cls(edges, np.stack([_conformal(u, meant) for u in kept]), len(level))

    def level(self, meant: float, horizon: Array) -> Array:
        """Levels to ask for ``(Q,)`` at the horizons ``(Q,)``, for the level that is meant."""
        of_range = np.searchsorted(self.edges, horizon, side="left")
        grid = np.linspace(0, 1, _GRID + 1)
        of_each = np.array([np.interp(meant, grid, row) for row in self.table])
        return np.clip(of_each[of_range], _LEAST, 1 - _LEAST)

    def weights(self, levels: Array) -> Array:
        """Make calibration a linear map of quantiles, for each range of horizons.

        Parameters
        ----------
        levels : ndarray (k,)
            Levels of the quantiles that a model gives, and that are meant.

        Returns
        -------
        ndarray (n, k, k)
            ``weights[r] @ quantiles`` are the calibrated ones at the horizons of range r.
        """
        n, k = len(self.table), len(levels)
        horizon = np.append(self.edges, np.inf)  # one of each range
        eye = np.eye(k)
        # The value at a level is linear in the quantiles: ask for it at unit vectors.
        wanted = np.stack([self.level(level, horizon) for level in levels], axis=1)  # (n, k)
        rows = [value_at(wanted.ravel(), np.tile(e, (n * k, 1)), levels) for e in eye]
        return np.stack(rows, axis=-1).reshape(n, k, k)

    def to_plain(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return {
            "edges": self.edges.tolist(),
            "table": self.table.tolist(),
            "n_held": self.n_held,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "LevelCalibration":
        """From what ``to_plain`` gave."""
        table = np.array(plain["table"], dtype=np.float64).reshape(-1, _GRID + 1)
        return cls(np.array(plain["edges"], dtype=np.float64), table, int(plain["n_held"]))


def _conformal(levels: Array, meant: Array) -> Array:
    """Quantiles of sorted held-out levels, rounded outwards by the rule (n + 1) p."""
    n = len(levels)
    rank = meant * (n + 1) - 1  # of the order statistics, from 0
    inner = np.where(meant < 0.5, np.floor(rank + 1e-9), np.ceil(rank - 1e-9))
    found = levels[np.clip(inner, 0, n - 1).astype(int)]
    found = np.where(inner < 0, 0.0, np.where(inner > n - 1, 1.0, found))
    return np.asarray(found, dtype=np.float64)
