"""Streams over time: idle ones expire, changed ones are written to disk, old ones come back."""

import asyncio
import contextlib
import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from roughformer.errors import CheckpointError, InputError
from roughformer.serve.refusal import Refusal
from roughformer.serve.snapshots import Directory, unpack
from roughformer.serve.streams import Streams

if TYPE_CHECKING:
    from roughformer.serve.service import Service

__all__ = ["Keeper"]

log = logging.getLogger("roughformer.serve")
_AT_ONCE = 64  # streams whose snapshots are taken in one go: no push waits longer than for that


class Keeper:
    """The task that looks after streams; ``folder`` None: nothing is written."""

    def __init__(self, service: "Service", folder: Directory | None) -> None:
        """Of a service that is not started."""
        self._service, self._folder = service, folder
        self._task: asyncio.Task[None] | None = None
        self._on_disk: set[str] = set()
        self._saving = asyncio.Lock()

    async def start(self) -> None:
        """Restore, then keep."""
        if self._service.streams is None:
            return
        if self._folder is not None:
            count = await self._service.on_streams(self._restore)
            log.info("restored %d streams from %s", count, self._folder.path)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """A last snapshot of all that changed."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self.save()

    async def forget(self, name: str) -> None:
        """The stream was deleted: it must not come back."""
        if self._folder is not None:
            async with self._saving:
                await asyncio.to_thread(self._folder.remove, name)
                self._on_disk.discard(name)

    async def save(self) -> None:
        """Write every stream that changed since it was last written."""
        folder, service = self._folder, self._service
        if folder is None:
            return
        async with self._saving:
            names = await service.on_streams(
                lambda s: [n for n, e in s.entries.items() if e.changed]
            )
            for i in range(0, len(names), _AT_ONCE):
                part = names[i : i + _AT_ONCE]
                found = await service.on_streams(partial(_snapshots, part))
                try:
                    await asyncio.to_thread(folder.write, found)
                except OSError as error:
                    log.error("cannot write snapshots to %s: %s", folder.path, error)
                    await service.on_streams(partial(_mark_changed, part))
                    return
                self._on_disk.update(found)
                service.metrics.snapshots.inc(len(found))
            there = await service.on_streams(lambda s: set(s.entries))
            for name in self._on_disk - there:
                await asyncio.to_thread(folder.remove, name)
            self._on_disk &= there

    async def _run(self) -> None:
        options = self._service.options
        pause = min(options.snapshot_seconds, max(options.idle_seconds / 4, 0.05), 30.0)
        since = 0.0
        while True:
            await asyncio.sleep(pause)
            since += pause
            try:
                await self._expire()
                if since >= options.snapshot_seconds - 1e-9:
                    since = 0.0
                    await self.save()
            except Exception:  # the keeper must outlive whatever happens to one round
                log.exception("looking after the streams failed")

    async def _expire(self) -> None:
        service = self._service
        seconds, listened = service.options.idle_seconds, service.hub.names
        names = await service.on_streams(lambda s: s.give_up_idle(seconds, listened))
        for name in names:
            log.info("stream %s was idle for %g s and is given up", name, seconds)
            await self.forget(name)
        service.metrics.expired.inc(len(names))

    def _restore(self, streams: Streams) -> int:
        """Runs in the worker. A file that cannot be used is set aside, with a warning."""
        assert self._folder is not None
        count = 0
        for file, data in self._folder.read():
            try:
                name = unpack(data).name
                streams.restore(name, data)
                streams.entries[name].changed = False
                self._on_disk.add(name)
                count += 1
            except (Refusal, InputError, CheckpointError) as error:
                if isinstance(error, Refusal) and error.status == 429:
                    log.warning("%s and what follows is not restored: %s", file, error)
                    break
                self._warn(file, error)
        return count

    def _warn(self, file: Path, error: Exception) -> None:
        assert self._folder is not None
        aside = self._folder.set_aside(file)
        log.warning("%s cannot be restored (%s); it is kept as %s", file, error, aside.name)


def _snapshots(names: list[str], streams: Streams) -> dict[str, bytes]:
    return streams.snapshots(names)


def _mark_changed(names: list[str], streams: Streams) -> None:
    streams.mark_changed(names)
