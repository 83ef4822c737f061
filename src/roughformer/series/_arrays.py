"""Arrays, tensors, lists of them and their times -> the flat parts of a batch, checked."""

import datetime as dt
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError

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


def merge_stamps(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Stamps of several series, each ``(L_i,)`` -> one ``(N,)`` array of one kind."""
    parts = [_from_objects(p, "times") if p.dtype.kind == "O" else p for p in parts]
    kinds = {"date" if p.dtype.kind == "M" else p.dtype.kind == "m" and "duration" for p in parts}
    if len(kinds) > 1:
        first = next(i for i, p in enumerate(parts) if p.dtype.kind != parts[0].dtype.kind)
        raise InputError(
            f"times must be of one kind in all series, got dtype {parts[0].dtype} in series 0 "
            f"and {parts[first].dtype} in series {first}; convert them to the same kind"
        )
    if not parts:
        return np.empty(0)
    if kinds == {"date"}:
        parts = [_to_nanoseconds(p, _NS, "times") for p in parts]
    for p in parts:
        if p.dtype.kind in "iu":  # before integers meet floats, where 2**53 + 1 would vanish
            _refuse_huge_integers(p, "times")
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


# Which axis of an array is time: one rule for numpy, torch and lists.

Layout = Literal["time_first", "channels_first"]

_BY_FAR = 2  # series of different lengths may well be short, with a few more channels than points


def check_layout(layout: Any) -> Layout:
    """Return ``layout`` if it is one of the two names."""
    if layout not in ("time_first", "channels_first"):
        raise InputError(f"layout must be 'time_first' or 'channels_first', got {layout!r}")
    return layout  # type: ignore[no-any-return]


def layout_of(
    x: Any, layout: str | None = None, *, times: Any = None, n_channels: int | None = None
) -> Layout:
    """The layout of a 3-D block or a list of 2-D arrays, or ``InputError`` if it is ambiguous.

    The shapes of anything else are checked by whoever converts it. Given ``times`` are checked
    against the time axis, so they settle the layout; ``n_channels`` is known from training, or from
    the names of the channels.
    """
    chosen = "time_first" if layout is None else check_layout(layout)
    shapes = _shapes(x)
    if not shapes or any(len(shape) != 2 for shape in shapes):
        return chosen
    first, second = ({shape[axis] for shape in shapes} for axis in (0, 1))
    channels, other = (second, first) if chosen == "time_first" else (first, second)
    if n_channels is not None:
        if channels != {n_channels} and other == {n_channels}:
            transposed = "channels_first" if chosen == "time_first" else "time_first"
            raise InputError(
                f"expected {_count(n_channels, 'channel')}, but {_readings(x, shapes)}; "
                f"give layout={transposed!r}"
            )
        return chosen  # or neither fits, which is refused where names are compared
    factor = 1 if len(set(shapes)) == 1 else _BY_FAR
    if layout is None and times is None and all(c > factor * length > 0 for length, c in shapes):
        raise InputError(
            f"cannot tell which axis is time, because there are more channels than points: "
            f"{_readings(x, shapes)}. Give layout='time_first' or layout='channels_first'"
        )
    return chosen


def _shapes(x: Any) -> list[tuple[int, ...]]:
    """The shape of each series, or only one where all have the same."""
    if hasattr(x, "shape"):
        return [tuple(x.shape[1:])]
    try:
        return [tuple(np.shape(series)) for series in x]
    except (TypeError, ValueError):  # a ragged list: the converter says what is wrong with it
        return []


def _readings(x: Any, shapes: list[tuple[int, ...]]) -> str:
    """Both readings with their sizes."""
    (a, b), whole = shapes[0], hasattr(x, "shape")
    what = f"shape {tuple(x.shape)}" if whole else f"shape {shapes[0]} of series 0"
    axes = ("(B, L, C)", "(B, C, L)") if whole else ("(L, C)", "(C, L)")
    return (
        f"{what} is {_count(b, 'channel')} of {_count(a, 'point')} as 'time_first' {axes[0]}, and "
        f"{_count(a, 'channel')} of {_count(b, 'point')} as 'channels_first' {axes[1]}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# Array layouts of the outside world -> the flat ragged layout, once, at the door.

Values = npt.NDArray[np.floating[Any]]  # float32 or float64
Index = npt.NDArray[np.int64]


class Extras(TypedDict, total=False):
    """What each constructor takes beside times and values; all optional."""

    channels: Sequence[str] | None  # C names; default "x0", "x1", ...
    ids: Any  # (B,) numbers or texts
    static: Any  # (B, S) numbers that do not change with time, NaN = unknown
    static_names: Sequence[str] | None  # S names; default "s0", "s1", ...
    labels: Any  # (B, ...) numbers or texts
    time_origin: Any  # the date that time 0 stands for


class Parts(NamedTuple):
    """A ragged batch before validation; exactly one of ``times`` and ``grid`` is an array."""

    values: Values
    offsets: Index
    times: FloatTimes | None
    grid: FloatTimes | None
    origin: np.datetime64 | None


def frozen(array: npt.NDArray[Any]) -> Any:
    """A read-only view: the flag is set on the view, never on the caller's array."""
    view = array.view()
    view.setflags(write=False)
    return view


def is_tensor(x: object) -> bool:
    """Whether ``x`` is a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def as_array(x: Any, what: str) -> npt.NDArray[Any]:
    """Array-like or torch tensor -> ndarray, without a copy where the memory can be shared."""
    if is_tensor(x):
        if str(x.layout) != "torch.strided":
            raise InputError(f"{what} must be a dense tensor, got {x.layout}; use x.to_dense()")
        if x.device.type == "meta":
            raise InputError(f"{what} must hold numbers, got a tensor on the meta device")
        if x.is_quantized:
            raise InputError(f"{what} must be plain numbers, got {x.dtype}; use x.dequantize()")
        if x.requires_grad:
            raise InputError(
                f"{what} must not require a gradient, which would be lost here; detach them with "
                "x.detach(), or use rf.nn.MultiViewSignature, which is differentiable"
            )
        x = x.cpu()
        # bfloat16 has no numpy counterpart; float32 holds each of its values.
        x = (x.float() if str(x.dtype) == "torch.bfloat16" else x).resolve_conj().numpy()
    if isinstance(x, np.ma.MaskedArray) and np.any(x.mask):
        if x.dtype.kind not in "biuf":
            raise InputError(
                f"{what} of dtype {x.dtype} must not be masked; leave those points out"
            )
        kind = np.result_type(x.dtype, np.float32)
        x = np.where(x.mask, kind.type(np.nan), x.data.astype(kind))  # masked = not observed
    try:
        return np.asarray(x)
    except ValueError as error:
        raise InputError(
            f"{what} must have rows of equal length, got {type(x).__name__} ({error}); make "
            "rows of different length separate series (SeriesBatch.from_arrays) or fill them up"
        ) from None


def as_values(x: Any, what: str = "values") -> Any:
    """Array-like -> float32 (from float32, float16, bfloat16) or float64 (from all the rest)."""
    array = as_array(x, what)
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind not in "fiub":
        hint = (
            "make all entries numbers, with np.nan for 'not observed'"
            if kind == "O"
            else "give the real and imaginary parts as two channels"
            if kind == "c"
            else "convert to float first"
        )
        raise InputError(f"{what} must be real numbers, got dtype {array.dtype}; {hint}")
    single = kind == "f" and size <= 4
    return np.asarray(array, dtype=np.float32 if single else np.float64)


def parts_of_block(x: Any, times: Any, lengths: Any, layout: str | None, extras: Extras) -> Parts:
    """A regular block ``(B, L, C)``, or ``(B, C, L)`` by ``layout``, of which series b is its first
    ``lengths[b]`` points; ``times`` is None (0, 1, 2, ...), shared ``(L,)`` or ``(B, L)``.
    """
    block = as_values(x)
    layout = layout_of(block, layout, times=times, n_channels=_named(extras))
    axes = "(B, L, C)" if layout == "time_first" else "(B, C, L)"
    if block.ndim != 3:
        raise InputError(
            f"values must have 3 dimensions {axes}, got shape {block.shape}; "
            "for one series add a leading axis with x[None], for one channel an axis of size 1"
        )
    if layout == "channels_first":
        block = block.transpose(0, 2, 1)  # (B, L, C)
    n_series, length, width = block.shape
    origin = as_origin(extras.get("time_origin"))
    stamps, origin = _block_times(times, n_series, length, origin)
    sizes = _block_lengths(lengths, n_series, length)
    if n_series and sizes.min() == sizes.max() and sizes[0] < length:  # one common cut
        length = int(sizes[0])
        block, stamps = block[:, :length], stamps[..., :length]
    if n_series == 0 or sizes.min() == length:
        values = np.ascontiguousarray(block).reshape(n_series * length, width)
        offsets = np.arange(n_series + 1, dtype=np.int64) * length
        if stamps.ndim == 1:
            return Parts(values, offsets, None, stamps, origin)
        return Parts(values, offsets, np.ascontiguousarray(stamps).reshape(-1), None, origin)
    inside = np.arange(length) < sizes[:, None]  # (B, L)
    stamps = np.broadcast_to(stamps, (n_series, length))
    return Parts(block[inside], offsets_of(sizes), stamps[inside], None, origin)


def _named(extras: Extras) -> int | None:
    """The number of channels, if they have names."""
    names = extras.get("channels")
    return None if names is None else len(names)


def parts_of_arrays(arrays: Sequence[Any], times: Any, layout: str | None, extras: Extras) -> Parts:
    """A list of ``(L_i, C)``, or ``(C, L_i)`` by ``layout``; ``times`` is None, shared ``(L,)``
    or a list of ``(L_i,)``.
    """
    n_channels = _named(extras)
    arrays = _as_sequence(arrays, "values")
    refuse_tables(arrays)
    series = [as_values(a, f"values of series {i}") for i, a in enumerate(arrays)]
    layout = layout_of(series, layout, times=times, n_channels=n_channels)
    shape = "(L, C)" if layout == "time_first" else "(C, L)"
    for i, a in enumerate(series):
        if a.ndim != 2:
            raise InputError(
                f"each series must be a 2-D array {shape}, got shape {a.shape} for series {i}; "
                "one channel is an axis of size 1, e.g. x[:, None]"
            )
    if layout == "channels_first":
        series = [a.T for a in series]
    width = series[0].shape[1] if series else (n_channels or 0)
    for i, a in enumerate(series):
        if a.shape[1] != width:
            raise InputError(
                f"all series must have the same channels: series 0 has {width}, series {i} has "
                f"{a.shape[1]} (shape {arrays[i].shape if hasattr(arrays[i], 'shape') else '?'} "
                f"read as {shape}); fill absent channels with np.nan, or set layout="
            )
    sizes = np.array([len(a) for a in series], dtype=np.int64)
    values = np.concatenate(series) if series else np.empty((0, width))
    offsets = offsets_of(sizes)
    origin = as_origin(extras.get("time_origin"))
    stamps, shared, origin = _list_times(times, sizes, origin)
    values = np.ascontiguousarray(values)
    if shared:
        return Parts(values, offsets, None, stamps, origin)
    return Parts(values, offsets, stamps, None, origin)


def refuse_tables(series: Sequence[Any]) -> None:
    """Refuse a list of frames: read as arrays, the order of their columns would count."""
    if any(hasattr(one, "columns") for one in series):
        raise InputError(
            "a list of tables is not read as series; make one table of them, in pandas with "
            "pd.concat(frames, keys=ids, names=['id'])"
        )


def _block_times(
    times: Any, n_series: int, length: int, origin: np.datetime64 | None
) -> tuple[FloatTimes, np.datetime64 | None]:
    if times is None:
        return np.arange(length, dtype=np.float64), origin
    raw = as_array(times, "times")
    if raw.shape not in ((length,), (n_series, length)):
        raise InputError(
            f"times must have shape ({length},), shared by all series, or ({n_series}, {length}), "
            f"got {raw.shape}; give one time for each of the {length} points of a series, or "
            "set layout= if time is another axis"
        )
    return to_seconds(raw, origin)


def _block_lengths(lengths: Any, n_series: int, length: int) -> Index:
    if lengths is None:
        return np.full(n_series, length, dtype=np.int64)
    sizes = as_array(lengths, "lengths")
    if sizes.shape != (n_series,) or (n_series and sizes.dtype.kind not in "iu"):
        raise InputError(
            f"lengths must be {n_series} integers, one for each series, got dtype {sizes.dtype} "
            f"of shape {sizes.shape}"
        )
    wrong = np.flatnonzero((sizes < 0) | (sizes > length))
    if len(wrong):
        raise InputError(
            f"lengths must be between 1 and {length}, the padded length, got "
            f"{sizes[wrong[0]]} for series {wrong[0]}; check that time is the second axis"
        )
    return sizes.astype(np.int64)


def _list_times(
    times: Any, sizes: Index, origin: np.datetime64 | None
) -> tuple[FloatTimes, bool, np.datetime64 | None]:
    """-> stamps ``(L,)`` or ``(N,)``, whether they are shared, the origin."""
    n_series = len(sizes)
    equal = n_series > 0 and bool((sizes == sizes[0]).all())
    if times is None:
        if equal:
            return np.arange(int(sizes[0]), dtype=np.float64), True, origin
        ends = np.cumsum(sizes)
        steps = np.arange(int(sizes.sum()), dtype=np.float64)
        return steps - np.repeat(ends - sizes, sizes), False, origin
    times = _as_sequence(times, "times")
    if _is_flat(times):
        stamps, origin = to_seconds(as_array(times, "times"), origin)
        wrong = np.flatnonzero(sizes != len(stamps))
        if len(wrong):
            raise InputError(
                f"shared times of length {len(stamps)} need series of that length, got "
                f"{sizes[wrong[0]]} points in series {wrong[0]}; give a list of times, one array "
                "for each series"
            )
        return stamps, True, origin
    stamps_of = [as_array(t, f"times of series {i}") for i, t in enumerate(times)]
    if len(stamps_of) != n_series:
        raise InputError(
            f"times must be one array for each of the {n_series} series, got {len(stamps_of)}"
        )
    for i, (t, size) in enumerate(zip(stamps_of, sizes, strict=True)):
        if t.shape != (size,):
            raise InputError(
                f"times of series {i} must have shape ({size},), one time for each of its points, "
                f"got {t.shape}"
            )
    stamps, origin = to_seconds(merge_stamps(stamps_of), origin)
    return stamps, False, origin


def _as_sequence(x: Any, what: str) -> Any:
    """``x`` itself if it has a length, a list if it can only be run through once."""
    if getattr(x, "ndim", 1) == 0 or not hasattr(x, "__iter__"):
        raise InputError(f"{what} must be a list of arrays or an array, got {type(x).__name__}")
    return x if hasattr(x, "__len__") else list(x)


def _is_flat(times: Any) -> bool:
    """Whether ``times`` is one 1-D sequence of stamps rather than a sequence of sequences."""
    first = next(iter(times), None)  # not times[0]: a pandas Series looks that up by label
    return first is not None and np.ndim(first) == 0


def offsets_of(sizes: npt.NDArray[Any]) -> Index:
    """``(B+1,)`` offsets of series of these sizes."""
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


# The checks of raw data: vectorised, in slices of bounded memory, with errors that name the
# place.

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
            f"{what} must be {count} names, got {len(names)}: {', '.join(map(repr, names[:8]))}"
            f"{', ...' if len(names) > 8 else ''}; "
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


# Channels that a series never observes

BLOCK = 1 << 18  # points worked on in one go: temporaries of a few MB that stay in cache


class UnobservedWarning(UserWarning):
    """A channel is never observed in some series and was taken as constant 0 there."""


def blocks(offsets: Index, size: int = BLOCK) -> Iterator[tuple[int, int]]:
    """Runs ``[b0, b1)`` of whole series with about ``size`` points (one longer series is a run)."""
    b0, n_series = 0, len(offsets) - 1
    while b0 < n_series:
        b1 = int(np.searchsorted(offsets, offsets[b0] + size, side="right")) - 1
        b1 = max(b1, b0 + 1)
        yield b0, b1
        b0 = b1


def unobserved(values: Values, offsets: Index) -> npt.NDArray[np.bool_]:
    """``(B, C)``: True where a series has not one observation of a channel."""
    out = np.zeros((len(offsets) - 1, values.shape[1]), dtype=bool)
    for b0, b1 in blocks(offsets):
        first, last = int(offsets[b0]), int(offsets[b1])
        empty = np.isnan(values[first:last])
        np.logical_and.reduceat(empty, offsets[b0:b1] - first, axis=0, out=out[b0:b1])
    return out


def warn_unobserved(never: Index, n_series: int, channels: tuple[str, ...]) -> None:
    named = [f"{channels[c]!r} in {never[c]}" for c in np.flatnonzero(never)]
    if named:
        more = f" and {len(named) - 5} more channels" if len(named) > 5 else ""
        warnings.warn(
            f"never observed, taken as constant 0: channel {', '.join(named[:5])}{more} "
            f"of {n_series} series; see SeriesBatch.unobserved()",
            UnobservedWarning,
            stacklevel=4,
        )
