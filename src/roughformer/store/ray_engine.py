"""Units on a Ray cluster: each is a task of its own, which Ray repeats elsewhere when its worker or
node dies.

A unit writes its shard itself, whole or not at all and with the same bytes wherever and however
often it is done; only the small result comes back. So nothing is lost or doubled by a repetition.

Ray Data would do the same at half the speed: no data go through Ray here, and its executor looks
for tasks that have ended ten times a second, which is as long as half of a unit takes.
"""

import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from roughformer.errors import CapacityError, InputError
from roughformer.ray_cluster import connected

__all__ = ["run_on_ray"]

Unit = TypeVar("Unit")
Result = TypeVar("Result")
_REPEATS = 20  # of a unit whose worker or node died


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
        task = ray.remote(num_cpus=1, max_retries=_REPEATS, scheduling_strategy="SPREAD")(_outcome)
        shared = ray.put(pickle.dumps(work))
        waiting = iter(enumerate(units))
        running: dict[Any, int] = {}
        try:
            while len(done) < len(units):
                while len(running) < workers and (unit := next(waiting, None)) is not None:
                    running[task.remote(shared, pickle.dumps(unit[1]))] = unit[0]
                for ended in ray.wait(list(running))[0]:
                    result = pickle.loads(ray.get(ended))
                    if isinstance(result, _Failed):
                        raise result.error
                    done[running.pop(ended)] = result
                    progress(result)
        except ray.exceptions.RayError as error:
            raise _told(error, isinstance(error, ray.exceptions.RayTaskError)) from None
        finally:
            for left in running:
                ray.cancel(left, force=True)
    return [done[number] for number in range(len(units))]


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


class _Failed:
    """What was raised in a task: as a result it comes back without Ray's wrappings."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _outcome(work: bytes, unit: bytes) -> bytes:
    do, given = pickle.loads(work), pickle.loads(unit)  # fails where roughformer is another one
    try:
        return pickle.dumps(do(given))
    except Exception as error:
        try:
            return pickle.dumps(_Failed(error))
        except (pickle.PicklingError, TypeError, AttributeError):
            return pickle.dumps(_Failed(RuntimeError(f"{type(error).__name__}: {error}")))
