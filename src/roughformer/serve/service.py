"""All parts of the service behind asynchronous calls; one for each app, in its event loop."""

import asyncio
import contextlib
import logging
import os
import re
import secrets
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeVar

from roughformer.errors import CheckpointError, InputError
from roughformer.series import SeriesBatch
from roughformer.serve.broadcast import Broadcaster, SendQueue
from roughformer.serve.config import Limits, Options
from roughformer.serve.errors import APIError
from roughformer.serve.json_bodies import Observations
from roughformer.serve.metrics import Metrics
from roughformer.serve.model import Explainer, ForecastQuery, ServedForecaster, ServedModel
from roughformer.serve.streams import PushResult, Streams, unpack
from roughformer.serve.webhook import Webhook
from roughformer.serve.worker import Engine, Job, Worker
from roughformer.util.atomic import write_file

T = TypeVar("T")
log = logging.getLogger("roughformer.serve")
_SMALL = 16_384  # bytes that are parsed in the event loop
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def check_name(name: Any) -> str:
    """Return the id of a stream, or raise 400."""
    if type(name) is not str or _NAME.fullmatch(name) is None:
        raise APIError(400, "an id is 1 to 64 letters, digits or . _ -")
    return name


class Service:
    """The model, its worker, the streams, and whether new work is accepted."""

    def __init__(
        self, model: ServedModel | ServedForecaster, limits: Limits, options: Options
    ) -> None:
        """Build the parts; nothing is started."""
        self.model, self.limits, self.options = model, limits, options
        self.metrics = Metrics()
        self.broadcaster = Broadcaster()
        self.ready = False
        self.stopping = False
        self.open_requests = 0  # from their first to their last byte
        self.body_bytes = 0  # of theirs
        self.accepted = 0  # requests that are read, and not yet answered
        self._parser = ThreadPoolExecutor(1, "parser")
        self.streams: Streams | None = None
        self.no_streams = ""  # why this model cannot be streamed
        self.explainer: Explainer | None = None
        try:
            if isinstance(model, ServedModel):
                self.explainer = Explainer(model.predictor)
            if options.keeps_streams:
                self.streams = Streams(model, limits, options.streams)
            else:
                self.no_streams = "they are kept by another process; ask on a new connection"
        except ValueError as error:  # InputError: the model needs a span, or has no streams
            if options.streams.alarms or options.streams.span is not None:
                raise
            self.no_streams = str(error)
        self.engine = Engine(model, self.streams, self.metrics)
        self.worker = Worker(self.engine.handle, limits, options.threads)
        self.webhook: Webhook | None = None
        if options.webhook is not None:
            self.webhook = Webhook(options.webhook, options.webhook_secret, self.metrics)
        directory = options.snapshot_dir
        self.snapshotter = Snapshotter(
            self, None if directory is None else SnapshotDirectory(directory)
        )
        self.metrics.watch(
            lambda: self.accepted,
            lambda: 0 if self.streams is None else len(self.streams.entries),
            lambda: len(self.broadcaster.queues),
        )

    # Life

    async def start(self) -> None:
        """Begin to work; what a snapshot directory holds is restored first."""
        self.worker.start()
        await self.snapshotter.start()
        self.ready = True

    def refuse_new_work(self) -> None:
        """Answer 503 from now on; what was accepted goes on."""
        self.ready, self.stopping = False, True

    async def drain(self, seconds: float) -> None:
        """Wait until all that was accepted is answered, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.open_requests or not self.worker.idle:
                    await asyncio.sleep(0.02)

    async def close_sockets(self) -> None:
        """Tell all sockets that the service stops, after what they are still owed."""
        for queue in list(self.broadcaster.queues):
            queue.close(1012, "the service is stopping")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while self.broadcaster.queues:
                    await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """Write the last snapshots, end the thread."""
        await self.snapshotter.stop()
        await asyncio.to_thread(self.worker.stop, 2.0)
        if self.webhook is not None:
            await asyncio.to_thread(self.webhook.flush, 2.0)
        self._parser.shutdown(wait=False, cancel_futures=True)

    # Work

    def check_room(self) -> None:
        """Raise 503 if the queue is full: before a body is read, and again before it is parsed."""
        if self.accepted >= self.limits.queue:
            raise APIError(
                503,
                f"{self.limits.queue} requests are waiting, which is the limit; try again",
                retry_after=1,
            )

    @contextlib.contextmanager
    def accepting(self) -> Iterator[None]:
        """Count one of at most ``queue`` requests."""
        self.check_room()
        self.accepted += 1
        try:
            yield
        finally:
            self.accepted -= 1

    async def parse(self, work: Callable[..., T], data: bytes | str, *more: Any) -> T:
        """Call ``work(data, *more)``; in a thread if it takes long, so that others are heard."""
        if len(data) <= _SMALL:
            return work(data, *more)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._parser, partial(work, data, *more))

    async def predict(self, batch: SeriesBatch) -> list[dict[str, Any]]:
        """Predict each series."""
        self.predicting_model.check_size(batch, self.limits)
        predictions: list[dict[str, Any]] = await self._wait(self.worker.submit("predict", batch))
        return predictions

    async def forecast(self, query: ForecastQuery) -> list[dict[str, Any]]:
        """Forecast each series at the times asked for."""
        model = self.forecaster
        job = self.worker.submit("call", lambda: model.forecast(query))
        forecasts: list[dict[str, Any]] = await self._wait(job)
        self.metrics.series.inc(len(query.batch))
        return forecasts

    async def push(self, rows: Observations) -> PushResult:
        """Push observations to streams."""
        self._require_streams()
        result: PushResult = await self._wait(self.worker.submit("push", rows))
        return result

    async def on_streams(self, work: Callable[[Streams], T]) -> T:
        """Call ``work(streams)`` in the worker's thread, in its turn."""
        streams = self._require_streams()
        result: T = await self._wait(self.worker.submit("call", lambda: work(streams)))
        return result

    async def close_stream(self, name: str) -> None:
        """Delete a stream, its snapshot and its subscriptions."""
        await self.on_streams(lambda s: s.close(name))
        await self.snapshotter.forget(name)
        self.broadcaster.end(name, 4410, "the stream was deleted")

    def publish(self, events: list[dict[str, Any]], sender: SendQueue | None = None) -> None:
        """Tell subscribers of windows that ended, and the webhook of alarms that changed."""
        self.broadcaster.publish(events, sender)
        for event in events:
            for alarm in event["alarms"]:
                if alarm["changed"]:
                    change = "raised" if alarm["active"] else "released"
                    self.metrics.alarms.labels(alarm["name"], change).inc()
                    if self.webhook is not None:
                        about = {key: event[key] for key in ("id", "time", "prediction")}
                        message = {"event": change, "alarm": alarm["name"], **about}
                        self.webhook.put(message | {"value": alarm["value"]})

    def log_unexpected(self, error: BaseException) -> APIError:
        """Log the traceback; the client is told a number to ask about."""
        number = secrets.token_hex(6)
        self.metrics.errors.inc()
        log.error("error %s", number, exc_info=error)
        return APIError(500, f"an unexpected error happened; it is in the server's log as {number}")

    @property
    def predicting_model(self) -> ServedModel:
        """The model; 409 if it is a forecaster."""
        if isinstance(self.model, ServedForecaster):
            raise APIError(409, "this model is a forecaster: POST /v1/forecast")
        return self.model

    @property
    def forecaster(self) -> ServedForecaster:
        """The model; 409 if it is no forecaster."""
        if isinstance(self.model, ServedModel):
            raise APIError(409, "this model is not a forecaster: POST /v1/predict")
        return self.model

    def _require_streams(self) -> Streams:
        if self.streams is None:
            raise APIError(409, f"this model is not served as streams: {self.no_streams}")
        return self.streams

    async def _wait(self, job: Job) -> Any:
        """The result; 503 if it takes too long, but not where streams may have changed already."""
        seconds = self.limits.request_seconds
        try:
            await asyncio.wait((job.future,), timeout=seconds)
        except asyncio.CancelledError:  # the client has gone
            job.give_up()
            job.future.cancel()
            raise
        if not job.future.done() and (job.give_up() or job.kind == "predict"):
            job.future.cancel()
            raise APIError(
                503, f"there was no answer within {seconds:g} s; try again", retry_after=5
            )
        return await job.future


# Snapshots of streams: the task that writes, restores and expires them.

_ENDING = ".stream"
_WRITERS = 4  # most of the time of a write is waiting for the disk
_AT_ONCE = 64  # streams whose snapshots are taken in one go: no push waits longer than for that


class SnapshotDirectory:
    """A file for each stream, written aside and renamed: each is whole, or the old one."""

    def __init__(self, path: Path) -> None:
        """Make the directory if it is not there."""
        path.mkdir(parents=True, exist_ok=True)
        self.path = path

    def _file(self, name: str) -> Path:
        # "a" and "A" are one file to some systems: the checksum tells them apart.
        return self.path / f"{name}.{zlib.crc32(name.encode()):08x}{_ENDING}"

    def write(self, snapshots: dict[str, bytes]) -> None:
        """Write all of them."""
        with ThreadPoolExecutor(_WRITERS) as pool:
            list(pool.map(lambda item: write_file(self._file(item[0]), item[1]), snapshots.items()))

    def remove(self, name: str) -> None:
        """Remove the file of a stream that is over."""
        self._file(name).unlink(missing_ok=True)

    def read(self) -> Iterator[tuple[Path, bytes]]:
        """All files, one after the other; directories are not ours."""
        for file in sorted(self.path.glob(f"*{_ENDING}")):
            if file.is_file():
                yield file, file.read_bytes()


class Snapshotter:
    """The task that looks after streams; ``directory`` None: nothing is written."""

    def __init__(self, service: Service, directory: SnapshotDirectory | None) -> None:
        """Look after a service that is not started yet."""
        self._service, self._directory = service, directory
        self._task: asyncio.Task[None] | None = None
        self._on_disk: set[str] = set()
        self._saving = asyncio.Lock()

    async def start(self) -> None:
        """Restore what is on disk, then begin."""
        if self._service.streams is None:
            return
        if self._directory is not None:
            count = await self._service.on_streams(self._restore)
            log.info("restored %d streams from %s", count, self._directory.path)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Take a last snapshot of all that changed."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self.save()

    async def forget(self, name: str) -> None:
        """Remove a stream that was deleted: it must not come back."""
        if self._directory is not None:
            async with self._saving:
                await asyncio.to_thread(self._directory.remove, name)
                self._on_disk.discard(name)

    async def save(self) -> None:
        """Write every stream that changed since it was last written."""
        directory, service = self._directory, self._service
        if directory is None:
            return
        async with self._saving:
            names = await service.on_streams(
                lambda s: [n for n, entry in s.entries.items() if entry.changed]
            )
            for i in range(0, len(names), _AT_ONCE):
                part = names[i : i + _AT_ONCE]
                snapshots = await service.on_streams(methodcaller("changed_snapshots", part))
                try:
                    await asyncio.to_thread(directory.write, snapshots)
                except OSError as error:
                    log.error("cannot write snapshots to %s: %s", directory.path, error)
                    await service.on_streams(methodcaller("mark_changed", part))
                    return
                self._on_disk.update(snapshots)
                service.metrics.snapshots.inc(len(snapshots))
            open_now = await service.on_streams(lambda s: set(s.entries))
            for name in self._on_disk - open_now:
                await asyncio.to_thread(directory.remove, name)
            self._on_disk &= open_now

    async def _run(self) -> None:
        service, options = self._service, self._service.options
        pause = min(options.snapshot_seconds, max(options.idle_seconds / 4, 0.05), 30.0)
        since_save = 0.0
        while True:
            await asyncio.sleep(pause)
            since_save += pause
            try:
                subscribed = service.broadcaster.names
                names = await service.on_streams(
                    lambda s: s.expire(options.idle_seconds, subscribed)  # noqa: B023
                )
                for name in names:
                    log.info("stream %s expired after %g idle seconds", name, options.idle_seconds)
                    await self.forget(name)
                service.metrics.expired.inc(len(names))
                if since_save >= options.snapshot_seconds - 1e-9:
                    since_save = 0.0
                    await self.save()
            except Exception:  # the task must outlive whatever happens in one round
                log.exception("looking after the streams failed")

    def _restore(self, streams: Streams) -> int:
        """Restore all files; one that cannot be used is renamed, with a warning."""
        assert self._directory is not None
        count = 0
        for file, data in self._directory.read():
            try:
                name = unpack(data).name
                streams.restore(name, data)
                streams.entries[name].changed = False
                self._on_disk.add(name)
                count += 1
            except (APIError, InputError, CheckpointError) as error:
                if isinstance(error, APIError) and error.status == 429:
                    log.warning("%s and what follows is not restored: %s", file, error)
                    break
                aside = file.with_name(file.name + ".damaged")
                os.replace(file, aside)
                log.warning("%s cannot be restored (%s); it is kept as %s", file, error, aside.name)
        return count
