"""Static covariates as numbers for a model: clipped, categories spread out, unknown marked."""

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from roughformer.series import SeriesBatch

__all__ = ["StaticColumn", "StaticEncoder"]

_MOST_LEVELS = 12


class Covariates(Protocol):
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

    def encode(self, batch: Covariates) -> npt.NDArray[np.float32]:
        """``(B, S)``; NaN = not known, for numbers; no level, for categories."""
        parts: list[npt.NDArray[np.float64]] = []
        for column in self.columns:
            x = _values(batch, column.name)
            if column.levels:
                parts.append((x[:, None] == np.array(column.levels)).astype(np.float64))
            else:
                parts.append(x.clip(column.low, column.high)[:, None])
                if column.unknown:
                    parts.append(np.isnan(x)[:, None].astype(np.float64))
        joined = np.concatenate(parts, axis=1) if parts else np.zeros((len(batch), 0))
        return joined.astype(np.float32)


def _values(batch: Covariates, name: str) -> npt.NDArray[np.float64]:
    assert batch.static is not None
    return batch.static[:, batch.static_names.index(name)]


def _column(name: str, x: npt.NDArray[np.float64]) -> StaticColumn:
    known = x[~np.isnan(x)]
    found = np.unique(known)
    if 3 <= len(found) <= _MOST_LEVELS and (found == np.round(found)).all():
        return StaticColumn(name=name, levels=tuple(found.tolist()))
    low, high = np.quantile(known, [0.01, 0.99]) if len(known) else (0.0, 0.0)
    return StaticColumn(
        name=name, low=float(low), high=float(high), unknown=bool(np.isnan(x).any())
    )
