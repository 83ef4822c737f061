"""Cut times t_0 < t_1 < ... < t_L of each series: where its windows begin and end.

Window k is [t_{k-1}, t_k]. Cuts are times, not indices: they may fall between observations, and
the path is interpolated there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch

__all__ = ["Cuts", "Windows"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cuts:
    """Cut times of a batch, flat: series b has ``times[starts[b] : starts[b] + n_windows[b] + 1]``.

    ``shared``: all series use the same ones.
    """

    times: Floats
    starts: Ints
    n_windows: Ints
    shared: bool

    @property
    def most(self) -> int:
        """The largest number of windows of any series: the length of the token axis."""
        return int(self.n_windows.max(initial=0))

    @property
    def equal(self) -> bool:
        """Whether all series have the same number of windows."""
        return bool((self.n_windows == self.most).all())

    def of(self, b: int) -> Floats:
        """The cut times ``(n_windows + 1,)`` of series b."""
        first = int(self.starts[b])
        return self.times[first : first + int(self.n_windows[b]) + 1]

    def padded(self) -> Floats:
        """``(B, most + 1)``: cut times, the last one repeated where a series has fewer windows."""
        column = np.arange(self.most + 1)[None, :]
        return np.asarray(
            self.times[self.starts[:, None] + np.minimum(column, self.n_windows[:, None])]
        )


def _even(start: Floats, end: Floats, n: int) -> Floats:
    """(B,), (B,) -> (B, n + 1) evenly spaced, the last exactly ``end``."""
    cuts = start[:, None] + (end - start)[:, None] * (np.arange(n + 1) / n)[None, :]
    cuts[:, -1] = end
    return cuts


def _check_increasing(cuts: Floats, where: str) -> None:
    if cuts.ndim != 1 or len(cuts) == 0:
        raise InputError(
            f"{where} must be a 1-D array of at least one time, got shape {cuts.shape}"
        )
    bad = np.flatnonzero(~np.isfinite(cuts))
    if len(bad):
        raise InputError(f"{where} must be finite, got {cuts[bad[0]]} at position {bad[0]}")
    bad = np.flatnonzero(~(np.diff(cuts) > 0))
    if len(bad):
        i = int(bad[0])
        raise InputError(
            f"{where} must be strictly increasing, got {cuts[i]} then {cuts[i + 1]} at positions "
            f"{i} and {i + 1}; sort them and remove duplicates (an empty window has no signature)"
        )


@dataclass(frozen=True)
class Windows:
    """A rule for the cut times of each series; made by one of the four class methods."""

    rule: Literal["count", "duration", "points", "explicit"]
    amount: float = 0.0
    cuts: tuple[Floats, ...] = ()
    shared: bool = False

    @classmethod
    def by_count(cls, n: int) -> "Windows":
        """``n`` windows of equal duration over each series' own span."""
        if int(n) != n or n < 1:
            raise InputError(f"the number of windows must be a whole number >= 1, got {n!r}")
        return cls("count", int(n))

    @classmethod
    def by_duration(cls, seconds: float | timedelta | np.timedelta64) -> "Windows":
        """Windows of a given duration, in the unit of the times (seconds for dates), from each
        series' first point on; the last one is shorter if the span is not a multiple.
        """
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if isinstance(seconds, np.timedelta64):
            seconds = float(seconds / np.timedelta64(1, "ns")) / 1e9
        if not (np.isfinite(seconds) and seconds > 0):
            raise InputError(f"the duration of a window must be positive, got {seconds!r}")
        return cls("duration", float(seconds))

    @classmethod
    def by_points(cls, n: int) -> "Windows":
        """Windows that end at every ``n``-th observation; the last one may have fewer."""
        if int(n) != n or n < 1:
            raise InputError(f"the points of a window must be a whole number >= 1, got {n!r}")
        return cls("points", int(n))

    @classmethod
    def explicit(cls, cuts: Any) -> "Windows":
        """Cut times ``(L + 1,)`` shared by all series, or a list (or ``(B, L + 1)``) of them.

        Outside a series' span its path is constant, so windows there have signature zero.
        """
        array: Sequence[Any] | npt.NDArray[Any] = cuts
        if isinstance(cuts, np.ndarray) or not (len(cuts) and np.ndim(cuts[0]) > 0):
            array = np.asarray(cuts, dtype=np.float64)
            if array.ndim == 1:
                _check_increasing(array, "the cut times")
                return cls("explicit", cuts=(array,), shared=True)
        rows = tuple(np.asarray(row, dtype=np.float64) for row in array)
        for b, row in enumerate(rows):
            _check_increasing(row, f"the cut times of series {b}")
        return cls("explicit", cuts=rows)

    @classmethod
    def of(cls, windows: "Windows | int | Sequence[float] | npt.NDArray[Any]") -> "Windows":
        """A ``Windows``; a whole number is a count, anything else explicit cut times."""
        if isinstance(windows, Windows):
            return windows
        if isinstance(windows, int | np.integer) and not isinstance(windows, bool):
            return cls.by_count(int(windows))
        return cls.explicit(windows)

    def place(self, batch: SeriesBatch) -> Cuts:
        """The cut times for each series of a batch."""
        n_series = len(batch)
        if self.rule == "points":
            return self._by_points(batch)
        if self.rule == "explicit":
            return self._explicit(n_series)
        start, end = batch.span
        on_grid = batch.grid is not None and n_series > 0
        if on_grid:
            start, end = start[:1], end[:1]
        if self.rule == "count":
            n = int(self.amount)
            rows = _even(start, end, n)
            counts = np.full(len(rows), n)
            flat = rows.ravel()
        else:
            span = end - start
            # Allow for rounding: 0.3 / 0.1 is three windows, not three and a sliver.
            counts = np.maximum(np.ceil(span / self.amount * (1 - 1e-12) - 1e-9), 1).astype(
                np.int64
            )
            first = np.concatenate([[0], np.cumsum(counts + 1)])
            row = np.repeat(np.arange(len(counts)), counts + 1)
            k = np.arange(len(row)) - first[row]
            flat = np.where(k == counts[row], end[row], start[row] + k * self.amount)
        if on_grid:
            zeros = np.zeros(n_series, np.int64)
            return Cuts(flat, zeros, np.full(n_series, counts[0]), shared=True)
        starts = np.concatenate([[0], np.cumsum(counts + 1)])[:-1]
        return Cuts(flat, starts, counts.astype(np.int64), shared=False)

    def _by_points(self, batch: SeriesBatch) -> Cuts:
        n = int(self.amount)
        counts = np.maximum(-(-(batch.lengths - 1) // n), 1)
        starts = np.concatenate([[0], np.cumsum(counts + 1)])
        row = np.repeat(np.arange(len(batch)), counts + 1)
        k = np.arange(int(starts[-1])) - starts[row]
        position = np.minimum(k * n, batch.lengths[row] - 1)
        times = batch.times[batch.offsets[:-1][row] + position]
        return Cuts(times, starts[:-1], counts, shared=False)

    def _explicit(self, n_series: int) -> Cuts:
        if self.shared:
            counts = np.full(n_series, len(self.cuts[0]) - 1, dtype=np.int64)
            return Cuts(self.cuts[0], np.zeros(n_series, np.int64), counts, shared=True)
        if len(self.cuts) != n_series:
            raise InputError(
                f"explicit cut times were given for {len(self.cuts)} series, the batch has "
                f"{n_series}; give one row for each series, or one row shared by all"
            )
        counts = np.array([len(c) - 1 for c in self.cuts], dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(counts + 1)])[:-1].astype(np.int64)
        flat = np.concatenate(self.cuts) if self.cuts else np.zeros(0)
        return Cuts(flat, starts, counts, shared=False)
