"""What a contender is: a name and one or more ways to use it, of which the fastest counts."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

__all__ = ["Build", "Contender", "Skip", "in_parts", "pool", "threads"]

Run = Callable[[], Any]
Build = Callable[[Any], Run]


class Skip(Exception):
    """Raised by a build: the contender does not apply here, with the reason."""


@dataclass(frozen=True)
class Contender:
    """``usages``: name -> build(problem) -> run() -> the result.

    The result is the tokens ``(B, windows, features)`` (or dL/dx, or a stream's signatures), or
    None if there is nothing to compare. ``says``: what it does, for the footnote.
    """

    name: str
    usages: dict[str, Build]
    says: str
    probe: bool = False  # may take minutes or all memory: try a part of the series first


def threads() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def pool() -> ThreadPoolExecutor:
    """One thread for each processor."""
    return ThreadPoolExecutor(threads())


def in_parts(make: Callable[..., Run], problem: Any, out: Any, parts: int) -> Run:
    """Cut the series into ``parts``, each worked on by a Python thread (peers release the GIL)."""
    n = len(out)
    bounds = [n * i // parts for i in range(parts + 1)]
    runs = [make(problem.part(slice(a, b)), out[a:b], 1) for a, b in pairwise(bounds) if b > a]

    def run() -> Any:
        list(pool().map(lambda r: r(), runs))
        return out

    return run
