"""Shards: Parquet files with a row per series, its tokens and its points as arrays of numbers.

    series_id  label  static      one per series; label and static (S,) where there are any
    times      values             L points: (L,) and (L, C), NaN = not observed
    windows    token_times tokens W windows: W, (W,) and (W, F)
    spectrum                      (C, J)

An array is a binary value: its numbers in row-major order, little-endian, of the kind that the
field's metadata name (``dtype``: ``<f4`` or ``<f8``). Lists of numbers would say the same, but
writing and reading them takes Parquet several times as long. Row groups are small, so that a
reader may take series in any order without reading much more than it needs.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, ValidationError

from roughformer.errors import CapacityError, InputError
from roughformer.series import SeriesBatch
from roughformer.store.storage import Place
from roughformer.tokens import Tokenizer

MANIFEST = "manifest.json"
Holding = Literal["tokens", "series"]


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DataFile(_Plain):
    """A file that a store was made of; a change of it changes ``modified`` or the rest."""

    path: str
    size: int
    modified: int  # nanoseconds since 1970
    fingerprint: str  # of the Parquet footer
    keys: dict[str, str] = {}  # columns that its path tells: name -> text


class ShardInfo(_Plain):
    """One file of a store: ``series`` rows, with ``points`` observations and ``windows`` tokens."""

    file: str
    series: int
    points: int
    windows: int
    bytes: int


class Totals(_Plain):
    """Sums over the shards."""

    series: int
    points: int
    windows: int


class Manifest(_Plain):
    """All that must be known to read the shards; ``key`` is a hash of data and configuration."""

    format: Literal[1] = 1
    kind: Literal["roughformer.store"] = "roughformer.store"
    key: str
    holds: tuple[Holding, ...]
    channels: tuple[str, ...]
    static_names: tuple[str, ...] = ()
    labelled: bool = False
    time_origin: str | None = None
    tokenizer: Tokenizer | None = None
    data: tuple[DataFile, ...] = ()
    options: dict[str, Any] = {}
    totals: Totals
    shards: tuple[ShardInfo, ...]
    roughformer: str

    @property
    def origin(self) -> np.datetime64 | None:
        """The date that time 0 stands for, where the data have dates."""
        return None if self.time_origin is None else np.datetime64(self.time_origin, "ns")

    def write(self, store: Place) -> None:
        """Put it into the directory of the store."""
        text = json.dumps(self.model_dump(mode="json"), indent=1, allow_nan=False)
        (store / MANIFEST).put(text.encode())

    @classmethod
    def read(cls, store: Place) -> "Manifest":
        """That of the store in a directory; ``InputError`` if there is no complete one."""
        place = store / MANIFEST
        try:
            text = place.read()
        except FileNotFoundError:
            raise InputError(
                f"{store} is no complete feature store: it has no {MANIFEST}; make it, or finish "
                "it, with roughformer features DATA... --out"
            ) from None
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "its text"
            raise InputError(
                f"{place} is damaged or of another version of roughformer: {where}: "
                f"{first['msg']}; make the store again"
            ) from None


def shard_name(number: int) -> str:
    """File of shard ``number``."""
    return f"shard-{number:05d}.parquet"


def hash_of(plain: Any) -> str:
    """A hash of plain data, the same on every machine."""
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# Shards: Parquet files with a row per series, its tokens and its points as arrays of numbers.

HEAD = b"roughformer.store"
SERIES_COLUMNS = ("times", "values")
TOKEN_COLUMNS = ("windows", "token_times", "tokens", "spectrum")
_MOST_SERIES, _MOST_BYTES = 64, 4 << 20  # of a row group
# Words of signatures hardly get smaller: zstd's fastest level takes three times as long as lz4 and
# saves nothing, its level 1 saves 5 %.
_COMPRESSION = "lz4"
# What pyarrow, or reading its result, raises for a damaged file.
DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError, TypeError)
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Tokens:
    """Tokens of B series one after the other: series b has the rows ``offsets[b]:offsets[b+1]``."""

    tokens: npt.NDArray[np.float32]  # (sum W, F)
    times: npt.NDArray[np.float32]  # (sum W,)
    offsets: npt.NDArray[np.int64]  # (B + 1,)
    spectrum: npt.NDArray[np.float32] | None = None  # (B, C, J)

    @property
    def windows(self) -> npt.NDArray[np.int64]:
        """``(B,)``."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Rows:
    """B series of a store; ``series`` and ``tokens`` where they are held, and were read."""

    ids: Array  # (B,)
    points: int  # of all of them, also where the series are not held
    labels: Array | None = None  # (B,)
    static: npt.NDArray[np.float64] | None = None  # (B, S)
    series: SeriesBatch | None = None
    tokens: Tokens | None = None

    def __len__(self) -> int:
        """B."""
        return len(self.ids)


def write_shard(
    place: Place,
    key: str,
    unit: int,
    blocks: Iterable[Rows],
    schema: pa.Schema,
    may_appear: Callable[[], None],
) -> ShardInfo:
    """Write ``blocks`` one after the other; the file appears when it is whole, unless
    ``may_appear()`` raises then.
    """
    counts = {"series": 0, "points": 0, "windows": 0}

    def write(stream: Any) -> None:
        # A put that failed on its way is tried again from a copy, not from here: blocks come once.
        writer = pq.ParquetWriter(
            stream,
            schema,
            compression=_COMPRESSION,
            use_dictionary=False,
            write_statistics=["series_id"],
            write_page_checksum=True,
        )
        try:
            for rows in blocks:
                table = to_table(rows, schema)
                each = max(table.nbytes // max(len(rows), 1), 1)
                size = max(1, min(_MOST_SERIES, _MOST_BYTES // each))
                writer.write_table(table, row_group_size=size)
                counts["series"] += len(rows)
                counts["points"] += rows.points
                counts["windows"] += 0 if rows.tokens is None else int(rows.tokens.offsets[-1])
            head = {"key": key, "unit": unit, **counts}
            writer.add_key_value_metadata({HEAD: json.dumps(head).encode()})
        except BaseException:
            with suppress(Exception):  # the file aside is removed in any case
                writer.close()
            raise
        writer.close()
        may_appear()

    size = place.put(write)
    return ShardInfo(file=place.name, bytes=size, **counts)


def open_shard(stream: Any) -> pq.ParquetFile:
    """The checksum of each page is verified when it is read."""
    return pq.ParquetFile(stream, page_checksum_verification=True)


def finished_shard(place: Place, key: str, unit: int, *, verify: bool = False) -> ShardInfo | None:
    """What ``write_shard`` returned for the file at ``place``; None if it is none of this build.
    ``verify``: read all of it, and None if it is damaged.
    """
    try:
        size = place.info().size
        # In memory, errors below are those of the shard and not of a connection.
        source = pa.BufferReader(place.read()) if verify else place.open()
        with source as stream, open_shard(stream) as file:
            head = json.loads((file.metadata.metadata or {})[HEAD])
            for number in range(file.num_row_groups if verify else 0):
                file.read_row_group(number, use_threads=False)
        if (head.pop("key"), head.pop("unit")) != (key, unit):
            return None
        return ShardInfo(file=place.name, bytes=size, **head)
    except FileNotFoundError:
        return None
    except DAMAGE as error:
        if isinstance(error, OSError) and not (place.local or verify):
            raise
        return None


def is_shard(place: Place) -> bool:
    """Whether a file is a shard of any store."""
    try:
        with place.open() as file:
            return HEAD in (pq.read_metadata(file).metadata or {})
    except (FileNotFoundError, pa.ArrowInvalid):
        return False


def read_rows(
    file: pq.ParquetFile,
    manifest: Manifest,
    groups: Sequence[int] | None = None,
    *,
    series: bool = True,
    tokens: bool = True,
) -> Rows:
    """The series of some row groups (None: all) of an open shard, in order. ``series`` and
    ``tokens`` say which of the two to read where the store has both. Numbers are not copied.
    """
    series, tokens = series and "series" in manifest.holds, tokens and "tokens" in manifest.holds
    left_out = (() if series else SERIES_COLUMNS) + (() if tokens else TOKEN_COLUMNS)
    columns = [name for name in file.schema_arrow.names if name not in left_out]
    chosen = range(file.num_row_groups) if groups is None else groups
    table = file.read_row_groups(list(chosen), columns, use_threads=False).combine_chunks()
    ids = _plain(table, "series_id")
    labels = _plain(table, "label") if manifest.labelled else None
    static = None
    if manifest.static_names:
        static = _unpacked(table, "static")[0].reshape(len(ids), -1)
    batch = None
    if series:
        times, offsets = _unpacked(table, "times")
        values, _ = _unpacked(table, "values")
        batch = SeriesBatch(
            times,
            values.reshape(len(times), len(manifest.channels)),
            offsets,
            channels=manifest.channels,
            ids=ids,
            static=static,
            static_names=manifest.static_names or None,
            labels=labels,
            time_origin=manifest.origin,
        )
    found = _tokens(table, manifest) if tokens else None
    points = 0 if batch is None else batch.n_points
    return Rows(ids, points, labels, static, batch, found)


def _tokens(table: pa.Table, manifest: Manifest) -> Tokens:
    times, offsets = _unpacked(table, "token_times")
    flat, _ = _unpacked(table, "tokens")
    assert manifest.tokenizer is not None
    spectrum = None
    if manifest.tokenizer.n_spectrum:
        shape = (table.num_rows, len(manifest.channels), -1)
        spectrum = _unpacked(table, "spectrum")[0].reshape(shape)
    return Tokens(flat.reshape(len(times), manifest.tokenizer.n_features), times, offsets, spectrum)


def schema_of(rows: Rows) -> pa.Schema:
    """Columns for rows like these."""
    fields = [pa.field("series_id", _kind(rows.ids), nullable=False)]
    if rows.labels is not None:
        fields.append(pa.field("label", _kind(rows.labels), nullable=False))
    for name, (array, _) in _arrays(rows).items():
        if name == "token_times":
            fields.append(pa.field("windows", pa.int32(), nullable=False))
        fields.append(pa.field(name, pa.binary(), False, {"dtype": array.dtype.str}))
    return pa.schema(fields)


def to_table(rows: Rows, schema: pa.Schema) -> pa.Table:
    """The rows as columns; numbers are not copied."""
    columns: dict[str, Any] = {"series_id": pa.array(rows.ids)}
    if rows.labels is not None:
        columns["label"] = pa.array(rows.labels)
    if rows.tokens is not None:
        columns["windows"] = pa.array(rows.tokens.windows.astype(np.int32))
    columns |= {name: _packed(array, ends) for name, (array, ends) in _arrays(rows).items()}
    cast = [columns[name].cast(schema.field(name).type) for name in schema.names]
    return pa.table(cast, schema=schema)


def _arrays(rows: Rows) -> dict[str, tuple[Array, npt.NDArray[np.int64]]]:
    """By column: all numbers one series after the other, and where in the first axis each series
    begins and the last one ends, ``(B + 1,)``.
    """
    one_each = np.arange(len(rows) + 1)
    found: dict[str, tuple[Array, npt.NDArray[np.int64]]] = {}
    if rows.static is not None:
        found["static"] = (rows.static, one_each)
    if rows.series is not None:
        found["times"] = (rows.series.times, rows.series.offsets)
        found["values"] = (rows.series.values, rows.series.offsets)
    if rows.tokens is not None:
        found["token_times"] = (rows.tokens.times, rows.tokens.offsets)
        found["tokens"] = (rows.tokens.tokens, rows.tokens.offsets)
        if rows.tokens.spectrum is not None:
            found["spectrum"] = (rows.tokens.spectrum, one_each)
    return found


def _kind(array: Array) -> pa.DataType:
    return pa.array(array[:0]).type if array.dtype.kind != "U" else pa.string()


def _packed(array: Array, ends: npt.NDArray[np.int64]) -> pa.Array:
    """Rows ``ends[b]:ends[b+1]`` of an array as one binary value each."""
    row = array.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    # A part of a batch begins anywhere in its arrays.
    offsets = (ends - ends[0]) * row
    if offsets[-1] >= 2**31:
        raise CapacityError("the arrays of a block of series must stay below 2 GB")
    data = pa.py_buffer(np.ascontiguousarray(array[int(ends[0]) : int(ends[-1])]))
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), data]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def _unpacked(table: pa.Table, name: str) -> tuple[Array, npt.NDArray[np.int64]]:
    """Of a column of arrays all numbers one after the other, and the offsets of the rows."""
    field, column = table.schema.field(name), table.column(name)
    kind = np.dtype(field.metadata[b"dtype"].decode())
    if kind.str not in ("<f4", "<f8"):
        raise ValueError(f"column {name!r} is of the kind {kind.str}")
    if column.num_chunks == 0 or len(column) == 0:
        return np.zeros(0, kind), np.zeros(1, np.int64)
    (packed,) = column.chunks
    _, ends, data = packed.buffers()
    offsets = np.frombuffer(ends, np.int32)[packed.offset : packed.offset + len(packed) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    flat = np.frombuffer(data, np.uint8)[first:last] if last > first else np.zeros(0, np.uint8)
    return flat.view(kind), (offsets.astype(np.int64) - first) // kind.itemsize


def _plain(table: pa.Table, name: str) -> Array:
    column = table.column(name)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return np.array(column.to_pylist(), dtype=str)
    return np.asarray(column.to_numpy())
