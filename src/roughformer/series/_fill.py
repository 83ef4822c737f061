"""Dense values from incomplete ones: each channel linear in time between its own observations.

For a channel observed at times s_1 < ... < s_m with values y_1 ... y_m:

    x(t) = y_j + (y_{j+1} - y_j) (t - s_j) / (s_{j+1} - s_j)    for s_j <= t <= s_{j+1},
    x(t) = y_1 before s_1,  y_m after s_m,  0 everywhere if m = 0.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.series._arrays import FloatTimes, Index, Values

__all__ = ["UnobservedWarning", "blocks", "fill", "unobserved"]

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
    for b0, b1 in blocks(offsets):
        first, last = int(offsets[b0]), int(offsets[b1])
        times, bounds = times_of(b0, b1), offsets[b0 : b1 + 1] - first
        for c in range(values.shape[1]):
            column = out[first:last, c]
            seen = ~np.isnan(column)
            if keep is not None:
                seen &= keep[first:last]
            if not seen.all():
                never[c] += _fill_column(column, seen, times, bounds)
    warn_unobserved(never, len(offsets) - 1, channels)
    return out


def _fill_column(
    column: npt.NDArray[Any], seen: npt.NDArray[np.bool_], times: FloatTimes, bounds: Index
) -> int:
    """Fill one channel of a run of series in place; returns how many have no observation of it."""
    gaps, known = np.flatnonzero(~seen), np.flatnonzero(seen)
    total = np.concatenate([[0], np.cumsum(seen)])[bounds]  # observations before each series
    if len(known) == 0:
        column[:] = 0.0
        return len(bounds) - 1
    # Observations before each gap, over the whole run; those of another series do not count.
    before = np.cumsum(seen)[gaps]
    series = np.searchsorted(bounds, gaps, side="right") - 1
    has_left, has_right = before > total[series], before < total[series + 1]
    # One side only: both neighbours are the one there is, and the weight is 0.
    left = known[np.minimum(np.where(has_left, before - 1, before), len(known) - 1)]
    right = known[np.maximum(np.where(has_right, before, before - 1), 0)]
    inside = has_left & has_right
    gap = np.where(inside, times[right] - times[left], 1.0)
    weight = np.where(inside, (times[gaps] - times[left]) / gap, 0.0)
    low, high = column[left].astype(np.float64), column[right].astype(np.float64)
    # This form cannot overflow; clipping takes away its last bit of rounding, so that the result
    # never leaves the range of its two neighbours and a constant stays constant.
    mixed = np.clip(
        low * (1 - weight) + high * weight, np.minimum(low, high), np.maximum(low, high)
    )
    column[gaps] = np.where(has_left | has_right, mixed, 0.0)
    return int((np.diff(total) == 0).sum())


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
