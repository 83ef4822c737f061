"""Data -> a store: what is finished is kept, what is missing is made, the manifest comes last."""

import json
import re
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.fs as fs

from roughformer.errors import CapacityError, InputError
from roughformer.series import SeriesBatch, UnobservedWarning, column_times
from roughformer.store.dataset import (
    BucketUnit,
    RangeUnit,
    Sizes,
    Source,
    TableColumns,
    bucket_units,
    by_id,
    find_files,
    open_source,
    range_units,
)
from roughformer.store.dataset import spans as spans_of
from roughformer.store.ingest import (
    MOST_BUCKETS,
    MixedIds,
    ShuffledPiece,
    ShuffleUnit,
    ShuffleWork,
    ascending_rows,
    check_rest,
    finished_piece,
    numbers_of,
    read_bucket,
    read_groups,
    whole_series,
)
from roughformer.store.storage import Place, retrying
from roughformer.store.stored import (
    MANIFEST,
    Manifest,
    Rows,
    ShardInfo,
    Tokens,
    Totals,
    finished_shard,
    hash_of,
    is_shard,
    schema_of,
    shard_name,
    to_table,
    write_shard,
)
from roughformer.store.workers import Engine, run_units
from roughformer.tokens import TokenConfig, Tokenizer
from roughformer.util.atomic import locked

MARKER, SHUFFLED = "building.json", "shuffled"
_OURS = re.compile(rf"(shard-\d+\.parquet|{MANIFEST}|{MARKER})(\.[0-9a-f]+\.part)?|{SHUFFLED}")


def complete(store: Place, key: str) -> Manifest | None:
    """The manifest of the store if it is complete and of these data and this configuration."""
    try:
        manifest = Manifest.read(store)
    except (InputError, NotADirectoryError):
        return None
    if manifest.key != key:
        return None
    sizes = {store.at(info).name: info.size for info in store.listing()}
    whole = all(sizes.get(shard.file) == shard.bytes for shard in manifest.shards)
    return manifest if whole else None


@contextmanager
def building(store: Place, key: str, afresh: bool = False) -> Iterator[Callable[[], None]]:
    """Hold the directory; what is given must be called before the first shard is written. From
    there to the end the store has no manifest, and a marker tells whose it is. A store that was
    complete stays so if nothing comes to be written.
    ``afresh``: nothing of an earlier build is used.
    """
    _refuse_others(store)
    store.make_directory()
    with ExitStack() as stack:
        try:
            if store.local:  # one build at a time; the lock goes with the process
                stack.enter_context(locked(store.path, wait=False))
        except BlockingIOError:
            raise InputError(f"another process is making {store}; wait for it, or end it") from None
        there = {store.at(info).name for info in store.listing()}
        if MANIFEST not in there:
            _mark(store, key)
        for name in there:
            if name.endswith(".part"):
                (store / name).remove()
        if afresh:
            (store / SHUFFLED).remove_directory()

        def begin() -> None:
            # Before anything else changes: a manifest must never speak of another build's shards.
            (store / MANIFEST).remove()
            _mark(store, key)
            for info in store.listing() if afresh else ():
                if info.path.endswith(".parquet"):
                    store.at(info).remove()

        yield begin
        (store / MARKER).remove()


def check_lock(store: Place, key: str) -> None:
    """``InputError`` unless the build with this key still holds the store: a worker that outlives
    its build, on a cluster, must not write into another one's.
    """
    try:
        holder = json.loads((store / MARKER).read())["key"]
    except FileNotFoundError:
        holder = None
    if holder != key:
        raise InputError(f"{store} is now being made by another build; this one has ended")


def _mark(store: Place, key: str) -> None:
    (store / MARKER).put(json.dumps({"kind": "roughformer.store.building", "key": key}).encode())


def _refuse_others(store: Place) -> None:
    """``InputError`` if there is anything that no build of a store has left."""
    try:
        if store.info().type == fs.FileType.File:
            raise InputError(f"{store} is a file; a store is a directory, choose another --out")
    except FileNotFoundError:
        return
    entries = store.listing()
    names = [store.at(info).name for info in entries]
    for name in names:
        if not _OURS.fullmatch(name):
            raise InputError(
                f"{store} holds {name!r}, which is not part of a feature store; choose another "
                "--out"
            )
    shards = [store.at(info) for info in entries if info.path.endswith(".parquet")]
    if shards and not {MANIFEST, MARKER} & set(names) and not is_shard(shards[0]):
        raise InputError(
            f"{shards[0]} is not a shard of a feature store; choose another --out, or move it away"
        )


# One unit of work: the series of a unit -> their tokens -> a shard. No torch is needed for it.

_TOKEN_BYTES = 8 << 20  # of padded tokens at once
Array = npt.NDArray[Any]
T = TypeVar("T")
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

    def __call__(self, unit: Unit) -> Made:
        """Read, make tokens, write."""
        place = unit.groups[0].place if isinstance(unit, RangeUnit) else unit.pieces[0]

        def attempt() -> Made:
            try:
                return self._make(unit, False)
            except MixedIds:
                return self._make(unit, True)

        try:
            return retrying(attempt, place)
        except MixedIds:
            raise InputError(
                f"the footer of {place} is wrong about the ids in its row groups; write it again"
            ) from None
        except InputError as error:
            if isinstance(unit, BucketUnit) or str(place) in str(error):
                raise
            last = unit.groups[-1].place
            files = f"{place}" if last == place else f"{place} ... {last}"
            raise InputError(f"{error} (in {files}; rows count from somewhere within)") from None

    def _make(self, unit: Unit, sort: bool) -> Made:
        recipe, start, seen = self.recipe, time.perf_counter(), 0
        seconds = {"read": 0.0, "tokens": 0.0}
        never = np.zeros(len(recipe.columns.channels), np.int64)

        def blocks() -> Iterator[Rows]:
            nonlocal seen
            for count, batch in _timed(batches_of(unit, recipe, sort), seconds, "read"):
                seen += count
                if batch.missing:
                    never[:] += batch.unobserved().sum(axis=0)
                if len(batch):
                    yield from _timed(recipe.rows(batch, self.tokenizer), seconds, "tokens")

        place = self.store / shard_name(unit.number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnobservedWarning)  # counted, and reported once
            shard = write_shard(
                place, self.key, unit.number, blocks(), self.columns,
                may_appear=lambda: check_lock(self.store, self.key),
            )  # fmt: skip
        seconds["write"] = time.perf_counter() - start - sum(seconds.values())
        left_out = seen - shard.series
        return Made(unit.number, shard, unit.rows, left_out, tuple(never.tolist()), seconds)


def batches_of(unit: Unit, recipe: Recipe, sort: bool = False) -> Iterator[tuple[int, SeriesBatch]]:
    """The series of a unit, a few MB at a time, each with their number before those without a
    label were left out.
    """
    for batch in _batches(unit, recipe, sort):
        yield len(batch), batch if recipe.labels is None else recipe.labels.join(batch)


def _batches(unit: Unit, recipe: Recipe, sort: bool) -> Iterator[SeriesBatch]:
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
    pieces = ascending_rows(
        tables, columns.series_id, after=unit.after, until=unit.until, sort=sort
    )
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
    inputs = tokenizer.arrays(batch, drop=drop, seed=seed, series=numbers, threads=1)
    tokens, times = inputs["tokens"], inputs["times"]
    n, most = times.shape
    mask = inputs.get("mask")
    spectrum = inputs.get("spectrum")
    if mask is None:
        flat = tokens.reshape(n * most, -1)
        return Tokens(flat, times.reshape(-1), np.arange(n + 1) * most, spectrum)
    offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))])
    return Tokens(tokens[mask], times[mask], offsets, spectrum)


def _timed(items: Iterator[T], seconds: dict[str, float], stage: str) -> Iterator[T]:
    """The items; the seconds that it takes to make them are added to those of the stage."""
    while True:
        start = time.perf_counter()
        item = next(items, None)
        seconds[stage] += time.perf_counter() - start
        if item is None:
            return
        yield item


# A bounded sample of series, the same on each run: what a tokenizer is fitted to.

_PLACES, _SERIES, _POINTS = 16, 512, 4_000_000


@dataclass(frozen=True)
class Fitted:
    """The tokenizer, the columns of shards, and the bytes that a row of data becomes in them."""

    tokenizer: Tokenizer | None
    columns: pa.Schema
    bytes_per_point: float


def fit_recipe(units: Sequence[Unit], recipe: Recipe, config: TokenConfig | None) -> Fitted:
    """Fit to series from the beginnings of up to 16 units, spread evenly over all of them."""
    count = min(_PLACES, len(units))
    chosen = [units[(k * len(units)) // count] for k in range(count)]
    parts: list[SeriesBatch] = []
    for unit in chosen:
        parts += _first_series(unit, recipe, -(-_SERIES // count), -(-_POINTS // count))
    if not parts:
        raise InputError(
            "no series of the data has a label in the table of labels; its first column must hold "
            "their ids"
        )
    sample = SeriesBatch.concatenate(parts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnobservedWarning)  # reported for all series, at the end
        tokenizer = None if config is None else Tokenizer.fit(config, sample)
        blocks = list(recipe.rows(sample[: min(len(sample), 64)], tokenizer))
    columns = schema_of(blocks[0])
    size = sum(to_table(rows, columns).nbytes for rows in blocks)
    return Fitted(tokenizer, columns, size / max(sum(rows.points for rows in blocks), 1))


def _first_series(unit: Unit, recipe: Recipe, series: int, points: int) -> list[SeriesBatch]:
    """The first ``series`` series of a unit, or fewer: none after ``points`` points, however its
    rows come in batches.
    """
    for sort in (False, True):
        parts: list[SeriesBatch] = []
        left = series, points
        try:
            for _, batch in batches_of(unit, recipe, sort):
                before = np.cumsum(batch.lengths) - batch.lengths
                part = batch[: min(left[0], int(np.searchsorted(before, left[1])))]
                left = left[0] - len(part), left[1] - part.n_points
                if len(part):
                    parts.append(SeriesBatch.concatenate([part]))  # not a view of all of it
                if min(left) <= 0:
                    break
            return parts
        except MixedIds:
            continue
    raise InputError("the ids of the rows do not lie within what the footers say; write the files "
                     "again")  # fmt: skip


# Data -> a store: what is finished is kept, what is missing is made, the manifest comes last.

Progress = Callable[[str, int, int], None]
_LAYOUT = 2  # of what this version makes of the same data and options


@dataclass
class Built:
    """What a build did."""

    manifest: Manifest
    made: int = 0  # shards
    kept: int = 0  # shards that were there already
    shuffled: bool = False
    left_out: int = 0  # series without a label, among the shards that were made
    unobserved: dict[str, int] = field(default_factory=dict)  # series by channel, likewise
    seconds: dict[str, float] = field(default_factory=dict)  # of all workers, by stage


def build_store(
    data: Sequence[Any],
    out: Any,
    columns: TableColumns,
    config: TokenConfig | None,
    *,
    labels: dict[str, Any] | None = None,
    series: bool = False,
    drop: float = 0.0,
    seed: int = 0,
    engine: Engine = "local",
    workers: int | None = None,
    address: str | None = None,
    memory: int = 1 << 30,
    sizes: Sizes | None = None,
    afresh: bool = False,
    verify: bool = False,
    progress: Progress | None = None,
) -> Built:
    """Make the store ``out`` of Parquet tables ``data``: paths, directories, patterns or URIs.

    ``config``: of the tokens, None for none. ``series``: keep the series too. ``labels``: id (as
    text) -> label, instead of a column; series without one are left out. ``drop`` of the points of
    each series are left out of its tokens. ``workers``: processes, or tasks of Ray at a time, that
    do the work; None: this process does it. ``memory``: bytes that a worker may hold of data, the
    interpreter not counted. ``afresh``: also what is finished is made again.
    ``verify``: finished shards are read, and those that are damaged are made again.
    ``progress(stage, rows done, rows in all)`` is called now and then.
    """
    if config is None and not series:
        raise InputError("a store holds tokens, series or both; neither was asked for")
    sizes = sizes or Sizes()
    source = open_source(find_files(data), columns.needed, columns.series_id)
    columns.check(source.schema)
    store = Place.of(out)
    _refuse_within(store, data, source)
    options = {
        "layout": _LAYOUT,
        "columns": columns.plain(),
        "config": None if config is None else config.model_dump(mode="json"),
        "labels": None if labels is None else hash_of(sorted(map(repr, labels.items()))),
        "series": series,
        "drop": drop,
        "seed": seed if drop else 0,
        "sizes": asdict(sizes),
    }
    seen = [file.model_dump(exclude={"path"}) for file in source.files]
    key = hash_of({"data": seen, "options": options})
    manifest = complete(store, key)
    if manifest is not None and verify:
        names = enumerate(shard.file for shard in manifest.shards)
        if not all(finished_shard(store / name, key, k, verify=True) for k, name in names):
            manifest = None
    if manifest is not None and not afresh:
        (store / MARKER).remove()  # of a build that was killed after its last word
        return Built(manifest, kept=len(manifest.shards))
    recipe = Recipe(
        columns=columns,
        schema=source.schema,
        origin=_origin(source, columns),
        labels=None if labels is None else LabelTable.of(labels),
        keep_series=series,
        drop=drop,
        seed=seed,
        memory=memory,
    )
    run = _Run(store, key, source, recipe, sizes, progress or (lambda *_: None),
               {"engine": engine, "workers": workers, "address": address},
               afresh, verify)  # fmt: skip
    with building(store, key, afresh) as begin:
        return run.build(config, options, begin)


@dataclass
class _Run:
    store: Place
    key: str
    source: Source
    recipe: Recipe
    sizes: Sizes
    progress: Progress
    engine: dict[str, Any]
    afresh: bool
    verify: bool
    seconds: dict[str, float] = field(default_factory=dict)

    def build(
        self, config: TokenConfig | None, options: dict[str, Any], begin: Callable[[], None]
    ) -> Built:
        ordered = by_id(self.source.groups)
        units: list[RangeUnit] | list[BucketUnit]
        if ordered is not None:
            fitted = fit_recipe(range_units(ordered, 1), self.recipe, config)
            units = range_units(ordered, self._target(fitted))
        else:
            pieces = self._shuffle()
            places = [piece.place for piece in pieces]
            rows = np.sum([piece.rows for piece in pieces], axis=0).tolist()
            fitted = fit_recipe(bucket_units(places, rows, 1), self.recipe, config)
            units = bucket_units(places, rows, self._target(fitted))
        self._check_room(fitted.bytes_per_point * self.source.rows)
        work = ShardWork(self.store, self.key, self.recipe, fitted.tokenizer, fitted.columns)
        begin()
        kept: dict[int, ShardInfo] = {}
        for unit in units:
            place = self.store / shard_name(unit.number)
            shard = finished_shard(place, self.key, unit.number, verify=self.verify)
            if shard is not None:
                kept[unit.number] = shard
        left = [unit for unit in units if unit.number not in kept]
        made: list[Made] = self._run("tokens", left, work, sum(unit.rows for unit in units))
        shards = {**kept, **{m.unit: m.shard for m in made}}
        names = {shard.file for shard in shards.values()}
        for info in self.store.listing():
            place = self.store.at(info)
            if place.name.startswith("shard-") and place.name not in names:
                place.remove()  # of an earlier build
        (self.store / SHUFFLED).remove_directory()
        manifest = self._manifest(fitted, options, [shards[k] for k in sorted(shards)])
        manifest.write(self.store)
        channels = self.recipe.columns.channels
        never = np.sum([(0,) * len(channels), *(m.unobserved for m in made)], axis=0)
        return Built(
            manifest,
            made=len(made),
            kept=len(kept),
            shuffled=ordered is None,
            left_out=sum(m.left_out for m in made),
            unobserved={c: int(n) for c, n in zip(channels, never, strict=True) if n},
            seconds=self.seconds,
        )

    def _target(self, fitted: Fitted) -> int:
        """Rows of a unit."""
        each = sum(group.bytes for group in self.source.groups) / self.source.rows
        return max(1, int(min(self.sizes.rows / each, self.sizes.shard / fitted.bytes_per_point)))

    def _shuffle(self) -> list[ShuffledPiece]:
        groups = self.source.groups
        size = sum(group.bytes for group in groups)
        self._check_room(size)
        n_buckets = min(max(1, -(-size // self.sizes.bucket)), MOST_BUCKETS)
        directory = self.store / SHUFFLED
        directory.make_directory()
        work = ShuffleWork(
            directory, self.key, self.recipe.columns.needed, self.recipe.schema, n_buckets
        )
        target = max(1, int(self.sizes.piece / (size / self.source.rows)))
        cut = spans_of([group.rows for group in groups], target, [True] * len(groups))
        units = [ShuffleUnit(k, groups[first:last]) for k, (first, last) in enumerate(cut)]
        own = {work.place(unit.number).name for unit in units}
        for info in directory.listing():
            if directory.at(info).name not in own:  # of another build, or half of a piece
                directory.at(info).remove()
        kept = {
            unit.number: piece
            for unit in units
            if (piece := finished_piece(work.place(unit.number))) is not None
        }
        left = [unit for unit in units if unit.number not in kept]
        made: list[ShuffledPiece] = self._run("shuffle", left, work, self.source.rows)
        whole = kept | {unit.number: piece for unit, piece in zip(left, made, strict=True)}
        return [whole[unit.number] for unit in units]

    def _run(self, stage: str, units: Sequence[Any], work: Any, rows: int) -> list[Any]:
        done = rows - sum(unit.rows for unit in units)
        self.progress(stage, done, rows)

        def tell(result: Any) -> None:
            nonlocal done
            done += sum(result.rows) if isinstance(result, ShuffledPiece) else result.rows
            for name, seconds in result.seconds.items():
                self.seconds[name] = self.seconds.get(name, 0.0) + seconds
            self.progress(stage, done, rows)

        return run_units(units, work, progress=tell, **self.engine)

    def _check_room(self, need: float) -> None:
        """Compression may halve it; if that is not enough, say so now and not after hours."""
        if not self.store.local:
            return
        free = shutil.disk_usage(self.store.path).free
        if self.afresh:  # old shards go first
            free += sum(i.size or 0 for i in self.store.listing() if i.path.endswith(".parquet"))
        if need / 2 > free:
            raise CapacityError(
                f"the store needs about {need / 1e9:.3g} GB and the disk of {self.store} has "
                f"{free / 1e9:.3g} GB left; write to another one with --out"
            )

    def _manifest(self, fitted: Fitted, options: dict[str, Any], shards: list[Any]) -> Manifest:
        recipe = self.recipe
        held = [("tokens", fitted.tokenizer is not None), ("series", recipe.keep_series)]
        return Manifest(
            key=self.key,
            holds=tuple(name for name, there in held if there),
            channels=recipe.columns.channels,
            static_names=recipe.columns.static,
            labelled="label" in fitted.columns.names,
            time_origin=None if recipe.origin is None else str(recipe.origin),
            tokenizer=fitted.tokenizer,
            data=self.source.files,
            options=options,
            totals=Totals(
                series=sum(s.series for s in shards),
                points=sum(s.points for s in shards),
                windows=sum(s.windows for s in shards),
            ),
            shards=tuple(shards),
            roughformer=version("roughformer"),
        )


def _refuse_within(store: Place, data: Sequence[Any], source: Source) -> None:
    """``InputError`` where data lie in the store, or the store in a directory of data: the next
    build would take its shards for data.
    """
    inside = [file.path for file in source.files if file.path.startswith(f"{store}/")]
    places = [str(Place.of(item)).rstrip("/") for item in data]
    # A pattern with ** takes all that is below its fixed part.
    places = [place.split("**")[0].rstrip("/") for place in places]
    around = [place for place in places if f"{store}/".startswith(f"{place}/")]
    if inside or around:
        what = f"{inside[0]} is in the store" if inside else f"{store} is within the data"
        raise InputError(f"{what}: choose an --out that does not lie within the data")


def _origin(source: Source, columns: TableColumns) -> np.datetime64 | None:
    """The date that times count from: the earliest among the first rows of the first file."""
    tables = read_groups(source.groups[:1], (columns.series_id, columns.time), pa.schema(
        [source.schema.field(name) for name in (columns.series_id, columns.time)]))  # fmt: skip
    return column_times(next(tables), columns.time)[1]
