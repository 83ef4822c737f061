"""Where cut times fall between the points of a path (the signature kernel has its own)."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roughformer.signatures import library
from roughformer.signatures.path import Path, locate
from roughformer.signatures.windows import Cuts

__all__ = ["Spans", "window_spans"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Spans(NamedTuple):
    """One entry per window of every series, ``(B, most)``.

    A window runs from point ``first``, at fraction ``alpha_start`` of the segment after it, to
    point ``first + end``, at fraction ``alpha_end`` of the segment before it (``end = 0``: the path
    does not move).
    """

    first: Ints
    end: Ints
    alpha_start: Floats
    alpha_end: Floats

    def windows(self, part: slice) -> "Spans":
        """Only these windows of every series."""
        return Spans(
            self.first[:, part],
            self.end[:, part],
            self.alpha_start[:, part],
            self.alpha_end[:, part],
        )


def window_spans(path: Path, cuts: Cuts) -> Spans:
    """Place each cut at a segment and a fraction of it; outside the points the path is constant."""
    zero = path.first_times
    c = cuts.since(zero)
    shape = c.shape
    starts = np.broadcast_to(path.time_starts[:, None], shape).ravel()
    lengths = np.broadcast_to(path.lengths[:, None], shape).ravel()
    when = c.ravel()
    a = _locate(path.times, starts, lengths, when)
    b = np.minimum(a + 1, lengths - 1)
    left, right = (
        path.times[starts + a] - path.times[starts],
        path.times[starts + b] - path.times[starts],
    )
    inside = (when > left) & (b > a)
    gap = np.where(inside, right - left, 1.0)
    alpha = np.where(inside, (when - left) / gap, 0.0).reshape(shape)
    b = np.where(inside, b, a).reshape(shape)
    a = a.reshape(shape)
    first, end = a[:, :-1], b[:, 1:] - a[:, :-1]
    still = c[:, 1:] <= c[:, :-1]  # padding
    end = np.where(still, 0, end)
    alpha_end = np.where(alpha[:, 1:] > 0, alpha[:, 1:], 1.0)
    return Spans(first, end, alpha[:, :-1], alpha_end)


def _locate(times: Floats, starts: Ints, lengths: Ints, since: Floats) -> Ints:
    """``path.locate``, by the kernel if there is one."""
    native = library.load()
    if native is None:
        return locate(times, starts, lengths, since)
    held = [np.ascontiguousarray(a, np.float64) for a in (times, since)]
    found = np.empty(len(since), np.int64)
    native.rf_locate(
        held[0].ctypes.data, starts.ctypes.data, lengths.ctypes.data, held[1].ctypes.data,
        len(found), found.ctypes.data,
    )  # fmt: skip
    return found
