"""Group rows by a hash of their series id, for series that are spread over row groups.

The rows of a span of row groups become one piece, put in place when it is whole: so this pass too
goes on where it was killed. A bucket is then the parts of its number in all pieces.

A piece is an Arrow stream for each bucket, an index of them with their CRC-32, a line of JSON, and
a footer. A part whose checksum does not match is refused; a damaged piece is made again by the next
run.
"""

import hashlib
import json
import struct
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roughformer.errors import InputError
from roughformer.store.dataset import Group
from roughformer.store.ingest import read_groups
from roughformer.store.storage import Place, retrying

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
    found = [np.zeros(0, np.uint16)]
    for chunk in column.chunks:
        if pa.types.is_integer(chunk.type):
            found.append(_bucket(hash_ids(chunk.to_numpy()), count))
        else:
            coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
            entries = np.array(coded.dictionary.to_pylist(), dtype=str)
            found.append(_bucket(hash_ids(entries), count)[coded.indices.to_numpy()])
    return np.concatenate(found)


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
class PieceUnit:
    """Row groups whose rows make one piece."""

    number: int
    groups: tuple[Group, ...]

    @property
    def rows(self) -> int:
        """Of all of them."""
        return sum(group.rows for group in self.groups)


@dataclass(frozen=True)
class Piece:
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

    def __call__(self, unit: PieceUnit) -> Piece:
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
        return Piece(
            place, tuple(rows.tolist()), {"read": between - start, "shuffle": end - between}
        )


def finished_piece(place: Place, key: str, number: int) -> Piece | None:
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
        return Piece(place, tuple(head["rows"]), {})
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
                f"{place} is damaged, its checksum does not match; run the command again, which "
                "makes it anew"
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
