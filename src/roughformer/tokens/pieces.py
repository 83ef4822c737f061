"""The pieces of series between cut times, as series of their own."""

import numpy as np
import numpy.typing as npt

from roughformer.series import SeriesBatch
from roughformer.signatures.windows import locate

__all__ = ["pieces_between"]

Floats = npt.NDArray[np.float64]


def pieces_between(batch: SeriesBatch, cuts: Floats) -> SeriesBatch:
    """``B · W`` series: that of (b, w) is the path of b over [cuts[b, w], cuts[b, w + 1]].

    ``cuts (B, W + 1)`` increase and lie within the spans. The path is interpolated at the cuts,
    which are the first and last point of each piece. Values must have no gaps.
    """
    n, w = len(batch), cuts.shape[1] - 1
    start = batch.span[0]
    series = np.repeat(np.arange(n), batch.lengths)
    since = batch.times - start[series]
    relative = cuts - start[:, None]
    at_cuts = _values_at(batch, relative)  # (B, W + 1, C)
    flat = np.ascontiguousarray(relative).ravel()
    begin = series * (w + 1)
    sizes = np.full(len(series), w + 1)
    # Points that lie on a cut are there already, as the cut itself.
    place = locate(flat, begin, sizes, since - flat[begin])
    inside = (since > flat[begin + place]) & (place < w)
    owner = series[inside] * w + place[inside]
    inner = np.bincount(owner, minlength=n * w)
    offsets = np.concatenate([[0], np.cumsum(inner + 2)])
    first = np.cumsum(inner) - inner
    rank = np.arange(len(owner)) - first[owner]
    row = offsets[owner] + 1 + rank
    times = np.empty(offsets[-1])
    values = np.empty((offsets[-1], batch.n_channels), dtype=batch.values.dtype)
    times[row], values[row] = batch.times[inside], batch.values[inside]
    times[offsets[:-1]], values[offsets[:-1]] = cuts[:, :-1].ravel(), _rows(at_cuts[:, :-1])
    times[offsets[1:] - 1], values[offsets[1:] - 1] = cuts[:, 1:].ravel(), _rows(at_cuts[:, 1:])
    return SeriesBatch(times, values, offsets, channels=batch.channels)


def _rows(block: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    return block.reshape(-1, block.shape[-1])


def _values_at(batch: SeriesBatch, since: Floats) -> npt.NDArray[np.floating]:
    """Values ``(B, M, C)`` of the paths at times ``since (B, M)`` after their first points."""
    n, m = since.shape
    series = np.repeat(np.arange(n), m)
    begin, size = batch.offsets[:-1][series], batch.lengths[series]
    when = since.ravel()
    low = locate(batch.times, begin, size, when)
    high = np.minimum(low + 1, size - 1)
    zero = batch.times[begin]
    left, right = batch.times[begin + low] - zero, batch.times[begin + high] - zero
    gap = right - left
    weight = np.divide(when - left, gap, out=np.zeros(len(when)), where=gap > 0).clip(0, 1)
    a, b = batch.values[begin + low], batch.values[begin + high]
    mixed: npt.NDArray[np.floating] = a + weight[:, None].astype(a.dtype) * (b - a)
    return mixed.reshape(n, m, -1)
