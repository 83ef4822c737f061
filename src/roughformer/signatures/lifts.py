"""Lifts: channels added to a path before its signature is taken.

``Time``       (t - t_0) over the series' span, or per given unit: tells paths that differ only in
               speed apart, and makes a path recoverable from its signature.
``Lag``        x(t - delay), a delay in time, not in samples; constant x(t_0) before t_0 + delay.
``Counts``     how often each channel has been observed so far: missingness as information.
``Basepoint``  the view's path starts with a line from the origin: its level is not lost.
``Clock``      harmonic clocks cos ωt, sin ωt beside the path, of which only the words
               ∫ cos ω(u-s) dx(u) and ∫ sin ω(u-s) dx(u) are taken, in closed form.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.signatures.path import Path
from roughformer.util.checks import real_number, whole_number

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
    """Add (t - t_0) / unit as the first channel.

    Parameters
    ----------
    unit : float, optional
        A duration; not given: the series' own span.
    """

    unit: float | None = None

    def __post_init__(self) -> None:
        """Refuse units that are no duration."""
        if self.unit is not None:
            real_number(self.unit, "Time(unit=...)", "a positive duration", positive=True)


@dataclass(frozen=True)
class Lag:
    """Add x(t - delay) for every channel; several lags may be given.

    Parameters
    ----------
    delay : float
        A positive duration, in the unit of the times.
    """

    delay: float

    def __post_init__(self) -> None:
        """Refuse delays that look into the future."""
        real_number(self.delay, "Lag(delay)", "a positive duration", positive=True)


@dataclass(frozen=True)
class Counts:
    """Add the number of observations of each channel after the first point.

    Parameters
    ----------
    scale : float, default 1
        Factor of the counts.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        """Refuse scales that would spoil every token."""
        real_number(self.scale, "Counts(scale)", "a finite number")


@dataclass(frozen=True)
class Basepoint:
    """Precede the path restricted to the view's interval by a line from the origin.

    Only values start at the origin; time does not jump.
    """


@dataclass(frozen=True)
class Clock:
    """Add the words of harmonic clocks with every channel: 2 · count · C features.

    ω_j = 2π · j · spacing / T, j = 1 ... count, where T is the duration of the window in the local
    view and from the first to the last cut in the global view.

    Parameters
    ----------
    count : int, default 16
        Number of clocks.
    spacing : float, default 1
        Step of the frequencies, in turns per T.
    frequencies : tuple of float, optional
        Angular frequencies ω_j, instead of ``count`` and ``spacing``.
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
    items = tuple(lifts) if isinstance(lifts, Iterable) and not isinstance(lifts, str) else (lifts,)
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


def lift_path(batch: SeriesBatch, lifts: ViewLifts, values: npt.NDArray[Any]) -> Path:
    """The path of a batch, lifted by time if ``lifts`` say so; ``values (N, C)`` are its values
    without gaps. Lags and counts need further corners: ``signatures.padded`` has them.
    """
    grid = batch.grid
    starts = batch.offsets[:-1]
    return Path(
        values=values,
        times=batch.times if grid is None else grid,
        starts=starts,
        lengths=batch.lengths,
        time_starts=starts if grid is None else np.zeros(len(batch), np.int64),
        names=lifts.names(batch.channels),
        time_scale=None if lifts.time is None else _time_scale(batch, lifts.time),
        shared_times=grid is not None,
    )
