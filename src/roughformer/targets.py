"""Targets as a model sees them, and the way back to those of the world; plain data."""

from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from roughformer.errors import InputError

__all__ = ["ClassTargets", "NumberTargets", "check_numbers"]

Array = npt.NDArray[Any]


class ClassTargets(BaseModel):
    """Class labels <-> class numbers 0 ... K-1, in sorted order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["classes"] = "classes"
    classes: tuple[bool | int | float | str, ...] = Field(min_length=1)
    dtype: str = Field(description="numpy's name for the type of the labels.")

    @classmethod
    def fit(cls, y: Array) -> Self:
        """The classes that are in ``y (B,)``."""
        try:
            found = np.unique(y)
        except TypeError:
            raise InputError(
                "labels must be of one kind, all text or all numbers, and none may be None"
            ) from None
        return cls(classes=tuple(found.tolist()), dtype=found.dtype.str)

    @property
    def labels(self) -> Array:
        """``(K,)``, as they were given."""
        return np.array(self.classes, dtype=object if self.dtype == "|O" else self.dtype)

    def numbers(self, y: Array) -> Tensor:
        """Class numbers ``(B,)``; ``InputError`` for a label that was not there in training."""
        known = self.labels
        at = np.searchsorted(known, y).clip(max=len(known) - 1)
        wrong = np.argwhere(np.broadcast_to(known[at] != y, y.shape))
        if len(wrong):
            label = y[tuple(wrong[0])]
            raise InputError(
                f"the label {label!r} of series {wrong[0][0]} is none of the model's classes "
                f"{list(self.classes)[:10]}{' ...' if len(known) > 10 else ''}"
            )
        return torch.from_numpy(np.ascontiguousarray(at, dtype=np.int64))


class NumberTargets(BaseModel):
    """Numbers ``(B, m)`` <-> standardised numbers, of their logarithms if ``log``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["numbers"] = "numbers"
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    log: bool = Field(False, description="Rates: the model works on their logarithm.")
    flat: bool = Field(True, description="Targets were given as (B,), not (B, m).")

    @classmethod
    def fit(cls, y: Array, *, log: bool = False, flat: bool = True) -> Self:
        """Statistics of ``y (B, m)``; NaN = not known."""
        if log and not (y[~np.isnan(y)] > 0).all():
            raise InputError("rate-like targets must be positive: they are scaled with time")
        used = np.log(y) if log else y
        known = ~np.isnan(used)
        if not known.any(axis=0).all():
            raise InputError("every target needs at least one series where it is known")
        mean = np.nanmean(used, axis=0)
        deviation = np.nanstd(used, axis=0)
        still = deviation <= 1e-12 * np.maximum(np.abs(mean), 1)
        return cls(
            mean=tuple(mean.tolist()),
            scale=tuple(np.where(still, 1.0, deviation).tolist()),
            log=log,
            flat=flat,
        )

    def to_model(self, y: Tensor) -> Tensor:
        """``(..., m)`` of the world -> what the loss takes, float32."""
        wide = y.double()
        wide = wide.log() if self.log else wide
        return ((wide - wide.new_tensor(self.mean)) / wide.new_tensor(self.scale)).float()

    def to_world(self, z: Tensor) -> Tensor:
        """The way back, for points and quantiles; float64."""
        wide = z.double() * z.new_tensor(self.scale, dtype=torch.float64)
        wide = wide + wide.new_tensor(self.mean)
        return wide.exp() if self.log else wide

    def deviation_to_world(self, deviation: Tensor, point: Tensor) -> Tensor:
        """Standard deviations; of a logarithm to first order, y · σ."""
        wide = deviation.double() * deviation.new_tensor(self.scale, dtype=torch.float64)
        return wide * point if self.log else wide


def check_numbers(y: Any, n: int) -> tuple[Array, bool]:
    """Targets as float64 ``(n, ...)``, at least two axes, and whether they came as ``(n,)``."""
    try:
        array = np.array(y, dtype=np.float64)  # a copy: labels of a batch are read-only
    except (TypeError, ValueError):
        raise InputError("the targets of a regression must be numbers") from None
    if array.ndim == 0 or len(array) != n:
        raise InputError(f"there are {n} series but targets of shape {array.shape}")
    if np.isinf(array).any():
        raise InputError("targets must be finite numbers, or NaN where they are not known")
    flat = array.ndim == 1
    return (array[:, None] if flat else array), flat
