"""Data -> a store: what is finished is kept, what is missing is made, the manifest comes last."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa

from roughformer.errors import CapacityError, InputError
from roughformer.series._columns import stamps
from roughformer.store.claim import MARKER, SCATTERED, building, complete
from roughformer.store.columns import TableColumns
from roughformer.store.engines import Engine, run_units
from roughformer.store.manifest import Manifest, Totals, hash_of, shard_name
from roughformer.store.places import Place
from roughformer.store.plan import BucketUnit, RangeUnit, Sizes, bucket_units, by_id, range_units
from roughformer.store.plan import spans as spans_of
from roughformer.store.reading import read_groups
from roughformer.store.sample import Fitted, fit_recipe
from roughformer.store.scatter import (
    MOST_BUCKETS,
    Piece,
    PieceUnit,
    ScatterWork,
    finished_piece,
)
from roughformer.store.shards import finished_shard
from roughformer.store.sources import Source, find_files, open_source
from roughformer.store.work import LabelTable, Made, Recipe, ShardWork
from roughformer.tokens import TokenConfig

__all__ = ["Built", "build_store"]

Progress = Callable[[str, int, int], None]
_LAYOUT = 2  # of what this version makes of the same data and options


@dataclass
class Built:
    """What a build did."""

    manifest: Manifest
    made: int = 0  # shards
    kept: int = 0  # shards that were there already
    scattered: bool = False
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
            pieces = self._scatter()
            places = [piece.place for piece in pieces]
            rows = np.sum([piece.rows for piece in pieces], axis=0).tolist()
            fitted = fit_recipe(bucket_units(places, rows, 1), self.recipe, config)
            units = bucket_units(places, rows, self._target(fitted))
        self._check_room(fitted.bytes_per_point * self.source.rows)
        work = ShardWork(self.store, self.key, self.recipe, fitted.tokenizer, fitted.columns)
        begin()
        found = {
            number: finished_shard(
                self.store / shard_name(number), self.key, number, verify=self.verify
            )
            for number in (unit.number for unit in units)
        }
        kept = {number: shard for number, shard in found.items() if shard is not None}
        left = [unit for unit in units if unit.number not in kept]
        made: list[Made] = self._run("tokens", left, work, sum(unit.rows for unit in units))
        shards = {**kept, **{m.unit: m.shard for m in made}}
        for info in self.store.listing():
            place = self.store.at(info)
            if place.name.startswith("shard-") and place.name not in {
                s.file for s in shards.values()
            }:
                place.remove()  # of an earlier build
        (self.store / SCATTERED).remove_directory()
        manifest = self._manifest(fitted, options, [shards[k] for k in sorted(shards)])
        manifest.write(self.store)
        channels = self.recipe.columns.channels
        never = np.sum([(0,) * len(channels), *(m.unobserved for m in made)], axis=0)
        return Built(
            manifest,
            made=len(made),
            kept=len(kept),
            scattered=ordered is None,
            left_out=sum(m.left_out for m in made),
            unobserved={c: int(n) for c, n in zip(channels, never, strict=True) if n},
            seconds=self.seconds,
        )

    def _target(self, fitted: Fitted) -> int:
        """Rows of a unit."""
        each = sum(group.bytes for group in self.source.groups) / self.source.rows
        return max(1, int(min(self.sizes.rows / each, self.sizes.shard / fitted.bytes_per_point)))

    def _scatter(self) -> list[Piece]:
        groups = self.source.groups
        size = sum(group.bytes for group in groups)
        self._check_room(size)
        n_buckets = min(max(1, -(-size // self.sizes.bucket)), MOST_BUCKETS)
        directory = self.store / SCATTERED
        directory.make_directory()
        work = ScatterWork(
            directory, self.key, self.recipe.columns.needed, self.recipe.schema, n_buckets
        )
        target = max(1, int(self.sizes.piece / (size / self.source.rows)))
        cut = spans_of([group.rows for group in groups], target, [True] * len(groups))
        units = [PieceUnit(k, groups[first:last]) for k, (first, last) in enumerate(cut)]
        own = {work.place(unit.number).name for unit in units}
        for info in directory.listing():
            if directory.at(info).name not in own:  # of another build, or half of a piece
                directory.at(info).remove()
        kept = {
            unit.number: piece
            for unit in units
            if (piece := finished_piece(work.place(unit.number), self.key, unit.number)) is not None
        }
        left = [unit for unit in units if unit.number not in kept]
        made: list[Piece] = self._run("scatter", left, work, self.source.rows)
        whole = kept | {unit.number: piece for unit, piece in zip(left, made, strict=True)}
        return [whole[unit.number] for unit in units]

    def _run(self, stage: str, units: Sequence[Any], work: Any, rows: int) -> list[Any]:
        done = rows - sum(unit.rows for unit in units)
        self.progress(stage, done, rows)

        def tell(result: Any) -> None:
            nonlocal done
            done += sum(result.rows) if isinstance(result, Piece) else result.rows
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
    return stamps(next(tables), columns.time)[1]
