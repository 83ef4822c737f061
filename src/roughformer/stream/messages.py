"""What goes into streams and what comes out: rows, checked before anything changes, and answers."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Unordered = Literal["raise", "drop"]
COVERAGE = 0.9  # of intervals
_LARGEST_TIME = 1e30  # the model computes with float32


class _RowError(InputError):
    """An ``InputError`` that knows which row of a push is wrong."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


@dataclass(frozen=True)
class InputRows:
    """Rows in the order of their streams, each stream's in the order of time.

    ``slots (g,)`` are the streams, ``offsets (g + 1,)`` where their rows begin; ``times (m,)``,
    ``values (m, C)`` with NaN = not observed. ``dropped``: rows that came too late.
    """

    slots: Ints
    offsets: Ints
    times: Floats
    values: Floats
    dropped: int

    @property
    def lengths(self) -> Ints:
        """``(g,)`` rows of each stream."""
        return np.diff(self.offsets)


def slots_of(slots: Any, n: int) -> Ints:
    """Numbers of streams ``(m,)``, all of them there, or ``InputError``."""
    array = np.atleast_1d(np.asarray(slots))
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"streams are named by whole numbers, got {array.dtype}")
    array = array.astype(np.int64)
    if array.ndim != 1:
        raise InputError(f"streams must be a number or a list of them, got shape {array.shape}")
    wrong = np.flatnonzero((array < 0) | (array >= n))
    if len(wrong):
        row = int(wrong[0])
        raise _RowError(row, f"row {row}: there is no stream {array[row]}; they are 0 ... {n - 1}")
    return array


def check_rows(
    slots: Any, times: Any, values: Any, last: Floats, n_channels: int, unordered: Unordered
) -> InputRows:
    """Check the rows of a push. ``last (n,)``: time of each stream's last row, NaN if it has none.

    Times of a stream increase. A row that does not come after the one before it is refused, or with
    ``unordered="drop"`` left out.
    """
    which = slots_of(slots, len(last))
    when = numbers_of(times, "times")
    what = numbers_of(values, "values")
    if when.shape != which.shape or what.shape != (*which.shape, n_channels):
        raise InputError(
            f"{len(which)} rows need times of shape ({len(which)},) and values of shape "
            f"({len(which)}, {n_channels}), got {when.shape} and {what.shape}"
        )
    _check(
        ~(np.abs(when) <= _LARGEST_TIME),  # also NaN
        lambda i: f"the time must be finite and at most {_LARGEST_TIME:g}, got {when[i]}",
    )
    _check(
        np.asarray(np.isinf(what).any(axis=1)),
        lambda i: f"values must be finite, or NaN where not observed, got {what[i].tolist()}",
    )
    order = np.argsort(which, kind="stable")
    which, when, what = which[order], when[order], what[order]
    late = _late(which, when, last)
    if late.any():
        if unordered == "raise":
            at = np.flatnonzero(late)
            first = int(at[np.argmin(order[at])])
            row, slot = int(order[first]), which[first]
            same = first > 0 and which[first - 1] == slot
            before = when[first - 1] if same else last[slot]
            raise _RowError(
                row,
                f"row {row}: the time {when[first]:.17g} is not after {before:.17g}, the last one "
                f"of stream {slot}; send rows in order of time, or choose unordered='drop'",
            )
        which, when, what = which[~late], when[~late], what[~late]
    streams, first_row = np.unique(which, return_index=True)
    return InputRows(streams, np.append(first_row, len(which)), when, what, int(late.sum()))


def numbers_of(x: Any, name: str) -> Floats:
    """An array of numbers, or ``InputError``."""
    try:
        array = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be an array of numbers") from None
    return array


def _check(wrong: npt.NDArray[np.bool_], words: Any) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise _RowError(row, f"row {row}: {words(row)}")


def _late(slots: Ints, times: Floats, last: Floats) -> npt.NDArray[np.bool_]:
    """Which rows (sorted by stream) are not after all rows of their stream before them."""
    if len(times) == 0:
        return np.zeros(0, dtype=bool)
    begin = np.append(True, slots[1:] != slots[:-1])
    # The usual case: each row after the one before it.
    before = np.where(begin, last[slots], np.append(np.nan, times[:-1]))
    late = times <= before  # False where NaN: the first row of a stream is never late
    if not late.any():
        return late
    # Whoever is late must not hold up the next ones: compare with the newest so far. Ranks of
    # times, counted on from stream to stream, make one running maximum of many.
    group = np.cumsum(begin) - 1
    known = ~np.isnan(last[slots[begin]])
    everything = np.concatenate([last[slots[begin]][known], times])
    rank = np.unique(everything, return_inverse=True)[1].reshape(-1) + 1
    size = len(everything) + 2
    floor = np.zeros(int(group[-1]) + 1, dtype=np.int64)
    floor[known] = rank[: known.sum()]
    own = rank[known.sum() :]
    key = group * size + np.maximum(own, floor[group])
    newest = np.maximum.accumulate(key) - group * size
    previous = np.where(begin, floor[group], np.append(0, newest[:-1]))
    return np.asarray(own <= previous)


Array = npt.NDArray[Any]
_NUMBERS = ("point", "deviation", "quantiles", "interval")


@dataclass(frozen=True)
class Answers:
    """Predictions, one row for each: of classes or of numbers.

    Attributes
    ----------
    classes : ndarray (K,) or None
        Class labels.
    probabilities : ndarray (e, K) or None
        Calibrated probabilities of the classes.
    point : ndarray (e, m) or None
        Predicted numbers.
    deviation : ndarray (e, m) or None
        Their standard deviations, if the model has them.
    quantiles : ndarray (e, m, q) or None
        Their quantiles, if the model has them.
    interval : ndarray (e, m, 2) or None
        Intervals that hold in 90 % of cases, if the model was calibrated and the number of values
        that it looked at is known (whole series, streams over a span).
    flat : bool
        Whether ``plain`` writes the only target as a number instead of a list.
    """

    classes: Array | None = None
    probabilities: Floats | None = None
    point: Floats | None = None
    deviation: Floats | None = None
    quantiles: Floats | None = None
    interval: Floats | None = None
    flat: bool = True

    @property
    def labels(self) -> Array:
        """Most probable classes ``(e,)``."""
        assert self.classes is not None
        assert self.probabilities is not None
        return np.asarray(self.classes[self.probabilities.argmax(axis=1)])

    def __len__(self) -> int:
        """Number of predictions."""
        rows = self.probabilities if self.probabilities is not None else self.point
        assert rows is not None
        return len(rows)

    def __getitem__(self, which: Any) -> "Answers":
        """Select rows by a slice, a mask or numbers."""
        kept = {
            name: part[which]
            for name in ("probabilities", *_NUMBERS)
            if (part := getattr(self, name)) is not None
        }
        return replace(self, **kept)

    def plain(self) -> list[dict[str, Any]]:
        """Convert to JSON, a dict for each: ``{"label", "probabilities"}`` or ``{"point", ...}``.

        Probabilities are by label. One target is a number, several are a list.
        """
        if self.probabilities is not None:
            assert self.classes is not None
            names = [str(c) for c in self.classes.tolist()]
            return [
                {
                    "label": label,
                    "probabilities": dict(zip(names, map(float, row), strict=True)),
                }
                for label, row in zip(self.labels.tolist(), self.probabilities, strict=True)
            ]
        entries: list[dict[str, Any]] = []
        for i in range(len(self)):
            entry = {}
            for name in _NUMBERS:
                part = getattr(self, name)
                if part is not None:
                    entry[name] = part[i, 0].tolist() if self.flat else part[i].tolist()
            entries.append(entry)
        return entries


@dataclass(frozen=True)
class Events:
    """Windows that ended; those of one stream are in order.

    Attributes
    ----------
    slot : ndarray (e,)
        Streams that they belong to.
    time : ndarray (e,)
        When they ended.
    window : ndarray (e,)
        Their numbers within their stream, from 0.
    answers : Answers
        Predictions at their ends.
    dropped : int
        Number of rows that came too late.
    """

    slot: npt.NDArray[np.int64]
    time: Floats
    window: npt.NDArray[np.int64]
    answers: Answers
    dropped: int = 0

    def __len__(self) -> int:
        """Number of windows."""
        return len(self.slot)
