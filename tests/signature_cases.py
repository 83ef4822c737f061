"""Batches that properties of signatures are tried on."""

import numpy as np
from hypothesis import strategies as st

import roughformer as rf
from reference import (
    make_batch,
    variations,
)

seeds = st.integers(0, 2**32)


dtypes = st.sampled_from([np.float32, np.float64])


# (3, 5) and (9, 2) run on the native engine's generic kernel, the others on generated code.
shapes = st.sampled_from([(1, 1), (1, 6), (2, 1), (2, 2), (2, 4), (3, 3), (3, 5), (9, 2)])


@st.composite
def cases(draw, sizes=shapes, n_series=(1, 2, 5, 19), **options):
    """(batch, depth, seed); 19 series fill more than one vector of any instruction set."""
    channels, depth = draw(sizes)
    seed = draw(seeds)
    batch = make_batch(
        seed,
        n_series=draw(st.sampled_from(n_series)),
        n_channels=channels,
        longest=draw(st.sampled_from([1, 2, 5, 12, 70])),
        dtype=draw(dtypes),
        shared=draw(st.booleans()),
        **options,
    )
    return batch, depth, seed


def whole(batch):
    """Cuts that make one window of the whole span of each series."""
    return [batch.series(b)[0][[0, -1]] for b in range(len(batch))]


def span_variations(batch):
    return variations(batch, whole(batch))[:, 0]


def rebuilt(batch, values, times=None):
    """The batch with other values (and times), same lengths."""
    return rf.SeriesBatch(batch.times if times is None else times, values, batch.offsets)
