"""Paths that never look ahead: the last value is held until the next one comes.

Between two observations a path is linear, so at a cut in between it would already lean towards the
next observation, and a gap would be filled from its far side. Here gaps are filled with the last
value, and at each cut stands a point with the last value: all that a window says was known at its
end.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from roughformer.path import locate
from roughformer.series import SeriesBatch
from roughformer.windows import Cuts, Windows

__all__ = ["PlacedWindows", "held_at_cuts", "last_values"]


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


def held_at_cuts(batch: SeriesBatch, cuts: Cuts) -> SeriesBatch:
    """The batch without gaps, with one point more at each cut behind the first point.

    Static covariates, names and ids stay; labels do not.
    """
    values = last_values(batch)
    n, most = len(batch), cuts.most
    start = batch.span[0]
    edges = cuts.since(start)  # (B, L + 1), from the first point of each series
    column = np.arange(most + 1)[None, :]
    real = column <= cuts.n_windows[:, None]
    # Cuts behind the last point too: time goes on there, as it would if more points came later.
    owner, at = np.nonzero(real & (edges > 0))
    when = edges[owner, at]
    begin, size = batch.offsets[:-1][owner], batch.lengths[owner]
    before = locate(batch.times, begin, size, when)
    new = start[owner] + when
    after = batch.times[begin + np.minimum(before + 1, size - 1)]
    # Rounding may put a cut onto a point: then it is there already.
    fresh = (new > batch.times[begin + before]) & ((new < after) | (before == size - 1))
    fresh[1:] &= (new[1:] > new[:-1]) | (owner[1:] != owner[:-1])
    owner, new, before, begin = owner[fresh], new[fresh], before[fresh], begin[fresh]
    # New points go behind the point before them; both lists are in order already.
    position = begin + before + 1
    times = np.insert(batch.times, position, new)
    held = np.insert(values, position, values[begin + before], axis=0)
    lengths = batch.lengths + np.bincount(owner, minlength=n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return SeriesBatch(
        times,
        held,
        offsets,
        channels=batch.channels,
        ids=batch.ids,
        static=batch.static,
        static_names=list(batch.static_names) or None,
    )
