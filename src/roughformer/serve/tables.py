"""Arrow and Parquet of clients -> series and observations.

Both can be made to unpack to far more than was sent. Rows are counted before columns are read,
compressed Arrow is refused, Parquet must fit when unpacked, only columns that are needed are read,
texts stay dictionary-coded, and every buffer is checked before it is used.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.serve.limits import Limits
from roughformer.serve.numbers import bad
from roughformer.serve.refusal import Refusal
from roughformer.serve.series import Rows

__all__ = ["ARROW", "PARQUET", "read_arrow", "read_parquet", "rows_of_table", "series_of_table"]

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
_UNPACKED = 16  # Parquet may be so many times the largest body when unpacked
_DICTIONARY, _BATCH = 2, 3  # kinds of Arrow's messages


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Whatever is wrong with the bytes is the client's fault."""
    try:
        yield
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        LookupError,
        MemoryError,
        struct.error,
    ) as error:
        line = " ".join(str(error).split())[:200]
        raise Refusal(400, f"{what}: {line}") from None


def read_arrow(data: bytes, max_rows: int) -> pa.Table:
    """An Arrow IPC stream, checked in full; ``Refusal`` if it is damaged, compressed or long."""
    with _refusing("this is no Arrow stream"):
        _refuse_compressed(data)
        batches, rows = [], 0
        with pa.ipc.open_stream(data) as reader:
            schema = reader.schema
            for batch in reader:
                rows += batch.num_rows
                if rows > max_rows:
                    raise Refusal(400, f"a request may have {max_rows} rows, got more")
                batch.validate(full=True)
                batches.append(batch)
        table = pa.Table.from_batches(batches, schema)
        _check_names(table)
    return table


def read_parquet(data: bytes, columns: tuple[str, ...], limits: Limits) -> pa.Table:
    """Those of the ``columns`` that a Parquet file has."""
    with _refusing("this is no Parquet file"):
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            about, present = file.metadata, file.schema_arrow.names
        if about.num_rows > limits.max_length:
            raise Refusal(400, f"a request may have {limits.max_length} rows, got {about.num_rows}")
        # Not column by column: a damaged entry of a column ends the process in pyarrow.
        size = sum(about.row_group(g).total_byte_size for g in range(about.num_row_groups))
        if size > _UNPACKED * limits.max_body:
            raise Refusal(413, "the Parquet file is too large when unpacked; send fewer rows")
        wanted = [name for name in present if name in columns]
        texts = [name for name in ("series", "channel") if name in wanted]
        with pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts) as file:
            table = file.read(columns=wanted, use_threads=False)
        table.validate(full=True)
        _check_names(table)
    return table


def _check_names(table: pa.Table) -> None:
    """Names that are no text raise here, where it is known what to say."""
    "".join(table.column_names)


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
        columns |= {name: _numbers(table, name) for name in channels if name not in missing}
    if missing:
        raise bad(
            f"the table has no column {missing[0]!r}; a wide table has series, time and "
            f"{', '.join(channels)}, a long one series, time, channel and value",
            {},
        )
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
    known = {"stream", "time", *channels}
    for name in table.column_names:
        if name not in known:
            raise bad(f"the model has no channel {name[:40]!r}; it has {', '.join(channels)}", {})
    times = _array(_numbers(table, "time"))
    if np.isnan(times).any():
        raise bad("a row needs a time", {"row": int(np.argmax(np.isnan(times)))})
    values = np.full((len(times), len(channels)), np.nan)
    for c, name in enumerate(channels):
        if name in table.column_names:
            values[:, c] = _array(_numbers(table, name))
    return Rows([str(name) for name in names], codes, times, values)


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
    infinite = pc.is_inf(numbers).fill_null(False)
    if pc.any(infinite).as_py():
        row = int(np.argmax(infinite.to_numpy()))
        raise bad(f"column {name!r} must be finite, or null", {"row": row})
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


def _refuse_compressed(data: bytes) -> None:
    """Look into the headers of an Arrow stream for compressed buffers, which say themselves how
    large they become. Arrow has checked the structure of a header that it gives out.
    """
    for message in pa.ipc.MessageReader.open_stream(data):
        header = message.metadata.to_pybytes()
        table = _follow(header, 0)
        kind, body = _field(header, table, 1), _field(header, table, 2)
        if kind is None or body is None:
            continue
        inside: int | None = _follow(header, body)
        if header[kind] == _DICTIONARY and inside is not None:
            field = _field(header, inside, 1)
            inside = None if field is None else _follow(header, field)
        elif header[kind] != _BATCH:
            continue
        if inside is not None and _field(header, inside, 3) is not None:
            raise Refusal(400, "compressed Arrow is not taken; send it uncompressed")


def _follow(header: bytes, at: int) -> int:
    """Where the offset at ``at`` leads (flatbuffers)."""
    return at + int(struct.unpack_from("<I", header, at)[0])


def _field(header: bytes, table: int, number: int) -> int | None:
    """Where the field of that number of a table is; None: it has its default."""
    directory = table - struct.unpack_from("<i", header, table)[0]
    size = struct.unpack_from("<H", header, directory)[0]
    entry = 4 + 2 * number
    if entry + 2 > size:
        return None
    offset = struct.unpack_from("<H", header, directory + entry)[0]
    return table + offset if offset else None
