"""One column of a pyarrow table -> a numpy array, with errors that name the column and the row."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from roughformer.errors import InputError
from roughformer.series._convert import Index
from roughformer.series._times import FloatTimes, to_seconds

__all__ = [
    "check_columns",
    "encode",
    "encode_runs",
    "number_parts",
    "numbers",
    "plain",
    "reading",
    "run_starts",
    "stamps",
    "take_rows",
    "told_apart",
]


@contextmanager
def reading(name: str) -> Iterator[None]:
    """What pyarrow cannot do with a column becomes an ``InputError`` that names it."""
    try:
        yield
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise InputError(
            f"column {name!r} cannot be read: {str(error).partition(chr(10))[0]}; times must be "
            "numbers, dates or durations, channels numbers, ids and labels numbers, texts or dates"
        ) from None


def check_columns(data: pa.Table, names: Sequence[str]) -> None:
    """Every name is a column, once, with one role."""
    counts = Counter(data.column_names)
    for name in names:
        if counts[name] != 1:
            have = ", ".join(map(repr, data.column_names[:12]))
            raise InputError(
                f"the table must have one column {name!r}, got {counts[name]} of that name; "
                f"its columns are {have}{', ...' if data.num_columns > 12 else ''}"
            )
    for name, roles in Counter(names).items():
        if roles > 1:
            raise InputError(f"column {name!r} was given {roles} roles; name each column once")


def encode(data: pa.Table, name: str) -> tuple[npt.NDArray[Any], Index]:
    """-> the K different entries in order of first appearance, and codes ``(n,)`` in 0 ... K-1."""
    column = data.column(name)
    _refuse_null(column, name, "name the series or channel of each row")
    if column.num_chunks == 0 or len(column) == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    coded = _decoded(column).dictionary_encode().unify_dictionaries()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in coded.chunks])
    entries = pa.chunked_array([coded.chunk(0).dictionary])
    return _plain(entries, name), codes.astype(np.int64)


def encode_runs(data: pa.Table, name: str) -> tuple[npt.NDArray[Any], Index, Index]:
    """``encode`` for a column whose entries mostly stand side by side: the K entries, and codes
    ``(R,)`` of the runs of rows that begin at ``starts (R,)``.
    """
    column = data.column(name)
    _refuse_null(column, name, "name the series or channel of each row")
    if not told_apart(column):
        raise InputError(
            f"ids in column {name!r} are floating-point numbers beyond 2^53, which cannot be told "
            "apart; give them as whole numbers of 64 bits or as texts"
        )
    starts = run_starts(column)
    if len(starts) > len(column) // 4:
        return *encode(data, name), np.arange(len(column))
    return *encode(pa.table({name: take_rows(column, starts)}), name), starts


def told_apart(column: pa.ChunkedArray) -> bool:
    """Whether whole numbers cannot have been rounded to the same floating-point number."""
    if not pt.is_floating(column.type):
        return True
    ends = pc.min_max(column).as_py()
    return bool(max(abs(ends["min"] or 0), abs(ends["max"] or 0)) <= 2**53)


def run_starts(column: pa.ChunkedArray) -> Index:
    """Rows at which another entry begins than in the row before, and those at which chunks do."""
    found, at = [np.zeros(0, dtype=np.int64)], 0
    for chunk in column.chunks:
        if pt.is_dictionary(chunk.type):
            chunk = chunk.indices
        if pt.is_integer(chunk.type) or pt.is_floating(chunk.type):
            array = chunk.to_numpy(zero_copy_only=False)
            changes = np.flatnonzero(array[1:] != array[:-1])
        elif pt.is_null(chunk.type):
            changes = np.zeros(0, dtype=np.int64)
        else:
            changes = np.flatnonzero(pc.not_equal(chunk[1:], chunk[:-1]))
        found += [np.full(min(len(chunk), 1), at), changes + (at + 1)]
        at += len(chunk)
    return np.concatenate(found)


def take_rows(column: pa.ChunkedArray, rows: Index) -> pa.ChunkedArray:
    """Entries of a few rows, which ascend; pyarrow would join all chunks into one first."""
    found, at = [], 0
    for chunk in column.chunks:
        first, last = np.searchsorted(rows, (at, at + len(chunk)))
        found.append(chunk.take(pa.array(rows[first:last] - at)))
        at += len(chunk)
    return pa.chunked_array(found, column.type)


def stamps(
    data: pa.Table, name: str, origin: np.datetime64 | None = None, check: bool = True
) -> tuple[FloatTimes, np.datetime64 | None]:
    """A column of numbers, dates or durations -> seconds and origin; aware dates are in UTC. Dates
    count from ``origin`` if it is given, else from the earliest. ``check``: numbers are finite.
    """
    column = _decoded(data.column(name))
    _refuse_null(column, name, "drop the row or give it a time")
    kind = column.type
    if pt.is_null(kind):  # a table without rows: nothing tells the kind
        return np.zeros(0), origin
    if pt.is_decimal(kind):
        column = column.cast(pa.float64())
    elif pt.is_timestamp(kind) or pt.is_date(kind) or pt.is_duration(kind):
        unit = "timedelta64[ns]" if pt.is_duration(kind) else "datetime64[ns]"
        target = pa.duration("ns") if pt.is_duration(kind) else pa.timestamp("ns")
        if pt.is_timestamp(kind) and kind.tz is not None:
            target = pa.timestamp("ns", tz=kind.tz)
        try:
            whole = column.cast(target).cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid as error:
            raise InputError(
                f"column {name!r} must fit 64-bit nanoseconds (years 1678 to 2262), got {error}"
            ) from None
        return to_seconds(whole.view(unit), origin, what=f"times in column {name!r}")
    elif not (pt.is_integer(kind) or pt.is_floating(kind)):
        raise InputError(
            f"times in column {name!r} must be numbers, dates or durations, got {kind}; parse them "
            "first, e.g. with pandas.to_datetime"
        )
    seconds, origin = to_seconds(column.to_numpy(), origin, what=f"times in column {name!r}")
    finite = np.isfinite(seconds) if check else np.ones(0, bool)
    if not finite.all():
        row = int(np.argmin(finite))
        raise InputError(
            f"times in column {name!r} must be finite, got {seconds[row]} in row {row}; "
            "drop the row or give it a time"
        )
    return seconds, origin


def numbers(data: pa.Table, name: str) -> npt.NDArray[Any]:
    """A column of numbers -> float32 (from float32, float16) or float64; null becomes NaN."""
    parts = number_parts(data, name)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def number_parts(data: pa.Table, name: str) -> list[npt.NDArray[Any]]:
    """``numbers``, chunk by chunk: not copied where that is possible."""
    column = _decoded(data.column(name))
    kind = column.type
    if pt.is_null(kind):
        return [np.full(len(column), np.nan)]
    if pt.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif not (pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)):
        raise InputError(
            f"column {name!r} must hold numbers, got {kind}; convert it, leave it out by naming "
            "the channels, or give it another role"
        )
    single = pt.is_float32(kind) or pt.is_float16(kind)
    wanted = pa.float32() if single else pa.float64()
    if kind != wanted:
        column = column.cast(wanted, safe=False)
    found = [chunk.to_numpy(zero_copy_only=False) for chunk in column.chunks]
    return found or [np.zeros(0, np.float32 if single else np.float64)]


def plain(data: pa.Table, name: str) -> npt.NDArray[Any]:
    """A column of numbers, bools, texts or dates -> an array of that dtype."""
    return _plain(_decoded(data.column(name)), name)


def _plain(column: pa.ChunkedArray, name: str) -> npt.NDArray[Any]:
    kind = column.type
    if pt.is_null(kind) and len(column) == 0:
        return np.zeros(0)
    if pt.is_integer(kind) or pt.is_floating(kind):
        return np.asarray(column.to_numpy())  # integers with nulls come as float64 with NaN
    _refuse_null(column, name, "fill it in or drop the row")
    if pt.is_boolean(kind):
        return np.asarray(column.to_numpy(), dtype=bool)
    if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind):
        return np.array(column.to_pylist(), dtype=str)
    if pt.is_timestamp(kind) or pt.is_date(kind):
        return np.asarray(column.to_numpy(), dtype="datetime64[ns]")
    raise InputError(
        f"column {name!r} must hold numbers, texts or dates to serve as id, channel or label, "
        f"got {kind}; convert it"
    )


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # The order of a category's values is not the order of appearance.
    return column.cast(column.type.value_type) if pt.is_dictionary(column.type) else column


def _refuse_null(column: pa.ChunkedArray, name: str, remedy: str) -> None:
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise InputError(
            f"column {name!r} must have an entry in each row, got null in row {row}; {remedy}"
        )
