"""Bytes of Arrow and Parquet -> tables.

Both can be made to unpack to far more than was sent. Rows are counted before columns are read,
compressed Arrow is refused, pages of Parquet must fit when unpacked, only columns that are needed
are read, texts stay dictionary-coded, and every buffer is checked before it is used.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from roughformer.serve.limits import Limits
from roughformer.serve.numbers import bad
from roughformer.serve.parquet_pages import unpacked_size
from roughformer.serve.refusal import Refusal

__all__ = ["ARROW", "PARQUET", "read_arrow", "read_parquet", "refuse_unknown"]

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
_UNPACKED = 16  # Parquet may be so many times the largest body when unpacked
_INDEX = "__index_level_"  # what pandas calls an index that it writes along
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
        AttributeError,
        TypeError,
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


def read_parquet(
    data: bytes,
    known: Sequence[str],
    limits: Limits,
    texts: Sequence[str] = ("series", "channel"),
) -> pa.Table:
    """A Parquet file whose columns are all ``known``; ``texts``: those that may hold texts."""
    with _refusing("this is no Parquet file"):
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            about, present = file.metadata, file.schema_arrow.names
            kinds = dict(zip(present, file.schema_arrow.types, strict=True))
        if about.num_rows > limits.max_length:
            raise Refusal(400, f"a request may have {limits.max_length} rows, got {about.num_rows}")
        if unpacked_size(data, limits.max_length) > _UNPACKED * limits.max_body:
            raise Refusal(413, "the Parquet file is too large when unpacked; send fewer rows")
        refuse_unknown(present, known)
        wanted = [name for name in present if name in known]
        texts = [name for name in texts if name in wanted]
        for name in wanted:  # one long text may stand for each row
            _refuse_long_entries(name, kinds[name], name in texts)
        with pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts) as file:
            table = file.read(columns=wanted, use_threads=False)
        table.validate(full=True)
        _check_names(table)
    return table


def _refuse_long_entries(name: str, kind: pa.DataType, text: bool) -> None:
    plain = kind.value_type if pt.is_dictionary(kind) else kind
    texts = pt.is_string(plain) or pt.is_large_string(plain)
    if not (texts and text) and not (pt.is_primitive(plain) or pt.is_null(plain)):
        need = "texts or whole numbers" if text else "numbers"
        raise bad(f"column {name!r} must hold {need}, got {kind}", {})


def refuse_unknown(names: Sequence[str], known: Sequence[str]) -> None:
    """A misspelt channel must not pass in silence."""
    for number, name in enumerate(names):
        if name not in known and not name.startswith(_INDEX):
            raise bad(
                f"the model has no channel {name[:40]!r}; columns may be {', '.join(known)}",
                {"column": number},
            )


def _check_names(table: pa.Table) -> None:
    """Names that are no text raise here, where it is known what to say."""
    "".join(table.column_names)


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
