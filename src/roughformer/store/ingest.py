"""Read row groups of Parquet files as batches of whole series, in bounded memory.

Ids ascend from row group to row group (``by_id``), so a series is whole when the next id begins.
Rows are looked at in slices; only where ids are mixed within a row group, all of it is taken at
once and sorted. Series that are spread over row groups are shuffled first: see below.
"""

import hashlib
import struct
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
from roughformer.series import run_starts, take_rows
from roughformer.signatures import load
from roughformer.store.dataset import Group
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
        if size > memory:
            raise CapacityError(
                f"series {newest.item()!r} has {size // 2**20} MB and may go on, more than a "
                "worker may hold of one series, a quarter of its memory; give more with --memory"
            )
    if held:
        yield pa.concat_tables(held)


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
    texts = pt.is_string(kind) or pt.is_large_string(kind)
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
        if kind != field.type and not (number == 0 and pt.is_dictionary(kind)):
            table = table.set_column(number, field.name, table.column(number).cast(field.type))
    return table


def _decode_ids(ids: pa.ChunkedArray) -> pa.ChunkedArray:
    return ids.cast(ids.type.value_type) if pt.is_dictionary(ids.type) else ids


def _keys(ids: pa.ChunkedArray, rows: Any) -> Any:
    """Ids of some rows, as numpy has them."""
    keys = _decode_ids(take_rows(ids, rows))
    if keys.null_count:
        raise InputError("each row must have a series id, got null; drop such rows")
    text = pt.is_string(keys.type) or pt.is_large_string(keys.type)
    return np.array(keys.to_pylist(), dtype=str) if text else keys.to_numpy()


# The bucket of a series follows from its id.

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
        if pt.is_integer(chunk.type):
            parts.append(_bucket(hash_ids(chunk.to_numpy()), count))
        else:
            coded = chunk if pt.is_dictionary(chunk.type) else chunk.dictionary_encode()
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
# Behind the buckets of a piece: where each of them is, and the end.
_BUCKET = np.dtype([("first", "<u8"), ("bytes", "<u8"), ("rows", "<u8"), ("checksum", "<u4")])
_END = struct.Struct("<II8s")  # number of buckets, CRC-32 of the index, magic
_MAGIC = b"rfpiece2"


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
        parts = retrying(lambda: list(tables), unit.groups[0].place)
        table = pa.concat_tables([_without_dictionaries(part, self.schema) for part in parts])
        between = time.perf_counter()
        ids = table.column(self.columns[0])
        if ids.null_count:
            raise InputError(
                f"column {self.columns[0]!r} must name the series of each row, got "
                f"{ids.null_count} rows without it; drop them"
            )
        bucket = buckets_of(ids, self.n_buckets)
        order = np.argsort(bucket, kind="stable")
        rows = np.bincount(bucket, minlength=self.n_buckets).tolist()
        table = table.take(pa.array(order)).combine_chunks()

        def write(stream: Any) -> None:
            index = np.zeros(self.n_buckets, _BUCKET)
            position = row = 0
            for number, count in enumerate(rows):
                part = _encoded(table.slice(row, count))
                index[number] = (position, len(part), count, zlib.crc32(part))
                position, row = position + len(part), row + count
                stream.write(part)
            tail = index.tobytes()
            stream.write(tail + _END.pack(len(index), zlib.crc32(tail), _MAGIC))

        place = self.place(unit.number)
        place.put(write)
        seconds = {"read": between - start, "shuffle": time.perf_counter() - between}
        return ShuffledPiece(place, tuple(rows), seconds)


def finished_piece(place: Place) -> ShuffledPiece | None:
    """The piece at ``place``, read in full; None if there is none or it is damaged."""
    try:
        data = place.read()
        n_buckets, checksum, magic = _END.unpack(data[-_END.size :])
        tail = data[: -_END.size][-n_buckets * _BUCKET.itemsize :]
        index = np.frombuffer(tail, _BUCKET)
    except (FileNotFoundError, ValueError, struct.error):
        return None
    whole = (magic, len(index), zlib.crc32(tail)) == (_MAGIC, n_buckets, checksum) and all(
        zlib.crc32(data[first : first + size]) == expected
        for first, size, _, expected in index.tolist()
    )
    return ShuffledPiece(place, tuple(index["rows"].tolist()), {}) if whole else None


def read_bucket(pieces: Sequence[Place], number: int) -> pa.Table:
    """All rows of a bucket, in the order of the pieces."""

    def read(place: Place) -> pa.Table:
        with place.system.open_input_file(place.path) as file:
            size = file.size()
            n_buckets, _, magic = _END.unpack(file.read_at(_END.size, max(size - _END.size, 0)))
            back = _END.size + (n_buckets - number) * _BUCKET.itemsize
            if magic != _MAGIC or back > size:
                raise ValueError
            entry = np.frombuffer(file.read_at(_BUCKET.itemsize, size - back), _BUCKET)
            ((first, count, _, checksum),) = entry.tolist()
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


def _encoded(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def _without_dictionaries(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Entries instead of codes: an Arrow file has one dictionary only."""
    plain = [
        pa.field(f.name, f.type.value_type if pt.is_dictionary(f.type) else f.type) for f in schema
    ]
    return table.cast(pa.schema(plain))
