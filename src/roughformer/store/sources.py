"""Parquet files to make a store of: found by path, directory, glob or URI, known by their footers.

Nothing but footers is read here. They tell the columns, the number of rows of each row group and
the smallest and largest series id in it. A column may also be told by a file's path, as partitioned
data have it: all rows of ``archive/patient=17/part-0.parquet`` have 17 in the column patient.
"""

import hashlib
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

from roughformer.errors import InputError
from roughformer.store.manifest import DataFile
from roughformer.store.places import Place, retrying, walk

__all__ = [
    "Group",
    "Source",
    "entries_of",
    "find_files",
    "keys_of",
    "open_source",
    "schema_of_file",
]

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
        """What the path tells beside the columns."""
        keys = keys_of(self.place)
        return {name: text for name, text in keys.items() if name not in self.schema.names}


def find_files(data: Sequence[Any]) -> list[Place]:
    """The Parquet files of paths and URIs, each a file, a directory or a pattern with * and **."""
    found: list[Place] = []
    for item in data:
        place = Place.of(item)
        if _WILD.search(place.path):
            some = _matching(place)
            if not some:
                raise InputError(f"no file matches {place}; check the pattern")
            found += some
        elif place.info().type == fs.FileType.Directory:
            some = [place.at(info) for info in walk(place) if info.path.endswith(_SUFFIXES)]
            if not some:
                raise InputError(f"the directory {place} holds no .parquet file")
            found += some
        else:
            found.append(place)
    unique = {str(place): place for place in found}
    if len(unique) < len(found):
        names = [str(place) for place in found]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{twice} is named twice; name each file once")
    return found


def open_source(files: Sequence[Place], columns: Sequence[str], series_id: str) -> Source:
    """Read the footers; all files must have the ``columns``, each of one kind."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        footers = list(pool.map(_footer, files))
    told_by_paths = {name for footer in footers for name in footer.keys}
    keys = {name: _kind_of_key(footers, name) for name in columns if name in told_by_paths}
    schema = _common_schema(footers, columns, keys)
    groups = [group for footer in footers for group in _groups(footer, columns, series_id, keys)]
    if not groups:
        raise InputError(f"there are no rows in {footers[0].place}; nothing can be made of it")
    told = [
        footer.file.model_copy(update={"keys": {name: footer.keys[name] for name in keys}})
        for footer in footers
    ]
    return Source(schema, tuple(told), tuple(groups))


def schema_of_file(place: Place) -> pa.Schema:
    """Its columns, and what else its writer noted."""
    return _footer(place).schema


def keys_of(place: Place) -> dict[str, str]:
    """What the directories of a path tell: ``patient=17/a.parquet`` -> {"patient": "17"}."""
    found = (_KEY.fullmatch(part) for part in place.path.split("/")[:-1])
    return {unquote(key[1]): unquote(key[2]) for key in found if key is not None}


def entries_of(files: Sequence[Place], column: str) -> list[str]:
    """The different texts of a column, in order of appearance: reads that column of all files."""
    found: dict[str, None] = {}
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
                found[keys_of(place)[column]] = None
                continue
            file = pq.ParquetFile(stream, metadata=metadata, read_dictionary=[column])
            for number in range(file.num_row_groups):
                entries = file.read_row_group(number, [column], use_threads=False).column(0)
                found |= dict.fromkeys(str(e) for e in entries.unique().to_pylist())
    return list(found)


def _footer(place: Place) -> _Footer:
    try:
        return retrying(lambda: _read_footer(place), place)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{place} is damaged or no Parquet file: {_line(error)}") from None


def _read_footer(place: Place) -> _Footer:
    info = place.info()
    if info.type != fs.FileType.File:
        raise InputError(f"{place} is no file")
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
                f"{name!r} is a column of {footer.place}, and told by the paths of other files; "
                "write them alike"
            )
        if footer.keys.get(name, _NO_KEY) == _NO_KEY:
            raise InputError(
                f"{name!r} is told by the paths of files ({name}=...), but not by that of "
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

    def plain(kind: pa.DataType) -> pa.DataType:
        return kind.value_type if pa.types.is_dictionary(kind) else kind

    kinds = [plain(one), plain(other)]
    texts = [pa.types.is_string(k) or pa.types.is_large_string(k) for k in kinds]
    return kinds[0] == kinds[1] or all(texts)


def _groups(
    footer: _Footer, columns: Sequence[str], series_id: str, keys: dict[str, pa.DataType]
) -> list[Group]:
    metadata = footer.metadata
    paths = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    wanted = [paths[name] for name in columns if name not in keys]
    told = {name: int(footer.keys[name]) if pa.types.is_integer(kind) else footer.keys[name]
            for name, kind in keys.items()}  # fmt: skip
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_rows == 0:
            continue
        size = sum(group.column(i).total_uncompressed_size for i in wanted)
        # Dictionaries and runs take little room in the file, but are spelled out in memory.
        size = max(size, 8 * group.num_rows * len(columns))
        one = Group(footer.place, number, group.num_rows, size, keys=tuple(told.items()))
        if series_id in told:
            found.append(replace(one, low=told[series_id], high=told[series_id]))
            continue
        statistics = group.column(paths[series_id]).statistics
        if statistics is not None and statistics.has_null_count and statistics.null_count:
            raise InputError(
                f"column {series_id!r} of {footer.place} must name the series of each row, got "
                f"{statistics.null_count} rows without it; drop them"
            )
        if statistics is not None and statistics.has_min_max:
            one = replace(one, low=statistics.min, high=statistics.max)
        found.append(one)
    return found


def _matching(place: Place) -> list[Place]:
    """Files that match a pattern: ``*`` and ``?`` within a name, ``**/`` any directories."""
    fixed, parts = [], place.path.split("/")
    while not _WILD.search(parts[0]):
        fixed.append(parts.pop(0))
    tokens = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", "/".join(parts))
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pattern = "".join(
        known.get(t, t if t.startswith("[") and len(t) > 1 else re.escape(t)) for t in tokens
    )
    base = replace(place, path="/".join(fixed) or "/")
    inside = len(base.path.rstrip("/")) + 1
    return [
        base.at(info)
        for info in walk(base)
        if re.fullmatch(pattern, info.path[inside:]) is not None
    ]


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
