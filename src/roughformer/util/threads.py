"""How many threads torch uses while something runs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from roughformer.errors import InputError


@contextmanager
def using_threads(n_jobs: int | np.integer | None) -> Iterator[None]:
    """``None``: as torch is set; -1: all processors; n: n threads. Restored afterwards."""
    if n_jobs is None:
        yield
        return
    whole = isinstance(n_jobs, int | np.integer) and not isinstance(n_jobs, bool)
    if not whole or n_jobs == 0 or n_jobs < -1:
        raise InputError(f"n_jobs must be None, -1 or a positive whole number, got {n_jobs!r}")
    before = torch.get_num_threads()
    torch.set_num_threads((os.cpu_count() or 1) if n_jobs == -1 else int(n_jobs))
    try:
        yield
    finally:
        torch.set_num_threads(before)
