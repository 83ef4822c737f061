"""Series with points left out, the same ones wherever a batch is cut."""

from typing import Any

from roughformer.series import SeriesBatch, keep_mask

__all__ = ["thinned"]


def thinned(batch: SeriesBatch, drop: float, seed: int, series: Any = None) -> SeriesBatch:
    """``drop`` of the points of each series left out; ``series (B,)`` are the numbers that draws
    are for, by default 0 ... B-1.
    """
    if not drop:
        return batch
    return batch.drop_points(mask=keep_mask(batch.lengths, drop, seed, series))
