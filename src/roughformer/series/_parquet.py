"""One batch <-> one Parquet file, bit for bit and without pickle.

A row per point: the series' number, the time, one column per channel, so that any tool can read
it. Things per series (lengths, ids, static, labels) are in the file's metadata as base64 of
deflated ``.npy``, which keeps dtype and shape; names and origin as JSON.
"""

import base64
import io
import json
import os
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from roughformer.errors import InputError
from roughformer.series._arrays import Extras, FloatTimes, Parts, blocks
from roughformer.util.atomic import writing

_KEY = b"roughformer.batch"
_SUM = b"roughformer.batch.crc32"
_VERSION = 1
_ROWS = 1 << 20  # points in a row group: what is held twice in memory while writing or reading
_PER_SERIES = ("ids", "static", "labels")
Path = str | os.PathLike[str]


def write(path: Path, fields: dict[str, Any], times_of: Callable[[int, int], FloatTimes]) -> None:
    """Write the file whole or not at all."""
    with writing(path) as aside, open(aside, "xb") as file:
        _write_rows(file, _schema(fields), fields, times_of)


def _write_rows(
    file: Any, schema: pa.Schema, fields: dict[str, Any], times_of: Callable[[int, int], FloatTimes]
) -> None:
    values, offsets = fields["values"], fields["offsets"]
    number, *floats = schema.names
    # Dictionary pages may merge NaNs of different bits: only for the series number.
    with pq.ParquetWriter(
        file,
        schema,
        compression="zstd",
        use_dictionary=[number],
        write_page_checksum=True,
        column_encoding=dict.fromkeys(floats, "BYTE_STREAM_SPLIT"),
    ) as writer:
        for b0, b1 in blocks(offsets, _ROWS):
            rows = values[offsets[b0] : offsets[b1]]
            series = np.repeat(np.arange(b0, b1), np.diff(offsets[b0 : b1 + 1]))
            columns = [series, times_of(b0, b1), *rows.T]
            arrays = [pa.array(c, from_pandas=False) for c in columns]  # NaN stays NaN, not null
            writer.write_table(pa.table(arrays, schema=schema), row_group_size=len(rows))


def read(path: Path) -> tuple[Parts, Extras]:
    """-> parts and the extras of the constructor, still to be validated."""
    try:
        # Text in the footer cannot be longer than the file: allow that instead of 100 MB.
        limit = max(os.path.getsize(path), 1 << 20)
        with pq.ParquetFile(
            path, thrift_string_size_limit=limit, page_checksum_verification=True
        ) as file:
            return _read(file, path)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, zlib.error) as error:
        if isinstance(error, InputError | FileNotFoundError | PermissionError | IsADirectoryError):
            raise
        raise InputError(
            f"{os.fspath(path)!r} is damaged or not a Parquet file ({error}); save the batch again"
        ) from None


def _read(file: pq.ParquetFile, path: Path) -> tuple[Parts, Extras]:
    metadata = file.metadata.metadata or {}
    if _KEY not in metadata:
        raise InputError(
            f"{os.fspath(path)!r} is a Parquet file, but SeriesBatch.save did not write it; read "
            "it with SeriesBatch.from_table(pyarrow.parquet.read_table(path), ...)"
        )
    if metadata.get(_SUM) != _checksum(metadata[_KEY]):
        raise ValueError("its metadata do not match their checksum")
    head = json.loads(metadata[_KEY])
    if head["version"] != _VERSION:
        raise InputError(
            f"{os.fspath(path)!r} has format {head['version']}, this version of roughformer reads "
            f"format {_VERSION}; use the version that wrote it"
        )
    channels = head["channels"]
    n_points, n_columns = file.metadata.num_rows, file.metadata.num_columns
    if n_columns != len(channels) + 2:
        raise InputError(
            f"{os.fspath(path)!r} must have {len(channels) + 2} columns, got {n_columns}"
        )
    kind = np.float32 if head["dtype"] == "float32" else np.float64
    values = np.empty((n_points, len(channels)), dtype=kind)
    lengths = _unpack(head["lengths"])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    # A shared grid is the times of the first series, or kept aside if there is no series.
    shared = head["grid"] is not None
    times = np.empty(int(offsets[1]) if shared and len(lengths) else n_points)
    at = 0
    for k in range(file.num_row_groups):
        group = file.read_row_group(k, use_threads=False)
        if at < len(times):
            stamps = group.column(1).to_numpy()[: len(times) - at]
            times[at : at + len(stamps)] = stamps
        for c in range(len(channels)):
            values[at : at + len(group), c] = group.column(c + 2).to_numpy()
        at += len(group)
    origin = None if head["time_origin"] is None else np.datetime64(head["time_origin"], "ns")
    grid = (times if len(lengths) else _unpack(head["grid"])) if shared else None
    extras = Extras(
        channels=channels,
        ids=_unpack(head["ids"]),
        static=_unpack(head["static"]),
        static_names=head["static_names"],
        labels=_unpack(head["labels"]),
    )
    return Parts(values, offsets, None if shared else times, grid, origin), extras


def _schema(fields: dict[str, Any]) -> pa.Schema:
    channels, grid = fields["channels"], fields["grid"]
    n_series = len(fields["offsets"]) - 1
    head = {
        "version": _VERSION,
        "channels": channels,
        "dtype": str(fields["values"].dtype),
        "lengths": _pack(np.diff(fields["offsets"])),
        "grid": None if grid is None else _pack(grid) if n_series == 0 else "",
        "time_origin": None,
        "static_names": fields["static_names"],
    }
    if fields["time_origin"] is not None:
        head["time_origin"] = int(fields["time_origin"].astype(np.int64))
    head.update({name: _pack(fields[name]) for name in _PER_SERIES})
    kind = pa.from_numpy_dtype(fields["values"].dtype)
    names = [_free("series", channels), _free("time", channels)]
    columns = [(names[0], pa.int64()), (names[1], pa.float64()), *((c, kind) for c in channels)]
    text = json.dumps(head).encode()
    return pa.schema(columns, metadata={_KEY: text, _SUM: _checksum(text)})


def _checksum(text: bytes) -> bytes:
    """Parquet has checksums for its pages, but none for its footer."""
    return f"{zlib.crc32(text):08x}".encode()


def _free(name: str, taken: tuple[str, ...]) -> str:
    while name in taken:
        name = f"_{name}"
    return name


def _pack(array: npt.NDArray[Any] | None) -> str | None:
    if array is None:
        return None
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return base64.b64encode(zlib.compress(buffer.getvalue(), 1)).decode("ascii")


def _unpack(text: str | None) -> Any:
    if text is None:
        return None
    buffer = io.BytesIO(zlib.decompress(base64.b64decode(text)))
    return np.load(buffer, allow_pickle=False)
