"""Snapshots of streams, and the task that writes, restores and expires them.

A snapshot is a line ``roughformer stream 1 SHA-256``, a line of JSON (name, states of the alarms),
then the bytes of ``StreamBatch.snapshot``.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from roughformer.errors import CheckpointError, InputError
from roughformer.serve.errors import APIError
from roughformer.util.atomic import write_file

if TYPE_CHECKING:
    from roughformer.serve.service import Service
    from roughformer.serve.streams import Streams

__all__ = ["SnapshotDirectory", "Snapshotter", "pack", "unpack"]

log = logging.getLogger("roughformer.serve")
_MAGIC = b"roughformer stream 1 "
_ENDING = ".stream"
_WRITERS = 4  # most of the time of a write is waiting for the disk
_AT_ONCE = 64  # streams whose snapshots are taken in one go: no push waits longer than for that


class Snapshot(NamedTuple):
    """The stream's name, the states of its alarms, its blob."""

    name: str
    alarms: list[dict[str, Any]]
    blob: bytes


def pack(name: str, alarms: list[dict[str, Any]], blob: bytes) -> bytes:
    """Encode a snapshot."""
    rest = json.dumps({"name": name, "alarms": alarms}).encode() + b"\n" + blob
    return _MAGIC + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def unpack(data: bytes) -> Snapshot:
    """Decode what ``pack`` made; ``APIError`` if it is anything else."""
    head, _, rest = data.partition(b"\n")
    if not head.startswith(_MAGIC):
        raise APIError(400, "this is not a snapshot of a stream")
    if head[len(_MAGIC) :] != hashlib.sha256(rest).hexdigest().encode():
        raise APIError(400, "the snapshot is damaged: its checksum does not match")
    line, _, blob = rest.partition(b"\n")
    try:
        about = json.loads(line)
        return Snapshot(str(about["name"]), [dict(state) for state in about["alarms"]], blob)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise APIError(400, "this is not a snapshot of a stream") from error


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

    def __init__(self, service: "Service", directory: SnapshotDirectory | None) -> None:
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

    def _restore(self, streams: "Streams") -> int:
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
