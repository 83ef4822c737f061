"""Tables of pandas, polars or pyarrow, long or wide -> the flat ragged layout."""

import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from roughformer.errors import InputError
from roughformer.series._columns import (
    check_columns,
    encode,
    encode_runs,
    number_parts,
    numbers,
    plain,
    reading,
    stamps,
)
from roughformer.series._convert import Extras, Index, Parts
from roughformer.series._roles import Read, guess_roles, index_roles, is_kept_index, is_usual
from roughformer.series._rows import Rows, offsets_of, sorting_order
from roughformer.series._storage import Storage
from roughformer.series._times import FloatTimes, as_origin

__all__ = ["is_table", "read", "to_arrow", "to_table", "with_roles"]

_AT_ONCE = 1 << 14
_FEW = 10  # rows that may be numbered by chance


def is_table(x: object) -> bool:
    """Whether ``to_arrow`` can read it; imports neither pandas nor polars."""
    if type(x).__module__.startswith("scipy."):  # one kind of sparse matrix is a dict
        return False
    return isinstance(x, pa.Table | pa.RecordBatch | Mapping) or _frame_kind(x) is not None


def _frame_kind(x: object) -> str | None:
    for kind, names in (("pandas", ("DataFrame",)), ("polars", ("DataFrame", "LazyFrame"))):
        module = sys.modules.get(kind)
        if module is not None and isinstance(x, tuple(getattr(module, n) for n in names)):
            return kind
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(x, pandas.Series):  # with ids and times, a frame
        return "pandas" if x.index.nlevels > 1 else None
    return "arrow" if hasattr(x, "__arrow_c_stream__") else None


def with_roles(
    table: Any,
    given: Mapping[str, Any],
    known: Mapping[str, Any] | None = None,
    **naming: Any,
) -> tuple[pa.Table, dict[str, Any]]:
    """Find out which columns mean what -> the table, and the arguments of ``from_table``.

    ``given`` are arguments of ``from_table``; ``known`` are those of another table, which count
    where this one has such columns. A column ``label`` without nulls is the label. ``naming``: how
    errors call things, as in ``guess_roles``.
    """
    given, known = dict(given), dict(known or {})
    levels: Sequence[Any] = []
    if _frame_kind(table) == "pandas":
        table = _as_frame(table)
        levels = table.index.names
        times = [name for name in map(str, table.columns) if is_usual(name, "time")]
        if len(levels) == 2 and levels[1] is None and (times or given.get("time") in table):
            # Rows numbered anew in each series, as pandas.concat(frames, keys=ids) leaves them.
            table = table.droplevel(1)
            levels = table.index.names
    if len(levels) > 1:
        names, given = index_roles(levels, table.columns, given)
        data = to_arrow(table.set_axis(table.index.set_names(names)), names)
    else:
        named = [name for name in (*given.values(), *known.values()) if name is not None]
        data = to_arrow(table, [name for name in levels if is_usual(name) or name in named])
    label = known.pop("label", "label")
    for role, name in known.items():
        if role not in given and (not isinstance(name, str) or name in data.column_names):
            given[role] = name
    roles = guess_roles(data.column_names, given, [label], read=_reader(data), **naming)
    used = [*roles.values(), *(roles["channels"] or ()), *given.get("static", ())]
    free = "label" not in given and label in data.column_names and label not in used
    if free and data.column(label).null_count == 0:
        given["label"] = label
    return data, {**given, **roles}


def _as_frame(table: Any) -> Any:
    """A pandas Series as a frame of one column."""
    return table if table.ndim == 2 else table.to_frame(table.name or "value")


def _reader(data: pa.Table) -> Read:
    names = data.column_names
    return lambda wanted: data.select([names.index(name) for name in wanted if name in names])


def to_arrow(table: Any, names: Iterable[Any] = ()) -> pa.Table:
    """Any table -> pyarrow, without a copy where the library allows it. Levels of a pandas index
    become columns if ``names`` has them.
    """
    if isinstance(table, pa.Table):
        return table
    kind = _frame_kind(table)
    try:
        if kind == "pandas":
            table, wanted = _as_frame(table), set(names)
            levels = [i for i, name in enumerate(table.index.names) if name in wanted]
            table = table.reset_index(level=levels) if levels else table
            return pa.Table.from_pandas(table, preserve_index=False)
        if kind == "polars":
            return (table.collect() if hasattr(table, "collect") else table).to_arrow()
        if is_table(table):
            return pa.table(dict(table) if isinstance(table, Mapping) else table)
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
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
    time_origin: Any = None,
    absent: bool = False,
) -> tuple[Parts, Extras]:
    """-> parts and the extras of the constructor; arguments as in ``SeriesBatch.from_table``."""
    if isinstance(static, str) or isinstance(channels, str):
        raise InputError("static and channels must be sequences of column names, got one text")
    if (channel is None) != (value is None):
        raise InputError(
            "a long table needs both channel= and value=, a wide one neither; got "
            f"channel={channel!r}, value={value!r}"
        )
    roles = [n for n in (series_id, time, channel, value, label, *static) if n is not None]
    data = to_arrow(table, roles)
    check_columns(data, roles)
    if series_id is None:
        one = np.zeros(min(len(data), 1), dtype=np.int64)
        rows = Rows(data, one, one, len(one), None)
    else:
        with reading(series_id):
            keys, codes, starts = encode_runs(data, series_id)
        rows = Rows(data, codes, starts, len(keys), keys)
    with reading(time):
        seconds, origin = stamps(data, time, as_origin(time_origin))
    if channel is not None and value is not None:
        parts, names = _long(rows, seconds, origin, channel, value, channels, absent)
    else:
        taken = set(roles)
        if channels is None:
            names_left = [n for n in data.column_names if n not in taken]
            reader = _reader(data)
            channels = [n for n in names_left if not is_kept_index(n, series_id, reader)]
        check_columns(data, [*roles, *channels])
        parts, names = _wide(rows, seconds, origin, list(channels))
        _warn_of_row_numbers(parts, names)
    extras = Extras(channels=names, ids=rows.keys)
    if static:
        columns = [rows.constant(n, numbers) for n in static]
        extras["static"], extras["static_names"] = np.stack(columns, axis=1), tuple(static)
    if label is not None:
        extras["labels"] = rows.constant(label, plain)
    return parts, extras


def _wide(
    rows: Rows, times: FloatTimes, origin: np.datetime64 | None, channels: list[str]
) -> tuple[Parts, tuple[str, ...]]:
    columns = [rows.data.column(name) for name in channels]
    single = bool(columns) and all(pt.is_float32(c.type) or pt.is_float16(c.type) for c in columns)
    order = rows.order(times)
    values = np.empty((len(times), len(channels)), dtype=np.float32 if single else np.float64)
    if order is None:
        _side_by_side([number_parts(rows.data, name) for name in channels], values)
    else:
        for c, name in enumerate(channels):
            values[:, c] = numbers(rows.data, name)[order]
    times = times if order is None else times[order]
    offsets = offsets_of(rows.codes, rows.n_series) if rows.bounds is None else rows.bounds
    return Parts(values, offsets, times, None, origin), tuple(channels)


def _warn_of_row_numbers(parts: Parts, channels: Sequence[str]) -> None:
    """Point out channels that number the rows of all series: they tell the series apart.

    A part of the rows is still numbered: by ones within each series, and no number comes twice.
    """
    first, last = parts.offsets[:-1], parts.offsets[1:] - 1
    if len(first) < 2 or len(parts.values) < _FEW or (first == last).all():
        return
    for c, name in enumerate(channels):
        column = parts.values[:, c]
        starts, ends = column[first], column[last]
        # A cheap look at the ends of the series settles it for nearly every channel.
        with np.errstate(invalid="ignore"):  # infinite values are refused later
            if (ends - starts != last - first).any() or (starts % 1 != 0).any():
                continue
        order = np.argsort(starts)
        steps = np.diff(column)
        steps[last[:-1]] = 1  # from one series to the next
        if (starts[order][1:] > ends[order][:-1]).all() and (steps == 1).all():
            warnings.warn(
                f"channel {name!r} is a running number of the rows, over all series: it may be an "
                "index that was saved with the data, and may hold the answer; leave it out by "
                "naming the other channels",
                UserWarning,
                stacklevel=4,
            )


def _side_by_side(columns: list[list[npt.NDArray[Any]]], out: npt.NDArray[Any]) -> None:
    """Columns, each in parts, into ``out (n, C)``; a cache takes what is written at a time."""
    lengths = [[len(part) for part in parts] for parts in columns]
    if any(other != lengths[0] for other in lengths):
        columns = [[np.concatenate(parts)] for parts in columns]
    at = 0
    for parts_of_rows in zip(*columns, strict=True):
        for first in range(0, len(parts_of_rows[0]), _AT_ONCE):
            here = out[at + first : at + first + _AT_ONCE]
            for c, part in enumerate(parts_of_rows):
                here[: len(part) - first, c] = part[first : first + _AT_ONCE]
        at += len(parts_of_rows[0])


def _long(
    rows: Rows,
    times: FloatTimes,
    origin: np.datetime64 | None,
    channel: str,
    value: str,
    channels: Sequence[str] | None,
    absent: bool,
) -> tuple[Parts, tuple[str, ...]]:
    found, kinds = encode(rows.data, channel)
    present = [str(name) for name in found]
    names = tuple(present if channels is None else channels)
    unknown = [n for n in names if n not in present]
    if unknown and len(kinds) and not absent:
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
    order = sorting_order(codes, times, strict=False)
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
    offsets = offsets_of(codes[new], rows.n_series)
    table = values.reshape(n_points, len(names))
    return Parts(table, offsets, times[new], None, origin), names


def _refuse_twice(
    rows: Rows,
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


def to_table(
    batch: Storage,
    form: str = "wide",
    series_id: str = "series_id",
    time: str = "time",
    channel: str = "channel",
    value: str = "value",
    label: str = "label",
) -> pa.Table:
    """A batch as a table, wide or long, with the columns called as told; ``read`` the other way."""
    if form not in ("wide", "long"):
        raise InputError(f"form must be 'wide' or 'long', got {form!r}")
    n_series, n_channels = len(batch), batch.n_channels
    series = np.repeat(np.arange(n_series), batch.lengths)
    ids = np.arange(n_series) if batch.ids is None else batch.ids
    points = np.arange(batch.n_points)
    measured: dict[str, Any] = {}
    if form == "long":
        points, which = np.nonzero(~np.isnan(batch.values))
        names = pa.DictionaryArray.from_arrays(
            pa.array(which.astype(np.int32)), pa.array(list(batch.channels), pa.string())
        )
        measured = {channel: names.cast(pa.string()), value: batch.values[points, which]}
    else:
        measured = {
            name: pa.array(np.ascontiguousarray(batch.values[:, c]), from_pandas=True)
            for c, name in enumerate(batch.channels)
        }
    owner = series[points]
    columns: dict[str, Any] = {series_id: ids[owner], time: _stamps(batch)[points]}
    expected = 2 + len(measured)
    columns.update(measured)
    if batch.static is not None:
        expected += batch.static.shape[1]
        for s, name in enumerate(batch.static_names or ()):
            columns[name] = pa.array(batch.static[owner, s], from_pandas=True)
    if batch.labels is not None:
        if batch.labels.ndim != 1:
            raise InputError(
                f"a table has one label per series, got labels of shape {batch.labels.shape}; "
                "use SeriesBatch.save, or batch.with_labels(labels[:, k])"
            )
        expected += 1
        columns[label] = batch.labels[owner]
    if len(columns) != expected:
        raise InputError(
            f"two columns would have the same name among {series_id!r}, {time!r}, {label!r}, the "
            f"{n_channels} channels and the static covariates; choose other column names"
        )
    return pa.table(columns)


def _stamps(batch: Storage) -> npt.NDArray[Any]:
    """Times as stored, or the dates they came from."""
    if batch.time_origin is None:
        return batch.times
    dates: npt.NDArray[Any] = batch.time_origin + np.rint(batch.times * 1e9).astype(
        "timedelta64[ns]"
    )
    return dates
