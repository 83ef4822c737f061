"""Share independent units of work out to processes of this machine, or to a Ray cluster."""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any, Literal, TypeVar

from roughformer.errors import CapacityError, InputError
from roughformer.store.storage import map_files

Engine = Literal["local", "ray"]
Unit = TypeVar("Unit")
Result = TypeVar("Result")
# pyarrow's allocator reads this once. Memory of one slice of rows is kept for the next: if it were
# given back to the system, all of it would have to be cleared again each time.
KEEP_MEMORY = {"MIMALLOC_PURGE_DELAY": "-1"}


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

    ``workers``: number of processes, or of Ray tasks at a time; None: this process does all of it,
    as it does a single unit. A process of its own is faster: it may map files and keep memory. Then
    ``work`` and units are pickled. The first error ends it.
    """
    tell = progress or (lambda result: None)
    if engine == "ray":
        from roughformer.store.ray_units import run_on_ray

        return run_on_ray(units, work, workers=workers or 1, address=address, progress=tell)
    if engine != "local":
        raise InputError(f"the engine must be 'local' or 'ray', got {engine!r}")
    if workers and len(units) > 1:
        return _in_processes(units, work, min(workers, len(units)), tell)
    results = []
    with _frozen_objects():
        for unit in units:
            results.append(work(unit))
            tell(results[-1])
    return results


def begin_worker() -> None:
    """From now on this process dies with its parent, however that ends, and leaves Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends this one
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()


def begin_units() -> None:
    """From now on this process does units of work, and nothing else."""
    # The garbage collector need not look through the objects of all imported modules: each of its
    # rounds would take as long as a block of series.
    gc.freeze()
    map_files()  # if one is truncated while it is read, this process dies, and not the caller's


def _die_with(sentinel: Any) -> None:
    wait([sentinel])
    os._exit(1)


@contextmanager
def _frozen_objects() -> Iterator[None]:
    """As ``gc.freeze`` in ``begin_units``, and undone at the end."""
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
    new = {name: value for name, value in KEEP_MEMORY.items() if name not in os.environ}
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
            done[jobs[job]] = job.result()
            tell(done[jobs[job]])
        return [done[number] for number in range(len(units))]
    except BrokenProcessPool:
        raise CapacityError(
            "a worker process was killed, usually for lack of memory (or a data file was truncated "
            "while it was read, or a script calls this outside of its "
            "if __name__ == '__main__'); finished shards are kept: run the same command again with "
            "fewer --workers or less --memory"
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
