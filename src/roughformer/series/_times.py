"""Time stamps of any kind -> float64 seconds (or the caller's own unit) and an origin.

Floats and integers keep their unit and have no origin. Datetimes become seconds since the earliest
stamp of the batch, which is the origin: epoch nanoseconds do not fit the 53 bits of a float64,
differences to the origin do (exactly so for 104 days, to 4 ns for a year). Durations become
seconds without an origin.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError

__all__ = ["FloatTimes", "as_origin", "merge_stamps", "to_seconds"]

FloatTimes = npt.NDArray[np.float64]

_EXACT = 2**53  # every integer up to here is a float64
_NS = "datetime64[ns]"


def to_seconds(
    stamps: npt.NDArray[Any], origin: np.datetime64 | None = None, what: str = "times"
) -> tuple[FloatTimes, np.datetime64 | None]:
    """``stamps (...)`` of any kind -> float64 of the same shape, and the origin (None: no dates).

    Dates count from ``origin`` if it is given, else from the earliest of them. NaT becomes NaN,
    which the validation then refuses by name.
    """
    if stamps.dtype.kind == "O":
        stamps = _from_objects(stamps, what)
    kind = stamps.dtype.kind
    if kind == "M":
        return _from_dates(stamps, origin, what)
    if kind == "m":
        nanoseconds = _to_nanoseconds(stamps, "timedelta64[ns]", what)
        seconds = nanoseconds.view(np.int64) / 1e9
        seconds[np.isnat(nanoseconds)] = np.nan
        return seconds, origin
    if kind in "iu":
        _refuse_huge_integers(stamps, what)
    elif kind != "f":
        raise InputError(
            f"{what} must be numbers, datetimes or durations, got dtype {stamps.dtype}; "
            "convert them first, e.g. np.array(..., dtype='datetime64[ns]') for text dates"
        )
    return np.asarray(stamps, dtype=np.float64), origin


def as_origin(origin: Any) -> np.datetime64 | None:
    """Any date-like -> ``datetime64[ns]``; None stays None."""
    if origin is None:
        return None
    stamp = np.asarray(origin)
    if stamp.dtype.kind == "O":
        stamp = _from_objects(stamp, "time_origin")
    if stamp.dtype.kind != "M" or stamp.ndim != 0 or np.isnat(stamp):
        raise InputError(f"time_origin must be one datetime or None, got {origin!r}")
    nanoseconds = _to_nanoseconds(stamp, _NS, "time_origin").view(np.int64)
    return np.datetime64(int(nanoseconds), "ns")


def merge_stamps(parts: Sequence[npt.NDArray[Any]], what: str = "times") -> npt.NDArray[Any]:
    """Stamps of several series, each ``(L_i,)`` -> one ``(N,)`` array of one kind."""
    parts = [_from_objects(p, what) if p.dtype.kind == "O" else p for p in parts]
    kinds = {"date" if p.dtype.kind == "M" else p.dtype.kind == "m" and "duration" for p in parts}
    if len(kinds) > 1:
        first = next(i for i, p in enumerate(parts) if p.dtype.kind != parts[0].dtype.kind)
        raise InputError(
            f"{what} must be of one kind in all series, got dtype {parts[0].dtype} in series 0 "
            f"and {parts[first].dtype} in series {first}; convert them to the same kind"
        )
    if not parts:
        return np.empty(0)
    if kinds == {"date"}:
        parts = [_to_nanoseconds(p, _NS, what) for p in parts]
    for p in parts:
        if p.dtype.kind in "iu":  # before integers meet floats, where 2**53 + 1 would vanish
            _refuse_huge_integers(p, what)
    return np.concatenate(parts)


def _from_dates(
    stamps: npt.NDArray[Any], origin: np.datetime64 | None, what: str
) -> tuple[FloatTimes, np.datetime64 | None]:
    nanoseconds = _to_nanoseconds(stamps, _NS, what)
    missing = np.isnat(nanoseconds)
    if origin is None and not missing.all():
        # NaT is the smallest integer, so min() of the integers would find it.
        known = nanoseconds[~missing] if missing.any() else nanoseconds
        origin = np.datetime64(known.min(), "ns")
    if origin is None:  # nothing but NaT, or nothing
        return np.full(stamps.shape, np.nan), None
    seconds = (nanoseconds - origin).view(np.int64) / 1e9
    seconds[missing] = np.nan
    return seconds, origin


def _to_nanoseconds(stamps: npt.NDArray[Any], dtype: str, what: str) -> npt.NDArray[Any]:
    try:
        fine: npt.NDArray[Any] = stamps.astype(dtype, copy=False)
    except OverflowError:  # newer numpy says so itself
        lost = True
    else:
        same = fine.astype(stamps.dtype, copy=False) == stamps
        lost = not (same | np.isnat(stamps)).all()
    if lost:
        raise InputError(
            f"{what} must fit 64-bit nanoseconds (years 1678 to 2262, steps of 1 ns), got dtype "
            f"{stamps.dtype} outside of that; subtract an origin and give floats"
        )
    return fine


def _from_objects(stamps: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    """Python or pandas dates -> datetime64, aware ones taken to UTC; durations -> timedelta64."""
    flat = [_one_stamp(s) for s in stamps.ravel()]
    if any(s is None for s in flat):
        wrong = next(s for s, d in zip(stamps.ravel(), flat, strict=True) if d is None)
        raise InputError(
            f"{what} must be numbers, datetimes or durations, got a {type(wrong).__name__} "
            f"({wrong!r}); convert them first, e.g. np.array(..., dtype='datetime64[ns]')"
        )
    kinds = {np.asarray(s).dtype.kind for s in flat}
    if len(kinds) > 1:
        raise InputError(f"{what} must be all datetimes or all durations, got both; convert them")
    out = np.array(flat, dtype="timedelta64[ns]" if kinds == {"m"} else _NS)
    return out.reshape(stamps.shape)


def _one_stamp(stamp: object) -> np.datetime64 | np.timedelta64 | None:
    # What pandas has beyond the standard library, nanoseconds, survives only through asm8.
    stamp = getattr(stamp, "asm8", stamp)
    if isinstance(stamp, np.datetime64 | np.timedelta64):
        return stamp
    if isinstance(stamp, dt.timedelta):
        return np.timedelta64(stamp, "us")
    if isinstance(stamp, dt.datetime):
        if stamp.tzinfo is not None:
            stamp = stamp.astimezone(dt.UTC).replace(tzinfo=None)
        return np.datetime64(stamp, "us")
    if isinstance(stamp, dt.date):
        return np.datetime64(stamp, "D")
    return None


def _refuse_huge_integers(stamps: npt.NDArray[Any], what: str) -> None:
    if stamps.size and (int(stamps.max()) > _EXACT or int(stamps.min()) < -_EXACT):
        raise InputError(
            f"integer {what} must lie within ±2**53 to be exact as float64, got "
            f"{int(stamps.min())} to {int(stamps.max())}; subtract an origin first, or, if they "
            "are epoch nanoseconds, give times.astype('datetime64[ns]')"
        )
