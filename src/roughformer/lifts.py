"""Lifts: channels added to a path before its signature is taken.

``Time``       (t - t_0) over the series' span, or per given unit: tells paths that differ only in
               speed apart, and makes a path recoverable from its signature.
``Lag``        x(t - delay), a delay in time, not in samples; constant x(t_0) before t_0 + delay.
``Counts``     how often each channel has been observed so far: missingness as information.
``Basepoint``  the view's path starts with a line from the origin: its level is not lost.
``Clock``      harmonic clocks cos ωt, sin ωt beside the path, of which only the words
               ∫ cos ω(u-s) dx(u) and ∫ sin ω(u-s) dx(u) are taken, in closed form.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from roughformer.checks import real_number, whole_number
from roughformer.errors import InputError
from roughformer.path import Path, locate
from roughformer.series import SeriesBatch

__all__ = [
    "Basepoint",
    "Clock",
    "Counts",
    "Lag",
    "Lift",
    "Lifts",
    "Time",
    "View",
    "ViewLifts",
    "lift_path",
    "per_view",
]

View = Literal["global", "local"]


@dataclass(frozen=True)
class Time:
    """(t - t_0) / unit as the first channel; ``unit=None`` is the series' own span."""

    unit: float | None = None

    def __post_init__(self) -> None:
        """Refuse units that are no duration."""
        if self.unit is not None:
            real_number(self.unit, "Time(unit=...)", "a positive duration", positive=True)


@dataclass(frozen=True)
class Lag:
    """x(t - delay) for every channel; several lags may be given."""

    delay: float

    def __post_init__(self) -> None:
        """Refuse delays that look into the future."""
        real_number(self.delay, "Lag(delay)", "a positive duration", positive=True)


@dataclass(frozen=True)
class Counts:
    """Number of observations of each channel after the first point, times ``scale``."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        """Refuse scales that would spoil every token."""
        real_number(self.scale, "Counts(scale)", "a finite number")


@dataclass(frozen=True)
class Basepoint:
    """The path restricted to the view's interval is preceded by a line from the origin.

    Only values start at the origin; time does not jump.
    """


@dataclass(frozen=True)
class Clock:
    """Words of ``count`` harmonic clocks with every channel: 2 · count · C features.

    ω_j = 2π · j · spacing / T, j = 1 ... count, where T is the duration of the window in the local
    view and from the first to the last cut in the global view; or give the angular ``frequencies``.
    """

    count: int = 16
    spacing: float = 1.0
    frequencies: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse counts and frequencies that are none."""
        if self.frequencies is not None:
            omega = np.asarray(self.frequencies, dtype=np.float64)
            if omega.ndim != 1 or len(omega) == 0 or not np.isfinite(omega).all():
                raise InputError("Clock(frequencies=...) must be finite numbers, at least one")
            object.__setattr__(self, "frequencies", tuple(float(w) for w in omega))
            object.__setattr__(self, "count", len(omega))
        object.__setattr__(self, "count", whole_number(self.count, "Clock(count)", 1))
        real_number(self.spacing, "Clock(spacing)", "positive", positive=True)


Lift = Time | Lag | Counts | Basepoint | Clock
OneOrMore = Lift | str | Sequence[Lift | str] | None
Lifts = OneOrMore | Mapping[View, OneOrMore]
_BY_NAME: dict[str, type[Any]] = {
    "time": Time,
    "counts": Counts,
    "basepoint": Basepoint,
    "clock": Clock,
}


@dataclass(frozen=True)
class ViewLifts:
    """The lifts of one view, sorted by what they change."""

    time: Time | None = None
    lags: tuple[Lag, ...] = ()
    counts: Counts | None = None
    basepoint: bool = False
    clock: Clock | None = None

    @property
    def path(self) -> "ViewLifts":
        """Only what changes the path itself: views that agree here share one computation."""
        return replace(self, basepoint=False, clock=None)

    def names(self, channels: tuple[str, ...]) -> tuple[str, ...]:
        """Names of the lifted path's channels."""
        time = "time" if "time" not in channels else "time (lift)"
        names = ((time,) if self.time else ()) + channels
        for lag in self.lags:
            names += tuple(f"{c}(t-{lag.delay:g})" for c in channels)
        if self.counts:
            names += tuple(f"#{c}" for c in channels)
        return names


def _collect(lifts: Any, view: str) -> ViewLifts:
    if lifts is None:
        lifts = ()
    items = (lifts,) if isinstance(lifts, str | Lift) else tuple(lifts)
    try:
        return _collected(items, view)
    except TypeError:  # without a hash: no lift, which is said
        return _collected.__wrapped__(items, view)


@lru_cache(maxsize=256)
def _collected(lifts: tuple[Any, ...], view: str) -> ViewLifts:
    found = ViewLifts()
    for item in lifts:
        lift = item
        if isinstance(item, str):
            if item not in _BY_NAME:
                raise InputError(
                    f"unknown lift {item!r} for the {view} view; known by name are "
                    f"{', '.join(_BY_NAME)}, and Lag(delay) as an object"
                )
            lift = _BY_NAME[item]()
        if isinstance(lift, Lag):
            found = replace(found, lags=(*found.lags, lift))
            continue
        name = type(lift).__name__.lower()
        if not isinstance(lift, get_args(Lift)):
            raise InputError(f"a lift is one of {get_args(Lift)} or its name, got {lift!r}")
        if getattr(found, name):
            raise InputError(f"the lift {name!r} is given twice for the {view} view")
        value: Any = True if isinstance(lift, Basepoint) else lift
        found = replace(found, **{name: value})
    return found


def per_view(lifts: Lifts, views: Sequence[View]) -> dict[View, ViewLifts]:
    """The lifts of each view: one sequence for all of them, or a mapping from view to sequence."""
    if isinstance(lifts, Mapping):
        unknown = set(lifts) - set(views)
        if unknown:
            raise InputError(f"lifts are given for {sorted(unknown)}, the views are {list(views)}")
        return {view: _collect(lifts.get(view), view) for view in views}
    return {view: _collect(lifts, view) for view in views}


def _time_scale(batch: SeriesBatch, time: Time) -> npt.NDArray[np.float64]:
    if time.unit is not None:
        return np.full(len(batch), 1.0 / time.unit)
    start, end = batch.span
    span = end - start
    return np.divide(1.0, span, out=np.zeros(len(span)), where=span > 0)


def _observation_counts(batch: SeriesBatch, scale: float) -> npt.NDArray[Any]:
    """(N, C): observations of each channel in (t_0, t], times scale."""
    seen = ~np.isnan(batch.values)
    total = np.cumsum(seen, axis=0, dtype=np.int64)
    first = np.repeat(batch.offsets[:-1], batch.lengths)
    return np.asarray((total - total[first]) * scale, dtype=batch.values.dtype)


def _join(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(p, np.ndarray) for p in parts):
        return np.concatenate(parts, axis=1)
    import torch

    like = next(p for p in parts if isinstance(p, torch.Tensor))
    tensors = [torch.as_tensor(p, dtype=like.dtype, device=like.device) for p in parts]
    return torch.cat(tensors, dim=1)


def _sample(values: Any, low: npt.NDArray[Any], high: npt.NDArray[Any], w: npt.NDArray[Any]) -> Any:
    """values[low] + w (values[high] - values[low]), row by row, for numpy and torch."""
    if isinstance(values, np.ndarray):
        left = values[low]
        return left + w[:, None].astype(values.dtype) * (values[high] - left)
    import torch

    left = values[torch.as_tensor(low)]
    weight = torch.as_tensor(w, dtype=values.dtype)[:, None]
    return left + weight * (values[torch.as_tensor(high)] - left)


def _add_lags(path: Path, lags: tuple[Lag, ...], n_base: int) -> Path:
    """Sample the path and its delayed copies where any of them has a corner."""
    n = path.n_series
    series = np.repeat(np.arange(n), path.lengths)
    position = np.arange(len(series)) - np.repeat(path.starts, path.lengths)
    times = path.times[path.time_starts[series] + position]
    last = path.times[path.time_starts + path.lengths - 1]
    knots, owner = [times], [series]
    for lag in lags:
        moved = times + lag.delay
        inside = moved < last[series]
        knots.append(moved[inside])
        owner.append(series[inside])
    t, s = np.concatenate(knots), np.concatenate(owner)
    order = np.lexsort((t, s))
    t, s = t[order], s[order]
    fresh = np.ones(len(t), dtype=bool)
    fresh[1:] = (t[1:] > t[:-1]) | (s[1:] != s[:-1])
    t, s = t[fresh], s[fresh]
    lengths = np.bincount(s, minlength=n).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1].astype(np.int64)

    zero = path.first_times[s]

    def at(when: npt.NDArray[np.float64], values: Any) -> Any:
        begin, size = path.time_starts[s], path.lengths[s]
        low = locate(path.times, begin, size, when)
        high = np.minimum(low + 1, size - 1)
        left, right = path.times[begin + low] - zero, path.times[begin + high] - zero
        gap = right - left
        w = np.divide(when - left, gap, out=np.zeros(len(when)), where=gap > 0)
        rows = path.starts[s]
        return _sample(values, rows + low, rows + high, np.clip(w, 0.0, 1.0))

    own = path.values[:, :n_base]
    since = t - zero
    parts = [at(since, own), *(at(since - lag.delay, own) for lag in lags)]
    if path.values.shape[1] > n_base:
        parts.append(at(since, path.values[:, n_base:]))
    return replace(
        path,
        values=_join(parts),
        times=t,
        starts=starts,
        lengths=lengths,
        time_starts=starts,
        shared_times=False,
    )


def lift_path(batch: SeriesBatch, lifts: ViewLifts, values: Any) -> Path:
    """The lifted path of a batch; ``values (N, C)`` are its values without gaps."""
    n_base = int(values.shape[1])
    if lifts.counts:
        values = _join([values, _observation_counts(batch, lifts.counts.scale)])
    grid = batch.grid
    starts = batch.offsets[:-1]
    path = Path(
        values=values,
        times=batch.times if grid is None else grid,
        starts=starts,
        lengths=batch.lengths,
        time_starts=starts if grid is None else np.zeros(len(batch), np.int64),
        names=lifts.names(batch.channels),
        time_scale=None if lifts.time is None else _time_scale(batch, lifts.time),
        shared_times=grid is not None,
    )
    return _add_lags(path, lifts.lags, n_base) if lifts.lags else path
