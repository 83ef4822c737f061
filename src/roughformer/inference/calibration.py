"""Calibration on held-out series: temperatures, factors on deviations, conformal prediction.

A model's quantiles at a few levels are a distribution: linear between them on the scale of normal
scores, and beyond them. On held-out series the level u of each true value in its predicted
distribution is known. If the quantiles were right, u would be uniform; as they are not, a level p
is answered by the p-th quantile of the held-out u, with the finite-sample correction of split
conformal prediction. Values of one series err alike, so the correction counts as many values as
there would be if they were independent. Levels are kept for several ranges of the horizon.

Intervals and sets of whole series are calibrated likewise: the level is that of a score between 0
and 1 (how far off a prediction is), and the ranges are of the number of values observed, because
held-out series are predicted thinned as well. Models that predict their training series out of fold
are calibrated by these, as the series are.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri
from torch import Tensor
from torch.nn import functional as F

from roughformer.errors import InputError
from roughformer.series import SeriesBatch, UnobservedWarning
from roughformer.tokens import thinned


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
    will be predicted wrong, and T would go to 0. The loss is convex in 1/T; log T is searched in
    [-4, 4]. 1 without data.
    """
    from scipy.optimize import minimize_scalar

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

    return math.exp(minimize_scalar(loss, bounds=(-4.0, 4.0), options={"xatol": 1e-9}).x)


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

NOT_CALIBRATED = (
    "{} need calibrate(X, y) with held-out series first, or an ensemble that was fitted to at "
    "least 20 series"
)
_GRID = 400  # steps of the table of levels
_LEAST = 1e-4  # smallest level that is answered
_ENOUGH = 200  # held-out values that a range of horizons needs
_RANGES = 8  # of horizons, at most
_SPARSER = 0.75  # of the values of any series that a model was calibrated on
_THINNED = (0.0, 0.5, 0.7, 0.8, 0.9)  # shares of points that held-out series are predicted without


def level_of(value: Array, quantiles: Array, levels: Array) -> Array:
    """Level of ``value (Q,)`` in the distributions with ``quantiles (Q, k)`` at ``levels (k,)``."""
    score = ndtri(levels)
    segment = np.clip((value[:, None] > quantiles[:, 1:-1]).sum(axis=1), 0, len(levels) - 2)
    row = np.arange(len(value))
    left, right = quantiles[row, segment], quantiles[row, segment + 1]
    share = (value - left) / np.maximum(right - left, 1e-12)
    return np.asarray(ndtr(score[segment] + share * (score[segment + 1] - score[segment])))


def value_at(level: Array, quantiles: Array, levels: Array) -> Array:
    """Value at ``level (Q,)`` of the distributions with ``quantiles (Q, k)`` at ``levels (k,)``."""
    score, wanted = ndtri(levels), ndtri(np.clip(level, _LEAST, 1 - _LEAST))
    segment = np.clip(np.searchsorted(score, wanted) - 1, 0, len(levels) - 2)
    row = np.arange(len(level))
    left, right = quantiles[row, segment], quantiles[row, segment + 1]
    share = (wanted - score[segment]) / (score[segment + 1] - score[segment])
    return np.asarray(left + share * (right - left))


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
    n_groups : int
        Number of independent groups (series) that they are of.
    """

    edges: Array
    table: Array
    n_held: int
    n_groups: int

    @classmethod
    def fit(
        cls,
        level: Array,
        horizon: Array,
        group: npt.NDArray[Any] | None = None,
        n_ranges: int | None = None,
    ) -> "LevelCalibration":
        """Learn from the levels of held-out values and their horizons, each ``(Q,)``.

        ``group (Q,)``: values of different groups (series) are independent; not given: all are.
        ``n_ranges``: of horizons; by default as many as there are enough values for.
        """
        meant = np.linspace(0, 1, _GRID + 1)
        if n_ranges is None:
            n_ranges = int(np.clip(len(level) // _ENOUGH, 1, _RANGES))
        if len(level) < 20:
            return cls(np.zeros(0), meant[None], 0, 0)
        shares = np.linspace(0, 1, n_ranges + 1)[1:-1]
        edges = np.unique(np.quantile(horizon, shares, method="lower"))
        edges = edges[np.isfinite(edges)]  # a channel that was never seen is infinitely far
        of_range = np.searchsorted(edges, horizon, side="left")
        group = np.arange(len(level)) if group is None else group
        rows = []
        for r in range(len(edges) + 1):
            here = of_range == r
            # Equal horizons may leave a range empty; it is answered as all together.
            here = here if here.sum() >= 20 else np.ones_like(here)
            rows.append(
                _conformal(np.sort(level[here]), meant, _effective(level[here], group[here]))
            )
        return cls(edges, np.stack(rows), len(level), len(np.unique(group)))

    def level(self, meant: float, horizon: Array) -> Array:
        """Levels to ask for ``(Q,)`` at the horizons ``(Q,)``, for the level that is meant."""
        of_range = np.searchsorted(self.edges, horizon, side="left")
        grid = np.linspace(0, 1, _GRID + 1)
        of_each = np.array([np.interp(meant, grid, row) for row in self.table])
        return np.asarray(of_each[of_range])

    def bound(self, coverage: float, observed: Array) -> Array:
        """Bounds ``(Q,)`` that new scores stay below with the probability ``coverage`` or more, in
        series with so many values ``observed (Q,)``; of a calibration by ``calibrate_scores``.
        """
        if not 0 < coverage < 1:
            raise InputError(f"coverage must lie between 0 and 1, got {coverage!r}")
        n = self.n_groups
        if np.ceil((n + 1) * coverage - 1e-9) > n:
            least = least_for(coverage)
            raise InputError(
                f"a coverage of {coverage:g} needs at least {least} held-out series, and the model "
                f"was calibrated on {n}; calibrate it on more, or ask for less"
            )
        return self.level(coverage, observed)

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
            "n_groups": self.n_groups,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "LevelCalibration":
        """From what ``to_plain`` gave."""
        table = np.array(plain["table"], dtype=np.float64).reshape(-1, _GRID + 1)
        return cls(
            np.array(plain["edges"], dtype=np.float64),
            table,
            int(plain["n_held"]),
            int(plain["n_groups"]),
        )


def least_for(coverage: float) -> int:
    """Number of held-out values, at least, that a coverage can be promised by."""
    return int(np.ceil(coverage / (1 - coverage) - 1e-9))


def n_observed(batch: SeriesBatch) -> Array:
    """Number of values ``(B,)`` that each series holds, over its channels."""
    seen = np.cumsum((~np.isnan(batch.values)).sum(axis=1))
    return np.diff(np.append(0, seen)[batch.offsets]).astype(np.float64)


def calibrate_scores(
    batch: SeriesBatch, scores_of: Callable[[SeriesBatch], Array]
) -> list[LevelCalibration]:
    """Calibrate scores in [0, 1] on held-out series, whole and thinned, by the number of values
    that are observed.

    ``scores_of(batch)``: ``(B, m)``, 0 where a prediction is right, NaN where that is not known;
    one calibration for each of the m columns.
    """
    batches = [thinned(batch, drop, seed=k) for k, drop in enumerate(_THINNED)]
    scores = [scores_of(batches[0])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnobservedWarning)  # told of the whole series
        scores += [scores_of(some) for some in batches[1:]]
    observed = np.concatenate([n_observed(some) for some in batches])
    # A range for each rate, so that each has as many scores as there are series.
    n_ranges = len(_THINNED) if len(batch) >= 20 else 1
    series = np.tile(np.arange(len(batch)), len(_THINNED))
    return [
        LevelCalibration.fit(column[known], observed[known], series[known], n_ranges)
        for column in np.concatenate(scores).T
        for known in [~np.isnan(column)]
    ]


def calibrate_out_of_fold(
    batch: SeriesBatch, scores: Array, groups: npt.NDArray[Any] | None = None
) -> list[LevelCalibration]:
    """Calibrate scores ``(B, m)`` of training series, each predicted by models that have not seen
    it or its group; NaN where it was not predicted.

    Nothing is known of series with far fewer values than these: their bound is 1.
    """
    observed = n_observed(batch)
    group = np.arange(len(batch)) if groups is None else np.asarray(groups)
    calibrations = []
    for column in scores.T:
        known = ~np.isnan(column)
        fitted = LevelCalibration.fit(column[known], observed[known], group[known], 1)
        edge = np.floor(_SPARSER * observed[known].min(initial=np.inf))
        table = np.stack([np.ones(_GRID + 1), fitted.table[0]])
        calibrations.append(replace(fitted, edges=np.array([edge]), table=table))
    return calibrations


def _conformal(levels: Array, meant: Array, n_effective: float) -> Array:
    """Quantiles of sorted held-out levels, rounded outwards by the rule (n + 1) p.

    With fewer effective values the same rule moves the ends of intervals further outwards.
    """
    n = len(levels)
    rank = meant * (n + 1) - 1  # of the order statistics, from 0
    rank = rank + (2 * meant - 1) * (n / n_effective - 1)
    inner = np.where(meant < 0.5, np.floor(rank + 1e-9), np.ceil(rank - 1e-9))
    level = levels[np.clip(inner, 0, n - 1).astype(int)]
    level = np.where(inner < 0, 0.0, np.where(inner > n - 1, 1.0, level))
    return np.asarray(level, dtype=np.float64)


def _effective(level: Array, group: npt.NDArray[Any]) -> float:
    """Number of independent values that would tell the tails of ``level`` as well.

    By the variance, between groups, of the number of values in the lowest and in the highest
    twentieth: the design effect of surveys.
    """
    n = len(level)
    _, owner = np.unique(group, return_inverse=True)
    n_groups = int(owner.max()) + 1
    if n_groups in (1, n):  # one series does not tell how much others differ: it counts as one
        return float(n_groups)
    effective = float(n)
    low, high = np.quantile(level, [0.05, 0.95])
    for outside in (level < low, level > high):
        share = outside.mean()
        excess = np.bincount(owner, outside - share)
        variance = (excess**2).sum() / n**2 * n_groups / (n_groups - 1)
        if variance > 0:
            effective = min(effective, share * (1 - share) / variance)
    return max(effective, min(float(n_groups), n))
