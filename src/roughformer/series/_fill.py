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

from roughformer.series._convert import Index, Values
from roughformer.series._times import FloatTimes

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
        rows = out[first:last]
        times = times_of(b0, b1)
        bounds = offsets[b0 : b1 + 1] - first
        kept = None if keep is None else keep[first:last]
        for c in range(len(channels)):
            never[c] += _fill_column(rows[:, c], times, bounds, kept)
    _warn(never, len(offsets) - 1, channels)
    return out


def _fill_column(
    column: npt.NDArray[Any],
    times: FloatTimes,
    bounds: Index,
    kept: npt.NDArray[np.bool_] | None,
) -> int:
    """Fill ``column (n,)`` in place; returns the number of series that never observe it."""
    seen = ~np.isnan(column)
    if kept is not None:
        seen &= kept
    gaps = np.flatnonzero(~seen)
    if len(gaps) == 0:
        return 0
    known = np.flatnonzero(seen)
    # Observations before each gap, over the whole run; those of another series do not count.
    before = np.cumsum(seen)[gaps]
    series = np.searchsorted(bounds, gaps, side="right") - 1
    total = np.concatenate([[0], np.cumsum(seen)])[bounds]  # observations before each series
    has_left = before > total[series]
    has_right = before < total[series + 1]
    y = column[known].astype(np.float64)
    s = times[known]
    result = np.zeros(len(gaps))
    both = has_left & has_right
    j = before[both] - 1
    weight = (times[gaps[both]] - s[j]) / (s[j + 1] - s[j])
    # This form cannot overflow; clipping takes away its last bit of rounding, so that the result
    # never leaves the range of its two neighbours and a constant stays constant.
    mixed = y[j] * (1 - weight) + y[j + 1] * weight
    result[both] = np.clip(mixed, np.minimum(y[j], y[j + 1]), np.maximum(y[j], y[j + 1]))
    only_left = has_left & ~has_right
    result[only_left] = y[before[only_left] - 1]
    only_right = has_right & ~has_left
    result[only_right] = y[before[only_right]]
    column[gaps] = result
    return int((np.diff(total) == 0).sum())


def unobserved(values: Values, offsets: Index) -> npt.NDArray[np.bool_]:
    """``(B, C)``: True where a series has not one observation of a channel."""
    out = np.zeros((len(offsets) - 1, values.shape[1]), dtype=bool)
    for b0, b1 in blocks(offsets):
        first, last = int(offsets[b0]), int(offsets[b1])
        empty = np.isnan(values[first:last])
        np.logical_and.reduceat(empty, offsets[b0:b1] - first, axis=0, out=out[b0:b1])
    return out


def _warn(never: Index, n_series: int, channels: tuple[str, ...]) -> None:
    named = [f"{channels[c]!r} in {never[c]}" for c in np.flatnonzero(never)]
    if named:
        more = f" and {len(named) - 5} more channels" if len(named) > 5 else ""
        warnings.warn(
            f"never observed, taken as constant 0: channel {', '.join(named[:5])}{more} "
            f"of {n_series} series; see SeriesBatch.unobserved()",
            UnobservedWarning,
            stacklevel=4,
        )
