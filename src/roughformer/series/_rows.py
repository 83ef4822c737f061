"""The rows of a table and the series they belong to: in pieces, and in which order."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roughformer.errors import InputError
from roughformer.series._columns import reading, run_starts, take_rows
from roughformer.series._convert import Index
from roughformer.series._times import FloatTimes

__all__ = ["Rows", "offsets_of", "sorting_order"]


class Rows:
    """The rows of a table and the series that each belongs to: run r, the rows from ``starts[r]``
    on, to series ``run_codes[r]`` in 0 ... B-1, which count first appearances.
    """

    def __init__(
        self,
        data: pa.Table,
        run_codes: Index,
        starts: Index,
        n_series: int,
        keys: npt.NDArray[Any] | None,
    ) -> None:
        self.data, self.run_codes, self.starts = data, run_codes, starts
        self.n_series, self.keys = n_series, keys

    @cached_property
    def codes(self) -> Index:
        """``(n,)``: the series of each row."""
        return np.repeat(self.run_codes, np.diff(self.starts, append=len(self.data)))

    @cached_property
    def bounds(self) -> Index | None:
        """``(B+1,)`` offsets of the series if each stands in one piece, else None."""
        step = np.diff(self.run_codes, prepend=-1)
        if not ((step == 0) | (step == 1)).all():
            return None
        return np.append(self.starts[step == 1], len(self.data))

    def name(self, b: int) -> str:
        return f"series {b}" if self.keys is None else f"series {b} (id {self.keys[b].item()!r})"

    def order(self, times: FloatTimes) -> Index | None:
        """The permutation that sorts by series, then time; None if nothing is to be done."""
        if self.bounds is None:
            return sorting_order(self.codes, times)
        ahead = times[1:] > times[:-1]
        ahead[self.bounds[1:-1] - 1] = True  # the step from one series to the next
        return None if ahead.all() else sorting_order(self.codes, times)

    def constant(
        self, name: str, read: Callable[[pa.Table, str], npt.NDArray[Any]]
    ) -> npt.NDArray[Any]:
        """A column that does not change within a series -> ``(B,)``."""
        # It is enough to look where it changes, or the series does.
        column = self.data.column(name)
        with reading(name):
            rows = np.union1d(self.starts, run_starts(column))
            codes = self.run_codes[np.searchsorted(self.starts, rows, "right") - 1]
            entries = read(pa.table({name: take_rows(column, rows)}), name)
        # Codes count first appearances, so a row is the first of its series where they peak.
        peak = np.maximum.accumulate(codes)
        first = np.flatnonzero(np.diff(peak, prepend=-1))
        expected = entries[first][codes]
        differs = (entries != expected) & ((entries == entries) | (expected == expected))
        if differs.any():
            at = int(np.argmax(differs))
            raise InputError(
                f"column {name!r} must not change within a series, got {entries[at].item()!r} in "
                f"row {rows[at]} and {expected[at].item()!r} before in "
                f"{self.name(int(codes[at]))}; give it as a channel instead"
            )
        return entries[first]


def sorting_order(codes: Index, times: FloatTimes, *, strict: bool = True) -> Index | None:
    """The permutation that sorts by series, then time; None if nothing is to be done."""
    if _in_order(codes, times, strict):
        return None
    # Sorting small integers takes numpy one pass per byte: by series first.
    small = codes.astype(np.min_scalar_type(int(codes.max())))
    order = np.argsort(small, kind="stable")
    when = times[order]
    ends = np.cumsum(np.bincount(codes))
    starts = np.append(0, ends[:-1])
    ahead = np.append(True, when[1:] >= when[:-1])
    ahead[starts[starts < ends]] = True
    wrong = np.unique(np.searchsorted(ends, np.flatnonzero(~ahead), "right"))
    if len(wrong) > len(times) // 64:  # many short series
        by_time = np.argsort(times)
        return np.asarray(by_time[np.argsort(small[by_time], kind="stable")], dtype=np.int64)
    for b in wrong.tolist():  # each fits a cache
        part = slice(int(starts[b]), int(ends[b]))
        order[part] = order[part][np.argsort(when[part])]
    return np.asarray(order, dtype=np.int64)


def _in_order(codes: Index, times: FloatTimes, strict: bool) -> bool:
    ahead = times[1:] > times[:-1] if strict else times[1:] >= times[:-1]
    ahead |= codes[1:] != codes[:-1]
    return bool(ahead.all()) and bool((codes[1:] >= codes[:-1]).all())


def offsets_of(codes: Index, n_series: int) -> Index:
    """``(B+1,)`` offsets of series whose rows, once sorted, have these codes."""
    offsets = np.zeros(n_series + 1, dtype=np.int64)
    np.cumsum(np.bincount(codes, minlength=n_series), out=offsets[1:])
    return offsets
