"""Paths and cut times as flat arrays: what windows place and the kernel reads."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def locate(times: Floats, starts: Ints, lengths: Ints, since: Floats) -> Ints:
    """Last point at or before each query time: a binary search in many series at once.

    Series i of ``starts, lengths (M,)`` is ``times[starts[i] : starts[i] + lengths[i]]``; the query
    ``since (M,)`` counts from its first point, so that no digits are lost to large stamps. Returns
    ``(M,)`` positions within the series, 0 where the query lies before the first point.
    """
    zero = times[starts]
    low, high = np.zeros(len(since), np.int64), lengths.copy()
    # Invariant: point `low` is at or before the query (or low = 0), point `high` is after it.
    for _ in range(int(lengths.max(initial=1)).bit_length()):
        middle = (low + high) // 2
        at = times[starts + np.minimum(middle, lengths - 1)] - zero
        before = (at <= since) & (middle < lengths)
        move = high - low > 1
        low = np.where(move & before, middle, low)
        high = np.where(move & ~before, middle, high)
    return low


@dataclass(frozen=True)
class Path:
    """Series b is rows ``starts[b] : starts[b] + lengths[b]`` of ``values (N, C)``, at the times
    from ``time_starts[b]`` on. With ``time_scale (B,)`` the path has a channel 0 more:
    (t - t_0) · time_scale.
    """

    values: Any
    times: Floats
    starts: Ints
    lengths: Ints
    time_starts: Ints
    time_scale: Floats | None = None
    shared_times: bool = False

    @property
    def dim(self) -> int:
        """Dimension of the path, the time channel included."""
        return int(self.values.shape[1]) + (self.time_scale is not None)

    @cached_property
    def first_times(self) -> Floats:
        """``(B,)`` time of the first point of each series."""
        return self.times[self.time_starts]

    @property
    def n_series(self) -> int:
        """Number of series."""
        return len(self.starts)

    def compact(self, keep: npt.NDArray[np.bool_]) -> "Path":
        """The path through the kept points only."""
        rows = np.flatnonzero(keep)
        before = np.searchsorted(rows, np.append(self.starts, len(keep)))
        starts, lengths = before[:-1], np.diff(before)
        # From a row to its time: the same step for all rows of a series.
        times = self.times[rows + np.repeat(self.time_starts - self.starts, lengths)]
        values = self.values[rows] if len(rows) < len(keep) else self.values
        return replace(
            self,
            values=values,
            times=times,
            starts=starts,
            lengths=lengths,
            time_starts=starts,
            shared_times=False,
        )


@dataclass(frozen=True)
class Cuts:
    """Cut times of a batch, flat: those of series b are
    ``times[starts[b] : starts[b] + n_windows[b] + 1]``, counted from ``origin[b]``.

    Counting from a series' own start keeps all digits where stamps are large and steps small (epoch
    seconds). ``shared``: all series use the same entries. ``n_default``: windows of a batch without
    series.
    """

    times: Floats
    starts: Ints
    n_windows: Ints
    origin: Floats
    shared: bool
    n_default: int = 0

    @classmethod
    def ragged(cls, times: Floats, n_windows: Ints, origin: Floats, n_default: int = 0) -> "Cuts":
        """Of series whose cut times stand one behind the other in ``times``."""
        sizes = n_windows + 1
        return cls(times, np.cumsum(sizes) - sizes, n_windows, origin, False, n_default)

    @cached_property
    def most(self) -> int:
        """The largest number of windows of any series: the length of the token axis."""
        return int(self.n_windows.max()) if len(self.n_windows) else self.n_default

    @cached_property
    def equal(self) -> bool:
        """Whether all series have the same number of windows."""
        return bool((self.n_windows == self.most).all())

    def of(self, b: int) -> Floats:
        """The cut times ``(n_windows + 1,)`` of series b."""
        first = int(self.starts[b])
        times = self.times[first : first + int(self.n_windows[b]) + 1]
        return np.asarray(times + self.origin[b])

    def shift(self, start: Floats) -> Floats:
        """``(B,)``: what to add to ``times`` to count from ``start (B,)``."""
        return self.origin - start

    def since(self, start: Floats) -> Floats:
        """``(B, most + 1)``: cut times counted from ``start (B,)``, the last one repeated where a
        series has fewer windows.
        """
        return np.asarray(self._padded() + self.shift(start)[:, None])

    def _padded(self) -> Floats:
        column = np.arange(self.most + 1)[None, :]
        return np.asarray(
            self.times[self.starts[:, None] + np.minimum(column, self.n_windows[:, None])]
        )
