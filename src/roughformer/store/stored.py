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
import multiprocessing
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, ValidationError

from roughformer.errors import CapacityError, InputError
from roughformer.series import SeriesBatch
from roughformer.store.storage import DataFile, Place, retrying
from roughformer.store.workers import begin_worker
from roughformer.tokens import Tokenizer

MANIFEST = "manifest.json"
Holding = Literal["tokens", "series"]


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


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
                f"{store} is not a complete feature store: it has no {MANIFEST}; make or finish it "
                "with roughformer features DATA... --out"
            ) from None
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "its text"
            raise InputError(
                f"{place} is damaged or of another version of roughformer: {field}: "
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
        static = _unpacked(table, "static")[0].reshape(len(ids), len(manifest.static_names))
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
    held = _tokens(table, manifest) if tokens else None
    points = 0 if batch is None else batch.n_points
    return Rows(ids, points, labels, static, batch, held)


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
    arrays: dict[str, tuple[Array, npt.NDArray[np.int64]]] = {}
    if rows.static is not None:
        arrays["static"] = (rows.static, one_each)
    if rows.series is not None:
        arrays["times"] = (rows.series.times, rows.series.offsets)
        arrays["values"] = (rows.series.values, rows.series.offsets)
    if rows.tokens is not None:
        arrays["token_times"] = (rows.tokens.times, rows.tokens.offsets)
        arrays["tokens"] = (rows.tokens.tokens, rows.tokens.offsets)
        if rows.tokens.spectrum is not None:
            arrays["spectrum"] = (rows.tokens.spectrum, one_each)
    return arrays


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


MIXED = 16  # row groups that series are taken from by turns
_HELD = 2 * MIXED + 2  # in memory: those in use, and those that are read ahead
Index = npt.NDArray[np.int64]


class RowGroupCache:
    """Row groups of a store, the last used ones in memory.

    Row group g has the series ``starts[g]:starts[g + 1]``; ``locations[g]`` are its shard and its
    number there.
    """

    def __init__(self, place: Place, manifest: Manifest) -> None:
        """Reads the ends of all shards, not their numbers."""
        self.place, self.manifest = place, manifest
        locations, counts = [], []
        for shard, info in enumerate(manifest.shards):
            footer = self._with_file(shard, lambda file: file.metadata)
            rows = [footer.row_group(k).num_rows for k in range(footer.num_row_groups)]
            if sum(rows) != info.series:
                raise InputError(
                    f"{place / info.file} has {sum(rows):,} series, the manifest of the "
                    f"store says {info.series:,}; make the store again"
                )
            locations += [(shard, number) for number in range(len(rows))]
            counts += rows
        self.locations: Index = np.array(locations, dtype=np.int64).reshape(-1, 2)
        self.starts: Index = np.cumsum([0, *counts], dtype=np.int64)
        self._begin()

    def _begin(self) -> None:
        self._held: OrderedDict[tuple[int, bool], Rows] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> tuple[Any, ...]:
        """Another process reads for itself."""
        return self.place, self.manifest, self.locations, self.starts

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """Nothing is held yet."""
        self.place, self.manifest, self.locations, self.starts = state
        self._begin()

    def __len__(self) -> int:
        """Series of the store."""
        return int(self.starts[-1])

    def group_of(self, series: Index) -> Index:
        """The row group that each of the series is in."""
        return np.searchsorted(self.starts, series, side="right") - 1

    def held(self, groups: list[int], *, tokens: bool) -> dict[int, Rows]:
        """Those of some row groups that are in memory."""
        with self._lock:
            return {g: self._held[g, tokens] for g in groups if (g, tokens) in self._held}

    def forget(self, group: int, *, tokens: bool) -> None:
        """Nobody will ask for it soon."""
        with self._lock:
            self._held.pop((group, tokens), None)

    def rows(self, group: int, *, tokens: bool, keep: bool = True) -> Rows:
        """A row group: its tokens, or its series. ``keep``: in memory, for the next call."""
        with self._lock:
            if (group, tokens) in self._held:
                self._held.move_to_end((group, tokens))
                return self._held[group, tokens]
        shard, number = (int(k) for k in self.locations[group])
        loaded: Rows = self._with_file(
            shard,
            lambda file: read_rows(file, self.manifest, [number], series=not tokens, tokens=tokens),
        )
        with self._lock:
            if keep:
                self._held[group, tokens] = loaded
            while len(self._held) > _HELD:
                self._held.popitem(last=False)
        return loaded

    def labels(self) -> npt.NDArray[Any] | None:
        """``(B,)`` of all series, in memory; None if there are none."""
        if not self.manifest.labelled:
            return None
        parts = [
            self._with_file(shard, lambda file: file.read(["label"]).column(0))
            for shard in range(len(self.manifest.shards))
        ]
        labels = pa.chunked_array([chunk for part in parts for chunk in part.chunks])
        return _plain(pa.table({"label": labels}), "label")

    def _with_file(self, shard: int, use: Any) -> Any:
        place = self.place / self.manifest.shards[shard].file

        def call() -> Any:
            with place.open() as stream, open_shard(stream) as file:
                return use(file)

        try:
            return retrying(call, place)
        except DAMAGE as error:
            if isinstance(error, PermissionError | InputError):
                raise
            raise InputError(
                f"{place} is missing or damaged ({str(error).partition(chr(10))[0]}); run the "
                "command that made the store again with --verify: shards that are whole are kept"
            ) from None


# Series of a store, read when they are asked for: data larger than memory to train on.

_SAMPLED_POINTS, _PLACES = 1_000_000, 32


@dataclass(frozen=True)
class _Covariates:
    static: npt.NDArray[np.float64]
    static_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.static)


class _Wanted:
    """Series of a store in the order of its row groups, each of which is needed once only.

    ``back (B,)``: where each of those asked for stands in that order. ``counts (G,)``: how many
    series of each row group may ever be asked for.
    """

    def __init__(self, cache: RowGroupCache, series: Index, counts: Index) -> None:
        self.cache, self.counts = cache, counts
        order = np.argsort(series, kind="stable")
        self.sorted = series[order]
        self.back = np.empty(len(series), dtype=np.int64)
        self.back[order] = np.arange(len(series))
        self.as_is = bool((order[1:] > order[:-1]).all())  # nothing to put back

    def rows(self, *, tokens: bool) -> Iterator[tuple[Rows, Index]]:
        """Row groups, and which of their series are wanted.

        One that is wanted as a whole is not kept in memory: only of others will more be wanted.
        """
        present, first = np.unique(self.cache.group_of(self.sorted), return_index=True)
        ends = [*first, len(self.sorted)][1:]
        # What is in memory stays there until its turn comes, whatever is read before.
        held = self.cache.held(present.tolist(), tokens=tokens)
        for group, start, end in zip(present.tolist(), first, ends, strict=True):
            at = self.sorted[start:end] - self.cache.starts[group]
            keep = bool(end - start < self.counts[group])
            rows = held.pop(group, None) or self.cache.rows(group, tokens=tokens, keep=keep)
            if not keep:
                self.cache.forget(group, tokens=tokens)
            yield rows, at


@dataclass(frozen=True)
class StoredSeries:
    """Series ``which (B,)`` of a store, in that order. Labels ``(B,)`` are in memory; what else is
    asked for is read.
    """

    cache: RowGroupCache
    which: Index
    labels: Array | None = None

    @classmethod
    def open(cls, place: str | os.PathLike[str] | Place) -> "StoredSeries":
        """All series of the store at a path or URI."""
        store = Place.of(place)
        cache = RowGroupCache(store, Manifest.read(store))
        return cls(cache, np.arange(len(cache)), cache.labels())

    def __len__(self) -> int:
        """B."""
        return len(self.which)

    @property
    def place(self) -> Place:
        """Where the store is."""
        return self.cache.place

    @property
    def manifest(self) -> Manifest:
        """What the store holds."""
        return self.cache.manifest

    @property
    def channels(self) -> tuple[str, ...]:
        """Their names."""
        return self.manifest.channels

    @property
    def n_channels(self) -> int:
        """C."""
        return len(self.channels)

    @property
    def n_points(self) -> int:
        """Of all series of the store."""
        return self.manifest.totals.points

    @property
    def tokenizer(self) -> Tokenizer | None:
        """What made the tokens, where the store holds them."""
        return self.manifest.tokenizer if "tokens" in self.manifest.holds else None

    @property
    def holds_series(self) -> bool:
        """Whether the store has the points, and not their tokens alone."""
        return "series" in self.manifest.holds

    def fingerprint(self) -> str:
        """Hash the data, and which series of it these are."""
        numbers = hashlib.blake2b(np.ascontiguousarray(self.which).tobytes(), digest_size=16)
        return f"{self.manifest.key}-{numbers.hexdigest()}"

    @cached_property
    def _counts(self) -> Index:
        """``(G,)``: how many of the series are in each row group of the store."""
        return np.bincount(self.cache.group_of(self.which), minlength=len(self.cache.locations))

    def part(self, which: Any) -> "StoredSeries":
        """Some of the series, by their numbers here; nothing is read."""
        labels = None if self.labels is None else self.labels[which]
        return StoredSeries(self.cache, self.which[which], labels)

    def sample(self, n: int) -> "StoredSeries":
        """At most ``n`` of the series and about a million points, from places spread evenly over
        all: few places, because a row group is read as a whole.
        """
        totals = self.manifest.totals
        n = min(n, max(int(_SAMPLED_POINTS * totals.series / max(totals.points, 1)), 1))
        if n >= len(self):
            return self
        each = -(-n // _PLACES)
        starts = np.linspace(0, len(self) - each, n // each).round().astype(np.int64)
        return self.part((starts[:, None] + np.arange(each)).ravel())

    def shuffled(self, rng: np.random.Generator, size: int) -> Index:
        """The numbers 0 ... B-1 in a random order, for batches of ``size``, that needs few row
        groups at a time, and fewer for a part of each batch.

        Row groups at random, each with its series at random, stand in a line, which is cut into
        M = ``MIXED`` lanes. A batch of n takes n / M series of each lane: at place b the next one
        of lane floor(b M / n), and if n < M, of the lanes from that one to the one of place b + 1
        by turns, one a batch. So neighbours in a batch are of the same row groups, and a process
        with the same part of all batches reads that part of the row groups.
        """
        present, code = np.unique(self.cache.group_of(self.which), return_inverse=True)
        line = np.lexsort((rng.random(len(self)), rng.permutation(len(present))[code]))
        batch, place = np.divmod(np.arange(len(self)), size)
        sizes = np.minimum(len(self) - batch * size, size)
        low, high = place * MIXED // sizes, (place + 1) * MIXED // sizes
        turn = np.where(sizes == size, batch, 0)  # a last batch of few has no turns
        lane = low + turn % np.maximum(high - low, 1)
        order = np.empty(len(self), dtype=np.int64)
        order[np.argsort(lane, kind="stable")] = line
        return order

    def __getitem__(self, which: Any) -> SeriesBatch:
        """Series by number, slice, list, array or mask, read into memory."""
        if not self.holds_series:
            raise InputError(
                f"the store {self.place} holds tokens only; to have the series too, make it "
                "with roughformer features --series"
            )
        wanted = _Wanted(self.cache, np.atleast_1d(self.which[which]), self._counts)
        parts = [
            rows.series[at] for rows, at in wanted.rows(tokens=False) if rows.series is not None
        ]
        if not parts:
            first = self.cache.rows(0, tokens=False).series
            assert first is not None
            return first[:0]
        batch = SeriesBatch.concatenate(parts)
        return batch if wanted.as_is else batch[wanted.back]

    def inputs(self, which: Any) -> dict[str, Array]:
        """Stored tokens of series by number, slice, ...: ``tokens (B, L, F)``, ``times (B, L)``,
        and where they apply ``mask (B, L)``, ``spectrum (B, C, J)`` and ``static (B, S)``.
        """
        tokenizer = self.tokenizer
        if tokenizer is None:
            raise InputError(f"the store {self.place} holds no tokens")
        wanted = _Wanted(self.cache, np.atleast_1d(self.which[which]), self._counts)
        parts: list[Tokens] = []
        static: list[Array] = []
        for rows, at in wanted.rows(tokens=True):
            assert rows.tokens is not None
            parts.append(_selected(rows.tokens, at))  # the rest of the row group is let go of
            if rows.static is not None:
                static.append(rows.static[at])
        inputs = _padded(parts)
        if tokenizer.config.static:
            known = _Covariates(np.concatenate(static), self.manifest.static_names)
            inputs["static"] = tokenizer.static_encoder.encode(known)
        if wanted.as_is:
            return inputs
        return {name: array[wanted.back] for name, array in inputs.items()}

    def encode(
        self, tokenizer: Tokenizer | None, which: Index, drop: float, seed: int, places: Index
    ) -> dict[str, Array]:
        """Inputs of the series ``which (b,)``: the stored tokens without a tokenizer, else tokens
        made anew of what is left when a share ``drop`` of the points goes, chosen by ``seed`` and
        the numbers ``places (b,)``.
        """
        if tokenizer is None:
            return self.inputs(which)
        return tokenizer.arrays(self[which], drop=drop, seed=seed, series=places, threads=1)

    def worker(self, tokenizer: Tokenizer | None) -> "EncodeWorker":
        """Start a process for ``encode`` with this tokenizer."""
        return EncodeWorker(self, tokenizer)


def _selected(held: Tokens, at: Index) -> Tokens:
    """Tokens of some of the series, as copies."""
    row = _ranges(held.offsets[at], held.windows[at])
    offsets = np.concatenate([[0], np.cumsum(held.windows[at])])
    spectrum = None if held.spectrum is None else held.spectrum[at]
    return Tokens(held.tokens[row], held.times[row], offsets, spectrum)


def _padded(parts: list[Tokens]) -> dict[str, Array]:
    """Tokens of all series as one array, padded with zeros and masked."""
    windows = np.concatenate([part.windows for part in parts] or [np.zeros(0, np.int64)])
    longest = int(windows.max(initial=0))
    real = np.arange(longest)[None, :] < windows[:, None]
    size = parts[0].tokens.shape[1] if parts else 0
    inputs: dict[str, Array] = {
        "tokens": np.zeros((len(windows), longest, size), np.float32),
        "times": np.zeros((len(windows), longest), np.float32),
    }
    first = 0
    for part in parts:
        rows = slice(first, first := first + len(part.windows))
        inputs["tokens"][rows][real[rows]] = part.tokens
        inputs["times"][rows][real[rows]] = part.times
    if not real.all():
        inputs["mask"] = real
    spectra = [part.spectrum for part in parts if part.spectrum is not None]
    if spectra:
        inputs["spectrum"] = np.concatenate(spectra)
    return inputs


def _ranges(starts: Index, counts: Index) -> Index:
    """``starts[i], starts[i] + 1, ...``, ``counts[i]`` numbers for each i, one after the other."""
    skipped = np.cumsum(counts) - counts
    return np.asarray(np.arange(int(counts.sum())) + np.repeat(starts - skipped, counts))


# Inputs of stored series, made in processes of their own; torch is loaded only if tokens need it.


class EncodeWorker:
    """A process that encodes series of a store. It is spawned: a fork would copy torch and its
    threads. Several are not one pool, in which each process would read every row group.
    """

    def __init__(self, stored: StoredSeries, tokenizer: Tokenizer | None) -> None:
        """The process starts with the first call of ``submit``."""
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, spawn, _begin_encoding, (stored, tokenizer))

    def submit(self, which: Index, drop: float, seed: int, places: Index) -> Future[dict[str, Any]]:
        """Start ``StoredSeries.encode`` with these arguments."""
        return self._pool.submit(_encode, which, drop, seed, places)

    def close(self) -> None:
        """End the process when it has done what it is at."""
        self._pool.shutdown(wait=False, cancel_futures=True)


_own: dict[str, Any] = {}  # of such a process


def _begin_encoding(stored: StoredSeries, tokenizer: Tokenizer | None) -> None:
    begin_worker()
    _own.update(stored=stored, tokenizer=tokenizer)


def _encode(*arguments: Any) -> dict[str, Array]:
    stored: StoredSeries = _own["stored"]
    return stored.encode(_own["tokenizer"], *arguments)
