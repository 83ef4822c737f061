"""Arrow, Parquet and CSV from clients -> series and observations.

Arrow and Parquet can be made to unpack to far more than was sent. Rows are counted before columns
are read, compressed Arrow is refused, the pages of a Parquet file must fit when unpacked, only
columns that are needed are read, strings stay dictionary-encoded, and every buffer is validated
before it is used.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from roughformer.errors import InputError
from roughformer.io import read_csv
from roughformer.series import SeriesBatch, guess_roles, has_exact_ids, is_usual
from roughformer.serve.config import Limits
from roughformer.serve.errors import APIError, invalid
from roughformer.serve.json_bodies import MAX_ID_LENGTH, MAX_VALUE, Observations

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
_MAX_ENTRY = 4 * MAX_ID_LENGTH + 8  # bytes of an entry of a column of such a file
_ROOM = 1 << 20  # bytes of its pages beside entries
_MAX_EXPANSION = 16  # unpacked size of a Parquet file, in multiples of the largest body
_PANDAS_INDEX = "__index_level_"
_DICTIONARY, _RECORD_BATCH = 2, 3  # kinds of Arrow messages
_ROLES = ("series_id", "time", "channel", "value")

# Tables -> series and observations


def series_of_table(
    table: pa.Table, channels: tuple[str, ...], static: tuple[str, ...], limits: Limits
) -> tuple[SeriesBatch, list[Any]]:
    """Columns ``series``, ``time`` and one for each channel (a row a point), or ``channel`` and
    ``value`` (a row an observation); and a column for each static covariate.
    """
    names, codes = _codes(table, "series")
    if not len(codes):
        raise invalid("the table has no rows; a request needs at least one series")
    if len(names) > limits.max_series:
        raise invalid(f"a request may have {limits.max_series} series, got {len(names)}")
    time = _column(table, "time")
    if not (pt.is_timestamp(time.type) or pt.is_date(time.type)):
        time = _numbers(table, "time")
    columns = {"series": pa.array(codes), "time": time}
    pair = {"channel", "value"}
    long = pair <= set(table.column_names) and not pair <= set(channels)
    if long:
        kinds, which = _codes(table, "channel")
        unknown = [kind for kind in kinds if kind not in channels]
        if unknown:
            raise invalid(
                f"the model has no channel {str(unknown[0])[:40]!r}; its channels are "
                f"{', '.join(channels)}",
                {"row": int(np.argmax(which == kinds.index(unknown[0])))},
            )
        columns["channel"] = pa.array(kinds).take(pa.array(which))
        columns["value"] = _numbers(table, "value")
    else:
        _check_order(names, codes, time)
        for name in channels:
            if name not in table.column_names:
                raise invalid(
                    f"the table has no column {name!r}; a wide table has series, time and "
                    f"{', '.join(channels)}, a long one series, time, channel and value"
                )
            columns[name] = _numbers(table, name)
    _refuse_unknown(table.column_names, (*columns, *static))
    # Covariates that were not sent are not known.
    unknown = pa.array(np.full(len(codes), np.nan))
    columns |= {n: _numbers(table, n) if n in table.column_names else unknown for n in static}
    try:
        batch = SeriesBatch.from_table(
            pa.table(columns),
            series_id="series",
            time="time",
            channel="channel" if long else None,
            value="value" if long else None,
            channels=channels,
            static=static,
            absent=True,
        )
    except InputError as error:
        raise APIError(400, str(error)) from None
    return batch, [names[int(code)] for code in batch.ids] if batch.ids is not None else []


def observations_of_table(table: pa.Table, channels: tuple[str, ...]) -> Observations:
    """Columns ``stream``, ``time`` and one for each channel -> observations, in their order."""
    names, codes = _codes(table, "stream")
    _refuse_unknown(table.column_names, ("stream", "time", *channels))
    times = np.asarray(_numbers(table, "time").to_numpy(), dtype=np.float64)
    if np.isnan(times).any():
        raise invalid("a row needs a time", {"row": int(np.argmax(np.isnan(times)))})
    values = np.full((len(times), len(channels)), np.nan)
    for c, name in enumerate(channels):
        if name in table.column_names:
            values[:, c] = _numbers(table, name).to_numpy()
    return Observations([str(name) for name in names], codes, times, values)


def _check_order(names: list[Any], codes: npt.NDArray[np.int64], stamps: pa.ChunkedArray) -> None:
    """Every row has a time, which is after that of the row before it in its series."""
    if stamps.null_count:
        raise invalid("a row needs a time", {"row": _first_null(stamps)})
    times = stamps.to_numpy()
    order = np.argsort(codes, kind="stable")
    same = codes[order][1:] == codes[order][:-1]
    wrong = same & ~(times[order][1:] > times[order][:-1])  # NaN is after nothing
    if wrong.any():
        row = int(order[1:][wrong].min())
        before = order[int(np.flatnonzero(order == row)[0]) - 1]
        raise invalid(
            f"times must strictly increase within a series, got {times[row]} after "
            f"{times[before]} in series {str(names[codes[row]])[:40]!r}",
            {"row": row},
        )


def _codes(table: pa.Table, name: str) -> tuple[list[Any], npt.NDArray[np.int64]]:
    """Distinct entries of a column of strings or integers, and which of them each row has."""
    column = _column(table, name)
    kind = column.type.value_type if pt.is_dictionary(column.type) else column.type
    strings = pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)
    if not strings and not pt.is_integer(kind):
        raise invalid(f"column {name!r} must hold strings or integers, got {kind}")
    if column.null_count:
        raise invalid(
            f"column {name!r} must have an entry in each row", {"row": _first_null(column)}
        )
    if not len(column):
        return [], np.zeros(0, dtype=np.int64)
    coded = column if pt.is_dictionary(column.type) else column.dictionary_encode()
    coded = coded.unify_dictionaries()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in coded.chunks]).astype(np.int64)
    entries = coded.chunk(0).dictionary
    used, first, place = np.unique(codes, return_index=True, return_inverse=True)
    if strings and pc.max(pc.utf8_length(entries)).as_py() > MAX_ID_LENGTH:
        raise invalid(f"column {name!r} must hold strings of at most {MAX_ID_LENGTH} characters")
    names = entries.take(pa.array(used)).to_pylist()
    if None in names:
        raise invalid(f"column {name!r} must have an entry in each row")
    # A dictionary may hold one entry twice; the order is that of first appearance.
    number: dict[Any, int] = {}
    number_of = np.zeros(len(used), dtype=np.int64)
    for k in np.argsort(first):
        number_of[k] = number.setdefault(names[k], len(number))
    return list(number), number_of[place.reshape(-1)]


def _numbers(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column of finite numbers; null or NaN = not observed."""
    column = _column(table, name)
    if pt.is_dictionary(column.type) and not pt.is_string(column.type.value_type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if not any(
        is_kind(kind) for is_kind in (pt.is_floating, pt.is_integer, pt.is_boolean, pt.is_null)
    ):
        raise invalid(f"column {name!r} must hold numbers, got {kind}")
    numbers = column.cast(pa.uint8()) if pt.is_boolean(kind) else column
    numbers = numbers.cast(pa.float64(), safe=False)
    large = pc.greater(pc.abs(numbers), MAX_VALUE).fill_null(False)
    if pc.any(large).as_py():
        row = int(np.argmax(large.to_numpy()))
        raise invalid(
            f"column {name!r} must be finite, at most {MAX_VALUE:g}, or null", {"row": row}
        )
    return numbers


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    count = table.column_names.count(name)
    if count != 1:
        have = ", ".join(repr(n[:40]) for n in table.column_names[:12])
        raise invalid(f"the table must have one column {name!r}, got {count}; it has {have}")
    return table.column(name)


def _first_null(column: pa.ChunkedArray) -> int:
    return int(np.argmax(column.is_null().to_numpy()))


def _refuse_unknown(names: Sequence[str], known: Sequence[str]) -> None:
    """A misspelt channel must not pass in silence."""
    for number, name in enumerate(names):
        if name not in known and not name.startswith(_PANDAS_INDEX):
            raise invalid(
                f"the model has no channel {name[:40]!r}; columns may be {', '.join(known)}",
                {"column": number},
            )


# Bytes -> tables


@contextmanager
def _client_error(what: str) -> Iterator[None]:
    """Whatever is wrong with the bytes is the client's fault."""
    try:
        yield
    except (
        pa.ArrowException, OSError, ValueError, LookupError, AttributeError, TypeError, MemoryError,
        struct.error,
    ) as error:  # fmt: skip
        line = " ".join(str(error).split())[:200]
        raise APIError(400, f"{what}: {line}") from None


def read_arrow(data: bytes, max_rows: int) -> pa.Table:
    """Read an Arrow IPC stream, validated in full; refused if damaged, compressed or long."""
    with _client_error("this is not an Arrow stream"):
        _refuse_compressed(data)
        batches, rows = [], 0
        with pa.ipc.open_stream(data) as reader:
            schema = reader.schema
            for batch in reader:
                rows += batch.num_rows
                if rows > max_rows:
                    raise APIError(400, f"a request may have {max_rows} rows, got more")
                batch.validate(full=True)
                batches.append(batch)
        table = pa.Table.from_batches(batches, schema)
        "".join(table.column_names)  # names that are not UTF-8 raise here
    return table


def read_parquet(
    data: bytes,
    known: Sequence[str] | None,
    limits: Limits,
    strings: Sequence[str] = ("series", "channel"),
) -> pa.Table:
    """Read a Parquet file whose columns are all ``known`` (None: whatever they are).

    ``strings``: columns that may hold strings.
    """
    with _client_error("this is not a Parquet file"):
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            n_rows, n_columns = file.metadata.num_rows, file.metadata.num_columns
            schema = file.schema_arrow
        if n_rows > limits.max_length:
            raise APIError(400, f"a request may have {limits.max_length} rows, got {n_rows}")
        room = min(_MAX_EXPANSION * limits.max_body, _ROOM + n_rows * n_columns * _MAX_ENTRY)
        if unpacked_size(data, limits.max_length) > room:
            raise APIError(
                413,
                f"the Parquet file is too large when unpacked: its {n_rows} rows may have {room} "
                "bytes; send fewer rows or shorter strings",
            )
        if known is None:
            known = strings = schema.names
        _refuse_unknown(schema.names, known)
        wanted = [name for name in schema.names if name in known]
        strings = [name for name in strings if name in wanted]
        for name in wanted:  # a nested or binary entry could be long and stand for every row
            kind = schema.field(name).type
            plain = kind.value_type if pt.is_dictionary(kind) else kind
            text = name in strings and (pt.is_string(plain) or pt.is_large_string(plain))
            if not (text or pt.is_primitive(plain) or pt.is_null(plain)):
                need = "strings or integers" if name in strings else "numbers"
                raise invalid(f"column {name!r} must hold {need}, got {kind}")
        with pq.ParquetFile(pa.BufferReader(data), read_dictionary=strings) as file:
            table = file.read(columns=wanted, use_threads=False)
        table.validate(full=True)
        "".join(table.column_names)  # names that are not UTF-8 raise here
    return table


def _refuse_compressed(data: bytes) -> None:
    """Look into the headers of an Arrow stream for compressed buffers, whose unpacked size is
    whatever they say. Arrow has checked the structure of a header that it gives out.
    """
    for message in pa.ipc.MessageReader.open_stream(data):
        header = message.metadata.to_pybytes()
        table = _follow(header, 0)
        kind, body = _field(header, table, 1), _field(header, table, 2)
        if kind is None or body is None:
            continue
        batch: int | None = _follow(header, body)
        if header[kind] == _DICTIONARY and batch is not None:
            field = _field(header, batch, 1)
            batch = None if field is None else _follow(header, field)
        elif header[kind] != _RECORD_BATCH:
            continue
        if batch is not None and _field(header, batch, 3) is not None:
            raise APIError(400, "compressed Arrow is not accepted; send it uncompressed")


def _follow(header: bytes, at: int) -> int:
    """Where the flatbuffers offset at ``at`` leads."""
    return at + int(struct.unpack_from("<I", header, at)[0])


def _field(header: bytes, table: int, number: int) -> int | None:
    """Where field ``number`` of a flatbuffers table is; None if it has its default."""
    vtable = table - struct.unpack_from("<i", header, table)[0]
    size = struct.unpack_from("<H", header, vtable)[0]
    entry = 4 + 2 * number
    if entry + 2 > size:
        return None
    offset = struct.unpack_from("<H", header, vtable + entry)[0]
    return table + offset if offset else None


# A user's own file


def read_file(
    data: bytes,
    channels: tuple[str, ...],
    static_names: tuple[str, ...],
    trained: dict[str, Any],
    limits: Limits,
) -> list[dict[str, Any]]:
    """Read the series of a CSV or Parquet table, wide or long, as ``/v1/predict`` takes them.

    Columns are found by the names of the training data (``trained``), then by usual ones; a table
    without a column of ids is one series. CSV: comma, semicolon or tab, decimal point or comma.
    """
    ids = trained.get("series_id")
    if data[:4] == b"PAR1":
        table = read_parquet(data, None, limits)
    else:
        with _client_error("the file cannot be read as a table"):
            table = read_csv(data)
            ids = next(
                (n for n in table.column_names if n == ids or is_usual(n, "series_id")), None
            )
            if ids is not None and not has_exact_ids(table.column(ids)):
                table = read_csv(data, series_id=ids)  # long numbers, as strings
    if table.num_rows > limits.max_length:
        raise APIError(400, f"a file may have {limits.max_length} rows, got {table.num_rows}")
    present = table.column_names
    given = {role: trained[role] for role in _ROLES if trained.get(role) in present}
    if "series_id" not in given and not any(is_usual(name, "series_id") for name in present):
        given["series_id"] = None
    if "channel" not in given:
        known = [name for name in channels if name in present]
        given |= {"channels": tuple(known)} if known else {}
    roles = guess_roles(present, given, read=table.select, table="the file")
    if roles["channel"] is None and not set(channels) <= set(present):
        missing = [name for name in channels if name not in present]
        raise APIError(
            400,
            f"the file has no column {', '.join(missing)}; the model needs the channels "
            f"{', '.join(channels)}, got the columns {', '.join(present)}",
        )
    static = tuple(name for name in static_names if name in present)
    batch = SeriesBatch.from_table(
        table, **(roles | {"channels": channels}), static=static, absent=True
    )
    if len(batch) > limits.max_series:
        raise APIError(400, f"a file may have {limits.max_series} series, got {len(batch)}")
    series = []
    origin = 0.0  # dates become seconds since 1970
    if batch.time_origin is not None:
        origin = float(batch.time_origin.astype("datetime64[ns]").astype(np.int64)) / 1e9
    for k in range(len(batch)):
        times, values = batch.series(k)
        entry = {
            "id": str(k if batch.ids is None else batch.ids[k]),
            "times": (times + origin).tolist(),
            "values": values.tolist(),  # NaN becomes null
        }
        if batch.static is not None:
            entry["static"] = dict(zip(batch.static_names, batch.static[k].tolist(), strict=True))
        series.append(entry)
    return series


# The unpacked size of a Parquet file: the sum over its pages, whose headers (structs of Thrift's
# compact protocol) pyarrow goes by. The sizes in the footer are not used when pages are unpacked,
# so a client may write anything there.

_MAX_FOOTER = 1 << 20  # bytes
_MAX_PAGES = 10_000  # of 20,000 rows each, by default
_MAX_DEPTH = 16  # structs within structs
_ROW_GROUPS, _COLUMNS, _CHUNK = 4, 1, 3  # numbers of fields
_PACKED, _DATA_AT, _DICTIONARY_AT = 7, 9, 11  # of a column chunk
_PAGE_UNPACKED, _PAGE_PACKED, _PAGE_KINDS = 2, 3, (5, 7, 8)  # of a page


def unpacked_size(data: bytes, max_rows: int) -> int:
    """Sum the unpacked bytes of all pages.

    Raises an error if the file cannot be followed (a number where a struct should be, say), or if a
    page claims more than ``max_rows`` values.
    """
    length = int.from_bytes(data[-8:-4], "little")
    if length > min(_MAX_FOOTER, len(data) - 8):
        raise ValueError("the footer is too long")
    footer, _ = _thrift_struct(data[-8 - length : -8], 0)
    size = pages = 0
    for group in footer.get(_ROW_GROUPS, ()):
        for column in group.get(_COLUMNS, ()):
            chunk = column[_CHUNK]
            at = chunk[_DATA_AT]
            if 0 < chunk.get(_DICTIONARY_AT, 0) < at:  # a dictionary comes first, if there is one
                at = chunk[_DICTIONARY_AT]
            end = at + chunk[_PACKED]
            if not 0 < at <= end <= len(data):
                raise ValueError("a column lies outside the file")
            while at < end:
                page, at = _thrift_struct(data, at)
                packed, unpacked = page[_PAGE_PACKED], page[_PAGE_UNPACKED]
                values = [page[kind].get(1, 0) for kind in _PAGE_KINDS if kind in page]
                pages += 1
                if packed < 0 or unpacked < 0 or pages > _MAX_PAGES:
                    raise ValueError("it has too many pages, or pages without a size")
                if not all(0 <= count <= max_rows for count in values):
                    raise ValueError("a page claims more values than a request may have")
                at, size = at + packed, size + unpacked
    return size


def _thrift_struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Fields by number, and where the struct ends."""
    if depth > _MAX_DEPTH:
        raise ValueError("structs are nested too deeply")
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _zigzag(data, at)
        kind = head & 15
        if kind in (1, 2):  # the kind is the value
            fields[number] = kind == 1
        else:
            fields[number], at = _thrift_value(data, at, kind, depth)
    return fields, at + 1


def _thrift_value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2, 3):
        return data[at], at + 1
    if kind in (4, 5, 6):
        return _zigzag(data, at)
    if kind == 7:
        return None, at + 8
    if kind == 8:
        size, at = _varint(data, at)
        return None, at + size
    if kind in (9, 10):
        head = data[at]
        size, at = (head >> 4, at + 1) if head >> 4 < 15 else _varint(data, at + 1)
        if size > len(data):
            raise ValueError("a list is longer than the file")
        items = []
        for _ in range(size):
            item, at = _thrift_value(data, at, head & 15, depth + 1)
            items.append(item)
        return items, at
    if kind == 12:
        return _thrift_struct(data, at, depth + 1)
    raise ValueError("a header is damaged")  # Parquet has no maps


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number is too long")


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    """An integer of either sign."""
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at
