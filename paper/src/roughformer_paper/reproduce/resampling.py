"""The same series as other instruments would have sampled them: for tests of robustness.

Every change keeps the first and the last time of each series, its labels and its static covariates.
A value at a new time is that of the straight line between its channel's observations.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from roughformer import InputError, fill_gaps
from roughformer.series import SeriesBatch

__all__ = ["at_times", "finer", "jittered", "poisson", "rarer", "without_channel"]

Floats = npt.NDArray[np.float64]


def at_times(batch: SeriesBatch, new_times: Callable[[Floats], Floats]) -> SeriesBatch:
    """Each series at ``new_times(its times)``, strictly increasing, between its ends."""
    filled = fill_gaps(batch)
    times, values, lengths = [], [], []
    for start, end in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
        old = batch.times[start:end]
        new = new_times(old) if len(old) > 1 else old
        block = filled[start:end]
        columns = [np.interp(new, old, block[:, c]) for c in range(batch.n_channels)]
        times.append(new)
        values.append(np.stack(columns, axis=1) if columns else np.empty((len(new), 0)))
        lengths.append(len(new))
    return SeriesBatch(
        np.concatenate([*times, np.empty(0)]),
        np.concatenate([*values, np.empty((0, batch.n_channels))]).astype(filled.dtype),
        np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        channels=batch.channels,
        labels=batch.labels,
        static=batch.static,
        static_names=batch.static_names,
    )


def poisson(batch: SeriesBatch, seed: int) -> SeriesBatch:
    """Sampled at the times of a Poisson process of the same mean rate.

    Of L points the L - 2 inner ones become Poisson(L - 2) many, uniform over the span.
    """
    rng = np.random.default_rng(seed)

    def drawn(old: Floats) -> Floats:
        inner = rng.uniform(old[0], old[-1], rng.poisson(len(old) - 2))
        return np.unique(np.concatenate([old[[0, -1]], inner]))

    return at_times(batch, drawn)


def finer(batch: SeriesBatch) -> SeriesBatch:
    """Sampled twice as often: a point more in the middle of each step."""

    def doubled(old: Floats) -> Floats:
        middle = old[:-1] + np.diff(old) / 2
        return np.unique(np.concatenate([old, middle]))

    return at_times(batch, doubled)


def rarer(batch: SeriesBatch, factor: int) -> SeriesBatch:
    """Every ``factor``-th point, and the last: no filter, as a slower instrument has none."""
    if factor < 1:
        raise InputError(f"factor must be 1 or more, got {factor}")
    position = np.arange(batch.n_points) - np.repeat(batch.offsets[:-1], batch.lengths)
    last = position == np.repeat(batch.lengths, batch.lengths) - 1
    return batch.drop_points(mask=(position % factor == 0) | last)


def jittered(batch: SeriesBatch, seed: int) -> SeriesBatch:
    """Values as they are, stamps wrong by up to half a step either way; ends stay."""
    rng = np.random.default_rng(seed)
    times = batch.times
    move = rng.uniform(-1, 1, len(times))
    step = np.diff(times)
    after = np.append(step, 0.0)
    before = np.append(0.0, step)
    # A little less than half: neighbours that move towards each other must not meet.
    new = times + 0.499 * np.where(move > 0, move * after, move * before)
    ends = np.concatenate([batch.offsets[:-1], batch.offsets[1:] - 1])[
        np.tile(batch.lengths > 0, 2)
    ]
    new[ends] = times[ends]
    return batch.with_times(new)


def without_channel(batch: SeriesBatch, name: str) -> SeriesBatch:
    """One channel is never observed."""
    if name not in batch.channels:
        raise InputError(f"there is no channel {name!r}; there are {', '.join(batch.channels)}")
    values = np.array(batch.values)
    values[:, list(batch.channels).index(name)] = np.nan
    return batch.with_values(values)
