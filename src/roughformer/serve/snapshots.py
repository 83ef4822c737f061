"""A stream as bytes, and a directory of streams that survives the process.

A line ``roughformer stream 1 SHA-256``, a line of JSON (name, states of the alarms), then what
``StreamBatch.snapshot`` gave. Files are written aside and renamed, so each is whole or the old one.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from roughformer.serve.refusal import Refusal
from roughformer.util.atomic import write_file

__all__ = ["Directory", "Snapshot", "pack", "unpack"]

_MAGIC = b"roughformer stream 1 "
_ENDING = ".stream"
_WRITERS = 4  # most of the time of a write is waiting for the disk


class Snapshot(NamedTuple):
    """What is in one: the stream's name, the states of its alarms, its blob."""

    name: str
    alarms: list[dict[str, Any]]
    blob: bytes


def pack(name: str, alarms: list[dict[str, Any]], blob: bytes) -> bytes:
    """See the module."""
    rest = json.dumps({"name": name, "alarms": alarms}).encode() + b"\n" + blob
    return _MAGIC + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def unpack(data: bytes) -> Snapshot:
    """What ``pack`` made; ``Refusal`` if it is anything else."""
    head, _, rest = data.partition(b"\n")
    if not head.startswith(_MAGIC):
        raise Refusal(400, "this is no snapshot of a stream")
    if head[len(_MAGIC) :] != hashlib.sha256(rest).hexdigest().encode():
        raise Refusal(400, "the snapshot is damaged: its checksum does not match")
    line, _, blob = rest.partition(b"\n")
    try:
        about = json.loads(line)
        alarms = [dict(state) for state in about["alarms"]]
        return Snapshot(str(about["name"]), alarms, blob)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refusal(400, "this is no snapshot of a stream") from error


class Directory:
    """One file for each stream."""

    def __init__(self, path: Path) -> None:
        """Made if it is not there."""
        path.mkdir(parents=True, exist_ok=True)
        self.path = path

    def _file(self, name: str) -> Path:
        # "a" and "A" are one file to some systems: the checksum parts them.
        return self.path / f"{name}.{zlib.crc32(name.encode()):08x}{_ENDING}"

    def write(self, snapshots: dict[str, bytes]) -> None:
        """Write all of them, whatever becomes of the process meanwhile."""
        with ThreadPoolExecutor(_WRITERS) as pool:
            list(pool.map(lambda item: write_file(self._file(item[0]), item[1]), snapshots.items()))

    def remove(self, name: str) -> None:
        """The stream is over."""
        self._file(name).unlink(missing_ok=True)

    def read(self) -> Iterator[tuple[Path, bytes]]:
        """All files, one after the other; directories are not ours."""
        for file in sorted(self.path.glob(f"*{_ENDING}")):
            if file.is_file():
                yield file, file.read_bytes()

    def set_aside(self, file: Path) -> Path:
        """A file that cannot be used is kept under another name, and does not come up again."""
        aside = file.with_name(file.name + ".damaged")
        os.replace(file, aside)
        return aside
