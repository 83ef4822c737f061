"""Units of work as tasks of a Ray cluster, which repeats those whose worker or node dies.

A unit writes its shard itself, whole or not at all, with the same bytes wherever it is done; only a
small result comes back.
"""

import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, TypeVar

from roughformer.errors import CapacityError, InputError
from roughformer.store.workers import KEEP_MEMORY, begin_units

Unit = TypeVar("Unit")
Result = TypeVar("Result")
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
        task = ray.remote(
            max_retries=_RETRIES,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": KEEP_MEMORY},
        )(_run_unit)
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
    begin_units()
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
    try:
        import ray
    except ImportError as error:
        raise InputError(
            f"--engine ray needs the package ray, which cannot be imported ({error}); install it "
            "with: pip install 'roughformer[ray]'"
        ) from error
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
