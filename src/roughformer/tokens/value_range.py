"""What words of observations are made of, as plain data: their names, and the range of values."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from roughformer.series import SeriesBatch
from roughformer.signatures.lifts import View

__all__ = ["WORDS", "ValueRange"]

WORDS: dict[View, tuple[str, ...]] = {
    "global": (
        "log n", "mean", "min", "max", "first", "last", "sd", "slope", "rise", "since",
        "recent log n", "recent mean", "recent min", "recent max", "latest mean",
    ),
    "local": ("log n", "mean", "min", "max"),
}  # fmt: skip


@dataclass(frozen=True)
class ValueRange:
    """x -> (clip(x, low, high) - mean) / scale, for each channel.

    The range is from the 0.1 % to the 99.9 % quantile of the training part: beyond it are mostly
    errors of recording.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]

    @classmethod
    def fit(cls, batch: SeriesBatch) -> Self:
        """Quantiles, mean and standard deviation of each channel; 0 and 1 without observations."""
        rows = [_range_of(batch.values[:, c]) for c in range(batch.n_channels)]
        low, high, mean, scale = zip(*rows, strict=True)
        return cls(low=low, high=high, mean=mean, scale=scale)


def _range_of(column: npt.NDArray[Any]) -> tuple[float, float, float, float]:
    seen = column[~np.isnan(column)].astype(np.float64)
    if len(seen) == 0:
        return 0.0, 0.0, 0.0, 1.0
    low, high = np.quantile(seen, [0.001, 0.999])
    inside = seen.clip(low, high)
    return float(low), float(high), float(inside.mean()), float(inside.std()) or 1.0
