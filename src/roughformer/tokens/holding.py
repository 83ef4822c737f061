"""Paths that never look ahead: the last value is held until the next one comes.

Between two observations a path is linear, so at a cut in between it would already lean towards the
next observation, and a gap would be filled from its far side. Here gaps are filled with the last
value, and at each cut stands a point with the last value: all that a window says was known at its
end.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from roughformer.path import locate
from roughformer.series import SeriesBatch
from roughformer.windows import Cuts, Windows

__all__ = ["PlacedWindows", "held_at_cuts", "last_values", "values_at_cuts"]


@dataclass(frozen=True)
class PlacedWindows(Windows):
    """Windows that have been placed already: held paths keep the cuts of the paths they are of."""

    placed: Cuts | None = None

    def place(self, batch: SeriesBatch) -> Cuts:
        """The cuts as given."""
        assert self.placed is not None
        return self.placed


def last_values(batch: SeriesBatch) -> npt.NDArray[np.floating]:
    """Values ``(N, C)`` with each gap filled by the last observation before it in its series; 0
    before the first one.
    """
    values = batch.values
    if not batch.missing:
        return values
    seen = ~np.isnan(values)
    row = np.arange(len(values))[:, None]
    first = np.repeat(batch.offsets[:-1], batch.lengths)[:, None]
    newest = np.maximum.accumulate(np.where(seen, row, -1), axis=0)
    known = newest >= first
    filled = np.take_along_axis(values, np.maximum(newest, 0), axis=0)
    return np.where(known, filled, values.dtype.type(0))


def held_at_cuts(batch: SeriesBatch, cuts: Cuts) -> tuple[SeriesBatch, Cuts]:
    """The batch without gaps, with one point more at each cut behind the first point, and its cuts.

    Times count from the first point of each series: there a cut and a point that differ stay apart,
    however large the stamps. Static covariates, names and ids stay; labels do not.
    """
    values = last_values(batch)
    n, most = len(batch), cuts.most
    start = batch.span[0]
    since = batch.times - np.repeat(start, batch.lengths)
    edges = cuts.since(start)  # (B, L + 1)
    column = np.arange(most + 1)[None, :]
    real = column <= cuts.n_windows[:, None]
    # Cuts behind the last point too: time goes on there, as it would if more points came later.
    owner, at = np.nonzero(real & (edges > 0))
    new = edges[owner, at]
    begin, size = batch.offsets[:-1][owner], batch.lengths[owner]
    before = locate(since, begin, size, new)
    fresh = new > since[begin + before]  # not on a point
    owner, new, before, begin = owner[fresh], new[fresh], before[fresh], begin[fresh]
    # New points go behind the point before them; both lists are in order already.
    position = begin + before + 1
    times = np.insert(since, position, new)
    held = np.insert(values, position, values[begin + before], axis=0)
    lengths = batch.lengths + np.bincount(owner, minlength=n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    path = SeriesBatch(
        times,
        held,
        offsets,
        channels=batch.channels,
        ids=batch.ids,
        static=batch.static,
        static_names=list(batch.static_names) or None,
    )
    return path, replace(cuts, origin=cuts.shift(start))


def values_at_cuts(held: SeriesBatch, cuts: Cuts) -> npt.NDArray[np.floating]:
    """Values ``(B, L + 1, C)`` of paths from ``held_at_cuts`` at their cuts; the last one repeated
    where a series has fewer windows.
    """
    edges = cuts.since(held.span[0])
    n, m = edges.shape
    series = np.repeat(np.arange(n), m)
    begin, size = held.offsets[:-1][series], held.lengths[series]
    at = locate(held.times, begin, size, edges.ravel())
    values: npt.NDArray[np.floating] = held.values[begin + at].reshape(n, m, -1)
    return values
