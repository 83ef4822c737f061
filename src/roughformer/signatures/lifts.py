"""Lifts: channels added to a path before its signature is taken; and what a token then holds.

``Time``       (t - t_0) over the series' span, or per given unit: tells paths that differ only in
               speed apart, and makes a path recoverable from its signature.
``Lag``        x(t - delay), a delay in time, not in samples; constant x(t_0) before t_0 + delay.
``Counts``     how often each channel has been observed so far: missingness as information.
``Basepoint``  the view's path starts with a line from the origin: its level is not lost.
``Clock``      harmonic clocks cos ωt, sin ωt beside the path, of which only the words
               ∫ cos ω(u-s) dx(u) and ∫ sin ω(u-s) dx(u) are taken, in closed form.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from roughformer.errors import CapacityError, InputError
from roughformer.signatures.words import all_words, lyndon_count, lyndon_words, word_count
from roughformer.util.checks import real_number, whole_number

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
    if isinstance(lifts, str) or not isinstance(lifts, Iterable):
        lifts = (lifts,)
    lags: list[Lag] = []
    others: dict[str, Any] = {}
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
            lags.append(lift)
            continue
        if not isinstance(lift, get_args(Lift)):
            raise InputError(f"a lift is one of {get_args(Lift)} or its name, got {lift!r}")
        name = type(lift).__name__.lower()
        if name in others:
            raise InputError(f"the lift {name!r} is given twice for the {view} view")
        others[name] = True if isinstance(lift, Basepoint) else lift
    return ViewLifts(lags=tuple(lags), **others)


def per_view(lifts: Lifts, views: Sequence[View]) -> dict[View, ViewLifts]:
    """The lifts of each view: one sequence for all of them, or a mapping from view to sequence."""
    if isinstance(lifts, Mapping):
        unknown = set(lifts) - set(views)
        if unknown:
            raise InputError(f"lifts are given for {sorted(unknown)}, the views are {list(views)}")
        return {view: _collect(lifts.get(view), view) for view in views}
    return {view: _collect(lifts, view) for view in views}


# What a token holds: how many features each view has, what they are called, how much memory.


Transform = Literal["signature", "logsignature"]
Basis = Literal["brackets", "words"]
_LITTLE = 2**24  # bytes that any machine has
_VIEWS: tuple[View, ...] = ("global", "local")
MAX_DEPTH = 12  # as in native/tensor.h


@dataclass(frozen=True)
class Layout:
    """Features of one token: the (log-)signatures of its views, then their clock words."""

    channels: tuple[str, ...]
    depth: int
    views: tuple[View, ...]
    lifts: dict[View, ViewLifts]
    transform: Transform
    basis: Basis
    paths: tuple[int, ...] = field(init=False, compare=False)
    """For each view the number of its lifted path: views mostly share one."""
    dims: dict[View, int] = field(init=False, compare=False)
    """Dimension of each view's lifted path."""

    def __post_init__(self) -> None:
        """Work out what does not change."""
        dims = {view: len(self.lifts[view].names(self.channels)) for view in self.views}
        object.__setattr__(self, "dims", dims)
        each = [self.lifts[view].path for view in self.views]
        known = list(dict.fromkeys(each))
        object.__setattr__(self, "paths", tuple(known.index(path) for path in each))

    def dim(self, view: View) -> int:
        """Dimension of the view's lifted path."""
        return self.dims[view]

    def signature_size(self, view: View) -> int:
        """Signature or log-signature coordinates of a view."""
        count = word_count if self.transform == "signature" else lyndon_count
        return count(self.dim(view), self.depth)

    def clock_size(self, view: View) -> int:
        """Clock words of a view."""
        clock = self.lifts[view].clock
        return 0 if clock is None else 2 * clock.count * len(self.channels)

    def at(self, view: View) -> int:
        """Where a view's signature begins in the token."""
        return sum(self.signature_size(v) for v in self.views[: self.views.index(view)])

    def clock_at(self, view: View) -> int:
        """Where a view's clock words begin in the token."""
        before = self.views[: self.views.index(view)]
        return sum(self.signature_size(v) for v in self.views) + sum(map(self.clock_size, before))

    @property
    def passes(self) -> list[tuple[Time | None, bool, tuple[View, ...]]]:
        """Calls of the kernel: the lift by time, whether paths begin at the origin, and the views
        that share such a path.
        """
        groups: dict[Any, tuple[View, ...]] = {}
        for view in self.views:
            lifts = self.lifts[view]
            key = (lifts.time, view if lifts.basepoint else None)
            groups[key] = (*groups.get(key, ()), view)
        return [(time, only is not None, views) for (time, only), views in groups.items()]

    def clock_part(self, view: View) -> slice:
        """Where a view's clock words are in the token."""
        at = self.clock_at(view)
        return slice(at, at + self.clock_size(view))

    @property
    def has_corners(self) -> bool:
        """Whether lags or counts give paths corners that are not points of the series."""
        return any(lifts.lags or lifts.counts for lifts in self.lifts.values())

    @property
    def size(self) -> int:
        """Features of a token."""
        return sum(self.signature_size(v) + self.clock_size(v) for v in self.views)

    def names(self) -> list[str]:
        """A name for each feature, ``view:word``; letters of a word are joined by ``*``."""
        labels = []
        for view in self.views:
            letters = self.lifts[view].names(self.channels)
            if self.transform == "signature":
                words = all_words(len(letters), self.depth)
            else:
                words = iter(lyndon_words(len(letters), self.depth))
            left, right = ("", "") if self.transform == "signature" else ("[", "]")
            labels += [f"{view}:{left}{'*'.join(letters[i] for i in w)}{right}" for w in words]
        for view in self.views:
            clock = self.lifts[view].clock
            if clock is not None:
                labels += [
                    f"{view}:{wave}{j + 1}*{c}"
                    for c in self.channels
                    for j in range(clock.count)
                    for wave in ("cos", "sin")
                ]
        return labels


def in_double(layout: Layout) -> bool:
    """Whether words are to be computed in float64, whatever the result: the terms of logarithms of
    depth 4 and more cancel, which would cost float32 up to three of its seven digits.
    """
    return layout.transform == "logsignature" and layout.depth > 3


def layout_of(
    channels: int | Sequence[str],
    depth: int,
    views: Sequence[View] | View = _VIEWS,
    lifts: Lifts = (),
    transform: Transform = "signature",
    basis: Basis = "brackets",
) -> Layout:
    """Check the options and return the layout of a token."""
    if isinstance(channels, int):
        channels = tuple(f"x{i}" for i in range(channels))
    chosen = (
        tuple(views) if isinstance(views, Sequence) and not isinstance(views, str) else (views,)
    )
    if not chosen or len(set(chosen)) != len(chosen) or any(v not in _VIEWS for v in chosen):
        raise InputError(f"views must be one or both of {_VIEWS}, each once, got {views!r}")
    depth = whole_number(depth, "depth", 1, MAX_DEPTH)
    if transform not in ("signature", "logsignature"):
        raise InputError(f"transform must be 'signature' or 'logsignature', got {transform!r}")
    if basis not in ("brackets", "words"):
        raise InputError(f"basis must be 'brackets' or 'words', got {basis!r}")
    layout = Layout(tuple(channels), depth, chosen, per_view(lifts, chosen), transform, basis)
    for view in chosen:
        if layout.dim(view) == 0:
            raise InputError(
                f"the {view} view has no channel; give series with at least one, or lift by time"
            )
    return layout


def feature_count(
    channels: int | Sequence[str],
    depth: int,
    views: Sequence[View] | View = _VIEWS,
    lifts: Lifts = (),
    transform: Transform = "signature",
) -> int:
    """Count the features of one token: the last axis of ``multiview_signature``.

    d + d² + ... + dⁿ for each view (d counts lifted channels), or the number of Lyndon words for
    log-signatures, plus 2 · count · C clock words.

    Parameters
    ----------
    channels : int or sequence of str
        Number or names of the channels.
    depth : int
        Truncation level n.
    views : {"global", "local"} or sequence of them, default ("global", "local")
        Views, in the order of the features.
    lifts : lifts or mapping from view to lifts, default ()
        Channels added to the path.
    transform : {"signature", "logsignature"}, default "signature"
        Signatures or log-signatures.

    Returns
    -------
    int
    """
    return layout_of(channels, depth, views, lifts, transform).size


def feature_names(
    channels: int | Sequence[str],
    depth: int,
    views: Sequence[View] | View = _VIEWS,
    lifts: Lifts = (),
    transform: Transform = "signature",
) -> list[str]:
    """Name each feature of a token by its word, e.g. ``local:time*x0``.

    Parameters
    ----------
    channels : int or sequence of str
        Number or names of the channels.
    depth : int
        Truncation level n.
    views : {"global", "local"} or sequence of them, default ("global", "local")
        Views, in the order of the features.
    lifts : lifts or mapping from view to lifts, default ()
        Channels added to the path.
    transform : {"signature", "logsignature"}, default "signature"
        Signatures or log-signatures.

    Returns
    -------
    list of str
        In the order of the token.
    """
    return layout_of(channels, depth, views, lifts, transform).names()


def memory_estimate(n_series: int, n_windows: int, features: int, itemsize: int = 4) -> int:
    """Compute the bytes of the tokens ``(n_series, n_windows, features)``.

    Parameters
    ----------
    n_series : int
        Number of series.
    n_windows : int
        Number of windows of each.
    features : int
        Features of a token; see ``feature_count``.
    itemsize : int, default 4
        Bytes of a number: 4 for float32, 8 for float64.

    Returns
    -------
    int
    """
    return n_series * n_windows * features * itemsize


def available_memory() -> int | None:
    """Bytes this machine could still hand out, or None where that is not known."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def readable(size: float) -> str:
    """A number of bytes for people: 3.8 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def over_limit(need: int, limit: int | None) -> int | None:
    """The limit, if ``need`` bytes are over it; by default 80 % of the memory available now."""
    if limit is not None:
        limit = whole_number(limit, "max_memory", 0)
    elif need < _LITTLE:  # asking the system takes longer than the work on a short series
        return None
    else:
        free = available_memory()
        limit = None if free is None else int(0.8 * free)
    return limit if limit is not None and need > limit else None


def check_capacity(
    layout: Layout, n_series: int, n_windows: int, itemsize: int, limit: int | None, threads: int
) -> None:
    """``CapacityError`` if the result and the scratch of the threads are over the limit."""
    result = memory_estimate(n_series, n_windows, layout.size, itemsize)
    # A thread holds the words of up to 16 series three times: global, local, on their way out.
    widest = max(word_count(layout.dim(v), layout.depth) for v in layout.views)
    scratch = 3 * 64 * widest * min(threads, max(n_series, 1))
    over = over_limit(result + scratch, limit)
    if over is not None:
        dims = " and ".join(f"{v}: {layout.dim(v)}" for v in layout.views)
        raise CapacityError(
            f"the tokens of {n_series} series x {n_windows} windows x {layout.size} features "
            f"need {readable(result)} and {readable(scratch)} to work in, more than the "
            f"{readable(over)} allowed; path dimension ({dims}) at depth {layout.depth} is what "
            "makes them large. Lower the depth, use transform='logsignature', split the channels "
            "into groups, take fewer windows or one view, or work through the series in parts "
            "(max_memory= sets the limit)"
        )
