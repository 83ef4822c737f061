"""All parts of the service behind asynchronous calls; one for each app, in its event loop."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from roughformer.series import SeriesBatch
from roughformer.serve.engine import Engine
from roughformer.serve.hub import Hub
from roughformer.serve.keeper import Keeper
from roughformer.serve.limits import Limits
from roughformer.serve.metrics import Metrics
from roughformer.serve.model import ServedModel
from roughformer.serve.refusal import Refusal
from roughformer.serve.series import Rows
from roughformer.serve.snapshots import Directory
from roughformer.serve.streams import Pushed, StreamOptions, Streams
from roughformer.serve.worker import Job, Worker
from roughformer.util.checks import real_number

__all__ = ["Options", "Service"]

T = TypeVar("T")
log = logging.getLogger("roughformer.serve")
_SMALL = 16_384  # bytes that are parsed at once


@dataclass(frozen=True)
class Options:
    """How the service runs, beside its limits."""

    streams: StreamOptions = field(default_factory=StreamOptions)
    token: str | None = None
    threads: int | None = None
    idle_seconds: float = 3600.0
    snapshot_dir: Path | None = None
    snapshot_seconds: float = 10.0

    def __post_init__(self) -> None:
        """Times are positive."""
        for name in ("idle_seconds", "snapshot_seconds"):
            what = "a positive number of seconds"
            real_number(getattr(self, name), name, what, positive=True)


class Service:
    """The model, its worker, the streams, and whether new work is taken."""

    def __init__(self, model: ServedModel, limits: Limits, options: Options) -> None:
        """Not started."""
        self.model, self.limits, self.options = model, limits, options
        self.metrics = Metrics()
        self.hub = Hub()
        self.ready = False
        self.stopping = False
        self.open_requests = 0  # from their first to their last byte
        self.body_bytes = 0  # of theirs
        self.accepted = 0  # those that were read, and wait to be parsed, computed and told
        self._parser = ThreadPoolExecutor(1, "parser")
        self.streams: Streams | None = None
        self.no_streams = ""  # why this model cannot be streamed
        try:
            self.streams = Streams(model, limits, options.streams)
        except ValueError as error:  # InputError: the model needs a span, or has no streams
            if options.streams.alarms or options.streams.span is not None:
                raise
            self.no_streams = str(error)
        self.engine = Engine(model, self.streams, self.metrics)
        self.worker = Worker(self.engine.handle, limits, options.threads)
        folder = None if options.snapshot_dir is None else Directory(options.snapshot_dir)
        self.keeper = Keeper(self, folder)
        self.metrics.watch(
            lambda: self.accepted, lambda: self.n_streams, lambda: len(self.hub.outboxes)
        )

    @property
    def n_streams(self) -> int:
        """Open streams."""
        return 0 if self.streams is None else len(self.streams.entries)

    # Life

    async def start(self) -> None:
        """Begin to work; what a snapshot directory holds is restored first."""
        self.worker.start()
        await self.keeper.start()
        self.ready = True

    def refuse_new_work(self) -> None:
        """From now on 503; what was accepted goes on."""
        self.ready, self.stopping = False, True

    async def drain(self, seconds: float) -> None:
        """Wait until all that was accepted is answered, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.open_requests or not self.worker.idle:
                    await asyncio.sleep(0.02)

    async def close_sockets(self) -> None:
        """Tell all that the service goes, after what they are still owed."""
        for outbox in list(self.hub.outboxes):
            outbox.close(1012, "the service is stopping")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while self.hub.outboxes:
                    await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """Write the last snapshots, end the thread."""
        await self.keeper.stop()
        self.worker.stop()
        await asyncio.to_thread(self.worker.join, 2.0)
        self._parser.shutdown(wait=False, cancel_futures=True)

    # Work

    def check_room(self) -> None:
        """503 if the queue is full: told before a body is read, and again before it is parsed."""
        if self.accepted >= self.limits.queue:
            raise Refusal(
                503,
                f"{self.limits.queue} requests are waiting, which is the limit; try again",
                retry_after=1,
            )

    @contextlib.contextmanager
    def accepting(self) -> Iterator[None]:
        """One of at most ``queue`` requests."""
        self.check_room()
        self.accepted += 1
        try:
            yield
        finally:
            self.accepted -= 1

    async def parse(self, work: Callable[..., T], data: bytes | str, *more: Any) -> T:
        """``work(data, *more)``; what takes long is done aside, and others are heard meanwhile."""
        if len(data) <= _SMALL:
            return work(data, *more)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._parser, partial(work, data, *more))

    async def predict(self, batch: SeriesBatch) -> list[dict[str, Any]]:
        """One prediction a series."""
        self.model.check_size(batch, self.limits)
        found: list[dict[str, Any]] = await self._wait(self.worker.submit("predict", batch))
        return found

    async def push(self, rows: Rows) -> Pushed:
        """Observations of streams."""
        self._streams()
        found: Pushed = await self._wait(self.worker.submit("push", rows))
        return found

    async def on_streams(self, work: Callable[[Streams], T]) -> T:
        """``work(streams)`` in the worker's thread, in its turn."""
        streams = self._streams()
        job = self.worker.submit("call", lambda: work(streams))
        found: T = await self._wait(job)
        return found

    def _streams(self) -> Streams:
        if self.streams is None:
            raise Refusal(409, f"this model is not served as streams: {self.no_streams}")
        return self.streams

    async def _wait(self, job: Job) -> Any:
        """The result; 503 if it takes too long, but not where streams may have changed already."""
        try:
            async with asyncio.timeout(self.limits.request_seconds):
                return await asyncio.shield(job.future)
        except TimeoutError:
            if not job.give_up() and job.kind != "predict":
                return await job.future
            job.future.cancel()
            raise Refusal(
                503,
                f"there was no answer within {self.limits.request_seconds:g} s; try again",
                retry_after=5,
            ) from None
        except asyncio.CancelledError:  # the client has gone
            job.give_up()
            job.future.cancel()
            raise
