"""Rows of streams cut into pieces of windows.

A stream's path goes on from its last point through the new ones, and holds its value up to each
window's end in between. The pieces are its parts between those ends: the first one continues the
window that was open, all others begin with their window, and all but the last one are complete.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.windows import Windows

__all__ = ["Pieces", "Position", "pieces_of", "windows_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_MOST_WINDOWS = 100_000  # that may end with one push


@dataclass(frozen=True)
class Position:
    """Where streams ``(g,)`` are: ``window`` is open, ``time`` the last point (from the stream's
    first), ``values (g, C)`` those held there, ``points`` rows so far; 0 rows: not begun.
    """

    window: Ints
    time: Floats
    values: Floats
    points: Ints


@dataclass(frozen=True)
class Pieces:
    """Piece p is series p of ``paths``, of the stream of number ``owner[p]`` in its group, in the
    window ``window[p]``. ``rows_until (P,)``: how many of the group's rows lie in it or before it.
    """

    paths: SeriesBatch
    owner: Ints
    window: Ints
    rows_until: Ints

    @property
    def order(self) -> Ints:
        """``(P,)`` the number of each piece within its stream."""
        first = np.append(True, self.owner[1:] != self.owner[:-1])
        begin = np.flatnonzero(first)
        return np.arange(len(self.owner)) - np.repeat(begin, np.diff(np.append(begin, len(first))))


def _ends_of(rule: Windows, window: Ints) -> Floats:
    """Ends of windows by duration, from the stream's first point on."""
    return np.asarray((window + 1) * rule.amount)


def windows_of(rule: Windows, time: Floats, point: Ints) -> Ints:
    """Numbers, from 0, of the windows that rows lie in; a row at a window's end lies in it.

    ``time`` from the first row of the stream, ``point``: its number, from 0.
    """
    if rule.rule == "points":
        return np.asarray(np.maximum(-(-point // int(rule.amount)) - 1, 0))
    number = np.ceil(time / rule.amount)
    # As Windows.by_duration(exact=True): the quotient is rounded, the comparison is not.
    number -= (number - 1) * rule.amount >= time
    number += number * rule.amount < time
    # Beyond any number that is taken, but still one: what is too far is told in words later.
    return np.asarray(number.clip(1, 2.0**62) - 1).astype(np.int64)


def pieces_of(rule: Windows, at: Position, lengths: Ints, times: Floats, values: Floats) -> Pieces:
    """``lengths (g,)`` rows of each stream, ``times (m,)`` from its first row on, ``values (m, C)``
    without gaps.
    """
    g, offsets = len(lengths), np.concatenate([[0], np.cumsum(lengths)])
    stream = np.repeat(np.arange(g), lengths)
    number = np.arange(len(times)) - offsets[stream] + at.points[stream]
    window = windows_of(rule, times, number)
    # A stream begins at its first row; all others go on from their last point.
    begun = at.points > 0
    head = np.flatnonzero(begun)
    place = offsets[:-1][head]
    owner = np.insert(stream, place, head)
    when = np.insert(times, place, at.time[head])
    what = np.insert(values, place, at.values[head], axis=0)
    where = np.insert(window, place, at.window[head])
    row = np.insert(np.arange(1, len(times) + 1) - offsets[stream], place, 0)
    # Window ends that are passed between two points (windows by points end at a point).
    same = owner[1:] == owner[:-1]
    passed = np.where(same, where[1:] - where[:-1], 0)
    most = int(passed.max(initial=0))
    if most > _MOST_WINDOWS:
        raise InputError(
            f"{most} windows lie between two rows of a stream, more than {_MOST_WINDOWS}; is a "
            "time in another unit? Begin a stream anew after so long a gap"
        )
    before = np.repeat(np.arange(len(passed)), passed)
    step = np.arange(len(before)) - np.repeat(np.cumsum(passed) - passed, passed)
    ended = where[before] + step
    end = when[before] if rule.rule == "points" else _ends_of(rule, ended)
    # Each end is a point of two pieces: the last one of a window and the first one of the next.
    twice = np.repeat(before + 1, 2)
    owner = np.insert(owner, twice, np.repeat(owner[before], 2))
    when = np.insert(when, twice, np.repeat(end, 2))
    what = np.insert(what, twice, np.repeat(what[before], 2, axis=0), axis=0)
    row = np.insert(row, twice, np.repeat(row[before], 2))
    where = np.insert(where, twice, np.stack([ended, ended + 1], axis=1).ravel())
    return _split(owner, where, when, what, row)


def _split(owner: Ints, window: Ints, times: Floats, values: Floats, row: Ints) -> Pieces:
    """Points of pieces, in order -> the pieces as series; points that stand still are one point."""
    new = np.append(True, (owner[1:] != owner[:-1]) | (window[1:] != window[:-1]))[: len(owner)]
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(owner)) - 1 if len(first) else first
    keep = new.copy()
    keep[1:] |= times[1:] > times[:-1]
    offsets = np.append(np.cumsum(keep)[first] - 1 if len(first) else [], keep.sum()).astype(
        np.int64
    )
    paths = SeriesBatch(times[keep], values[keep], offsets)
    return Pieces(paths, owner[first], window[first], row[last] if len(last) else row)
