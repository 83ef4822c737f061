"""Natural cubic splines through ragged, incomplete series; all series and channels at once.

Between two knots t_{i-1} < t_i, h = t_i - t_{i-1}, with s = (t - t_{i-1}) / h in [0, 1], the
derivative of a piece is a quadratic

    dX/ds = b + two_c s + three_d s².

The slopes m_i = dX/dt at the knots make the second derivative continuous, and zero at both ends:

    m_{i-1} / h_i + 2 m_i (1 / h_i + 1 / h_{i+1}) + m_{i+1} / h_{i+1}
        = 3 (x_i - x_{i-1}) / h_i² + 3 (x_{i+1} - x_i) / h_{i+1}².
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import solveh_banded

__all__ = ["natural_pieces"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def natural_pieces(times: Floats, values: npt.NDArray[Any], offsets: Ints) -> Floats:
    """Pieces ``(N, 3, C)`` of the splines: row i holds (b, two_c, three_d) from point i - 1 to
    point i, the first row of each series zeros.

    ``times (N,)``, ``values (N, C)`` with NaN = not observed, ``offsets (B+1,)``. A channel's
    spline goes through its own observations; before the first and behind the last one it goes
    through points of that value at every time, as in Kidger et al.'s torchcde. A channel that is
    never observed is constant.
    """
    first = np.zeros(len(times), dtype=bool)
    first[offsets[:-1]] = True
    wide = np.asarray(values, dtype=np.float64)
    unseen = np.isnan(wide)
    whole = ~unseen.any(axis=0)
    out = np.zeros((len(times), 3, wide.shape[1]))
    if whole.any():
        out[:, :, whole] = _pieces(times, wide[:, whole], first)
    for c in np.flatnonzero(~whole):
        column, known = _hold_ends(wide[:, c], unseen[:, c], offsets)
        out[:, :, c] = _gapped(times, column, known, first)
    return out


def _slopes(times: Floats, values: Floats, first: Mask) -> Floats:
    """Slopes ``(N, C)`` at the knots: one system for all series, no entry links two of them."""
    gap = np.diff(times, prepend=0.0)
    link = np.where(first, 0.0, 1.0 / np.where(first, 1.0, gap))  # 1 / h_i
    rise = np.diff(values, axis=0, prepend=0.0) * (link**2)[:, None]
    following = np.append(link[1:], 0.0)
    diagonal = 2.0 * (link + following)
    diagonal[diagonal == 0] = 1.0  # a series of one point: slope 0
    right = 3.0 * (rise + np.concatenate([rise[1:], np.zeros_like(rise[:1])]))
    if len(times) < 2:
        return np.zeros_like(values)
    slopes = solveh_banded(np.stack([link, diagonal]), right, check_finite=False)
    return np.asarray(slopes, dtype=np.float64)


def _cubic(times: Floats, values: Floats, first: Mask) -> tuple[Floats, Floats, Floats]:
    """b, two_c, three_d ``(N, C)`` of dX/dτ = b + two_c τ + three_d τ², τ = t - t_{i-1} in time."""
    slope = _slopes(times, values, first)
    gap = np.where(first, 1.0, np.diff(times, prepend=0.0))[:, None]
    left, right = np.roll(slope, 1, axis=0), slope
    rise = np.diff(values, axis=0, prepend=0.0) / gap
    two_c = (6 * rise - 4 * left - 2 * right) / gap
    three_d = (-6 * rise + 3 * (left + right)) / gap**2
    inside = ~first[:, None]
    return left * inside, two_c * inside, three_d * inside


def _pieces(times: Floats, values: Floats, first: Mask) -> Floats:
    gap = np.where(first, 0.0, np.diff(times, prepend=0.0))[:, None]
    b, two_c, three_d = _cubic(times, values, first)
    return np.stack([b * gap, two_c * gap**2, three_d * gap**3], axis=1)


def _hold_ends(column: Floats, unseen: Mask, offsets: Ints) -> tuple[Floats, Mask]:
    """The column ``(N,)`` with the first observation before it and the last one behind it, 0 in
    series without any; and which rows are known now.
    """
    n = len(column)
    row = np.arange(n)
    lengths = np.diff(offsets)
    start, end = np.repeat(offsets[:-1], lengths), np.repeat(offsets[1:], lengths)
    before = np.maximum.accumulate(np.where(unseen, -1, row))
    after = np.minimum.accumulate(np.where(unseen, n, row)[::-1])[::-1]
    has_before, has_after = before >= start, after < end
    source = np.where(has_before, before, np.where(has_after, after, 0))
    filled = np.where(has_before | has_after, column[source], 0.0)
    inside = unseen & has_before & has_after
    return filled, ~inside


def _gapped(times: Floats, column: Floats, known: Mask, first: Mask) -> Floats:
    """Pieces ``(N, 3)`` at all times of the spline through the known rows only."""
    at = np.flatnonzero(known)
    own = [part[:, 0] for part in _cubic(times[at], column[at, None], first[at])]
    # The known knot at or before the left end of each piece begins the cubic that it is a part of.
    left = np.maximum(np.arange(len(times)) - 1, 0)
    knot = np.cumsum(known)[left] - 1
    cubic = np.minimum(knot + 1, len(at) - 1)  # row k of a cubic ends at knot k
    shift = times[left] - times[at[knot]]
    gap = np.where(first, 0.0, times - times[left])
    b, two_c, three_d = (part[cubic] for part in own)
    moved = [b + (two_c + three_d * shift) * shift, two_c + 2 * three_d * shift, three_d]
    found = np.stack([part * gap ** (k + 1) for k, part in enumerate(moved)], axis=1)
    return np.asarray(np.where(first[:, None], 0.0, found))
