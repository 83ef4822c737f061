"""Random changes of training series, decided by the generator that is handed in."""

import numpy as np
import numpy.typing as npt

from roughformer.series import SeriesBatch
from roughformer.train.config import Augmentation

__all__ = ["augment_series", "changes_series", "channel_scale", "draw_drop", "draw_warp"]


def channel_scale(batch: SeriesBatch) -> npt.NDArray[np.float64]:
    """Standard deviation of each channel ``(C,)`` over all that was observed."""
    values = batch.values
    seen = ~np.isnan(values)
    count = np.maximum(seen.sum(axis=0), 1)
    mean = np.where(seen, values, 0).sum(axis=0, dtype=np.float64) / count
    square = np.where(seen, (values - mean) ** 2, 0).sum(axis=0, dtype=np.float64) / count
    return np.asarray(np.sqrt(square))


def draw_drop(config: Augmentation, rng: np.random.Generator) -> float:
    """The share of points to drop from a batch."""
    low, high = config.drop
    return float(rng.uniform(low, high)) if high > low else low


def draw_warp(config: Augmentation, n: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """For each series the factor by which time runs faster, log-uniform within 1 ± warp."""
    if config.warp == 0:
        return np.ones(n)
    return np.asarray(np.exp(rng.uniform(np.log1p(-config.warp), np.log1p(config.warp), n)))


def changes_series(config: Augmentation, faster: npt.NDArray[np.float64]) -> bool:
    """Whether ``augment_series`` does anything."""
    return bool((faster != 1).any() or config.jitter or config.channel_dropout)


def augment_series(
    batch: SeriesBatch,
    config: Augmentation,
    scale: npt.NDArray[np.float64],
    faster: npt.NDArray[np.float64],
    seed: int,
    places: npt.NDArray[np.int64],
) -> SeriesBatch:
    """Warp time, add noise, hide channels; ``scale`` as ``channel_scale`` of the training part.

    Time counts from each series' first point: t_0 + (t - t_0) / faster. What is drawn for a series
    follows from ``seed`` and its place ``places (B,)`` alone: a process that has some of the
    series changes them as one that has all.
    """
    draws = [np.random.default_rng([seed, place]) for place in places.tolist()]
    if (faster != 1).any():
        start = np.repeat(batch.span[0], batch.lengths)
        since = (batch.times - start) / np.repeat(faster, batch.lengths)
        batch = batch.with_times(start + since)
    if config.jitter:
        noise = np.empty(batch.values.shape, dtype=np.float32)
        for draw, first, end in zip(draws, batch.offsets, batch.offsets[1:], strict=False):
            draw.standard_normal(out=noise[first:end], dtype=np.float32)
        step = (config.jitter * scale).astype(batch.values.dtype)
        batch = batch.with_values(batch.values + step * noise.astype(batch.values.dtype))
    if config.channel_dropout:
        hide = np.zeros((len(batch), batch.n_channels), dtype=bool)
        for own, draw in zip(hide, draws, strict=True):
            own[:] = draw.random(len(own)) < config.channel_dropout
            # One channel stays: a series without any says nothing.
            own[draw.integers(len(own))] = False
        hidden = np.repeat(hide, batch.lengths, axis=0)
        batch = batch.with_values(np.where(hidden, np.nan, batch.values))
    return batch
