"""The continuous path of a batch: piecewise linear through ragged points, no gaps left.

What the lifts produce and the signature engine reads. Values may be a torch tensor when
gradients with respect to them are wanted.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Path", "locate"]

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
    names: tuple[str, ...]
    time_scale: Floats | None = None
    shared_times: bool = False

    @property
    def dim(self) -> int:
        """Dimension of the path, the time channel included."""
        return int(self.values.shape[1]) + (self.time_scale is not None)

    @property
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
