"""Tables of clients -> series and observations."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.serve.limits import Limits
from roughformer.serve.numbers import LARGEST, bad
from roughformer.serve.refusal import Refusal
from roughformer.serve.series import LONGEST_ID, Rows
from roughformer.serve.table_bytes import refuse_unknown

__all__ = ["rows_of_table", "series_of_table"]


def series_of_table(
    table: pa.Table, channels: tuple[str, ...], static: tuple[str, ...], limits: Limits
) -> tuple[SeriesBatch, list[Any]]:
    """Columns ``series``, ``time`` and one for each channel (a row a point), or ``channel`` and
    ``value`` (a row an observation); and a column for each static covariate.
    """
    names, codes = _coded(table, "series")
    if not len(codes):
        raise bad("the table has no rows; a request needs at least one series", {})
    if len(names) > limits.max_series:
        raise bad(f"a request may have {limits.max_series} series, got {len(names)}", {})
    columns = {"series": pa.array(codes), "time": _stamps(table)}
    long = {"channel", "value"} <= set(table.column_names) and not {"channel", "value"} <= {
        *channels
    }
    if long:
        kinds, which = _coded(table, "channel")
        unknown = [kind for kind in kinds if kind not in channels]
        if unknown:
            raise bad(
                f"the model has no channel {str(unknown[0])[:40]!r}; its channels are "
                f"{', '.join(channels)}",
                {"row": int(np.argmax(which == kinds.index(unknown[0])))},
            )
        columns["channel"] = pa.array(which).cast(pa.string())
        columns["value"] = _numbers(table, "value")
        missing: list[str] = []
    else:
        missing = [name for name in channels if name not in table.column_names]
        _check_order(names, codes, columns["time"])
        columns |= {name: _numbers(table, name) for name in channels if name not in missing}
    if missing:
        raise bad(
            f"the table has no column {missing[0]!r}; a wide table has series, time and "
            f"{', '.join(channels)}, a long one series, time, channel and value",
            {},
        )
    refuse_unknown(table.column_names, (*columns, *static))
    columns |= {name: _numbers(table, name) for name in static if name in table.column_names}
    told = [name for name in static if name in columns]
    try:
        batch = SeriesBatch.from_table(
            pa.table(columns),
            series_id="series",
            time="time",
            channel="channel" if long else None,
            value="value" if long else None,
            channels=None if long else channels,
            static=told,
        )
    except InputError as error:
        raise Refusal(400, str(error)) from None
    ids = [names[int(code)] for code in batch.ids] if batch.ids is not None else []
    return _completed(batch, [kinds[int(k)] for k in batch.channels] if long else None,
                      channels, static), ids  # fmt: skip


def rows_of_table(table: pa.Table, channels: tuple[str, ...]) -> Rows:
    """Columns ``stream``, ``time`` and one for each channel -> observations, in their order."""
    names, codes = _coded(table, "stream")
    refuse_unknown(table.column_names, ("stream", "time", *channels))
    times = _array(_numbers(table, "time"))
    if np.isnan(times).any():
        raise bad("a row needs a time", {"row": int(np.argmax(np.isnan(times)))})
    values = np.full((len(times), len(channels)), np.nan)
    for c, name in enumerate(channels):
        if name in table.column_names:
            values[:, c] = _array(_numbers(table, name))
    return Rows([str(name) for name in names], codes, times, values)


def _check_order(names: list[Any], codes: npt.NDArray[np.int64], stamps: pa.ChunkedArray) -> None:
    """Every row has a time, which is after that of the row before it in its series."""
    if stamps.null_count:
        raise bad("a row needs a time", {"row": _null(stamps)})
    times = stamps.to_numpy()
    order = np.argsort(codes, kind="stable")
    same = codes[order][1:] == codes[order][:-1]
    wrong = same & ~(times[order][1:] > times[order][:-1])  # NaN is after nothing
    if wrong.any():
        rows = order[1:][wrong]
        row = int(rows.min())
        before = order[int(np.flatnonzero(order == row)[0]) - 1]
        raise bad(
            f"times must strictly increase within a series, got {times[row]} after "
            f"{times[before]} in series {str(names[codes[row]])[:40]!r}",
            {"row": row},
        )


def _completed(
    batch: SeriesBatch,
    present: list[Any] | None,
    channels: tuple[str, ...],
    static: tuple[str, ...],
) -> SeriesBatch:
    """The batch with all channels and covariates of the model: what was not sent is NaN."""
    values: Any = batch.values
    if present is not None:
        values = np.full((batch.n_points, len(channels)), np.nan)
        for c, name in enumerate(present):
            values[:, channels.index(name)] = batch.values[:, c]
    extras: dict[str, Any] = {}
    if static:
        table = np.full((len(batch), len(static)), np.nan)
        for s, name in enumerate(batch.static_names):
            assert batch.static is not None
            table[:, static.index(name)] = batch.static[:, s]
        extras = {"static": table, "static_names": static}
    return SeriesBatch(batch.times, values, batch.offsets, channels=channels, **extras)


def _coded(table: pa.Table, name: str) -> tuple[list[Any], npt.NDArray[np.int64]]:
    """Different entries of a column of texts or whole numbers, and which of them each row has."""
    column = _column(table, name)
    kind = column.type.value_type if pt.is_dictionary(column.type) else column.type
    texts = pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)
    if not texts and not pt.is_integer(kind):
        raise bad(f"column {name!r} must hold texts or whole numbers, got {kind}", {})
    if column.null_count:
        raise bad(f"column {name!r} must have an entry in each row", {"row": _null(column)})
    if not len(column):
        return [], np.zeros(0, dtype=np.int64)
    coded = column if pt.is_dictionary(column.type) else column.dictionary_encode()
    coded = coded.unify_dictionaries()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in coded.chunks]).astype(np.int64)
    entries = coded.chunk(0).dictionary
    used, first, place = np.unique(codes, return_index=True, return_inverse=True)
    if texts and pc.max(pc.utf8_length(entries)).as_py() > LONGEST_ID:
        raise bad(f"column {name!r} must hold texts of at most {LONGEST_ID} characters", {})
    names = entries.take(pa.array(used)).to_pylist()
    if None in names:
        raise bad(f"column {name!r} must have an entry in each row", {})
    # A dictionary may hold one entry twice; the order is that of first appearance.
    order = np.argsort(first)
    number: dict[Any, int] = {}
    place_of = np.zeros(len(used), dtype=np.int64)
    for k in order:
        place_of[k] = number.setdefault(names[k], len(number))
    return list(number), place_of[place.reshape(-1)]


def _numbers(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column of finite numbers, null or NaN = nothing."""
    column = _column(table, name)
    kind = column.type
    if pt.is_dictionary(kind) and (
        pt.is_floating(kind.value_type) or pt.is_integer(kind.value_type)
    ):
        column = column.cast(kind.value_type)
    elif not (
        pt.is_floating(kind) or pt.is_integer(kind) or pt.is_boolean(kind) or pt.is_null(kind)
    ):
        raise bad(f"column {name!r} must hold numbers, got {kind}", {})
    numbers = column.cast(pa.uint8()) if pt.is_boolean(column.type) else column
    numbers = numbers.cast(pa.float64(), safe=False)
    large = pc.greater(pc.abs(numbers), LARGEST).fill_null(False)
    if pc.any(large).as_py():
        row = int(np.argmax(large.to_numpy()))
        raise bad(f"column {name!r} must be finite, at most {LARGEST:g}, or null", {"row": row})
    return numbers


def _stamps(table: pa.Table) -> pa.ChunkedArray:
    """The column of times: numbers, or dates, of which the batch makes seconds."""
    column = _column(table, "time")
    dates = pt.is_timestamp(column.type) or pt.is_date(column.type)
    return column if dates else _numbers(table, "time")


def _array(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    count = table.column_names.count(name)
    if count != 1:
        have = ", ".join(repr(n[:40]) for n in table.column_names[:12])
        raise bad(f"the table must have one column {name!r}, got {count}; it has {have}", {})
    return table.column(name)


def _null(column: pa.ChunkedArray) -> int:
    return int(np.argmax(column.is_null().to_numpy()))
