"""Units on a Ray cluster, by Ray Data: each unit is a block of its own, so it is a task of its own,
which Ray repeats elsewhere when its worker or node dies.

A unit writes its shard itself, whole or not at all and with the same bytes wherever and however
often it is done; only the small result comes back. So nothing is lost or doubled by a repetition.
"""

import logging
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
    with connected(address):
        import ray
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # our errors say it shorter
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        rows = [{"number": n, "unit": pickle.dumps(unit)} for n, unit in enumerate(units)]

        def one(row: dict[str, Any]) -> dict[str, Any]:
            return {"number": row["number"], "found": _outcome(work, pickle.loads(row["unit"]))}

        tasks = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
            one,
            num_cpus=1,
            compute=ray.data.TaskPoolStrategy(size=workers),
            ray_remote_args_fn=lambda: {"max_retries": _REPEATS},
        )
        try:
            for row in tasks.iter_rows():
                result = pickle.loads(row["found"])
                if isinstance(result, _Failed):
                    raise result.error
                done[row["number"]] = result
                progress(result)
        except ray.exceptions.RayError as error:
            raise _told(error, isinstance(error, ray.exceptions.RayTaskError)) from None
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


def _outcome(work: Callable[[Any], Any], unit: Any) -> bytes:
    try:
        return pickle.dumps(work(unit))
    except Exception as error:
        try:
            return pickle.dumps(_Failed(error))
        except (pickle.PicklingError, TypeError, AttributeError):
            return pickle.dumps(_Failed(RuntimeError(f"{type(error).__name__}: {error}")))
