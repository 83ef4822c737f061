"""A bounded sample of series, the same on each run: what a tokenizer is fitted to."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from roughformer.errors import InputError
from roughformer.series import SeriesBatch, UnobservedWarning
from roughformer.store.reading import MixedIds
from roughformer.store.rooms import Rooms
from roughformer.store.shards import schema_of, to_table
from roughformer.store.work import Recipe, Unit, batches_of
from roughformer.tokens import TokenConfig, Tokenizer

__all__ = ["Fitted", "fit_recipe"]

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
    rooms = Rooms()
    for unit in chosen:
        parts += _some(unit, recipe, rooms, -(-_SERIES // count), -(-_POINTS // count))
    if not parts:
        raise InputError(
            "no series of the data has a label in the table of labels; its first column must hold "
            "their ids"
        )
    sample = SeriesBatch.concatenate(parts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnobservedWarning)  # told of all series, at the end
        tokenizer = None if config is None else Tokenizer.fit(config, sample)
        blocks = list(recipe.rows(sample[: min(len(sample), 64)], tokenizer))
    columns = schema_of(blocks[0])
    size = sum(to_table(rows, columns).nbytes for rows in blocks)
    return Fitted(tokenizer, columns, size / max(sum(rows.points for rows in blocks), 1))


def _some(unit: Unit, recipe: Recipe, rooms: Rooms, series: int, points: int) -> list[SeriesBatch]:
    """The first series of a unit: at most so many, and none after as many points; how its rows come
    in batches does not matter.
    """
    for sort in (False, True):
        found: list[SeriesBatch] = []
        left = series, points
        try:
            for _, batch in batches_of(unit, recipe, rooms, sort):
                before = np.cumsum(batch.lengths) - batch.lengths
                some = batch[: min(left[0], int(np.searchsorted(before, left[1])))]
                left = left[0] - len(some), left[1] - some.n_points
                if len(some):
                    found.append(SeriesBatch.concatenate([some]))  # not a view of all of it
                if min(left) <= 0:
                    break
            return found
        except MixedIds:
            continue
    raise InputError("the ids of the rows do not lie within what the footers say; write the files "
                     "again")  # fmt: skip
