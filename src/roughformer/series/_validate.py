"""The checks of raw data: vectorised, in slices of bounded memory, with errors that name the place.

The only validation in the package: whatever comes after a ``SeriesBatch`` may trust it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series._arrays import FloatTimes, Index, Values, as_array

__all__ = [
    "check_lengths",
    "check_mask",
    "check_names",
    "check_offsets",
    "check_per_series",
    "check_static",
    "check_times",
    "check_values",
    "largest",
]

SLICE = 1 << 20  # elements looked at in one go: at most 8 MB of temporaries each


def check_offsets(raw: Any, n_points: int) -> Index:
    """``(B+1,)`` integers from 0 to N that do not decrease."""
    offsets = as_array(raw, "offsets")
    if offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype.kind not in "iu":
        raise InputError(
            "offsets must be a 1-D array of B + 1 integers, got dtype "
            f"{offsets.dtype} of shape {offsets.shape}; series b is points offsets[b]:offsets[b+1]"
        )
    offsets = offsets.astype(np.int64, copy=False)
    if offsets[0] != 0 or offsets[-1] != n_points:
        raise InputError(
            f"offsets must run from 0 to the number of points {n_points}, got {offsets[0]} to "
            f"{offsets[-1]}; use np.concatenate([[0], np.cumsum(lengths)])"
        )
    down = np.flatnonzero(offsets[1:] < offsets[:-1])
    if len(down):
        raise InputError(
            f"offsets must not decrease, got {offsets[down[0]]} and then {offsets[down[0] + 1]} at "
            f"series {down[0]}; use np.concatenate([[0], np.cumsum(lengths)])"
        )
    return offsets


def check_lengths(offsets: Index, ids: npt.NDArray[Any] | None) -> None:
    """No series without points."""
    empty = np.flatnonzero(offsets[1:] == offsets[:-1])
    if len(empty):
        raise InputError(
            f"each series needs at least one point, got none in {_name(empty[0], ids)}"
            f"{_more(len(empty))}; leave such series out"
        )


def check_times(
    times: FloatTimes, offsets: Index, ids: npt.NDArray[Any] | None, origin: np.datetime64 | None
) -> None:
    """Finite and strictly increasing within each series, over a finite span. A grid is one series
    without a name.
    """
    n_points = len(times)
    shared = len(offsets) == 0
    for a in range(0, n_points, SLICE):
        b = min(a + SLICE, n_points)
        # One point more than the slice: the step into the next slice belongs to this one.
        part = times[a : b + 1]
        finite = np.isfinite(part)
        if not finite.all():
            at = a + int(np.argmin(finite))
            raise InputError(
                f"times must be finite, got {times[at]} at {_point(at, offsets, ids, shared)}; "
                "drop the point or give it a time"
            )
        up = part[1:] > part[:-1]
        if not shared:  # the step from one series to the next may go anywhere
            inner = offsets[
                np.searchsorted(offsets, a + 1) : np.searchsorted(offsets, a + len(up), "right")
            ]
            up[inner - a - 1] = True
        if not up.all():
            at = a + int(np.argmin(up)) + 1
            place = _point(at, offsets, ids, shared)
            now, before = _stamp(times[at], origin), _stamp(times[at - 1], origin)
            if times[at] == times[at - 1]:
                raise InputError(
                    f"times must strictly increase within a series, got {now} twice, at {place} "
                    "and just before; merge the two points or drop one"
                )
            raise InputError(
                f"times must strictly increase within a series, got {now} at {place} after "
                f"{before}; sort the points of each series by time, e.g. with np.argsort"
            )
    edges = np.array([0, n_points]) if shared else offsets
    with np.errstate(over="ignore"):
        spans = times[edges[1:] - 1] - times[edges[:-1]] if n_points else np.zeros(0)
    if not np.isfinite(spans).all():
        at = int(edges[int(np.argmin(np.isfinite(spans)))])
        raise InputError(
            "times of a series must span a finite duration, got more than float64 holds from "
            f"{_point(at, offsets, ids, shared)} on; measure them in a larger unit"
        )


def check_values(
    values: Values, offsets: Index, channels: tuple[str, ...], ids: npt.NDArray[Any] | None
) -> bool:
    """Finite, or NaN for "not observed"; returns whether there is any NaN."""
    missing = False
    flat = values.reshape(-1)
    for a in range(0, flat.size, SLICE):
        part = flat[a : a + SLICE]
        finite = np.isfinite(part)
        if finite.all():
            continue
        infinite = np.isinf(part)
        if infinite.any():
            at, channel = divmod(a + int(np.argmax(infinite)), values.shape[1])
            raise InputError(
                "values must be finite, or NaN for 'not observed', got "
                f"{values[at, channel]} in channel {channels[channel]!r} (number {channel}) at "
                f"{_point(at, offsets, ids)}; replace it with np.nan or correct it"
            )
        missing = True
    return missing


def largest(values: Values) -> float:
    """The largest absolute value that was observed; 0 if there is none."""
    flat = values.reshape(-1)
    parts = (flat[a : a + SLICE] for a in range(0, flat.size, SLICE))
    return max((float(np.fmax.reduce(np.abs(part), initial=0.0)) for part in parts), default=0.0)


def check_names(raw: Sequence[str] | None, count: int, prefix: str, what: str) -> tuple[str, ...]:
    """``count`` different names; default ``prefix`` + number."""
    if raw is None:
        return tuple(f"{prefix}{i}" for i in range(count))
    if isinstance(raw, str):
        raise InputError(f"{what} must be a sequence of names, got the text {raw!r}; use [{raw!r}]")
    names = tuple(raw)
    if not all(isinstance(n, str) for n in names):
        raise InputError(f"{what} must be texts, got {names!r}")
    if len(names) != count:
        raise InputError(
            f"{what} must be {count} names, got {len(names)}: {_listing(names)}; "
            "check the order of the axes"
        )
    if len(set(names)) < count:
        twice = next(n for i, n in enumerate(names) if n in names[:i])
        raise InputError(f"{what} must all differ, got {twice!r} more than once; rename one")
    return tuple(str(n) for n in names)


def check_per_series(raw: Any, n_series: int, what: str) -> npt.NDArray[Any] | None:
    """None, or one entry (of any shape, numbers or texts) for each series: ``(B, ...)``."""
    if raw is None:
        return None
    array = as_array(raw, what)
    if array.dtype.kind == "O" and all(isinstance(v, str) for v in array.ravel()):
        array = array.astype(str)
    if array.dtype.kind not in "biufUMm":
        raise InputError(
            f"{what} must be numbers, texts or datetimes, got dtype {array.dtype}; convert them, "
            "e.g. with .astype(str)"
        )
    if array.ndim == 0 or len(array) != n_series:
        raise InputError(
            f"{what} must have one entry for each of the {n_series} series, got shape {array.shape}"
        )
    return array


def check_static(
    raw: Any, names: Sequence[str] | None, n_series: int, ids: npt.NDArray[Any] | None
) -> tuple[npt.NDArray[np.float64] | None, tuple[str, ...]]:
    """``(B, S)`` float64, NaN = unknown, and S names."""
    if raw is None:
        if names:
            raise InputError(f"static_names {tuple(names)!r} were given without static")
        return None, ()
    array = check_per_series(raw, n_series, "static")
    if array is None or array.ndim != 2 or array.dtype.kind not in "biuf":
        raise InputError(
            f"static must be numbers of shape ({n_series}, S), got {np.asarray(raw).dtype} of "
            f"shape {np.shape(raw)}; one covariate is an axis of size 1, e.g. static[:, None]"
        )
    static = np.ascontiguousarray(array, dtype=np.float64)
    titles = check_names(names, static.shape[1], "s", "static_names")
    if np.isinf(static).any():
        b, s = np.argwhere(np.isinf(static))[0]
        raise InputError(
            f"static must be finite, or NaN for 'unknown', got {static[b, s]} in {titles[s]!r} "
            f"of {_name(b, ids)}; replace it with np.nan"
        )
    return static, titles


def check_mask(
    raw: Any, offsets: Index, ids: npt.NDArray[Any] | None, *, ends: bool = True
) -> npt.NDArray[np.bool_]:
    """``(N,)`` bool, True = keep; with ``ends`` it must keep both ends of each series."""
    mask = as_array(raw, "mask")
    n_points = int(offsets[-1])
    if mask.dtype != bool or mask.shape != (n_points,):
        raise InputError(
            f"a mask of points must be bool of shape ({n_points},), True = keep, got dtype "
            f"{mask.dtype} of shape {mask.shape}"
        )
    if ends:
        lost = np.flatnonzero(~(mask[offsets[:-1]] & mask[offsets[1:] - 1]))
        if len(lost):
            raise InputError(
                "a mask of points must keep the first and last point of each series, but drops "
                f"one of {_name(lost[0], ids)}{_more(len(lost))}; set mask[offsets[:-1]] and "
                "mask[offsets[1:] - 1] to True"
            )
    return mask


def _point(at: int, offsets: Index, ids: npt.NDArray[Any] | None, shared: bool = False) -> str:
    if shared:
        return f"position {at} of the shared times"
    b = int(np.searchsorted(offsets, at, side="right")) - 1
    return f"position {at - int(offsets[b])} of {_name(b, ids)}"


def _name(b: Any, ids: npt.NDArray[Any] | None) -> str:
    return f"series {int(b)}" if ids is None else f"series {int(b)} (id {ids[int(b)].item()!r})"


def _stamp(time: Any, origin: np.datetime64 | None) -> str:
    if origin is None:
        return f"{float(time)!r}"
    return str(origin + np.timedelta64(round(float(time) * 1e9), "ns"))


def _more(count: int) -> str:
    return f" and {count - 1} more" if count > 1 else ""


def _listing(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(map(repr, names[:most])) + (", ..." if len(names) > most else "")
