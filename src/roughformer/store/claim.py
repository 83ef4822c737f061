"""The directory of a store while it is made: nobody else's, and never half of two builds."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow.fs as fs

from roughformer.errors import InputError
from roughformer.store.manifest import MANIFEST, Manifest
from roughformer.store.places import Place
from roughformer.store.shards import is_shard

__all__ = ["MARKER", "SCATTERED", "building", "check_claim", "complete"]

MARKER, SCATTERED = "building.json", "scattered"
_OURS = re.compile(rf"(shard-\d+\.parquet|{MANIFEST}|{MARKER})(\.[0-9a-f]+\.part)?|{SCATTERED}")


def complete(store: Place, key: str) -> Manifest | None:
    """The manifest of the store if it is complete and of these data and this configuration."""
    try:
        manifest = Manifest.read(store)
    except (InputError, NotADirectoryError):
        return None
    if manifest.key != key:
        return None
    sizes = {store.at(info).name: info.size for info in store.listing()}
    whole = all(sizes.get(shard.file) == shard.bytes for shard in manifest.shards)
    return manifest if whole else None


@contextmanager
def building(store: Place, key: str, afresh: bool = False) -> Iterator[Callable[[], None]]:
    """Hold the directory; what is given must be called before the first shard is written. From
    there to the end the store has no manifest, and a marker tells whose it is. A store that was
    complete stays so if nothing comes to be written.
    ``afresh``: nothing of an earlier build is used.
    """
    _refuse_others(store)
    store.make_directory()
    with _locked(store):
        there = {store.at(info).name for info in store.listing()}
        if MANIFEST not in there:
            _mark(store, key)
        for name in there:
            if name.endswith(".part"):
                (store / name).remove()
        if afresh:
            (store / SCATTERED).remove_directory()

        def begin() -> None:
            # Before anything else changes: a manifest must never speak of another build's shards.
            (store / MANIFEST).remove()
            _mark(store, key)
            for info in store.listing() if afresh else ():
                if info.path.endswith(".parquet"):
                    store.at(info).remove()

        yield begin
        (store / MARKER).remove()


def check_claim(store: Place, key: str) -> None:
    """``InputError`` unless the build with this key still holds the store: a worker that outlives
    its build, on a cluster, must not write into another one's.
    """
    try:
        found = json.loads((store / MARKER).read())["key"]
    except FileNotFoundError:
        found = None
    if found != key:
        raise InputError(f"{store} is no longer made by the build that this unit is of")


def _mark(store: Place, key: str) -> None:
    (store / MARKER).put(json.dumps({"kind": "roughformer.store.building", "key": key}).encode())


def _refuse_others(store: Place) -> None:
    """``InputError`` if there is anything that no build of a store has left."""
    try:
        if store.info().type == fs.FileType.File:
            raise InputError(f"{store} is a file; a store is a directory, choose another --out")
    except FileNotFoundError:
        return
    entries = store.listing()
    names = [store.at(info).name for info in entries]
    for name in names:
        if not _OURS.fullmatch(name):
            raise InputError(
                f"{store} holds {name!r}, which is no part of a feature store; choose another --out"
            )
    shards = [store.at(info) for info in entries if info.path.endswith(".parquet")]
    if shards and not {MANIFEST, MARKER} & set(names) and not is_shard(shards[0]):
        raise InputError(
            f"{shards[0]} is no shard of a feature store; choose another --out, or move it away"
        )


@contextmanager
def _locked(store: Place) -> Iterator[None]:
    """One build at a time, on a disk; the lock goes with the process."""
    if not store.local or sys.platform == "win32":
        yield
        return
    import fcntl
    import os

    handle = os.open(store.path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise InputError(f"another process is making {store}; wait for it, or end it") from None
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(handle)
