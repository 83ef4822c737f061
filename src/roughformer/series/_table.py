"""Tables of pandas, polars or pyarrow, long or wide -> the flat ragged layout."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from roughformer.errors import InputError
from roughformer.series._columns import check_columns, encode, numbers, plain, stamps
from roughformer.series._convert import Extras, Index, Parts
from roughformer.series._times import FloatTimes

__all__ = ["is_table", "read", "to_arrow"]


def is_table(x: object) -> bool:
    """Whether ``to_arrow`` can read it; imports neither pandas nor polars."""
    return isinstance(x, pa.Table | pa.RecordBatch | Mapping) or _frame_kind(x) is not None


def _frame_kind(x: object) -> str | None:
    for kind, names in (("pandas", ("DataFrame",)), ("polars", ("DataFrame", "LazyFrame"))):
        module = sys.modules.get(kind)
        if module is not None and isinstance(x, tuple(getattr(module, n) for n in names)):
            return kind
    return "arrow" if hasattr(x, "__arrow_c_stream__") else None


def to_arrow(table: Any) -> pa.Table:
    """Any table -> pyarrow, without a copy where the library allows it."""
    if isinstance(table, pa.Table):
        return table
    kind = _frame_kind(table)
    try:
        if kind == "pandas":
            return pa.Table.from_pandas(table, preserve_index=False)
        if kind == "polars":
            return (table.collect() if hasattr(table, "collect") else table).to_arrow()
        if is_table(table):
            return pa.table(dict(table) if isinstance(table, Mapping) else table)
    except (TypeError, ValueError) as error:
        raise InputError(f"the table cannot be read as columns of one kind each: {error}") from None
    raise InputError(
        "expected a table of pandas, polars or pyarrow, or a dict of columns, got "
        f"{type(table).__name__}"
    )


def read(
    table: Any,
    series_id: str | None,
    time: str,
    channel: str | None,
    value: str | None,
    channels: Sequence[str] | None,
    static: Sequence[str],
    label: str | None,
) -> tuple[Parts, Extras]:
    """-> parts and the extras of the constructor; arguments as in ``SeriesBatch.from_table``."""
    if isinstance(static, str) or isinstance(channels, str):
        raise InputError("static and channels must be sequences of column names, got one text")
    if (channel is None) != (value is None):
        raise InputError(
            "a long table needs both channel= and value=, a wide one neither; got "
            f"channel={channel!r}, value={value!r}"
        )
    data = to_arrow(table)
    roles = [n for n in (series_id, time, channel, value, label, *static) if n is not None]
    check_columns(data, roles)
    if series_id is None:
        rows = _Rows(data, np.zeros(len(data), dtype=np.int64), min(len(data), 1), None)
    else:
        keys, codes = encode(data, series_id)
        rows = _Rows(data, codes, len(keys), keys)
    seconds, origin = stamps(data, time)
    if channel is not None and value is not None:
        parts, names = _long(rows, seconds, origin, channel, value, channels)
    else:
        taken = set(roles)
        chosen = [n for n in data.column_names if n not in taken] if channels is None else channels
        check_columns(data, [*roles, *chosen])
        parts, names = _wide(rows, seconds, origin, list(chosen))
    extras = Extras(channels=names, ids=rows.keys)
    if static:
        columns = [rows.constant(numbers(data, n), n) for n in static]
        extras["static"], extras["static_names"] = np.stack(columns, axis=1), tuple(static)
    if label is not None:
        extras["labels"] = rows.constant(plain(data, label), label)
    return parts, extras


class _Rows:
    """The rows of a table and the series, ``codes (n,)`` in 0 ... B-1, that each belongs to."""

    def __init__(
        self, data: pa.Table, codes: Index, n_series: int, keys: npt.NDArray[Any] | None
    ) -> None:
        self.data, self.codes, self.n_series, self.keys = data, codes, n_series, keys

    def name(self, b: int) -> str:
        return f"series {b}" if self.keys is None else f"series {b} (id {self.keys[b].item()!r})"

    def constant(self, column: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
        """``(n,)`` that does not change within a series -> ``(B,)``."""
        # Codes count first appearances, so a row is the first of its series where they peak.
        peak = np.maximum.accumulate(self.codes)
        first = np.flatnonzero(np.diff(peak, prepend=-1))
        expected = column[first][self.codes]
        differs = (column != expected) & ((column == column) | (expected == expected))
        if differs.any():
            row = int(np.argmax(differs))
            raise InputError(
                f"column {name!r} must not change within a series, got {column[row].item()!r} in "
                f"row {row} and {expected[row].item()!r} before in "
                f"{self.name(int(self.codes[row]))}; give it as a channel instead"
            )
        return column[first]


def _wide(
    rows: _Rows, times: FloatTimes, origin: np.datetime64 | None, channels: list[str]
) -> tuple[Parts, tuple[str, ...]]:
    columns = [rows.data.column(name) for name in channels]
    single = bool(columns) and all(pt.is_float32(c.type) or pt.is_float16(c.type) for c in columns)
    order = _order(rows.codes, times)
    values = np.empty((len(times), len(channels)), dtype=np.float32 if single else np.float64)
    for c, name in enumerate(channels):
        column = numbers(rows.data, name)
        values[:, c] = column if order is None else column[order]
    times = times if order is None else times[order]
    return Parts(values, _offsets(rows.codes, rows.n_series), times, None, origin), tuple(channels)


def _long(
    rows: _Rows,
    times: FloatTimes,
    origin: np.datetime64 | None,
    channel: str,
    value: str,
    channels: Sequence[str] | None,
) -> tuple[Parts, tuple[str, ...]]:
    found, kinds = encode(rows.data, channel)
    present = [str(name) for name in found]
    names = tuple(present if channels is None else channels)
    unknown = [n for n in names if n not in present]
    if unknown and len(kinds):
        raise InputError(
            f"channel {unknown[0]!r} is not in column {channel!r}, which has "
            f"{', '.join(map(repr, present[:8]))}{', ...' if len(present) > 8 else ''}"
        )
    codes, data = rows.codes, numbers(rows.data, value)
    single = pt.is_float32(rows.data.column(value).type)
    place = np.array([names.index(n) if n in names else -1 for n in present], dtype=np.int64)
    kinds = place[kinds] if len(kinds) else kinds
    if len(names) < len(present):  # rows of channels that were not chosen
        kept = np.flatnonzero(kinds >= 0)
        codes, times, kinds, data = codes[kept], times[kept], kinds[kept], data[kept]
        empty = np.flatnonzero(np.bincount(codes, minlength=rows.n_series) == 0)
        if len(empty):
            raise InputError(
                f"each series needs at least one row of the chosen channels, got none in "
                f"{rows.name(int(empty[0]))}; leave it out of the table or choose more channels"
            )
    order = _order(codes, times, strict=False)
    if order is not None:
        codes, times, kinds, data = codes[order], times[order], kinds[order], data[order]
    new = np.ones(len(codes), dtype=bool)  # the first row of each point
    new[1:] = (codes[1:] != codes[:-1]) | (times[1:] != times[:-1])
    point = np.cumsum(new) - 1
    n_points = int(new.sum())
    cells = point * len(names) + kinds
    written = np.zeros(n_points * len(names), dtype=bool)
    written[cells] = True
    if np.count_nonzero(written) < len(cells):
        _refuse_twice(rows, codes, times, cells, kinds, names, origin)
    values = np.full(written.shape, np.nan, dtype=np.float32 if single else np.float64)
    values[cells] = data
    offsets = _offsets(codes[new], rows.n_series)
    table = values.reshape(n_points, len(names))
    return Parts(table, offsets, times[new], None, origin), names


def _refuse_twice(
    rows: _Rows,
    codes: Index,
    times: FloatTimes,
    cells: Index,
    kinds: Index,
    names: tuple[str, ...],
    origin: np.datetime64 | None,
) -> None:
    by_cell = np.argsort(cells, kind="stable")
    at = by_cell[1:][np.diff(cells[by_cell]) == 0].min()
    when = f"{times[at]}" + ("" if origin is None else f" s after {origin}")
    raise InputError(
        f"a channel can have one value at a time, got two for channel {names[kinds[at]]!r} at "
        f"time {when} of {rows.name(int(codes[at]))}; average them or keep one"
    )


def _order(codes: Index, times: FloatTimes, *, strict: bool = True) -> Index | None:
    """The permutation that sorts by series, then time; None if nothing is to be done."""
    step, same = np.diff(codes), times[1:] > times[:-1]
    if not strict:
        same |= times[1:] == times[:-1]
    if ((step > 0) | ((step == 0) & same)).all():
        return None
    return np.asarray(np.lexsort((times, codes)), dtype=np.int64)


def _offsets(codes: Index, n_series: int) -> Index:
    offsets = np.zeros(n_series + 1, dtype=np.int64)
    np.cumsum(np.bincount(codes, minlength=n_series), out=offsets[1:])
    return offsets
