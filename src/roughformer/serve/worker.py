"""The one thread that owns the model: requests that wait at the same time are answered together."""

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from roughformer.serve.limits import Limits
from roughformer.serve.refusal import Refusal
from roughformer.util.threads import using_threads

__all__ = ["Job", "Worker", "client_of_task", "in_turn"]


# Address and port of the client that the present task works for.
client_of_task: ContextVar[tuple[Any, ...]] = ContextVar("client", default=("", 0))


@dataclass(eq=False)
class Job:
    """Something to do. ``kind`` says what: ``"predict"`` (a batch of series), ``"push"`` (rows of
    streams) or ``"call"`` (a function without arguments); ``future`` gets the result.

    It is either begun or given up, so that a client who is told that there was no answer can rely
    on nothing having been done.
    """

    kind: str
    work: Any
    future: "asyncio.Future[Any]"
    came: float = field(default_factory=time.monotonic)
    client: tuple[Any, ...] = field(default_factory=client_of_task.get)
    _decided: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> bool:
        """Whether it is to be done; it cannot be given up any more then."""
        return self._decide("begun")

    def give_up(self) -> bool:
        """Whether it will never be done."""
        return self._decide("given up")

    def _decide(self, wish: str) -> bool:
        with self._lock:
            self._decided = self._decided or wish
            return self._decided == wish


Done = list[tuple[Job, Any]]  # results; an exception is one too


class Worker:
    """Runs ``handle(jobs, deliver)`` in its thread on whatever waits.

    ``handle`` answers every job that it begins, and returns those that must wait for another round:
    clients take turns. A request waits at most ``batch_seconds`` for company, and not at all if a
    stream waits.
    """

    def __init__(
        self,
        handle: Callable[[list[Job], Callable[[Done], None]], list[Job]],
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
    def length(self) -> int:
        """Jobs that wait."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is done."""
        with self._wake:
            return not self._waiting and not self._busy

    def submit(self, kind: str, work: Any) -> Job:
        """Let it be done. How many may wait is for the caller to say: requests are counted where
        they come in, and a socket has one job at a time.
        """
        assert self._loop is not None
        job = Job(kind, work, self._loop.create_future())
        with self._wake:
            if self._stopping:
                raise Refusal(503, "the service is stopping", retry_after=5)
            self._waiting.append(job)
            self._wake.notify()
        return job

    def stop(self) -> None:
        """Finish what waits, then end."""
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def join(self, seconds: float) -> None:
        """Wait for the end."""
        self._thread.join(max(seconds, 0.0))

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
        """The next jobs; none at the end."""
        with self._wake:
            while not self._waiting and not self._stopping:
                self._wake.wait()
            if self._waiting and self._waiting[0].kind == "predict":
                self._wait_for_company()
            # One round takes all that streams want, and as many requests as go together.
            jobs: list[Job] = []
            later: list[Job] = []
            room = self._limits.max_batch
            turns, self._waiting = in_turn(list(self._waiting)), deque()
            for job in turns:
                if job.future.done():
                    continue
                if job.kind == "predict":
                    room -= 1
                (jobs if job.kind != "predict" or room >= 0 else later).append(job)
            self._waiting.extend(later)
            self._busy = bool(jobs)
            if jobs or (self._stopping and not self._waiting):
                return jobs
        return self._take()  # all that waited was given up

    def _wait_for_company(self) -> None:
        until = self._waiting[0].came + self._limits.batch_seconds
        while (left := until - time.monotonic()) > 0 and not self._stopping:
            if len(self._waiting) >= self._limits.max_batch:
                return
            if any(job.kind != "predict" for job in self._waiting):
                return
            self._wake.wait(left)

    def _deliver(self, done: Sequence[tuple[Job, Any]]) -> None:
        """Hand results over to the event loop, in one go."""
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_settle, list(done))


def in_turn(jobs: list[Job]) -> list[Job]:
    """The first job of each address, then the second of each, and so on; those of one address by
    turns of its connections. The order of one connection stays.
    """
    for size in (2, 1):  # of address and port
        count: Counter[tuple[Any, ...]] = Counter()
        ranks = []
        for job in jobs:
            ranks.append(count[job.client[:size]])
            count[job.client[:size]] += 1
        jobs = [jobs[i] for i in sorted(range(len(jobs)), key=ranks.__getitem__)]
    return jobs


def _settle(done: Done) -> None:
    for job, result in done:
        if job.future.done():  # given up meanwhile
            continue
        if isinstance(result, BaseException):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)
