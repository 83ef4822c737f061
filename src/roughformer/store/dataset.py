"""The Parquet files that a store is made of: columns, footers, and how they are cut into units.

Nothing but footers is read here. They tell the columns, the number of rows of each row group and
the smallest and largest series id in it. A column may also be a key in a file's path, as in
partitioned data: all rows of ``archive/patient=17/part-0.parquet`` have 17 in the column patient.
"""

import hashlib
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq
import pyarrow.types as pt
from fsspec.implementations.arrow import ArrowFSWrapper

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.store.storage import DataFile, Place, is_hidden, retrying, walk


@dataclass(frozen=True)
class TableColumns:
    """Names of columns. A wide table has a column for each of ``channels``; a long one the columns
    ``channel`` and ``value``, and ``channels`` are the names to look for.
    """

    series_id: str
    time: str
    channels: tuple[str, ...]
    channel: str | None = None
    value: str | None = None
    static: tuple[str, ...] = ()
    label: str | None = None

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns to read, the id first."""
        long = (self.channel, self.value) if self.channel is not None else self.channels
        names = (self.series_id, self.time, *long, *self.static, self.label)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        fields = asdict(self)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items()}

    def check(self, schema: pa.Schema) -> None:
        """Refuse columns of the wrong type before the work begins."""
        kind = _decoded(schema.field(self.series_id).type)
        if not (pt.is_integer(kind) or pt.is_string(kind) or pt.is_large_string(kind)):
            raise InputError(
                f"column {self.series_id!r} must hold whole numbers or texts to name series, got "
                f"{kind}; convert it, or name another one with --series-id"
            )
        self.batch(schema.empty_table(), None)

    def batch(self, table: pa.Table, origin: np.datetime64 | None) -> SeriesBatch:
        """The series of a table, all of whose rows are in it; dates count from ``origin``."""
        return SeriesBatch.from_table(
            table,
            series_id=self.series_id,
            time=self.time,
            channel=self.channel,
            value=self.value,
            channels=self.channels,
            static=self.static,
            label=self.label,
            time_origin=origin,
            absent=True,  # here; somewhere in the data each channel is
        )


def _decoded(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pt.is_dictionary(kind) else kind


# Parquet files to make a store of: found by path, directory, glob or URI, known by their footers.

_SUFFIXES = (".parquet", ".pq")
_TAIL = 1 << 16  # bytes read at once from the end of a file: most footers are shorter
_AT_ONCE = 16  # footers on their way
_WILD = re.compile(r"[*?\[]")
_KEY = re.compile(r"([^/=]+)=([^/]*)")  # of a directory
_NO_KEY = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Group:
    """A row group: ``rows``, their ``bytes`` as columns in memory, the range of their ids."""

    place: Place
    number: int
    rows: int
    bytes: int
    low: Any = None  # None: not known
    high: Any = None
    keys: tuple[tuple[str, Any], ...] = ()  # columns that the path tells, the same in all rows


@dataclass(frozen=True)
class Source:
    """The files and all their row groups."""

    schema: pa.Schema
    files: tuple[DataFile, ...]
    groups: tuple[Group, ...]

    @property
    def rows(self) -> int:
        """Of all files."""
        return sum(group.rows for group in self.groups)


@dataclass(frozen=True)
class _Footer:
    place: Place
    file: DataFile
    metadata: pq.FileMetaData

    @cached_property
    def schema(self) -> pa.Schema:
        return self.metadata.schema.to_arrow_schema()

    @cached_property
    def keys(self) -> dict[str, str]:
        """Keys of the path that are not columns."""
        keys = keys_of(self.place)
        return {name: text for name, text in keys.items() if name not in self.schema.names}


def find_files(data: Sequence[Any]) -> list[Place]:
    """The Parquet files of paths and URIs, each a file, a directory or a pattern with * and **."""
    files: list[Place] = []
    for item in data:
        place = Place.of(item)
        if _WILD.search(place.path):
            matches = _matching(place)
            if not matches:
                raise InputError(f"no file matches {place}; check the pattern")
            files += matches
        elif place.info().type == fs.FileType.Directory:
            matches = [place.at(info) for info in walk(place) if info.path.endswith(_SUFFIXES)]
            if not matches:
                raise InputError(f"the directory {place} holds no .parquet file")
            files += matches
        else:
            files.append(place)
    unique = {str(place): place for place in files}
    if len(unique) < len(files):
        names = [str(place) for place in files]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{twice} is named twice; name each file once")
    return files


def open_source(files: Sequence[Place], columns: Sequence[str], series_id: str) -> Source:
    """Read the footers; all files must have the ``columns``, each of one kind."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        footers = list(pool.map(_footer, files))
    path_names = {name for footer in footers for name in footer.keys}
    keys = {name: _kind_of_key(footers, name) for name in columns if name in path_names}
    schema = _common_schema(footers, columns, keys)
    groups = [group for footer in footers for group in _groups(footer, columns, series_id, keys)]
    if not groups:
        raise InputError(f"there are no rows in {footers[0].place}; nothing can be made of it")
    described = [
        footer.file.model_copy(update={"keys": {name: footer.keys[name] for name in keys}})
        for footer in footers
    ]
    return Source(schema, tuple(described), tuple(groups))


def schema_of_file(place: Place) -> pa.Schema:
    """Its columns, and what else its writer noted."""
    return _footer(place).schema


def keys_of(place: Place) -> dict[str, str]:
    """Keys in the directories of a path: ``patient=17/a.parquet`` -> {"patient": "17"}."""
    matches = (_KEY.fullmatch(part) for part in place.path.split("/")[:-1])
    return {unquote(key[1]): unquote(key[2]) for key in matches if key is not None}


def entries_of(files: Sequence[Place], column: str) -> list[str]:
    """The different texts of a column, in order of appearance: reads that column of all files."""
    texts: dict[str, None] = {}
    for place in files:
        with place.open() as stream:
            metadata = pq.read_metadata(stream)
            names = metadata.schema.to_arrow_schema().names
            if column not in names:
                if column not in keys_of(place):
                    raise InputError(
                        f"{place} has no column {column!r}; its columns are "
                        f"{', '.join(map(repr, names))}"
                    )
                texts[keys_of(place)[column]] = None
                continue
            file = pq.ParquetFile(stream, metadata=metadata, read_dictionary=[column])
            for number in range(file.num_row_groups):
                entries = file.read_row_group(number, [column], use_threads=False).column(0)
                texts |= dict.fromkeys(str(e) for e in entries.unique().to_pylist())
    return list(texts)


def _footer(place: Place) -> _Footer:
    try:
        return retrying(lambda: _read_footer(place), place)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        line = " ".join(str(error).split())
        raise InputError(f"{place} is damaged or no Parquet file: {line}") from None


def _read_footer(place: Place) -> _Footer:
    info = place.info()
    if info.type != fs.FileType.File:
        raise InputError(f"{place} is not a file")
    with place.system.open_input_file(place.path) as file:
        size = file.size()
        tail = file.read_at(min(size, _TAIL), max(size - _TAIL, 0))
        need = int.from_bytes(tail[-8:-4], "little") + 8
        if len(tail) < need <= size:
            tail = file.read_at(need, size - need)
    # The parser wants a whole file; what stands before the footer does not matter to it.
    metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + tail[-need:]))
    stamp = 0 if info.mtime_ns is None else info.mtime_ns
    fingerprint = hashlib.sha256(tail[-need:]).hexdigest()[:32]
    return _Footer(
        place,
        DataFile(path=str(place), size=size, modified=stamp, fingerprint=fingerprint),
        metadata,
    )


def _kind_of_key(footers: Sequence[_Footer], name: str) -> pa.DataType:
    """Whole numbers, if all files tell such, else texts."""
    for footer in footers:
        if name in footer.schema.names:
            raise InputError(
                f"{name!r} is a column of {footer.place} and a key in the paths of other files; "
                "write all files the same way"
            )
        if footer.keys.get(name, _NO_KEY) == _NO_KEY:
            raise InputError(
                f"{name!r} is a key in the paths of files ({name}=...), but not in that of "
                f"{footer.place}"
            )
    texts = {footer.keys[name] for footer in footers}
    # 007 is a name, not a number.
    whole = all(re.fullmatch(r"0|-?[1-9]\d{0,17}", text) for text in texts)
    return pa.int64() if whole else pa.string()


def _common_schema(
    footers: Sequence[_Footer], columns: Sequence[str], keys: dict[str, pa.DataType]
) -> pa.Schema:
    first: pa.Schema | None = None
    for footer in footers:
        schema = footer.schema
        missing = [name for name in columns if name not in schema.names and name not in keys]
        if missing:
            raise InputError(
                f"{footer.place} has no column {missing[0]!r}; its columns are "
                f"{', '.join(map(repr, [*schema.names, *footer.keys]))}"
            )
        chosen = pa.schema(
            [
                pa.field(name, keys[name]) if name in keys else schema.field(name).remove_metadata()
                for name in columns
            ]
        )
        first = first or chosen
        for one, other in zip(first, chosen, strict=True):
            if not _alike(one.type, other.type):
                raise InputError(
                    f"column {one.name!r} is {one.type} in {footers[0].place} and {other.type} in "
                    f"{footer.place}; write the files with columns of one kind"
                )
    assert first is not None
    return first


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of both kinds may stand in one column: the same, numbers, or texts."""
    kinds = [_decoded(one), _decoded(other)]
    texts = [pt.is_string(kind) or pt.is_large_string(kind) for kind in kinds]
    return kinds[0] == kinds[1] or all(texts)


def _groups(
    footer: _Footer, columns: Sequence[str], series_id: str, keys: dict[str, pa.DataType]
) -> list[Group]:
    metadata = footer.metadata
    paths = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    wanted = [paths[name] for name in columns if name not in keys]
    path_keys = {name: int(footer.keys[name]) if pt.is_integer(kind) else footer.keys[name]
            for name, kind in keys.items()}  # fmt: skip
    groups = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_rows == 0:
            continue
        size = sum(group.column(i).total_uncompressed_size for i in wanted)
        # Dictionaries and runs take little room in the file, but are spelled out in memory.
        size = max(size, 8 * group.num_rows * len(columns))
        one = Group(footer.place, number, group.num_rows, size, keys=tuple(path_keys.items()))
        if series_id in path_keys:
            groups.append(replace(one, low=path_keys[series_id], high=path_keys[series_id]))
            continue
        statistics = group.column(paths[series_id]).statistics
        if statistics is not None and statistics.has_null_count and statistics.null_count:
            raise InputError(
                f"column {series_id!r} of {footer.place} must name the series of each row, got "
                f"{statistics.null_count} rows without it; drop them"
            )
        if statistics is not None and statistics.has_min_max:
            one = replace(one, low=statistics.min, high=statistics.max)
        groups.append(one)
    return groups


def _matching(place: Place) -> list[Place]:
    """Files that match a pattern, by path."""
    fixed = _WILD.split(place.path)[0].rpartition("/")[0]
    system = ArrowFSWrapper(place.system)
    matches = retrying(lambda: system.glob(place.path, detail=True), place)
    return [
        replace(place, path=path)
        for path, info in sorted(matches.items())
        if info["type"] == "file" and not is_hidden(path[len(fixed) :])
    ]


# Units of work, cut by what the footers say: unit k makes shard k.


@dataclass(frozen=True)
class Sizes:
    """Bytes that units aim at."""

    rows: int = 512 << 20  # of the data, as columns in memory
    shard: int = 96 << 20  # of the result, before compression
    piece: int = 256 << 20  # of the data that are shuffled at once, twice as much in memory
    bucket: int = 16 << 20  # of the data: what is sorted at once


@dataclass(frozen=True)
class RangeUnit:
    """Series with ``after`` < id <= ``until``, all of whose rows are in ``groups``."""

    number: int
    groups: tuple[Group, ...]
    rows: int  # of the groups that are its own; the last ones may be of other units too
    after: Any
    until: Any


@dataclass(frozen=True)
class BucketUnit:
    """Series of the buckets ``first`` ... ``last - 1``, whose rows are in all ``pieces``."""

    number: int
    pieces: tuple[Place, ...]
    rows: int
    first: int
    last: int


def by_id(groups: Sequence[Group]) -> list[Group] | None:
    """The row groups in the order of their ids; None if their ranges overlap, or are not known."""
    if any(group.low is None or group.high is None for group in groups):
        return None
    ordered = sorted(groups, key=lambda g: (g.low, g.high))
    meet = pairwise(ordered)
    return ordered if all(one.high <= other.low for one, other in meet) else None


def spans(rows: Sequence[int], target: int, may_cut: Sequence[bool]) -> list[tuple[int, int]]:
    """Cut items with ``rows[i]`` rows into spans ``[first, last)`` of at most ``target`` rows where
    possible; ``may_cut[i]``: a span may begin at i.
    """
    parts, first, size = [], 0, 0
    for i, count in enumerate(rows):
        if i > first and may_cut[i] and size + count > target:
            parts.append((first, i))
            first, size = i, 0
        size += count
    return [*parts, (first, len(rows))] if rows else []


def range_units(groups: Sequence[Group], target: int) -> list[RangeUnit]:
    """Units of about ``target`` rows of row groups in the order of their ids."""
    # A row group that only goes on with the series before it begins nothing.
    begins = [True] + [b.high > a.high for a, b in pairwise(groups)]
    units: list[RangeUnit] = []
    for first, last in spans([group.rows for group in groups], target, begins):
        until, end = groups[last - 1].high, last
        while end < len(groups) and groups[end].low <= until:
            end += 1
        own = sum(group.rows for group in groups[first:last])
        after = groups[first - 1].high if first else None
        units.append(RangeUnit(len(units), tuple(groups[first:end]), own, after, until))
    return units


def bucket_units(pieces: Sequence[Place], rows: Sequence[int], target: int) -> list[BucketUnit]:
    """Units of about ``target`` rows; ``rows``: of each bucket. Empty ones at the end are none."""
    units = [
        BucketUnit(0, tuple(pieces), sum(rows[first:last]), first, last)
        for first, last in spans(rows, target, [True] * len(rows))
    ]
    return [replace(u, number=k) for k, u in enumerate(u for u in units if u.rows)]
