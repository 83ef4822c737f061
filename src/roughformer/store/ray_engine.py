"""Units on a Ray cluster: each is a task of its own, which Ray repeats elsewhere when its worker or
node dies.

A unit writes its shard itself, whole or not at all and with the same bytes wherever and however
often it is done; only the small result comes back. So nothing is lost or doubled by a repetition.

Ray Data would do the same at half the speed: no data go through Ray here, and its executor looks
for tasks that have ended ten times a second, which is as long as half of a unit takes.
"""

import pickle
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

from roughformer.errors import CapacityError, InputError
from roughformer.ray_cluster import connected
from roughformer.ray_tasks import Failed, outcome, packed_work
from roughformer.store.worker import begin_units

__all__ = ["run_on_ray"]

Unit = TypeVar("Unit")
Result = TypeVar("Result")
_REPEATS = 20  # of a unit whose worker or node died
_PATIENCE = 60.0  # seconds that units in hand may take after an error


def run_on_ray(
    units: Sequence[Unit],
    work: Callable[[Unit], Result],
    *,
    workers: int,
    address: str | None,
    progress: Callable[[Result], None],
) -> list[Result]:
    """``[work(unit) for unit in units]``, ``workers`` at a time; the first error ends it."""
    if not units:
        return []
    done: dict[int, Result] = {}
    with connected(address) as ray:
        # Nodes read and write for themselves: they shall not all be tasks of the same one.
        task = ray.remote(num_cpus=1, max_retries=_REPEATS, scheduling_strategy="SPREAD")(outcome)
        name, shared = secrets.token_hex(8), ray.put(packed_work(begin_units, work))
        waiting = iter(enumerate(units))
        running: dict[Any, int] = {}
        try:
            while len(done) < len(units):
                if len(done) + len(running) < len(units):
                    room = max(_at_a_time(ray, workers) - len(running), 0)
                    for number, unit in islice(waiting, room):
                        running[task.remote(name, [shared], pickle.dumps(unit))] = number
                for ended in ray.wait(list(running))[0]:
                    result = pickle.loads(ray.get(ended))
                    if isinstance(result, Failed):
                        raise result.error
                    done[running.pop(ended)] = result
                    progress(result)
        except ray.exceptions.RayError as error:
            raise _told(error, isinstance(error, ray.exceptions.RayTaskError)) from None
        finally:
            _end(ray, list(running))
    return [done[number] for number in range(len(units))]


def _at_a_time(ray: Any, workers: int) -> int:
    """Tasks that Ray knows of at a time, which may change with its nodes. Where it has no more
    processors than may work, as many as it has wait there for theirs: a worker that ends one then
    goes on with the next without asking us.
    """
    processors = int(ray.cluster_resources().get("CPU", 0))
    return max(workers, 1 if processors > workers else 2 * processors, 1)


def _end(ray: Any, tasks: list[Any]) -> None:
    """Wait until what was begun has ended: none shall write into what comes next.

    Nothing is cancelled. Ray (2.60) ends the calling process, without a word, when a task that is
    cancelled was just being handed to a worker ("tried to complete task that was not pending"). A
    unit takes seconds; what takes longer ends with the connection, if that is ours, and else finds
    that its build is over (``check_claim``).
    """
    with suppress(ray.exceptions.RayError):  # what led here is to be told
        if tasks:
            ray.wait(tasks, num_returns=len(tasks), timeout=_PATIENCE, fetch_local=False)


def _told(error: Exception, begun: bool) -> Exception:
    """What a failure of Ray itself means. ``begun``: the task could not even start its work."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if begun:
        return InputError(
            "a task failed on the Ray cluster before its work began; all nodes need the same "
            f"roughformer and Python ({lines[-1]})"
        )
    return CapacityError(
        f"workers of the Ray cluster died {_REPEATS + 1} times at the same unit, mostly for want "
        "of memory; what is finished is kept: go on with the same command, with fewer --workers "
        f"({lines[0]})"
    )
