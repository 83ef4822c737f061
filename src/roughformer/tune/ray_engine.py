"""Trials as tasks of a Ray cluster. The study stays in this process; Ray runs trials only.

A task tells the score of each epoch to a small actor beside this process, the board, and waits
there for the answer. A task whose worker or node dies is repeated by Ray, from its first epoch and
with the same settings and seed: what it had told before is known already and counts once.
"""

from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from roughformer.ray_cluster import connected, roughformer_ray
from roughformer.tune.jobs import Ended, Job, Problem, Reported, Stopped, failure, run_job

__all__ = ["RayEngine"]

_REPEATS = 5  # of a trial whose worker died
_MOMENT = 0.2  # seconds between two looks at the tasks


class RayEngine:
    """``workers`` trials at a time, each with ``threads`` processors of the cluster."""

    def __init__(self, problem: Problem, workers: int, threads: int, address: str | None) -> None:
        """``address``: of the cluster; None: one that Ray starts on this machine."""
        self.slots, self.threads = workers, threads
        self._open = ExitStack()
        ray = self._ray = self._open.enter_context(connected(address))
        here = ray.get_runtime_context().get_node_id()
        near = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        # Beside this process, so that no other node's death takes it along.
        board = ray.remote(num_cpus=0, scheduling_strategy=near)(_Board)
        self._board: Any = board.remote()
        self._problem = ray.put(problem)
        self._task = ray.remote(num_cpus=threads, max_retries=_REPEATS)(_trial)
        self._running: dict[Any, int] = {}
        self._told: deque[Reported | Ended] = deque()

    def start(self, job: Job) -> None:
        """Hand the trial to the cluster."""
        settings = job.settings | {"n_jobs": job.settings["n_jobs"] or self.threads}
        task = self._task.remote(self._problem, Job(job.number, settings), self._board)
        self._running[task] = job.number

    def wait(self) -> Reported | Ended:
        """What the board or the end of a task tells."""
        while not self._told:
            self._told += self._ray.get(self._board.take.remote())
            if self._told:
                break
            ended, _ = self._ray.wait(list(self._running), timeout=_MOMENT)
            for task in ended:
                self._told.append(self._ended(task))
        return self._told.popleft()

    def _ended(self, task: Any) -> Ended:
        number = self._running.pop(task)
        try:
            found: Ended = self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            first = str(error).strip().splitlines()[0]
            return Ended(number, failed=f"its worker died {_REPEATS + 1} times: {first}")
        return found

    def answer(self, number: int, *, stop: bool) -> None:
        """Let the trial go on, or not."""
        self._board.answer.remote(number, stop)

    def close(self) -> None:
        """End the board, and with it each trial that still runs, when it tells its next score;
        leave the cluster. To cancel a task may end this process (see store/ray_engine.py).
        """
        if self._board is not None:
            self._ray.kill(self._board)
        self._board, self._running = None, {}
        self._open.close()


def _trial(problem: Problem, job: Job, board: Any) -> Ended:
    """One trial, on some node."""
    ray = roughformer_ray()

    def report(epoch: int, score: float) -> bool:
        return bool(ray.get(board.tell.remote(Reported(job.number, epoch, score))))

    run_dir: Path | None = None  # nodes share no disk
    try:
        return Ended(job.number, result=run_job(problem, job.settings, report, run_dir))
    except (Stopped, ray.exceptions.ActorDiedError):  # or the search is over
        return Ended(job.number)
    except (Exception, MemoryError) as error:
        if isinstance(error, ray.exceptions.RayError):
            raise  # this node is going
        return Ended(job.number, failed=failure(error))


class _Board:
    """What trials tell, until the search takes it; and its answers, until the trials have them."""

    def __init__(self) -> None:
        self.told: list[Reported] = []
        self.waiting: dict[int, Any] = {}

    async def tell(self, event: Reported) -> bool:
        """Leave a report and wait for its answer."""
        import asyncio

        answer = asyncio.get_running_loop().create_future()
        # A trial that is repeated tells anew; the call that its dead worker left has no reader.
        self.told = [other for other in self.told if other.number != event.number]
        self.waiting[event.number] = answer
        self.told.append(event)
        return bool(await answer)

    async def take(self) -> list[Reported]:
        """All reports that nobody has taken."""
        taken, self.told = self.told, []
        return taken

    async def answer(self, number: int, stop: bool) -> None:
        """Wake the trial that waits."""
        waiting = self.waiting.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(stop)
