"""The models that are measured on the archive, each with the options a first user would leave."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from _archive_data import ArchiveSet, resample
from _archive_ridge import GramRidge, GramRidgeClassifier
from scipy.stats import skew

import roughformer as rf

__all__ = ["MODELS", "SUMMARIES", "Model", "inputs_for", "summaries", "warm_up"]

ROOT = Path(__file__).parents[1]
# The last commit whose RFormer() with no option set is the first version's default.
FIRST_VERSION = "ff14595"
_MANY_SERIES = 2000  # 55,000 features of more would take more than 4 GB in scikit-learn's ridge
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
SUMMARIES = (
    "mean", "deviation", "minimum", "maximum", "first", "last", *(f"q{q}" for q in _QUANTILES),
    "skewness", "count", "duration", "mean absolute increment", "deviation of increments",
    "largest increment", "slope", "trend", "crossings of the mean", "time of minimum",
    "time of maximum", "autocorrelation",
)  # fmt: skip


@dataclass(frozen=True)
class Model:
    """How a model is made for a set and a seed, and what it is given.

    ``sees``: "grid" (resampled series ``(B, C, n)``), "summaries" ``(B, 23 C)``, "series" as they
    are, or "nothing".
    ``random``: whether a seed changes anything but the points that are dropped.
    """

    make: Callable[[ArchiveSet, int], Any]
    sees: Literal["grid", "summaries", "series", "nothing"]
    random: bool = True
    probabilities: bool = True


def summaries(batch: rf.SeriesBatch) -> npt.NDArray[np.float64]:
    """``(B, 23 C)``: the ``SUMMARIES`` of each channel's own observations, NaN without any."""
    found = np.full((len(batch), batch.n_channels, len(SUMMARIES)), np.nan)
    for b in range(len(batch)):
        times, values = batch.series(b)
        observed = ~np.isnan(values)
        for c in range(batch.n_channels):
            seen = observed[:, c]
            if seen.any():
                found[b, c] = _summary(times[seen], values[seen, c].astype(np.float64))
            found[b, c, SUMMARIES.index("count")] = seen.sum()
    return found.reshape(len(batch), -1)


def _summary(t: npt.NDArray[np.float64], x: npt.NDArray[np.float64]) -> list[float]:
    duration = t[-1] - t[0]
    away, steps = x - x.mean(), np.diff(x, prepend=x[0])[1:]
    # Less would be rounding, of a channel that does not change.
    varies = len(x) > 1 and np.ptp(x) > 1e-7 * np.abs(x).max()
    variance = away @ away / len(x) if varies else 0.0
    clock = t - t.mean()
    slope = (clock @ away) / (clock @ clock) if varies else 0.0
    moved = np.abs(steps) if len(steps) else np.zeros(1)
    return [
        x.mean(), np.sqrt(variance), x.min(), x.max(), x[0], x[-1], *np.quantile(x, _QUANTILES),
        float(skew(x)) if varies else 0.0, len(x), duration, moved.mean(),
        steps.std() if len(steps) else 0.0, moved.max(), slope, slope * duration,
        float(np.mean(away[1:] * away[:-1] < 0)) if len(x) > 1 else 0.0,
        t[x.argmin()] - t[0], t[x.argmax()] - t[0],
        float(away[1:] @ away[:-1]) / (variance * len(x)) if varies else 0.0,
    ]  # fmt: skip


def inputs_for(model: Model, data: ArchiveSet, batch: rf.SeriesBatch) -> Any:
    """What the model is given of a part of a set."""
    if model.sees == "grid":
        return resample(batch, data.grid)
    if model.sees == "summaries":
        return summaries(batch)
    return batch if model.sees == "series" else np.zeros((len(batch), 1))


def warm_up(model: Model, data: ArchiveSet) -> None:
    """Let numba compile for this many channels: that is not the time of a fit."""
    if model.sees == "grid":
        rng = np.random.default_rng(0)
        x = rng.normal(size=(8, min(data.train.n_channels, 2), 32)).astype(np.float32)
        y = np.arange(8) % 2 if data.task == "classification" else rng.normal(size=8)
        model.make(data, 0).fit(x, y).predict(x)


def _minirocket(data: ArchiveSet, seed: int) -> Any:
    if data.task == "classification":
        from aeon.classification.convolution_based import MiniRocketClassifier as Estimator
    else:
        from aeon.regression.convolution_based import MiniRocketRegressor as Estimator
    return Estimator(random_state=seed, n_jobs=1)


def _multirocket_hydra(data: ArchiveSet, seed: int) -> Any:
    if data.task == "classification":
        from aeon.classification.convolution_based import MultiRocketHydraClassifier as Estimator
    else:
        from aeon.regression.convolution_based import MultiRocketHydraRegressor as Estimator
    if len(data.train) > _MANY_SERIES:
        home = sys.modules[Estimator.__module__]
        home.RidgeCV, home.RidgeClassifierCV = GramRidge, GramRidgeClassifier
    return Estimator(random_state=seed, n_jobs=1)


def _quant(data: ArchiveSet, seed: int) -> Any:
    _let_quant_see_large_sets()
    if data.task == "classification":
        from aeon.classification.interval_based import QUANTClassifier as Estimator
    else:
        from aeon.regression.interval_based import QUANTRegressor as Estimator
    return Estimator(random_state=seed)


def _let_quant_see_large_sets() -> None:
    """Transform a few series at a time: torch's quantile refuses more than 2**24 values.

    Each series is transformed by itself, so nothing else changes.
    """
    from aeon.transformations.collection.interval_based import QUANTTransformer

    whole = QUANTTransformer._transform
    if hasattr(whole, "in_parts"):
        return

    def in_parts(self: Any, X: Any, y: Any = None) -> Any:
        size = max(1, 2**23 // int(np.prod(X.shape[1:])))
        return np.concatenate([whole(self, X[i : i + size]) for i in range(0, len(X), size)])

    in_parts.in_parts = True
    QUANTTransformer._transform = in_parts


def _boosting(data: ArchiveSet, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if data.task == "classification":
        return HistGradientBoostingClassifier(random_state=seed)
    return HistGradientBoostingRegressor(random_state=seed)


def _majority(data: ArchiveSet, seed: int) -> Any:
    from sklearn.dummy import DummyClassifier, DummyRegressor

    return DummyClassifier() if data.task == "classification" else DummyRegressor()


def _rformer(data: ArchiveSet, seed: int) -> Any:
    kind = rf.RFormerClassifier if data.task == "classification" else rf.RFormerRegressor
    return kind(random_state=seed)


def _rformer_paper(data: ArchiveSet, seed: int) -> Any:
    kind = rf.RFormerClassifier if data.task == "classification" else rf.RFormerRegressor
    return kind.from_preset("paper", random_state=seed)


def _rformer_first_version(data: ArchiveSet, seed: int) -> Any:
    """The default of the first version: can only be measured with the sources of that commit."""
    command = ["git", "diff", "--quiet", FIRST_VERSION, "--", "src/roughformer"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise RuntimeError(
            f"rformer-v1 is the default as it was at commit {FIRST_VERSION}; check that commit's "
            "src out to measure it"
        )
    return _rformer(data, seed)


MODELS: dict[str, Model] = {
    # Ridge has no probabilities: aeon's predict_proba of these two is 0 or 1.
    "minirocket": Model(_minirocket, "grid", probabilities=False),
    "multirocket-hydra": Model(_multirocket_hydra, "grid", probabilities=False),
    "quant": Model(_quant, "grid"),
    # Random only where scikit-learn stops early: above 10,000 training series.
    "boosting": Model(_boosting, "summaries", random=False),
    "majority": Model(_majority, "nothing", random=False),
    "rformer": Model(_rformer, "series"),
    "rformer-paper": Model(_rformer_paper, "series"),
    "rformer-v1": Model(_rformer_first_version, "series"),
}
