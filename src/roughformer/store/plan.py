"""Units of work, cut by what the footers say: unit k makes shard k.

Where ids ascend from row group to row group, a unit is a range of row groups, and of ids: (after,
until]. A series that goes on in the next row groups belongs to the unit in which it begins.
Otherwise rows are scattered into buckets by a hash of their id first (``scatter``), and a unit is a
range of buckets. Units depend on the data and the sizes below, not on who works on them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from roughformer.store.places import Place
from roughformer.store.sources import Group

__all__ = ["BucketUnit", "RangeUnit", "Sizes", "bucket_units", "by_id", "range_units", "spans"]


@dataclass(frozen=True)
class Sizes:
    """Bytes that units aim at."""

    rows: int = 512 << 20  # of the data, as columns in memory
    shard: int = 96 << 20  # of the result, before compression
    piece: int = 256 << 20  # of the data that are scattered at once, twice as much in memory
    bucket: int = 16 << 20  # of the data: what is sorted at once


@dataclass(frozen=True)
class RangeUnit:
    """Series with ``after`` < id <= ``until``, all of whose rows are in ``groups``."""

    number: int
    groups: tuple[Group, ...]
    rows: int  # of the groups that are its own; the last ones may be of other units too
    after: Any
    until: Any


@dataclass(frozen=True)
class BucketUnit:
    """Series of the buckets ``first`` ... ``last - 1``, whose rows are in all ``pieces``."""

    number: int
    pieces: tuple[Place, ...]
    rows: int
    first: int
    last: int


def by_id(groups: Sequence[Group]) -> list[Group] | None:
    """The row groups in the order of their ids; None if their ranges overlap, or are not known."""
    if any(group.low is None or group.high is None for group in groups):
        return None
    ordered = sorted(groups, key=lambda g: (g.low, g.high))
    meet = pairwise(ordered)
    return ordered if all(one.high <= other.low for one, other in meet) else None


def spans(rows: Sequence[int], target: int, may_cut: Sequence[bool]) -> list[tuple[int, int]]:
    """Cut things of so many rows into spans ``[first, last)`` of at most ``target`` rows, where
    possible; ``may_cut[i]``: a span may begin at i.
    """
    found, first, size = [], 0, 0
    for i, count in enumerate(rows):
        if i > first and may_cut[i] and size + count > target:
            found.append((first, i))
            first, size = i, 0
        size += count
    return [*found, (first, len(rows))] if rows else []


def range_units(groups: Sequence[Group], target: int) -> list[RangeUnit]:
    """Units of about ``target`` rows of row groups in the order of their ids."""
    # A row group that only goes on with the series before it begins nothing.
    begins = [True] + [b.high > a.high for a, b in pairwise(groups)]
    found: list[RangeUnit] = []
    for first, last in spans([group.rows for group in groups], target, begins):
        until, end = groups[last - 1].high, last
        while end < len(groups) and groups[end].low <= until:
            end += 1
        own = sum(group.rows for group in groups[first:last])
        after = groups[first - 1].high if first else None
        found.append(RangeUnit(len(found), tuple(groups[first:end]), own, after, until))
    return found


def bucket_units(pieces: Sequence[Place], rows: Sequence[int], target: int) -> list[BucketUnit]:
    """Units of about ``target`` rows; ``rows``: of each bucket. Empty ones at the end are none."""
    found = [
        BucketUnit(0, tuple(pieces), sum(rows[first:last]), first, last)
        for first, last in spans(rows, target, [True] * len(rows))
    ]
    return [replace(u, number=k) for k, u in enumerate(u for u in found if u.rows)]
