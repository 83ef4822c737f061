"""What encoders take from training series: static covariates, ranges of values; and their checks.

torch is imported where it is used: processes that make plain tokens for a store start without it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from roughformer.errors import InputError
from roughformer.series import SeriesBatch, keep_mask

if TYPE_CHECKING:
    from torch import Tensor


def check_series(batch: SeriesBatch, channels: tuple[str, ...], static: tuple[str, ...]) -> None:
    """``InputError`` if the series are not of the kind that a model was fitted to."""
    if batch.channels != channels:
        raise InputError(
            f"the model was fitted to the channels {list(channels)}, these series have "
            f"{list(batch.channels)}"
        )
    missing = [name for name in static if name not in batch.static_names]
    if missing:
        raise InputError(
            f"the model takes the static covariates {list(static)}; {missing} are not in these "
            f"series, which have {list(batch.static_names)}"
        )


def thinned(batch: SeriesBatch, drop: float, seed: int, series: Any = None) -> SeriesBatch:
    """``drop`` of the points of each series left out; ``series (B,)`` are the numbers that draws
    are for, by default 0 ... B-1.
    """
    if not drop:
        return batch
    return batch.drop_points(mask=keep_mask(batch.lengths, drop, seed, series))


# Static covariates as numbers for a model: clipped, categories spread out, unknown marked.


_MOST_LEVELS = 12


class _Covariates(Protocol):
    """What has static covariates ``(B, S)`` and their names: a batch, or rows of a store."""

    @property
    def static(self) -> npt.NDArray[np.float64] | None: ...

    @property
    def static_names(self) -> tuple[str, ...]: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class StaticColumn:
    """A number (cut to ``low`` ... ``high``), or a category with ``levels``.

    Whole numbers with 3 to 12 different values in training are a category.
    """

    name: str
    levels: tuple[float, ...] = ()
    low: float = 0.0
    high: float = 0.0
    unknown: bool = False

    @property
    def names(self) -> list[str]:
        """Names of the numbers that it becomes."""
        if self.levels:
            return [f"{self.name}={level:g}" for level in self.levels]
        return [self.name, *([f"{self.name} unknown"] if self.unknown else [])]


class StaticEncoder(BaseModel):
    """The static covariates of a model, in order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: tuple[StaticColumn, ...] = ()

    @classmethod
    def fit(cls, batch: SeriesBatch, names: tuple[str, ...]) -> Self:
        """Ranges (1 % to 99 %) and levels of the training part."""
        return cls(columns=tuple(_column(name, _values(batch, name)) for name in names))

    @property
    def names(self) -> list[str]:
        """Names of the numbers that a model gets."""
        return [name for column in self.columns for name in column.names]

    def encode(self, batch: _Covariates) -> npt.NDArray[np.float32]:
        """``(B, S)``; NaN = not known, for numbers; no level, for categories."""
        given = [_values(batch, column.name) for column in self.columns]
        x = np.stack(given, axis=1) if given else np.zeros((len(batch), 0))
        import torch

        encoded: npt.NDArray[np.float32] = encoded_static(self.columns, torch.from_numpy(x)).numpy()
        return encoded


def _values(batch: _Covariates, name: str) -> npt.NDArray[np.float64]:
    assert batch.static is not None
    return batch.static[:, batch.static_names.index(name)]


def _column(name: str, x: npt.NDArray[np.float64]) -> StaticColumn:
    known = x[~np.isnan(x)]
    distinct = np.unique(known)
    if 3 <= len(distinct) <= _MOST_LEVELS and (distinct == np.round(distinct)).all():
        return StaticColumn(name=name, levels=tuple(distinct.tolist()))
    low, high = np.quantile(known, [0.01, 0.99]) if len(known) else (0.0, 0.0)
    return StaticColumn(
        name=name, low=float(low), high=float(high), unknown=bool(np.isnan(x).any())
    )


def encoded_static(columns: tuple[StaticColumn, ...], static: "Tensor") -> "Tensor":
    """``StaticEncoder.encode`` for columns in its order ``(B, S)``."""
    import torch

    parts = [static[:, :0]]
    for i, column in enumerate(columns):
        x = static[:, i : i + 1]
        if column.levels:
            levels = torch.tensor(column.levels, dtype=torch.float64, device=x.device)
            parts.append((x == levels).double())
        else:
            low, high = (
                torch.tensor(bound, dtype=torch.float64, device=x.device)
                for bound in (column.low, column.high)
            )
            # Comparisons with NaN differ between runtimes: what is not known is put back after.
            cut = torch.minimum(torch.maximum(x, low), high)
            parts.append(torch.where(x.isnan(), torch.nan, cut))
            if column.unknown:
                parts.append(x.isnan().double())
    return torch.cat(parts, dim=-1).float()


# Words of observations (``observations``), and the range of values.


WORDS: dict[str, tuple[str, ...]] = {
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


# How far the values of each channel usually go, by view: smaller words are rounding (``padded``).
Ranges = dict[Literal["global", "local"], tuple[float, ...]]
USUAL = 0.9  # quantile: the range of a few outliers is not usual
