"""Share independent units of work out to processes of this machine, or to a Ray cluster."""

import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing.connection import wait
from typing import Any, Literal, TypeVar

from roughformer.errors import CapacityError, InputError
from roughformer.store.storage import map_files
from roughformer.util.checks import optional

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

    ``workers``: number of processes, or of Ray tasks at a time; None: this process does all of it,
    as it does a single unit. A process of its own is faster: it may map files. Then ``work`` and
    units are pickled. The first error ends it.
    """
    tell = progress or (lambda result: None)
    if engine == "ray":
        return run_on_ray(units, work, workers=workers or 1, address=address, progress=tell)
    if engine != "local":
        raise InputError(f"the engine must be 'local' or 'ray', got {engine!r}")
    if workers and len(units) > 1:
        return _in_processes(units, work, min(workers, len(units)), tell)
    results = []
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


def _die_with(sentinel: Any) -> None:
    wait([sentinel])
    os._exit(1)


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
    map_files()  # if one is truncated while it is read, this process dies, and not the caller's


def _do(unit: Any) -> Any:
    assert _work is not None
    return _work(unit)


_RETRIES = 20  # of a unit whose worker or node died
_PATIENCE = 60.0  # seconds that running units may take to end after an error
_SECONDS = 10.0  # that a cluster may take to answer


def run_on_ray(
    units: Sequence[Unit],
    work: Callable[[Unit], Result],
    *,
    workers: int,
    address: str | None,
    progress: Callable[[Result], None],
) -> list[Result]:
    """``[work(unit) for unit in units]``, ``workers`` at a time; the first error ends it."""
    done: dict[int, Result] = {}
    with _connected(address) as ray:
        task = ray.remote(max_retries=_RETRIES, scheduling_strategy="SPREAD")(_run_unit)
        shared, waiting = ray.put(work), iter(enumerate(units))
        running: dict[Any, int] = {}
        try:
            while len(done) < len(units):
                for number, unit in islice(waiting, workers - len(running)):
                    running[task.remote(shared, unit)] = number
                for ended in ray.wait(list(running))[0]:
                    result = ray.get(ended)
                    done[running.pop(ended)] = result
                    progress(result)
        except ray.exceptions.RayTaskError as error:
            raise _reason(ray, error) from None
        except ray.exceptions.RayError as error:
            raise CapacityError(
                f"workers of the Ray cluster died {_RETRIES + 1} times at the same unit, usually "
                "for lack of memory; finished shards are kept: run the same command again with "
                f"fewer --workers ({str(error).strip().splitlines()[0]})"
            ) from None
        finally:
            # Nothing is cancelled, which can end the calling process (Ray 2.60); but nothing of
            # this build may write into the next one.
            with suppress(ray.exceptions.RayError):
                if running:
                    ray.wait(list(running), num_returns=len(running), timeout=_PATIENCE)
    return [done[number] for number in range(len(units))]


def _run_unit(work: Callable[[Any], Any], unit: Any) -> Any:
    map_files()
    return work(unit)


def _reason(ray: Any, error: Any) -> Exception:
    """The exception that the unit raised, or what it means that it could not even start."""
    cause = error.cause
    if isinstance(cause, Exception) and not isinstance(cause, ray.exceptions.RayError):
        return cause
    return InputError(
        "a task failed on the Ray cluster before its work began; all nodes need the same "
        f"roughformer and Python ({cause})"
    )


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Ray, connected to ``address`` (None: a cluster of this machine alone), as long as it takes.
    An existing connection is used and kept.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = optional("ray", "ray")
    if ray.is_initialized():
        yield ray
        return
    try:
        host, _, port = (address or "").rpartition("//")[2].partition("/")[0].rpartition(":")
        if port.isdigit():  # Ray itself tries for minutes where nobody listens
            socket.create_connection((host.strip("[]"), int(port)), _SECONDS).close()
        ray.init(address=address or "local", logging_level=logging.ERROR, log_to_driver=False)
    except (RuntimeError, ValueError, OSError) as error:
        raise InputError(
            f"no Ray cluster answers at {address!r}; start one with: ray start --head, and give "
            f"its address, or leave --address out for one on this machine ({error})"
        ) from None
    try:
        yield ray
    finally:
        ray.shutdown()
