"""Who does the work: processes of this machine, or a Ray cluster. Units are independent, so each
may be done anywhere, in any order, and again.
"""

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from roughformer.errors import CapacityError, InputError
from roughformer.ray_tasks import MEMORY_KEPT
from roughformer.store.worker import begin_units, begin_worker

__all__ = ["Engine", "run_units"]

Engine = Literal["local", "ray"]
Unit = TypeVar("Unit")
Result = TypeVar("Result")


def run_units(
    units: Sequence[Unit],
    work: Callable[[Unit], Result],
    *,
    engine: Engine = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: Callable[[Result], None] | None = None,
) -> list[Result]:
    """``[work(unit) for unit in units]``, shared out; ``progress(result)`` as each is done.

    ``workers``: processes that are started for it, or tasks at a time; None: this process does it,
    as it does a single unit, for which none is worth starting. A process of its own is faster: it
    may map files and keep memory. Then ``work`` and units are pickled. The first error ends it.
    """
    tell = progress or (lambda result: None)
    if engine == "ray":
        from roughformer.store.ray_engine import run_on_ray

        return run_on_ray(units, work, workers=workers or 1, address=address, progress=tell)
    if engine != "local":
        raise InputError(f"the engine must be 'local' or 'ray', got {engine!r}")
    if not workers or len(units) <= 1:
        with _old_objects_kept():
            return [_told(work(unit), tell) for unit in units]
    return _in_processes(units, work, min(workers, len(units)), tell)


def _told(result: Result, tell: Callable[[Result], None]) -> Result:
    tell(result)
    return result


@contextmanager
def _old_objects_kept() -> Iterator[None]:
    """Inside, the garbage collector does not look through the objects that are there already, which
    are those of all imported modules: each of its rounds would take as long as a block of series.
    """
    ours = gc.get_freeze_count() == 0
    if ours:
        gc.freeze()
    try:
        yield
    finally:
        if ours:
            gc.unfreeze()


@contextmanager
def _memory_kept() -> Iterator[None]:
    """In processes that start inside, pyarrow's allocator keeps its memory."""
    new = {name: value for name, value in MEMORY_KEPT.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


def _in_processes(
    units: Sequence[Unit],
    work: Callable[[Unit], Result],
    workers: int,
    tell: Callable[[Result], None],
) -> list[Result]:
    # Fork would take over threads of pyarrow in the middle of what they do.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(work,))
    try:
        with _memory_kept():  # workers start while units are handed in
            jobs = {pool.submit(_do, unit): number for number, unit in enumerate(units)}
        done: dict[int, Result] = {}
        for job in as_completed(jobs):
            done[jobs[job]] = _told(job.result(), tell)
        return [done[number] for number in range(len(units))]
    except BrokenProcessPool:
        raise CapacityError(
            "a worker process was killed, mostly for want of memory (or a file of the data was "
            "made shorter while it was read, or a script calls this outside of its "
            "if __name__ == '__main__'); what is finished is kept: go on with the same command, "
            "with fewer --workers or less --memory"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_work: Callable[[Any], Any] | None = None


def _begin(work: Callable[[Any], Any]) -> None:
    """A worker starts: it gets the work once."""
    global _work
    _work = work
    begin_worker()
    begin_units()


def _do(unit: Any) -> Any:
    assert _work is not None
    return _work(unit)
