"""Processor time of the default's functionals beside MiniRocket's transform, one thread.

Run: OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 python benchmarks/functionals.py. The ratio is of the
times for one feature: below 1, the functionals are faster.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from aeon.transformations.collection.convolution_based import MiniRocket

from roughformer.model import PathFeatures

SHAPES = ((275, 9, 144), (200, 1, 500))  # series, channels, samples


def seconds(work: Callable[[Any], Any], x: Any) -> float:
    """The least of five runs."""
    found = []
    for _ in range(5):
        start = time.thread_time()
        work(x)
        found.append(time.thread_time() - start)
    return min(found)


def main() -> None:
    """Print a line for each shape."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        x = rng.normal(size=shape).cumsum(axis=-1).astype(np.float32)
        peer = MiniRocket(n_jobs=1).fit(x)
        n_peer = peer.transform(x[:2]).shape[1]  # compiles, too
        steps = np.diff(x, axis=-1, append=x[..., -1:])
        cells = torch.from_numpy(np.concatenate([x, steps], axis=1)).double()
        functionals = PathFeatures(shape[1], shape[2]).draw(cells, 0).functionals
        n_own = 3 * functionals.n_features + 2 * functionals.n_functionals
        theirs = seconds(peer.transform, x)
        ours = seconds(functionals, cells)
        print(
            f"{shape}: MiniRocket {theirs:.3f} s for {n_peer} features, functionals {ours:.3f} s "
            f"for {n_own} (of them {functionals.n_features} PPV): ratio for a feature "
            f"{ours / n_own / (theirs / n_peer):.2f}"
        )


if __name__ == "__main__":
    main()
