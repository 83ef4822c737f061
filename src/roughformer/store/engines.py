"""Who does the work: processes of this machine, or a Ray cluster. Units are independent, so each
may be done anywhere, in any order, and again.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import Any, Literal, TypeVar

from roughformer.errors import CapacityError, InputError

__all__ = ["Engine", "run_units"]

Engine = Literal["local", "ray"]
Unit = TypeVar("Unit")
Result = TypeVar("Result")


def run_units(
    units: Sequence[Unit],
    work: Callable[[Unit], Result],
    *,
    engine: Engine = "local",
    workers: int = 1,
    address: str | None = None,
    progress: Callable[[Result], None] | None = None,
) -> list[Result]:
    """``[work(unit) for unit in units]``, shared out; ``progress(result)`` as each is done.

    ``work`` and units are pickled, where there is more than one worker. The first error ends it.
    """
    tell = progress or (lambda result: None)
    if engine == "ray":
        from roughformer.store.ray_engine import run_on_ray

        return run_on_ray(units, work, workers=workers, address=address, progress=tell)
    if engine != "local":
        raise InputError(f"the engine must be 'local' or 'ray', got {engine!r}")
    if min(workers, len(units)) <= 1:
        return [_told(work(unit), tell) for unit in units]
    return _in_processes(units, work, min(workers, len(units)), tell)


def _told(result: Result, tell: Callable[[Result], None]) -> Result:
    tell(result)
    return result


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
        jobs = {pool.submit(_do, unit): number for number, unit in enumerate(units)}
        done: dict[int, Result] = {}
        for job in as_completed(jobs):
            done[jobs[job]] = _told(job.result(), tell)
        return [done[number] for number in range(len(units))]
    except BrokenProcessPool:
        raise CapacityError(
            "a worker process was killed, mostly for want of memory; what is finished is kept: "
            "go on with the same command, with fewer --workers"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_work: Callable[[Any], Any] | None = None


def _begin(work: Callable[[Any], Any]) -> None:
    """A worker starts: it gets the work once, and dies with its parent however that ends."""
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which ends this one
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()


def _die_with(sentinel: Any) -> None:
    wait([sentinel])
    os._exit(1)


def _do(unit: Any) -> Any:
    assert _work is not None
    return _work(unit)
