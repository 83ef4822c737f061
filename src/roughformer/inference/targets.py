"""Targets as a model sees them, and the way back to those of the world; plain data."""

from numbers import Real
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from roughformer.errors import InputError

_LARGEST = 1e37  # of a target: models compute with float32
Array = npt.NDArray[Any]


class ClassTargets(BaseModel):
    """Class labels <-> class numbers 0 ... K-1, in sorted order; -1 = not known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["classes"] = "classes"
    classes: tuple[bool | int | float | str, ...] = Field(min_length=1)
    dtype: str = Field(description="numpy's name for the type of the labels.")

    @classmethod
    def fit(cls, y: Array) -> Self:
        """The classes that are in ``y``, all of them known."""
        _label_kind(y)
        labels = np.unique(y)
        return cls(classes=tuple(labels.tolist()), dtype=labels.dtype.str)

    @property
    def labels(self) -> Array:
        """``(K,)``, as they were given."""
        return np.array(self.classes, dtype=object if self.dtype == "|O" else self.dtype)

    def numbers(self, y: Any) -> Tensor:
        """Class numbers ``(B,)``, or ``(B, L)`` with -1 for windows whose label is not known.

        ``InputError`` for a series without a label, or with one that was not there in training.
        """
        y, known = known_labels(y)
        if y.ndim == 1:
            check_all_known(known)
        labels, given = self.labels, y[known]
        if len(given) and _label_kind(given) != _label_kind(labels):
            at, wrong = np.zeros(0, dtype=np.int64), np.arange(len(given))
        else:
            at = np.searchsorted(labels, given).clip(max=len(labels) - 1)
            wrong = np.flatnonzero(np.broadcast_to(labels[at] != given, given.shape))
        if len(wrong):
            label = given[wrong[0]]
            label = label.item() if isinstance(label, np.generic) else label
            raise InputError(
                f"the label {label!r} of series {np.argwhere(known)[wrong[0]][0]} is none of the "
                f"model's classes {list(self.classes)[:10]}{' ...' if len(labels) > 10 else ''}"
            )
        numbers = np.full(y.shape, -1, dtype=np.int64)
        numbers[known] = at
        return torch.from_numpy(numbers)


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
        if log:
            check_rates(y)
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

    def to_units(self, z: Tensor) -> Tensor:
        """The way back, for points and quantiles; float64."""
        wide = z.double() * z.new_tensor(self.scale, dtype=torch.float64)
        wide = wide + wide.new_tensor(self.mean)
        return wide.exp() if self.log else wide

    def deviation_to_units(self, deviation: Tensor, point: Tensor) -> Tensor:
        """Standard deviations; of a logarithm to first order, y · σ."""
        wide = deviation.double() * deviation.new_tensor(self.scale, dtype=torch.float64)
        return wide * point if self.log else wide


def known_labels(y: Any) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Labels as an array, and which of them are known: not NaN, None or pandas.NA, not masked."""
    try:
        y = _with_masks(y)
        labels = np.asarray(y)  # of a masked array: the data
    except ValueError:
        raise InputError(
            "labels must be an array (B,), or (B, L) for windows; where series have fewer windows "
            "fill up with NaN or None"
        ) from None
    known = np.ones(labels.shape, dtype=bool)
    if labels.dtype.kind == "f":
        known = ~np.isnan(labels)
    elif labels.dtype == object:
        known = ~_nothing(labels)
    return labels, known & ~_mask(y)


def _with_masks(y: Any) -> Any:
    """``y``, as a masked array if it is a list of such: numpy would forget what they mask."""
    if isinstance(y, list | tuple) and any(isinstance(row, np.ma.MaskedArray) for row in y):
        return np.ma.MaskedArray(y)  # type: ignore[no-untyped-call]
    return y


def _mask(y: Any) -> npt.NDArray[np.bool_]:
    """What a masked array masks; nothing of another."""
    if not isinstance(y, np.ma.MaskedArray):
        return np.zeros(np.asarray(y).shape, dtype=bool)
    return np.broadcast_to(np.asarray(y.mask, dtype=bool), y.shape)


def _nothing(objects: Array) -> npt.NDArray[np.bool_]:
    """Which of Python's objects stand for what is not known."""

    def unknown(x: Any) -> bool:
        # pandas.NA by its name: pandas need not be there. Only NaN differs from itself.
        return x is None or type(x).__name__ == "NAType" or (isinstance(x, float) and x != x)

    return np.array([unknown(x) for x in objects.ravel()], dtype=bool).reshape(objects.shape)


def _label_kind(labels: Array) -> Literal["numbers", "text"]:
    """Of labels that are all known, or ``InputError``."""
    if labels.dtype.kind in "biuf":
        return "numbers"
    if labels.dtype.kind == "U":
        return "text"
    if labels.dtype == object:
        kinds = {isinstance(x, Real) + 2 * isinstance(x, str) for x in labels.ravel().tolist()}
        if kinds <= {1} or kinds == {2}:
            return "text" if 2 in kinds else "numbers"
        raise InputError(
            "labels must be of one kind, all text or all numbers, and none may be None"
        )
    raise InputError(
        f"labels must be text, whole numbers or booleans, got {labels.dtype}; make text of them: "
        "y.astype(str)"
    )


def share_equal(labels: Array, predicted: Array) -> float:
    """Share of labels ``(B,)`` that are as predicted; both of one kind, all text or all numbers."""
    given, own = _label_kind(labels), _label_kind(predicted)
    if given != own:
        raise InputError(f"the labels are {given}, those of the model are {own}")
    pairs = zip(labels.tolist(), predicted.tolist(), strict=True)
    return float(np.mean([label == guess for label, guess in pairs]))


def check_all_known(known: npt.NDArray[np.bool_]) -> None:
    """Each series of ``known (B, ...)`` has a label, or ``InputError``."""
    if not known.all():
        raise InputError(
            f"series {np.argwhere(~known)[0][0]} has no label; leave series without one out"
        )


def check_rates(y: Array) -> None:
    """Rates are positive, or NaN where not known."""
    if not (y[~np.isnan(y)] > 0).all():
        raise InputError("rate-like targets must be positive: they are scaled with time")


def check_weights(sample_weight: Any, n: int) -> Tensor:
    """Weights of the series as float32 ``(n,)``; those above 0 have the mean 1."""
    try:
        array = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("sample_weight must be numbers, one for each series") from None
    if array.shape != (n,):
        raise InputError(f"sample_weight must have shape ({n},), got {array.shape}")
    if not (np.isfinite(array) & (array >= 0)).all() or not array.any():
        raise InputError(
            "sample_weight must be finite and not negative, and some weight must be above zero"
        )
    return torch.from_numpy(array / array[array > 0].mean()).float()


def check_numbers(y: Any, n: int) -> tuple[Array, bool]:
    """Targets as float64 ``(n, ...)``, at least two axes, and whether they came as ``(n,)``.

    NaN, None, pandas.NA and what a masked array masks are not known: NaN.
    """
    try:
        y = _with_masks(y)
        plain, masked = np.asarray(y), _mask(y)
        if plain.dtype == object:
            plain = np.where(_nothing(plain) | masked, np.nan, plain)
        array = np.array(plain, dtype=np.float64)  # a copy: labels of a batch are read-only
        array[masked] = np.nan
    except (TypeError, ValueError):
        raise InputError(
            "the targets of a regression must be numbers, an array (B,), (B, m) or, for windows, "
            "(B, L, m); fill up with NaN where they are not known"
        ) from None
    if array.ndim == 0 or len(array) != n:
        raise InputError(f"there are {n} series but targets of shape {array.shape}")
    if np.isinf(array).any():
        raise InputError(
            "targets must be finite numbers, or NaN where they are not known; got infinity for "
            f"series {np.argwhere(np.isinf(array))[0][0]}"
        )
    largest = float(np.nanmax(np.abs(array), initial=0.0))
    if largest > _LARGEST:
        raise InputError(
            f"targets must be at most {_LARGEST:g} in size, got {largest:g}; use another unit"
        )
    flat = array.ndim == 1
    return (array[:, None] if flat else array), flat
