"""The thread that owns the model: what waits at the same time is computed together."""

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import CapacityError, InputError
from roughformer.series import SeriesBatch
from roughformer.serve.config import Limits
from roughformer.serve.errors import APIError
from roughformer.serve.metrics import Metrics
from roughformer.serve.streams import PushResult, Streams
from roughformer.util.checks import using_threads

__all__ = ["Engine", "Job", "Worker", "client_of_task", "in_turn"]

_ROUND = 0.25  # seconds of work for streams after which clients have their turns again

# Address and port of the client that the present task works for.
client_of_task: ContextVar[tuple[Any, ...]] = ContextVar("client", default=("", 0))


@dataclass(eq=False)
class Job:
    """Something to do.

    ``kind``: ``"predict"`` (a batch of series), ``"push"`` (observations of streams) or ``"call"``
    (a function without arguments); ``future`` gets the result. A job is either begun or given up,
    so a client that is told that there was no answer can rely on nothing having been done.
    """

    kind: str
    work: Any
    future: "asyncio.Future[Any]"
    client: tuple[Any, ...] = field(default_factory=client_of_task.get)
    _decided: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> bool:
        """Decide to do it, unless it was given up; it cannot be given up any more then."""
        return self._decide("begun")

    def give_up(self) -> bool:
        """Decide never to do it, unless it was begun."""
        return self._decide("given up")

    def _decide(self, decision: str) -> bool:
        with self._lock:
            self._decided = self._decided or decision
            return self._decided == decision


Results = list[tuple[Job, Any]]  # an exception is a result too
Deliver = Callable[[Results], None]


class Worker:
    """Run ``handle(jobs, deliver)`` in a thread on whatever waits.

    ``handle`` answers every job that it begins, and returns those that must wait for another round:
    clients take turns. Nobody waits for others to come: while the model works, those gather that
    are done together next.
    """

    def __init__(
        self,
        handle: Callable[[list[Job], Deliver], list[Job]],
        limits: Limits,
        threads: int | None,
    ) -> None:
        """``threads``: of torch, while it works."""
        self._handle, self._limits, self._threads = handle, limits, threads
        self._waiting: deque[Job] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._busy = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)

    def start(self) -> None:
        """Begin; called in the event loop, which gets the results."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    @property
    def n_waiting(self) -> int:
        """Number of jobs that wait."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is being done."""
        with self._wake:
            return not self._waiting and not self._busy

    def submit(self, kind: str, work: Any) -> Job:
        """Queue a job. The caller bounds the queue: requests are counted where they come in, and a
        socket has one job at a time.
        """
        assert self._loop is not None
        job = Job(kind, work, self._loop.create_future())
        with self._wake:
            if self._stopping:
                raise APIError(503, "the service is stopping", retry_after=5)
            self._waiting.append(job)
            self._wake.notify()
        return job

    def stop(self, seconds: float) -> None:
        """Finish what waits, then end; wait for it."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        with using_threads(self._threads):
            while jobs := self._take():
                later: list[Job] = []
                try:
                    later = self._handle(jobs, self._deliver)
                except BaseException as error:  # a bug in handle: nobody may wait for ever
                    self._deliver([(job, error) for job in jobs])
                with self._wake:
                    self._waiting.extendleft(reversed(later))
                    self._busy = False

    def _take(self) -> list[Job]:
        """Wait for the jobs of the next round; none at the end."""
        while True:
            with self._wake:
                while not self._waiting and not self._stopping:
                    self._wake.wait()
                # One round takes all jobs of streams, and as many requests as go together.
                jobs: list[Job] = []
                room = self._limits.max_batch
                waiting, self._waiting = in_turn(list(self._waiting)), deque()
                for job in waiting:
                    if job.future.done():
                        continue
                    room -= job.kind == "predict"
                    (jobs if job.kind != "predict" or room >= 0 else self._waiting).append(job)
                self._busy = bool(jobs)
                if jobs or (self._stopping and not self._waiting):
                    return jobs

    def _deliver(self, results: Sequence[tuple[Job, Any]]) -> None:
        """Hand results over to the event loop, all at once."""
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_settle, list(results))


def _settle(results: Results) -> None:
    for job, result in results:
        if job.future.done():  # given up meanwhile
            continue
        if isinstance(result, BaseException):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)


def in_turn(jobs: list[Job]) -> list[Job]:
    """Sort jobs so that addresses take turns, and the connections of one address likewise.

    The order within a connection stays.
    """
    if len(jobs) < 2:
        return jobs
    for size in (2, 1):  # of address and port
        count: Counter[tuple[Any, ...]] = Counter()
        ranks = []
        for job in jobs:
            ranks.append(count[job.client[:size]])
            count[job.client[:size]] += 1
        jobs = [jobs[i] for i in sorted(range(len(jobs)), key=ranks.__getitem__)]
    return jobs


class Engine:
    """The model and the streams, behind ``handle``."""

    def __init__(self, model: Any, streams: Streams | None, metrics: Metrics) -> None:
        """``model``: a ``ServedModel`` or a ``ServedForecaster``; ``streams`` None: it has none."""
        self.model, self.streams, self.metrics = model, streams, metrics

    def handle(self, jobs: list[Job], deliver: Deliver) -> list[Job]:
        """Do the work of streams in the order given, then that of whole series.

        Each group is answered as soon as it is done. What streams ask for beyond a moment's work is
        returned: it waits for the next round, in which others have their turn.
        """
        until = time.monotonic() + _ROUND
        together: list[tuple[Job, Any]] = []
        busy, windows = self._no_slots(), 0.0
        later: list[Job] = []
        for number, job in enumerate(jobs):
            if job.kind == "predict":
                continue
            if job.kind == "push":
                assert self.streams is not None
                try:
                    slots = self.streams.slots_of(job.work)
                except APIError as error:
                    deliver([(job, error)])
                    continue
                more = self.streams.windows_of(job.work, slots)
                # Two pushes to one stream are done one after the other, and much work in parts.
                if busy[slots].any() or windows + more > self.streams.max_windows:
                    self._push(together, deliver)
                    together, busy[:], windows = [], False, 0.0
            else:
                self._push(together, deliver)
                together, windows = [], 0.0
            if time.monotonic() > until:
                later = [job for job in jobs[number:] if job.kind != "predict"]
                break
            if not job.begin():
                continue
            if job.kind == "push":
                busy[slots], windows = True, windows + more
                together.append((job, slots))
            else:
                deliver([(job, _result(job.work))])
                busy = self._no_slots()  # there may be more slots now
        self._push(together, deliver)
        self._predict([job for job in jobs if job.kind == "predict" and job.begin()], deliver)
        return later

    def _no_slots(self) -> npt.NDArray[np.bool_]:
        return np.zeros(0 if self.streams is None else self.streams.batch.n, dtype=bool)

    def _push(self, pushes: list[tuple[Job, Any]], deliver: Deliver) -> None:
        if not pushes or self.streams is None:
            return
        streams = self.streams
        results = _result(lambda: streams.push([(job.work, slots) for job, slots in pushes]))
        if isinstance(results, BaseException):
            results = [results] * len(pushes)
        self.metrics.push_size.observe(len(pushes))
        for result in results:
            if isinstance(result, PushResult):
                self.metrics.observations.inc(result.rows - result.dropped)
                self.metrics.windows.inc(len(result.events))
        deliver([(job, result) for (job, _), result in zip(pushes, results, strict=True)])

    def _predict(self, jobs: list[Job], deliver: Deliver) -> None:
        for group in self.model.group_by_size([job.work for job in jobs]) if jobs else ():
            chosen = [jobs[i] for i in group]
            self.metrics.batch_size.observe(len(chosen))
            results = _result(partial(self._predictions, [job.work for job in chosen]))
            if not isinstance(results, BaseException):
                deliver(list(zip(chosen, results, strict=True)))
            elif len(chosen) == 1:
                deliver([(chosen[0], results)])
            else:  # one of them is at fault: answer each on its own
                for job in chosen:
                    result = _result(partial(self._predictions, [job.work]))
                    deliver([(job, result if isinstance(result, BaseException) else result[0])])

    def _predictions(self, batches: list[SeriesBatch]) -> list[list[dict[str, Any]]]:
        whole = batches[0] if len(batches) == 1 else SeriesBatch.concatenate(batches)
        predictions = iter(self.model.predict(whole))
        self.metrics.series.inc(len(whole))
        return [[next(predictions) for _ in range(len(batch))] for batch in batches]


def _result(work: Callable[[], Any]) -> Any:
    """The result, or the error as a client may see it."""
    try:
        return work()
    except (InputError, CapacityError) as error:
        return APIError(400, str(error))
    except Exception as error:
        return error
