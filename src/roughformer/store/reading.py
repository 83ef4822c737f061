"""Row groups -> tables of whole series, with little more in memory than one series of each.

Ids ascend from row group to row group (``plan``), so a series is whole when the next id begins.
Rows are looked at in slices; only where ids are mixed within a row group, all of it is taken at
once and sorted.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from roughformer.errors import CapacityError, InputError
from roughformer.series._columns import take_rows
from roughformer.store.places import Place
from roughformer.store.runs import runs_of
from roughformer.store.sources import Group

__all__ = [
    "MixedIds",
    "Piece",
    "check_rest",
    "check_size",
    "pieces_of",
    "read_groups",
    "whole_series",
]

_SLICE, _LEAST_ROWS = 8 << 20, 1 << 10  # bytes of a slice: the caches of a processor hold them


class MixedIds(Exception):
    """Ids do not ascend within a row group; take it as a whole."""


class Piece(NamedTuple):
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
        told = dict(groups[at].keys)
        stored = [name for name in columns if name not in told]
        numbers = [group.number for group in groups[at:end]]
        try:
            file = _open(place, columns[0])
            if whole:
                found = iter([file.read_row_groups(numbers, stored, use_threads=False)])
            else:
                width = max(group.bytes / group.rows for group in groups[at:end])
                batches = file.iter_batches(
                    max(int(_SLICE / width), _LEAST_ROWS),
                    row_groups=numbers, columns=stored, use_threads=False,
                )  # fmt: skip
                found = (pa.Table.from_batches([batch]) for batch in batches)
            for table in found:
                yield _in_kind(_with_told(table, told).select(columns), schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            # Of a file that is elsewhere, this may be the connection.
            if isinstance(error, OSError) and not place.local:
                raise
            text = " ".join(str(error).split())
            raise InputError(f"{place} is damaged, rows cannot be read: {text}") from None
        at = end


def pieces_of(
    tables: Iterator[pa.Table],
    series_id: str,
    *,
    after: Any = None,
    until: Any = None,
    sort: bool = False,
) -> Iterator[Piece]:
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
            yield Piece(table, ids[first:end], starts[first:end] - rows[first])
        if end < len(ids):  # what comes is beyond, too
            return


def _beyond(ids: Any, bound: Any) -> int:
    """How many of the ascending ``ids`` are at most ``bound``."""
    # A bound of another kind would be compared in float64, which does not hold large ids.
    exact = ids.dtype.type(bound) if ids.dtype.kind in "iu" else bound
    return int(np.searchsorted(ids, exact, "right"))


def check_rest(groups: Sequence[Group], series_id: str, schema: pa.Schema, until: Any) -> None:
    """``MixedIds`` unless ids ascend in the row groups that go on beyond ``until``: if they do not,
    more rows of the series before may come after what ``pieces_of`` reads.
    """
    own = pa.schema([schema.field(series_id)])
    for group in groups:
        if group.high > until:
            for table in read_groups([group], (series_id,), own, whole=True):
                _by_id(table, series_id, sort=False)


def whole_series(pieces: Iterator[Piece], memory: int) -> Iterator[pa.Table]:
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
    return _by_id(table.take(pc.sort_indices(_decoded(ids))), series_id, sort)


def _open(place: Place, series_id: str) -> pq.ParquetFile:
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


def _with_told(table: pa.Table, told: dict[str, Any]) -> pa.Table:
    """With the columns that the path tells: whole numbers, or codes of one text."""
    for name, value in told.items():
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


def _decoded(ids: pa.ChunkedArray) -> pa.ChunkedArray:
    return ids.cast(ids.type.value_type) if pa.types.is_dictionary(ids.type) else ids


def _keys(ids: pa.ChunkedArray, rows: Any) -> Any:
    """Ids of some rows, as numpy has them."""
    some = _decoded(take_rows(ids, rows))
    if some.null_count:
        raise InputError("each row must have a series id, got null; drop such rows")
    text = pa.types.is_string(some.type) or pa.types.is_large_string(some.type)
    return np.array(some.to_pylist(), dtype=str) if text else some.to_numpy()
