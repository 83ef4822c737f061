"""One unit of work: the series of a unit -> their tokens -> a shard. No torch is needed for it."""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roughformer.errors import CapacityError, InputError
from roughformer.series import SeriesBatch, UnobservedWarning
from roughformer.store.claim import check_claim
from roughformer.store.columns import TableColumns
from roughformer.store.hashing import numbers_of
from roughformer.store.laying import laid_series
from roughformer.store.manifest import ShardInfo, shard_name
from roughformer.store.places import Place, retrying
from roughformer.store.plan import BucketUnit, RangeUnit
from roughformer.store.reading import MixedIds, check_rest, pieces_of, read_groups, whole_series
from roughformer.store.rooms import Rooms
from roughformer.store.scatter import read_bucket
from roughformer.store.shards import Rows, Tokens, write_shard
from roughformer.tokens import Tokenizer

__all__ = ["LabelTable", "Made", "Recipe", "ShardWork", "batches_of"]

_TOKEN_BYTES = 8 << 20  # of padded tokens at once
Array = npt.NDArray[Any]
Unit = RangeUnit | BucketUnit


@dataclass(frozen=True)
class LabelTable:
    """Labels ``(K,)`` of series by their ids as texts, which are sorted."""

    ids: Array
    labels: Array

    @classmethod
    def of(cls, by_id: dict[str, Any]) -> "LabelTable":
        """From id -> label."""
        ids = np.array(list(by_id), dtype=str)
        order = np.argsort(ids)
        return cls(ids[order], np.array(list(by_id.values()))[order])

    def join(self, batch: SeriesBatch) -> SeriesBatch:
        """The series that have a label, with it."""
        assert batch.ids is not None
        texts = batch.ids.astype(str)
        at = np.minimum(np.searchsorted(self.ids, texts), len(self.ids) - 1)
        known = self.ids[at] == texts
        part = batch if known.all() else batch[known]
        return part.with_labels(self.labels[at[known]])


@dataclass(frozen=True)
class Recipe:
    """How series are read, and what is made of them."""

    columns: TableColumns
    schema: pa.Schema
    origin: np.datetime64 | None
    labels: LabelTable | None
    keep_series: bool
    drop: float
    seed: int
    memory: int

    def rows(self, batch: SeriesBatch, tokenizer: Tokenizer | None) -> Iterator[Rows]:
        """What a shard has of the series, a bounded number at a time."""
        limits = [0, len(batch)] if tokenizer is None else _limits(batch, tokenizer, self.memory)
        for first, last in pairwise(limits):
            part = batch if last - first == len(batch) else batch[first:last]
            assert part.ids is not None
            tokens = None
            if tokenizer is not None:
                tokens = _tokens(part, tokenizer, self.drop, self.seed)
            series = part if self.keep_series else None
            yield Rows(part.ids, part.n_points, part.labels, part.static, series, tokens)


@dataclass(frozen=True)
class Made:
    """A shard that was made: ``left_out`` series had no label; seconds by stage."""

    unit: int
    shard: ShardInfo
    rows: int
    left_out: int
    unobserved: tuple[int, ...]  # by channel: series that never observe it
    seconds: dict[str, float]


@dataclass(frozen=True)
class ShardWork:
    """A unit -> a shard in ``store``; picklable."""

    store: Place
    key: str
    recipe: Recipe
    tokenizer: Tokenizer | None
    columns: pa.Schema  # of the shards
    rooms: Rooms = field(default_factory=Rooms, compare=False)

    def __call__(self, unit: Unit) -> Made:
        """Read, make tokens, write."""
        where = unit.groups[0].place if isinstance(unit, RangeUnit) else unit.pieces[0]

        def attempt() -> Made:
            try:
                return self._make(unit, False)
            except MixedIds:
                return self._make(unit, True)

        try:
            return retrying(attempt, where)
        except MixedIds:
            raise InputError(
                f"the footer of {where} is wrong about the ids in its row groups; write it again"
            ) from None
        except InputError as error:
            if isinstance(unit, BucketUnit) or str(where) in str(error):
                raise
            last = unit.groups[-1].place
            files = f"{where}" if last == where else f"{where} ... {last}"
            raise InputError(f"{error} (in {files}; rows count from somewhere within)") from None

    def _make(self, unit: Unit, sort: bool) -> Made:
        clock, recipe = _Clock(), self.recipe
        never = np.zeros(len(recipe.columns.channels), np.int64)
        seen = 0

        def blocks() -> Iterator[Rows]:
            nonlocal seen
            for count, batch in clock.timed("read", batches_of(unit, recipe, self.rooms, sort)):
                seen += count
                if batch.missing:
                    never[:] += batch.unobserved().sum(axis=0)
                if len(batch):
                    yield from clock.timed("tokens", recipe.rows(batch, self.tokenizer))

        place = self.store / shard_name(unit.number)
        with clock.running("write"), warnings.catch_warnings():
            warnings.simplefilter("ignore", UnobservedWarning)  # counted, and told once
            shard = write_shard(
                place, self.key, unit.number, blocks(), self.columns,
                may_appear=lambda: check_claim(self.store, self.key),
            )  # fmt: skip
        return Made(
            unit.number, shard, unit.rows, seen - shard.series, tuple(never.tolist()), clock.seconds
        )


def batches_of(
    unit: Unit, recipe: Recipe, rooms: Rooms, sort: bool = False
) -> Iterator[tuple[int, SeriesBatch]]:
    """The series of a unit, a few MB at a time, each with their number before those without a
    label were left out.
    """
    for batch in _batches(unit, recipe, rooms, sort):
        count = len(batch)
        yield count, batch if recipe.labels is None else recipe.labels.join(batch)


def _batches(unit: Unit, recipe: Recipe, rooms: Rooms, sort: bool) -> Iterator[SeriesBatch]:
    columns, most = recipe.columns, recipe.memory // 4
    if isinstance(unit, BucketUnit):
        for number in range(unit.first, unit.last):
            table = read_bucket(unit.pieces, number)
            if table.nbytes > most:
                _refuse(f"a bucket of series has {table.nbytes // 2**20} MB")
            if len(table):
                yield columns.batch(table, recipe.origin)
        return
    if sort:
        size = max(group.bytes for group in unit.groups)
        if size > most:
            _refuse(f"a row group with mixed ids has {size // 2**20} MB")
    else:
        check_rest(unit.groups, columns.series_id, recipe.schema, unit.until)
    tables = read_groups(unit.groups, columns.needed, recipe.schema, whole=sort)
    pieces = pieces_of(tables, columns.series_id, after=unit.after, until=unit.until, sort=sort)
    if columns.wide_alone:
        yield from laid_series(pieces, columns, recipe.origin, most, rooms)
    else:
        for table in whole_series(pieces, most):
            yield columns.batch(table, recipe.origin)


def _refuse(what: str) -> None:
    raise CapacityError(
        f"{what}, more than a quarter of the memory of a worker; give more with --memory, or write "
        "the data sorted by series"
    )


def _limits(batch: SeriesBatch, tokenizer: Tokenizer, memory: int) -> list[int]:
    """Parts of a batch, ``[first, last)`` side by side, whose padded tokens stay small."""
    counts = tokenizer.config.rule.place(batch).n_windows
    most = _TOKEN_BYTES // (4 * tokenizer.n_features)
    need = 4 * tokenizer.n_features * int(counts.max(initial=0))
    if need > memory // 4:
        _refuse(f"the tokens of one series have {need // 2**20} MB")
    limits = [0]
    while limits[-1] < len(counts):
        first = limits[-1]
        widest = np.maximum.accumulate(counts[first:])
        fits = int(np.searchsorted(widest * np.arange(1, len(widest) + 1), most, "right"))
        limits.append(first + max(fits, 1))
    return limits


def _tokens(batch: SeriesBatch, tokenizer: Tokenizer, drop: float, seed: int) -> Tokens:
    # Points to drop are chosen by id, so that they do not depend on how the data are cut.
    numbers = numbers_of(batch.ids) if drop and batch.ids is not None else None
    found = tokenizer.arrays(batch, drop=drop, seed=seed, series=numbers, threads=1)
    tokens, times = found["tokens"], found["times"]
    n, most = times.shape
    mask = found.get("mask")
    spectrum = found.get("spectrum")
    if mask is None:
        flat = tokens.reshape(n * most, -1)
        return Tokens(flat, times.reshape(-1), np.arange(n + 1) * most, spectrum)
    offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))])
    return Tokens(tokens[mask], times[mask], offsets, spectrum)


@dataclass
class _Clock:
    """Seconds by stage, where one stage calls upon the one before it."""

    seconds: dict[str, float] = field(default_factory=dict)
    stack: list[str] = field(default_factory=list)
    since: float = 0.0

    def _switch(self) -> None:
        now = time.perf_counter()
        if self.stack:
            stage = self.stack[-1]
            self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self.since
        self.since = now

    @contextmanager
    def running(self, stage: str) -> Iterator[None]:
        self._switch()
        self.stack.append(stage)
        try:
            yield
        finally:
            self._switch()
            self.stack.pop()

    def timed(self, stage: str, items: Iterator[Any]) -> Iterator[Any]:
        while True:
            with self.running(stage):
                item = next(items, None)
            if item is None:
                return
            yield item
