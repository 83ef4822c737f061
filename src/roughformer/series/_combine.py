"""Parts, sums and comparison of batches, on their fields: no check needed, the fields are right."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series._arrays import Index

__all__ = ["compact", "concatenate", "describe", "same", "take"]

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
        out["offsets"] = _cumulate(lengths)
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
    out["offsets"] = _cumulate(np.concatenate([np.diff(b["offsets"]) for b in batches]))
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
        found = ", ".join(f"{a.dtype} {a.shape}" for a in given)
        raise InputError(f"{name} to concatenate must be of one kind and shape, got {found}")
    return np.concatenate(given)


def same(a: Fields, b: Fields, ignored: Sequence[str]) -> bool:
    """Whether all fields but the ``ignored`` are equal, with NaN = NaN and equal dtypes."""
    return all(_same(a[name], b[name]) for name in a if name not in ignored)


def _same(a: Any, b: Any) -> bool:
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        return type(a) is type(b) and bool(a == b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    equal = a == b
    if a.dtype.kind in "fMm":  # NaN and NaT differ from themselves
        equal |= (a != a) & (b != b)
    return bool(equal.all())


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


def _cumulate(sizes: npt.NDArray[Any]) -> Index:
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets
