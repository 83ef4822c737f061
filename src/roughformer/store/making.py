"""Inputs of stored series, made in processes of their own; torch is loaded only if tokens need it.

A process is handed the store and the tokenizer once, and then numbers of series.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.store.stored import StoredSeries
from roughformer.store.worker import begin_worker
from roughformer.tokens import Tokenizer

__all__ = ["made_in_process", "make_inputs", "making_process"]

Array = npt.NDArray[Any]
_own: dict[str, Any] = {}  # of such a process


def make_inputs(
    stored: StoredSeries,
    tokenizer: Tokenizer | None,
    which: npt.NDArray[np.int64],
    drop: float,
    seed: int,
    places: npt.NDArray[np.int64],
) -> dict[str, Array]:
    """Inputs of the series ``which (B,)``: the stored tokens without a tokenizer, else tokens made
    anew of what is left when a share ``drop`` of the points goes, chosen by ``seed`` and the
    numbers ``places (B,)``.
    """
    if tokenizer is None:
        return stored.inputs(which)
    return tokenizer.arrays(stored[which], drop=drop, seed=seed, series=places, threads=1)


def making_process(stored: StoredSeries, tokenizer: Tokenizer | None) -> ProcessPoolExecutor:
    """One process for ``made_in_process``. It is spawned: a fork would copy torch and its threads.

    A pool of several would hand its work to any of them: each would read every row group.
    """
    return ProcessPoolExecutor(
        1,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(stored, tokenizer),
    )


def _begin(stored: StoredSeries, tokenizer: Tokenizer | None) -> None:
    begin_worker()
    _own.update(stored=stored, tokenizer=tokenizer)


def made_in_process(*wish: Any) -> dict[str, Array]:
    """``make_inputs`` of the process's own store; ``wish``: its other arguments."""
    return make_inputs(_own["stored"], _own["tokenizer"], *wish)
