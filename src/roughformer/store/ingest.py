"""Read row groups of Parquet files as batches of whole series, in bounded memory.

Ids ascend from row group to row group (``by_id``), so a series is whole when the next id begins.
Rows are looked at in slices; only where ids are mixed within a row group, all of it is taken at
once and sorted. Series that are spread over row groups are shuffled first: see below.
"""

import ctypes
import hashlib
import json
import struct
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from roughformer.errors import CapacityError, InputError
from roughformer.series import (
    Extras,
    Parts,
    SeriesBatch,
    column_numbers,
    column_times,
    run_starts,
    sorting_order,
    take_rows,
)
from roughformer.signatures import Lay, load
from roughformer.store.dataset import Group, TableColumns
from roughformer.store.storage import Place, retrying


def runs_of(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """``(R,)`` rows at which another entry begins than in the row before, the first one included,
    and those at which chunks begin.
    """
    library = load()
    if library is None or column.num_chunks != 1:
        return run_starts(column)
    chunk = column.chunk(0)
    codes = chunk.indices if pt.is_dictionary(chunk.type) else chunk
    whole = pt.is_integer(codes.type) and codes.type.bit_width in (32, 64)
    if not whole or codes.null_count:
        return run_starts(column)
    numbers = codes.to_numpy()
    starts = np.empty(len(numbers), np.int64)
    count = library.rf_runs(numbers.ctypes.data, len(numbers), numbers.itemsize, starts.ctypes.data)
    return starts[:count].copy()


# Large arrays that are filled again and again.

_MOST = 2  # one is filled while the batch before is still known to whoever takes it
Array = npt.NDArray[Any]


class BufferPool:
    """Arrays of times and values that are used again when nobody has them any more: new ones
    would cost the system as much time to clear as it takes to fill them.

    For one thread. A copy in another process has its own.
    """

    def __init__(self) -> None:
        """None yet."""
        self._held: list[tuple[Array, Array]] = []

    def __reduce__(self) -> Any:
        """Without the arrays."""
        return BufferPool, ()

    def take(self, rows: int, channels: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        """``times (n,)`` and ``values (n, C)`` with n >= ``rows``, for the caller alone."""
        unknown = _known((np.empty(0), np.empty((0, 1))))
        for number, pair in enumerate(self._held):
            if _known(pair) == unknown:
                times, values = pair
                if len(times) >= rows and values.shape[1] == channels and values.dtype == dtype:
                    return times, values
                del self._held[number]
                break
        del self._held[: len(self._held) - _MOST + 1]
        times, values = np.empty(rows), np.empty((rows, channels), dtype)
        self._held.append((times, values))
        return times, values  # not the tuple that is held: who has that has no arrays


def _known(pair: tuple[Array, Array]) -> tuple[int, int]:
    """How many know each array. How often a count itself adds to it depends on the version of
    Python, so it is compared with that of arrays which nobody else can know. A view knows the array
    that it is of, so whoever has a batch counts.
    """
    times, values = pair
    return sys.getrefcount(times), sys.getrefcount(values)


# Row groups -> tables of whole series, with little more in memory than one series of each.

_SLICE, _LEAST_ROWS = 8 << 20, 1 << 10  # bytes of a slice: the caches of a processor hold them


class MixedIds(Exception):
    """Ids do not ascend within a row group; take it as a whole."""


class AscendingRows(NamedTuple):
    """Rows in which ids ascend: runs of rows with the same id begin at ``starts (R,)``."""

    table: pa.Table
    ids: Any
    starts: Any


def read_groups(
    groups: Sequence[Group], columns: Sequence[str], schema: pa.Schema, whole: bool = False
) -> Iterator[pa.Table]:
    """The rows of some row groups in order, in slices or (``whole``) row group by row group."""
    at = 0
    while at < len(groups):
        place, end = groups[at].place, at + 1
        while not whole and end < len(groups) and groups[end].place == place:
            end += 1
        path_keys = dict(groups[at].keys)
        stored = [name for name in columns if name not in path_keys]
        numbers = [group.number for group in groups[at:end]]
        try:
            file = _open_file(place, columns[0])
            if whole:
                tables = iter([file.read_row_groups(numbers, stored, use_threads=False)])
            else:
                width = max(group.bytes / group.rows for group in groups[at:end])
                batches = file.iter_batches(
                    max(int(_SLICE / width), _LEAST_ROWS),
                    row_groups=numbers, columns=stored, use_threads=False,
                )  # fmt: skip
                tables = (pa.Table.from_batches([batch]) for batch in batches)
            for table in tables:
                yield _in_kind(_with_path_keys(table, path_keys).select(columns), schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            # Of a file that is elsewhere, this may be the connection.
            if isinstance(error, OSError) and not place.local:
                raise
            text = " ".join(str(error).split())
            raise InputError(f"{place} is damaged, rows cannot be read: {text}") from None
        at = end


def ascending_rows(
    tables: Iterator[pa.Table],
    series_id: str,
    *,
    after: Any = None,
    until: Any = None,
    sort: bool = False,
) -> Iterator[AscendingRows]:
    """Tables whose ids ascend, and what they have of the series with ``after`` < id <= ``until``.
    Nothing is read beyond those: see ``check_rest``.

    ``sort``: rows within a table are sorted by id where they must be, else that is ``MixedIds``.
    """
    newest = None
    for table in tables:
        table, starts, ids = _by_id(table, series_id, sort)
        first = 0 if after is None else _beyond(ids, after)
        end = len(ids) if until is None else _beyond(ids, until)
        if first < end:
            if newest is not None and ids[first] < newest:
                raise MixedIds
            newest = ids[end - 1]
            rows = np.append(starts, len(table))
            table = table.slice(rows[first], rows[end] - rows[first])
            yield AscendingRows(table, ids[first:end], starts[first:end] - rows[first])
        if end < len(ids):  # what comes is beyond, too
            return


def _beyond(ids: Any, bound: Any) -> int:
    """How many of the ascending ``ids`` are at most ``bound``."""
    # A bound of another kind would be compared in float64, which does not hold large ids.
    exact = ids.dtype.type(bound) if ids.dtype.kind in "iu" else bound
    return int(np.searchsorted(ids, exact, "right"))


def check_rest(groups: Sequence[Group], series_id: str, schema: pa.Schema, until: Any) -> None:
    """``MixedIds`` unless ids ascend in the row groups that go on beyond ``until``: if they do not,
    more rows of the series before may come after what ``ascending_rows`` reads.
    """
    own = pa.schema([schema.field(series_id)])
    for group in groups:
        if group.high > until:
            for table in read_groups([group], (series_id,), own, whole=True):
                _by_id(table, series_id, sort=False)


def whole_series(pieces: Iterator[AscendingRows], memory: int) -> Iterator[pa.Table]:
    """``pieces`` in order of their ids -> tables of whole series. No more than ``memory`` bytes may
    be held for one series.
    """
    held: list[pa.Table] = []  # of the series that may go on
    size, newest = 0, None
    for table, ids, starts in pieces:
        begin = int(starts[np.searchsorted(ids, ids[-1])])  # of the last series
        if begin if newest is None else ids[-1] != newest:
            yield pa.concat_tables([*held, table.slice(0, begin)])
            held, size = [], 0
        newest = ids[-1]
        held.append(table.slice(begin) if not held else table)
        size += held[-1].nbytes
        check_size(newest, size, memory)
    if held:
        yield pa.concat_tables(held)


def check_size(series: Any, size: int, memory: int) -> None:
    """``CapacityError`` if that many bytes of a series are too many."""
    if size > memory:
        raise CapacityError(
            f"series {series.item()!r} has {size // 2**20} MB and may go on, more than a worker "
            "may hold of one series, a quarter of its memory; give more with --memory"
        )


def _by_id(table: pa.Table, series_id: str, sort: bool) -> tuple[pa.Table, Any, Any]:
    """The table with ids that ascend, where other ids begin, and which."""
    ids = table.column(series_id)
    starts = runs_of(ids)
    if len(ids) and ids.num_chunks == 1 and pt.is_integer(ids.type) and not ids.null_count:
        keys = ids.chunk(0).to_numpy()[starts]
    else:
        keys = _keys(ids, starts) if sort or len(starts) <= len(table) // 4 + 1 else None
    if keys is not None and (keys[1:] >= keys[:-1]).all():
        return table, starts, keys
    if not sort:
        raise MixedIds
    return _by_id(table.take(pc.sort_indices(_decode_ids(ids))), series_id, sort)


def _open_file(place: Place, series_id: str) -> pq.ParquetFile:
    """Texts of ids are read as codes into a dictionary."""
    file = place.open_large()
    metadata = pq.read_metadata(file)
    schema = metadata.schema.to_arrow_schema()
    kind = schema.field(series_id).type if series_id in schema.names else pa.null()
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return pq.ParquetFile(
        file,
        metadata=metadata,
        read_dictionary=[series_id] if texts else None,
        # Of a mapped file this is a word to the system about what will be read, not a copy.
        pre_buffer=isinstance(file, pa.MemoryMappedFile) or not place.local,
        page_checksum_verification=True,
    )


def _with_path_keys(table: pa.Table, path_keys: dict[str, Any]) -> pa.Table:
    """Add the columns that are keys of the path: whole numbers, or codes of one text."""
    for name, value in path_keys.items():
        column = pa.array(np.full(len(table), 0 if isinstance(value, str) else value))
        if isinstance(value, str):
            column = pa.DictionaryArray.from_arrays(column.cast(pa.int32()), [value])
        table = table.append_column(name, column)
    return table


def _in_kind(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Columns of the kinds of the first file; ids may stay codes into a dictionary."""
    for number, field in enumerate(schema):
        kind = table.schema.field(number).type
        if kind != field.type and not (number == 0 and pa.types.is_dictionary(kind)):
            table = table.set_column(number, field.name, table.column(number).cast(field.type))
    return table


def _decode_ids(ids: pa.ChunkedArray) -> pa.ChunkedArray:
    return ids.cast(ids.type.value_type) if pa.types.is_dictionary(ids.type) else ids


def _keys(ids: pa.ChunkedArray, rows: Any) -> Any:
    """Ids of some rows, as numpy has them."""
    some = _decode_ids(take_rows(ids, rows))
    if some.null_count:
        raise InputError("each row must have a series id, got null; drop such rows")
    text = pa.types.is_string(some.type) or pa.types.is_large_string(some.type)
    return np.array(some.to_pylist(), dtype=str) if text else some.to_numpy()


# Wide tables of whole series -> batches, laid down piece by piece while the caches hold a piece.

_BLOCK = 20 << 20  # bytes of a batch, and what else its last series has


class Seen(NamedTuple):
    """What was seen of rows on the way: steps from a time to one that is not later, whether any
    value is NaN, or infinite, and whether a time is either.
    """

    falls: int
    missing: bool
    infinite: bool
    unbounded: bool


def interleaved_series(
    pieces: Iterator[AscendingRows],
    columns: TableColumns,
    origin: np.datetime64 | None,
    memory: int,
    buffers: BufferPool,
) -> Iterator[SeriesBatch]:
    """``pieces`` in order of their ids -> batches of whole series; for one series at most
    ``memory`` bytes. For wide tables without labels and static covariates. The arrays of a batch
    are of ``buffers``: they are used again when nobody has the batch any more.
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
        block = block or _Block(columns, origin, table, buffers)
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
        buffers: BufferPool,
    ) -> None:
        self.columns, self.origin = columns, origin
        kinds = [like.schema.field(name).type for name in columns.channels]
        single = all(pt.is_float32(kind) or pt.is_float16(kind) for kind in kinds)
        dtype = np.dtype(np.float32 if single else np.float64)
        self.row_bytes = 8 + dtype.itemsize * len(kinds)
        self.target = _BLOCK // self.row_bytes
        room = self.target + 2 * len(like)
        self.times, self.values = buffers.take(room, len(kinds), dtype)
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
        times, self.origin = column_times(table, self.columns.time, self.origin, check=False)
        values = [column_numbers(table, name) for name in self.columns.channels]
        seen = interleave(times, values, self.times[first:last], self.values[first:last])
        if seen.unbounded:
            column_times(table, self.columns.time, self.origin)  # tells which number
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


def interleave(times: Array, columns: list[Array], times_out: Array, values_out: Array) -> Seen:
    """``times (n,)`` and C columns ``(n,)`` into ``times_out (n,)`` and ``values_out (n, C)``."""
    library = load()
    if library is None:
        return _interleave_in_numpy(times, columns, times_out, values_out)
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


def _interleave_in_numpy(
    times: Array, columns: list[Array], times_out: Array, values_out: Array
) -> Seen:
    times_out[:] = times
    for c, column in enumerate(columns):
        values_out[:, c] = column
    falls = int(np.count_nonzero(~(times[1:] > times[:-1])))
    missing, infinite = bool(np.isnan(values_out).any()), bool(np.isinf(values_out).any())
    return Seen(falls, missing, infinite, not np.isfinite(times).all())


Hashes = npt.NDArray[np.uint64]


def hash_ids(ids: npt.NDArray[Any]) -> Hashes:
    """``(n,)`` whole numbers or texts -> 64 bits each: splitmix64, or BLAKE2b of UTF-8."""
    if ids.dtype.kind in "iu":
        return _splitmix64(ids.astype(np.uint64))
    raw = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in ids.tolist())
    return np.frombuffer(b"".join(raw), "<u8").astype(np.uint64)


def numbers_of(ids: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Numbers below 2^32 that stand for series where points are dropped at random."""
    return (hash_ids(ids) >> np.uint64(32)).astype(np.int64)


def buckets_of(column: pa.ChunkedArray, count: int) -> npt.NDArray[np.uint16]:
    """The bucket, 0 ... count - 1, of each row by its id; at most 2^16 of them."""
    parts = [np.zeros(0, np.uint16)]
    for chunk in column.chunks:
        if pa.types.is_integer(chunk.type):
            parts.append(_bucket(hash_ids(chunk.to_numpy()), count))
        else:
            coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
            entries = np.array(coded.dictionary.to_pylist(), dtype=str)
            parts.append(_bucket(hash_ids(entries), count)[coded.indices.to_numpy()])
    return np.concatenate(parts)


def _bucket(hashes: Hashes, count: int) -> npt.NDArray[np.uint16]:
    high = hashes >> np.uint64(32)
    return ((high * np.uint64(count)) >> np.uint64(32)).astype(np.uint16)


def _splitmix64(x: Hashes) -> Hashes:
    """splitmix64: a bijection of 64-bit words whose output bits look independent."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


# Rows by bucket: the one thing that is ever moved, where series are spread over row groups.

MOST_BUCKETS = 1 << 16
_ENTRY = struct.Struct("<QQI")  # of the index: first byte, bytes, CRC-32
_FOOTER = struct.Struct("<III8s")  # buckets, bytes of the JSON, CRC-32 of index and JSON, magic
_MAGIC = b"rfpiece1"


@dataclass(frozen=True)
class ShuffleUnit:
    """Row groups whose rows make one piece."""

    number: int
    groups: tuple[Group, ...]

    @property
    def rows(self) -> int:
        """Of all of them."""
        return sum(group.rows for group in self.groups)


@dataclass(frozen=True)
class ShuffledPiece:
    """A finished piece: the rows of each bucket, and the time it took."""

    place: Place
    rows: tuple[int, ...]
    seconds: dict[str, float]


@dataclass(frozen=True)
class ShuffleWork:
    """A unit -> a piece in ``directory``; picklable."""

    directory: Place
    key: str
    columns: tuple[str, ...]  # the id first
    schema: pa.Schema
    n_buckets: int

    def place(self, number: int) -> Place:
        """Where a piece is put."""
        # The key in it: what an earlier build left running cannot write into this one.
        return self.directory / f"piece-{self.key[:16]}-{number:05d}.arrow"

    def __call__(self, unit: ShuffleUnit) -> ShuffledPiece:
        """Read, sort by bucket, write."""
        start = time.perf_counter()
        tables = read_groups(unit.groups, self.columns, self.schema)
        read = retrying(lambda: list(tables), unit.groups[0].place)
        table = pa.concat_tables([_spelled_out(part, self.schema) for part in read])
        between = time.perf_counter()
        ids = table.column(self.columns[0])
        if ids.null_count:
            raise InputError(
                f"column {self.columns[0]!r} must name the series of each row, got "
                f"{ids.null_count} rows without it; drop them"
            )
        bucket = buckets_of(ids, self.n_buckets)
        order = np.argsort(bucket, kind="stable")
        rows = np.bincount(bucket, minlength=self.n_buckets)
        table = table.take(pa.array(order)).combine_chunks()
        head = {"key": self.key, "unit": unit.number, "rows": rows.tolist()}
        place = self.place(unit.number)

        def write(stream: Any) -> None:
            index, position = [], 0
            for first, count in zip(np.cumsum(rows) - rows, rows, strict=True):
                part = _encode(table.slice(int(first), int(count)))
                index.append(_ENTRY.pack(position, len(part), zlib.crc32(part)))
                position += len(part)
                stream.write(part)
            end = json.dumps(head).encode()
            checksum = zlib.crc32(b"".join(index) + end)
            footer = _FOOTER.pack(self.n_buckets, len(end), checksum, _MAGIC)
            stream.write(b"".join([*index, end, footer]))

        place.put(write)
        end = time.perf_counter()
        return ShuffledPiece(
            place, tuple(rows.tolist()), {"read": between - start, "shuffle": end - between}
        )


def finished_piece(place: Place, key: str, number: int) -> ShuffledPiece | None:
    """The piece at ``place``, read in full; None if it is damaged or none of this build."""
    try:
        data = place.read()
        n_buckets, size, checksum, magic = _FOOTER.unpack(data[-_FOOTER.size :])
        begin = len(data) - _FOOTER.size - size - n_buckets * _ENTRY.size
        tail = data[begin : -_FOOTER.size] if begin >= 0 else b""
        if magic != _MAGIC or zlib.crc32(tail) != checksum:
            return None
        head = json.loads(tail[len(tail) - size :])
        if (head["key"], head["unit"]) != (key, number):
            return None
        for first, count, expected in _ENTRY.iter_unpack(tail[: len(tail) - size]):
            if zlib.crc32(data[first : first + count]) != expected:
                return None
        return ShuffledPiece(place, tuple(head["rows"]), {})
    except (FileNotFoundError, KeyError, TypeError, ValueError, struct.error):
        return None


def read_bucket(pieces: Sequence[Place], number: int) -> pa.Table:
    """All rows of a bucket, in the order of the pieces."""

    def read(place: Place) -> pa.Table:
        with place.system.open_input_file(place.path) as file:
            size = file.size()
            n_buckets, head, _, magic = _FOOTER.unpack(
                file.read_at(_FOOTER.size, max(size - _FOOTER.size, 0))
            )
            back = _FOOTER.size + head + (n_buckets - number) * _ENTRY.size
            if magic != _MAGIC or back > size:
                raise ValueError
            first, count, checksum = _ENTRY.unpack(file.read_at(_ENTRY.size, size - back))
            if first + count > size:
                raise ValueError
            part = file.read_at(count, first)
        if zlib.crc32(part) != checksum:
            raise ValueError
        return pa.ipc.open_stream(part).read_all()

    def checked(place: Place) -> pa.Table:
        try:
            return read(place)
        except (ValueError, struct.error):  # ArrowInvalid is a ValueError
            raise InputError(
                f"{place} is damaged, its checksum does not match; run the command again to "
                "make a new one"
            ) from None

    return pa.concat_tables([retrying(partial(checked, place), place) for place in pieces])


def _encode(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def _spelled_out(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Without dictionaries, of which an Arrow file has but one."""
    plain = [
        pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type)
        for f in schema
    ]
    return table.cast(pa.schema(plain))
