"""Wide tables of whole series -> batches, laid down piece by piece while the caches hold a piece.

What ``SeriesBatch.from_table`` does in several passes over all rows happens here in one over each
piece as it comes from the file: columns side by side, times in order or not, values finite or not.
Only where something is out of order or wrong, rows go through the usual checks, which sort or tell.
"""

import ctypes
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.series._columns import numbers, stamps
from roughformer.series._convert import Extras, Parts
from roughformer.series._rows import sorting_order
from roughformer.signatures.library import Lay, load
from roughformer.store.columns import TableColumns
from roughformer.store.reading import Piece, check_size
from roughformer.store.rooms import Rooms

__all__ = ["Seen", "laid_series", "lay"]

_BLOCK = 20 << 20  # bytes of a batch, and what else its last series has
Array = npt.NDArray[Any]


class Seen(NamedTuple):
    """What was seen of rows on the way: steps from a time to one that is not later, whether any
    value is NaN, or infinite, and whether a time is either.
    """

    falls: int
    missing: bool
    infinite: bool
    unbounded: bool


def laid_series(
    pieces: Iterator[Piece],
    columns: TableColumns,
    origin: np.datetime64 | None,
    memory: int,
    rooms: Rooms,
) -> Iterator[SeriesBatch]:
    """``pieces`` in order of their ids -> batches of whole series; for one series at most
    ``memory`` bytes. For wide tables without labels and static covariates. The arrays of a batch
    are of ``rooms``: they are used again when nobody has the batch any more.
    """
    block: _Block | None = None
    for table, ids, starts in pieces:
        first = 0
        if block is not None and block.full:
            ends = np.flatnonzero(ids != block.newest)  # it may go on in this piece
            if len(ends):
                first = int(starts[ends[0]])
                block.add(table.slice(0, first), ids[: ends[0]], starts[: ends[0]])
                yield block.batch()
                block, ids, starts = None, ids[ends[0] :], starts[ends[0] :] - first
        block = block or _Block(columns, origin, table, rooms)
        block.add(table.slice(first), ids, starts)
        check_size(block.newest, block.bytes_of_newest, memory)
    if block is not None:
        yield block.batch()


class _Block:
    """Rows one after the other, with room for more."""

    def __init__(
        self,
        columns: TableColumns,
        origin: np.datetime64 | None,
        like: pa.Table,
        rooms: Rooms,
    ) -> None:
        self.columns, self.origin = columns, origin
        kinds = [like.schema.field(name).type for name in columns.channels]
        single = all(pt.is_float32(kind) or pt.is_float16(kind) for kind in kinds)
        dtype = np.dtype(np.float32 if single else np.float64)
        self.row_bytes = 8 + dtype.itemsize * len(kinds)
        self.target = _BLOCK // self.row_bytes
        room = self.target + 2 * len(like)
        self.times, self.values = rooms.room(room, len(kinds), dtype)
        self.rows, self.seen = 0, Seen(0, False, False, False)
        self.ids: list[Array] = []
        self.starts: list[Array] = []

    @property
    def full(self) -> bool:
        return self.rows >= self.target

    @property
    def newest(self) -> Any:
        """The id of the last row."""
        return self.ids[-1][-1]

    @property
    def bytes_of_newest(self) -> int:
        """Of its rows in this block, one after the other."""
        return (self.rows - int(self.starts[-1][-1])) * self.row_bytes

    def add(self, table: pa.Table, ids: Array, starts: Array) -> None:
        """More rows: series ``ids`` from ``starts`` on."""
        if len(table) == 0:
            return
        first, last = self.rows, self.rows + len(table)
        if last > len(self.times):
            self._grow(max(last, 2 * len(self.times)))
        times, self.origin = stamps(table, self.columns.time, self.origin, check=False)
        values = [numbers(table, name) for name in self.columns.channels]
        seen = lay(times, values, self.times[first:last], self.values[first:last])
        if seen.unbounded:
            stamps(table, self.columns.time, self.origin)  # tells which number
            raise InputError(
                f"times in column {self.columns.time!r} must be dates or durations, got NaT in row "
                f"{int(np.argmin(np.isfinite(times)))}; drop the row or give it a time"
            )
        over = int(first > 0 and not self.times[first] > self.times[first - 1])
        self.seen = Seen(
            self.seen.falls + seen.falls + over,
            self.seen.missing or seen.missing,
            self.seen.infinite or seen.infinite,
            False,
        )
        self.rows = last
        before = ids[:1] if not self.ids else self.ids[-1][-1:]
        new = ids != np.append(before, ids[:-1])
        new[0] |= not self.ids
        if new.any():
            self.ids.append(ids[new])
            self.starts.append(starts[new] + first)

    def _grow(self, room: int) -> None:
        for name in ("times", "values"):
            old = getattr(self, name)
            new = np.empty((room, *old.shape[1:]), old.dtype)
            new[: self.rows] = old[: self.rows]
            setattr(self, name, new)

    def batch(self) -> SeriesBatch:
        """The series; the arrays are theirs from now on."""
        times, values = self.times[: self.rows], self.values[: self.rows]
        ids, starts = np.concatenate(self.ids), np.concatenate(self.starts)
        offsets = np.append(starts, self.rows)
        between = starts[1:]
        falls = int(np.count_nonzero(~(times[between] > times[between - 1])))
        if self.seen.falls == falls and not self.seen.infinite:
            return SeriesBatch._trusted(
                values=values, offsets=offsets, times=times, grid=None,
                channels=self.columns.channels, ids=ids, static=None, static_names=(),
                labels=None, time_origin=self.origin, missing=self.seen.missing,
            )  # fmt: skip
        codes = np.repeat(np.arange(len(ids)), np.diff(offsets))
        order = sorting_order(codes, times)
        if order is not None:
            times, values = times[order], values[order]
        parts = Parts(values, offsets, times, None, self.origin)
        return SeriesBatch._from_parts(parts, Extras(channels=self.columns.channels, ids=ids))


def lay(times: Array, columns: list[Array], times_out: Array, values_out: Array) -> Seen:
    """``times (n,)`` and C columns ``(n,)`` into ``times_out (n,)`` and ``values_out (n, C)``."""
    library = load()
    if library is None:
        return _lay_slowly(times, columns, times_out, values_out)
    times = np.ascontiguousarray(times, np.float64)
    held = [np.ascontiguousarray(column, values_out.dtype) for column in columns]
    pointers = (ctypes.c_void_p * len(held))(*(column.ctypes.data for column in held))
    job = Lay(
        times=times.ctypes.data,
        columns=ctypes.addressof(pointers),
        times_out=times_out.ctypes.data,
        values_out=values_out.ctypes.data,
        n_rows=len(times),
        dtype=int(values_out.dtype == np.float64),
        channels=len(held),
    )
    library.rf_lay(ctypes.byref(job))
    return Seen(job.falls, bool(job.missing), bool(job.infinite), bool(job.unbounded))


def _lay_slowly(times: Array, columns: list[Array], times_out: Array, values_out: Array) -> Seen:
    times_out[:] = times
    for c, column in enumerate(columns):
        values_out[:, c] = column
    falls = int(np.count_nonzero(~(times[1:] > times[:-1])))
    missing, infinite = bool(np.isnan(values_out).any()), bool(np.isinf(values_out).any())
    return Seen(falls, missing, infinite, not np.isfinite(times).all())
