"""Whether the rows of a push go on where their streams are."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roughformer.serve.numbers import bad

__all__ = ["Rule", "check_leap", "check_times", "windows_ended"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Rule(NamedTuple):
    """What ends a window: so much time, or else so many points. ``span``: a model is run at the end
    of those in which something was seen that long ago at most.
    """

    duration: float | None
    points: float = 1.0
    span: float = np.inf


def check_times(
    slots: Ints, times: Floats, last: Floats, names: Sequence[str], *, drop: bool
) -> None:
    """Rows ``(m,)`` of streams whose last times are ``last (m,)``, NaN = nothing yet: each after
    the one before it in its stream, unless late ones are dropped.
    """
    order, first = _by_stream(slots)
    now = times[order]
    before = np.where(first, last[order], np.append(np.nan, now[:-1])[: len(now)])
    late = now <= before  # False for NaN: a stream may begin at any time
    if late.any() and not drop:
        row, k = _first(late, order)
        raise bad(
            f"the time {now[k]:.17g} is not after {before[k]:.17g}, the last one of stream "
            f"{names[slots[row]]!r}; send from there on, in order of time",
            {"row": row},
        )


def check_leap(slots: Ints, times: Floats, last: Floats, rule: Rule, most: int) -> None:
    """The rows of a push end at most so many windows of a stream: those of one stream are made one
    after the other, and everybody waits meanwhile.
    """
    order, first = _by_stream(slots)
    now, begin = times[order], np.flatnonzero(first)
    size = np.diff(np.append(begin, len(now)))
    if rule.duration is not None:
        start = np.where(np.isnan(last[order]), now, last[order])[begin]
        windows = (now - np.repeat(start, size)) / rule.duration
    else:
        windows = (np.arange(len(now)) - np.repeat(begin, size)) / rule.points
    far = windows > most
    if far.any():
        row, k = _first(far, order)
        raise bad(
            f"the time {now[k]:.17g} is more than {most} windows on from where the stream was; is "
            "it in another unit? Send less at once, or open a new stream after so long a gap",
            {"row": row},
        )


def windows_ended(slots: Ints, times: Floats, last: Floats, rule: Rule) -> float:
    """How many windows the rows of a push end at most, over all its streams."""
    if rule.duration is None:
        return len(times) / rule.points
    order, first = _by_stream(slots)
    now = times[order]
    before = np.where(first, last[order], np.append(np.nan, now[:-1])[: len(now)])
    passed = np.where(np.isnan(before), 0.0, now - before)
    return float(np.clip(passed, 0.0, rule.span).sum() / rule.duration)


def _by_stream(slots: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Rows in the order of their streams, and which of them are the first of one."""
    order = np.argsort(slots, kind="stable")
    owner = slots[order]
    return order, np.append(True, owner[1:] != owner[:-1])[: len(owner)]


def _first(wrong: npt.NDArray[np.bool_], order: Ints) -> tuple[int, int]:
    """Of the rows that are wrong, in the order ``order``, the one that came first: its number as it
    came, and its place in the order.
    """
    places = np.flatnonzero(wrong)
    k = int(places[np.argmin(order[places])])
    return int(order[k]), k
