"""What a task of Ray runs: a unit of work that comes with all that is needed for it.

This module imports nothing large, so that a worker can be made ready before pyarrow is loaded.
"""

import os
import pickle
from collections.abc import Callable
from typing import Any

from roughformer.ray_cluster import roughformer_ray

__all__ = ["MEMORY_KEPT", "Failed", "outcome", "packed_work"]

# Of pyarrow's allocator, which reads it once: memory of one slice of rows is kept for the next.
# Given back to the system, all of it would be cleared again each time.
MEMORY_KEPT = {"MIMALLOC_PURGE_DELAY": "-1"}


class Failed:
    """What was raised in a task: as a result it comes back without Ray's wrappings."""

    def __init__(self, error: Exception) -> None:
        """For the caller to raise."""
        self.error = error


def packed_work(begin: Callable[[], None], work: Callable[[Any], Any]) -> bytes:
    """For ``outcome``: ``begin()`` is called once in each worker, before the first unit."""
    return pickle.dumps((begin, work))


_known: dict[str, Callable[[Any], Any]] = {}  # of this worker: its last work by name


def outcome(name: str, shared: list[Any], packed: bytes) -> bytes:
    """What the work does with a unit, or what it raises, pickled. ``shared`` has a reference to
    ``packed_work`` of that name: it may hold a table of many labels, so a worker fetches it once.
    """
    if name not in _known:
        for variable, value in MEMORY_KEPT.items():
            os.environ.setdefault(variable, value)
        _known.clear()
        begin, work = pickle.loads(roughformer_ray().get(shared[0]))
        begin()
        _known[name] = work
    unit = pickle.loads(packed)
    try:
        return pickle.dumps(_known[name](unit))
    except Exception as error:
        return _packed(error)


def _packed(error: Exception) -> bytes:
    """As it is, unless it does not survive the way."""
    try:
        found = pickle.dumps(Failed(error))
        pickle.loads(found)
        return found
    except Exception:
        return pickle.dumps(Failed(RuntimeError(f"{type(error).__name__}: {error}")))
