"""Dense values from incomplete ones: each channel linear in time between its own observations.

For a channel observed at times s_1 < ... < s_m with values y_1 ... y_m:

    x(t) = y_j + (y_{j+1} - y_j) (t - s_j) / (s_{j+1} - s_j)    for s_j <= t <= s_{j+1},
    x(t) = y_1 before s_1,  y_m after s_m,  0 everywhere if m = 0.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from roughformer.series._convert import Index, Values
from roughformer.series._times import FloatTimes

__all__ = ["Gaps", "UnobservedWarning", "blocks", "fill", "gaps_of", "unobserved"]

BLOCK = 1 << 18  # points worked on in one go: temporaries of a few MB that stay in cache


class UnobservedWarning(UserWarning):
    """A channel is never observed in some series and was taken as constant 0 there."""


def blocks(offsets: Index, size: int = BLOCK) -> Iterator[tuple[int, int]]:
    """Runs ``[b0, b1)`` of whole series with about ``size`` points (one longer series is a run)."""
    b0, n_series = 0, len(offsets) - 1
    while b0 < n_series:
        b1 = int(np.searchsorted(offsets, offsets[b0] + size, side="right")) - 1
        b1 = max(b1, b0 + 1)
        yield b0, b1
        b0 = b1


class Gaps(NamedTuple):
    """Where a channel of a run of series is not observed, and what stands in.

    At row ``at`` the value is (1 - weight) x[left] + weight x[right], or 0 where ``never``.
    """

    at: Index
    left: Index
    right: Index
    weight: FloatTimes
    never: npt.NDArray[np.bool_]
    empty_series: int  # series without any observation of the channel

    def value(self, column: npt.NDArray[Any]) -> FloatTimes:
        """What to put at ``at``, in float64."""
        low, high = column[self.left].astype(np.float64), column[self.right].astype(np.float64)
        # This form cannot overflow; clipping takes away its last bit of rounding, so that the
        # result never leaves the range of its two neighbours and a constant stays constant.
        mixed = low * (1 - self.weight) + high * self.weight
        inside = np.clip(mixed, np.minimum(low, high), np.maximum(low, high))
        return np.asarray(np.where(self.never, 0.0, inside))


def fill(
    values: Values,
    offsets: Index,
    times_of: Callable[[int, int], FloatTimes],
    keep: npt.NDArray[np.bool_] | None,
    channels: tuple[str, ...],
) -> Values:
    """``values (N, C)`` with NaN -> ``(N, C)`` without; ``times_of(b0, b1)`` gives the times of a
    run of series. Points outside ``keep (N,)`` count as unobserved.
    """
    out = np.array(values)
    never = np.zeros(len(channels), dtype=np.int64)
    for first, last, c, gaps in gaps_of(values, offsets, times_of, keep):
        column = out[first:last, c]
        column[gaps.at] = gaps.value(column)
        never[c] += gaps.empty_series
    warn_unobserved(never, len(offsets) - 1, channels)
    return out


def gaps_of(
    values: Values,
    offsets: Index,
    times_of: Callable[[int, int], FloatTimes],
    keep: npt.NDArray[np.bool_] | None,
) -> Iterator[tuple[int, int, int, Gaps]]:
    """The gaps of every channel, a run of series at a time: ``(first, last, channel, gaps)``, the
    rows of the gaps counted from the first row of the run.
    """
    for b0, b1 in blocks(offsets):
        first, last = int(offsets[b0]), int(offsets[b1])
        times = times_of(b0, b1)
        bounds = offsets[b0 : b1 + 1] - first
        kept = None if keep is None else keep[first:last]
        for c in range(values.shape[1]):
            seen = ~np.isnan(values[first:last, c])
            if kept is not None:
                seen &= kept
            if not seen.all():
                yield first, last, c, _find_gaps(seen, times, bounds)


def _find_gaps(seen: npt.NDArray[np.bool_], times: FloatTimes, bounds: Index) -> Gaps:
    gaps = np.flatnonzero(~seen)
    known = np.flatnonzero(seen)
    # Observations before each gap, over the whole run; those of another series do not count.
    before = np.cumsum(seen)[gaps]
    series = np.searchsorted(bounds, gaps, side="right") - 1
    total = np.concatenate([[0], np.cumsum(seen)])[bounds]  # observations before each series
    has_left = before > total[series]
    has_right = before < total[series + 1]
    never = ~(has_left | has_right)
    if len(known) == 0:
        left = right = gaps
        weight = np.zeros(len(gaps))
    else:
        # One side only: both neighbours are the one there is, and the weight is 0.
        j = np.where(has_left, before - 1, before)
        k = np.where(has_right, before, before - 1)
        left, right = known[np.minimum(j, len(known) - 1)], known[np.maximum(k, 0)]
        inside = has_left & has_right
        gap = np.where(inside, times[right] - times[left], 1.0)
        weight = np.where(inside, (times[gaps] - times[left]) / gap, 0.0)
    return Gaps(gaps, left, right, weight, never, int((np.diff(total) == 0).sum()))


def unobserved(values: Values, offsets: Index) -> npt.NDArray[np.bool_]:
    """``(B, C)``: True where a series has not one observation of a channel."""
    out = np.zeros((len(offsets) - 1, values.shape[1]), dtype=bool)
    for b0, b1 in blocks(offsets):
        first, last = int(offsets[b0]), int(offsets[b1])
        empty = np.isnan(values[first:last])
        np.logical_and.reduceat(empty, offsets[b0:b1] - first, axis=0, out=out[b0:b1])
    return out


def warn_unobserved(never: Index, n_series: int, channels: tuple[str, ...]) -> None:
    named = [f"{channels[c]!r} in {never[c]}" for c in np.flatnonzero(never)]
    if named:
        more = f" and {len(named) - 5} more channels" if len(named) > 5 else ""
        warnings.warn(
            f"never observed, taken as constant 0: channel {', '.join(named[:5])}{more} "
            f"of {n_series} series; see SeriesBatch.unobserved()",
            UnobservedWarning,
            stacklevel=4,
        )
