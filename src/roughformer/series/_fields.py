"""What is done to batches on their fields: parts, sums, thinning, comparison, and files.

In a file (Parquet, bit for bit and without pickle) a point is a row: the series' number, the time,
one column per channel, so that any tool can read it. Things per series (lengths, ids, static,
labels) are in the file's metadata as base64 of deflated ``.npy``, which keeps dtype and shape;
names and origin as JSON.
"""

import base64
import io
import json
import operator
import os
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from roughformer.errors import InputError
from roughformer.series._arrays import Extras, FloatTimes, Index, Parts, blocks, offsets_of
from roughformer.util.atomic import writing
from roughformer.util.checks import real_number, whole_number

Fields = dict[str, Any]
_PER_SERIES = ("ids", "static", "labels")


def take(fields: Fields, which: Any) -> Fields:
    """The series that ``which`` names: number, slice, numbers ``(k,)`` or mask ``(B,)``."""
    n_series = len(fields["offsets"]) - 1
    run, numbers = _selection(which, n_series)
    chosen: Any = numbers if run is None else run
    out = dict(fields)
    for name in _PER_SERIES:
        if fields[name] is not None:
            out[name] = fields[name][chosen]
    offsets, values, times = fields["offsets"], fields["values"], fields["times"]
    if fields["missing"]:
        out["missing"] = None  # perhaps not in this part: looked at when asked
    if run is not None:
        a, b = int(offsets[run.start]), int(offsets[run.stop])
        out["offsets"] = offsets[run.start : run.stop + 1] - a
        rows: Any = slice(a, b)
    else:
        lengths = np.diff(offsets)[numbers]
        out["offsets"] = offsets_of(lengths)
        if fields["grid"] is not None:  # equal lengths: whole blocks, no index of each row
            size = len(fields["grid"])
            block = values.reshape(n_series, size, values.shape[1])[numbers]
            out["values"] = block.reshape(len(numbers) * size, values.shape[1])
            out["times"] = None
            return out
        # Row r of the result, in its k-th series, is row r - new offset_k + old offset_k.
        rows = np.repeat(offsets[:-1][numbers] - out["offsets"][:-1], lengths)
        rows += np.arange(len(rows))
    out["values"] = values[rows]
    if times is not None:
        out["times"] = times[rows]
    return out


def _selection(which: Any, n_series: int) -> tuple[slice | None, Index]:
    """-> a run of step 1 or, if it is none, the numbers."""
    none = np.empty(0, dtype=np.int64)
    if isinstance(which, slice):
        start, stop, step = which.indices(n_series)
        if step == 1:
            return slice(start, max(start, stop)), none
        return None, np.arange(start, stop, step, dtype=np.int64)
    chosen = np.asarray(which)
    if chosen.ndim == 0 and chosen.dtype.kind in "iu":
        i = operator.index(chosen.item())
        if not -n_series <= i < n_series:
            raise IndexError(f"series {i} asked for, but the batch has {n_series} series")
        return slice(i % n_series, i % n_series + 1), none
    if chosen.ndim == 1 and chosen.dtype == bool:
        if len(chosen) != n_series:
            raise InputError(
                f"a mask of series must have one entry for each of the {n_series} series, "
                f"got {len(chosen)}"
            )
        return None, np.flatnonzero(chosen)
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise InputError(
            "series are chosen by a number, a slice, a 1-D list of numbers or a mask, got "
            f"{type(which).__name__} of dtype {chosen.dtype} and shape {chosen.shape}"
        )
    numbers = chosen.astype(np.int64)
    wrong = numbers[(numbers < -n_series) | (numbers >= n_series)]
    if len(wrong):
        raise IndexError(f"series {wrong[0]} asked for, but the batch has {n_series} series")
    return None, numbers


def compact(fields: Fields, keep: npt.NDArray[np.bool_]) -> Fields:
    """Only the points of ``keep (N,)``, which holds at least one of each series."""
    offsets = fields["offsets"]
    before = np.concatenate([[0], np.cumsum(keep)])  # kept points before each point
    out = dict(fields)
    out.update(
        values=fields["values"][keep],
        times=fields["times"][keep],
        grid=None,
        offsets=before[offsets],
        missing=False if fields["missing"] is False else None,
    )
    return out


def concatenate(batches: Sequence[Fields]) -> Fields:
    """One after the other; the times of dated batches are moved to the earliest origin."""
    if not batches:
        raise InputError("concatenate needs at least one batch, got none")
    first = batches[0]
    for k, other in enumerate(batches):
        for name in ("channels", "static_names"):
            if other[name] != first[name]:
                raise InputError(
                    f"batches to concatenate must have the same {name}, got {first[name]} in "
                    f"batch 0 and {other[name]} in batch {k}; bring them to the same order first"
                )
        if (other["time_origin"] is None) != (first["time_origin"] is None):
            raise InputError(
                "batches to concatenate must all have dates or all have none, got time_origin "
                f"{first['time_origin']} in batch 0 and {other['time_origin']} in batch {k}"
            )
    out = dict(first)
    out["values"] = np.concatenate([b["values"] for b in batches])
    out["offsets"] = offsets_of(np.concatenate([np.diff(b["offsets"]) for b in batches]))
    for name in _PER_SERIES:
        out[name] = _joined([b[name] for b in batches], name)
    known = [b["missing"] for b in batches]
    out["missing"] = True if True in known else None if None in known else False
    out["time_origin"], stamps = _rebased(batches)
    grids = [s for s, b in zip(stamps, batches, strict=True) if b["grid"] is not None]
    if len(grids) == len(batches) and all(np.array_equal(g, grids[0]) for g in grids):
        out["grid"], out["times"] = grids[0], None
        return out
    out["grid"] = None
    out["times"] = np.concatenate(
        [
            s if b["grid"] is None else np.tile(s, len(b["offsets"]) - 1)
            for s, b in zip(stamps, batches, strict=True)
        ]
    )
    return out


def _rebased(batches: Sequence[Fields]) -> tuple[np.datetime64 | None, list[Any]]:
    """-> the earliest origin, and the times (or grid) of each batch counted from it."""
    stamps = [b["times"] if b["grid"] is None else b["grid"] for b in batches]
    if batches[0]["time_origin"] is None:
        return None, stamps
    origin = min(b["time_origin"] for b in batches)
    moved = []
    for k, (s, b) in enumerate(zip(stamps, batches, strict=True)):
        shift = (b["time_origin"] - origin) / np.timedelta64(1, "ns") / 1e9
        later = s if shift == 0 else s + shift
        # Steps of a few ns vanish when years are added.
        if shift and not (later[1:] > later[:-1])[s[1:] > s[:-1]].all():
            raise InputError(
                f"times of batch {k} lie too close together to be counted from {origin}, "
                f"{shift} s before their own origin; give a later origin or coarser times"
            )
        moved.append(later)
    return origin, moved


def _joined(arrays: Sequence[Any], name: str) -> Any:
    given = [a for a in arrays if a is not None]
    if not given:
        return None
    if len(given) < len(arrays):
        without = next(k for k, a in enumerate(arrays) if a is None)
        raise InputError(
            f"batches to concatenate must all have {name} or all have none, got none in batch "
            f"{without}; add them or build that batch with them"
        )
    kinds = {"number" if a.dtype.kind in "biuf" else a.dtype.kind for a in given}
    if len(kinds) > 1 or len({a.shape[1:] for a in given}) > 1:
        kinds_given = ", ".join(f"{a.dtype} {a.shape}" for a in given)
        raise InputError(f"{name} to concatenate must be of one kind and shape, got {kinds_given}")
    return np.concatenate(given)


def same(a: Fields, b: Fields, ignored: Sequence[str]) -> bool:
    """Whether all fields but the ``ignored`` are equal, with NaN = NaN and equal dtypes."""
    return all(_same(a[name], b[name]) for name in a if name not in ignored)


def _same(a: Any, b: Any) -> bool:
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        return type(a) is type(b) and bool(a == b)
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fMm")


def describe(fields: Fields, missing: bool) -> str:
    """One line for people."""
    lengths = np.diff(fields["offsets"])
    names = ", ".join(fields["channels"][:4]) + (", ..." if len(fields["channels"]) > 4 else "")
    points = "no points"
    if len(lengths):
        low, high = int(lengths.min()), int(lengths.max())
        points = f"{low} points each" if low == high else f"{low} to {high} points each"
    facts = [
        f"{len(lengths)} series",
        f"{len(fields['channels'])} channel{'' if len(fields['channels']) == 1 else 's'} ({names})",
        points,
        str(fields["values"].dtype),
    ]
    if fields["grid"] is not None:
        facts.append("shared times")
    if fields["time_origin"] is not None:
        facts.append(f"from {fields['time_origin']}")
    if missing:
        facts.append("with missing values")
    if fields["static"] is not None:
        facts.append(f"{fields['static'].shape[1]} static")
    if fields["labels"] is not None:
        facts.append(f"labels {fields['labels'].dtype}")
    return f"SeriesBatch({', '.join(facts)})"


# Which points a random thinning keeps: one rule for the batch, the native kernel and torch.
#
# A series of L points loses exactly floor(fraction * L + 1/2) of them (at most L - 2): its first
# and last point always stay, the others are chosen without replacement by selection sampling
# (Knuth, TAOCP 2, algorithm S). The random numbers are a hash of (seed, series number, point
# number), so a series' mask depends on nothing but these: not on threads, batches or order.

_U32 = np.uint32
_GOLDEN = _U32(0x9E3779B9)


def check_fraction(fraction: float) -> float:
    """Return ``fraction`` as a float in [0, 1), or raise ``InputError``."""
    what = "in [0, 1)"
    number = real_number(fraction, "the fraction of points to drop", what)
    if not 0.0 <= number < 1.0:
        raise InputError(f"the fraction of points to drop must be {what}, got {fraction!r}")
    return number


def _mix(x: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The "lowbias32" avalanche: a bijection of 32-bit words whose output bits look independent."""
    x = x ^ (x >> _U32(16))
    x = x * _U32(0x7FEB352D)
    x = x ^ (x >> _U32(15))
    x = x * _U32(0x846CA68B)
    return x ^ (x >> _U32(16))


def series_keys(seed: int, series: npt.NDArray[np.integer[npt.NBitBase]]) -> npt.NDArray[np.uint32]:
    """One 32-bit key for each series number: the start of its stream of random words."""
    seed = whole_number(seed, "the seed", -(2**63), 2**64)
    low, high = _U32(seed & 0xFFFFFFFF), _U32((seed >> 32) & 0xFFFFFFFF)
    with np.errstate(over="ignore"):
        key = _mix(np.asarray(series).astype(np.uint32) * _GOLDEN + low)
        return np.asarray(_mix(key ^ high))


def keep_mask(
    lengths: npt.ArrayLike, fraction: float, seed: int, series: npt.ArrayLike | None = None
) -> npt.NDArray[np.bool_]:
    """Points that stay when ``fraction`` of each series is dropped.

    ``lengths (B,)`` -> ``(sum(lengths),)`` bool, series after series. ``series (B,)`` are the
    numbers that the random words are drawn for (default 0 ... B-1): give the original numbers to
    thin a part of a larger batch exactly as the whole would be.
    """
    length = np.asarray(lengths, dtype=np.int64)
    check_fraction(fraction)
    numbers = np.arange(len(length)) if series is None else np.asarray(series)
    keys = series_keys(seed, numbers)
    start = np.concatenate([[0], np.cumsum(length)])
    keep = np.ones(int(start[-1]), dtype=bool)
    drop = np.minimum(np.floor(fraction * length + 0.5), np.maximum(length - 2, 0)).astype(np.int64)
    interior = np.maximum(length - 2, 0)
    need = interior - drop  # interior points still to be kept
    left = interior.copy()  # interior points still to be seen
    # One pass over the positions, all series at once: position i of every series that has it.
    order = np.argsort(-interior, kind="stable")
    alive = len(order)
    with np.errstate(over="ignore"):
        for i in range(1, int(interior.max(initial=0)) + 1):
            while alive and interior[order[alive - 1]] < i:
                alive -= 1
            now = order[:alive]
            word = _mix(keys[now] + _U32(i & 0xFFFFFFFF) * _GOLDEN)
            # 23 bits and float32, as the kernel does it: u <= 1 - 2^-23 makes u · left < left even
            # after rounding, so that exactly `need` points are kept whatever comes.
            u = (word >> _U32(9)).astype(np.float32) * np.float32(2.0**-23)
            chosen = u * left[now].astype(np.float32) < need[now].astype(np.float32)
            keep[start[now] + i] = chosen
            need[now] -= chosen
            left[now] -= 1
    return keep


# One batch <-> one Parquet file.

_KEY = b"roughformer.batch"
_SUM = b"roughformer.batch.crc32"
_VERSION = 1
_ROWS = 1 << 20  # points in a row group: what is held twice in memory while writing or reading
Path = str | os.PathLike[str]


def write_parquet(path: Path, fields: Fields, times_of: Callable[[int, int], FloatTimes]) -> None:
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


def read_parquet(path: Path) -> tuple[Parts, Extras]:
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
