"""Processes that do not meet and do not outlive each other.

The command holds a lock on the directory of its jobs and hands it down to their processes, so that
it is free only when the last of them has ended, however they end. Each job's process reads from a
pipe that only the command holds open: when the command dies, even by kill -9, the pipe closes and
the process ends itself.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from roughformer.errors import InputError

if sys.platform != "win32":
    import fcntl

__all__ = ["end_with_parent", "only_one"]

_PATIENCE = 10.0  # seconds: processes of a command that was killed need a moment to end
_ENDED = 70  # exit code of a process whose command is gone


@contextlib.contextmanager
def only_one(directory: Path, patience: float = _PATIENCE) -> Iterator[tuple[int, ...]]:
    """Hold the lock of ``directory``; gives what to pass on to processes (``pass_fds``).

    ``InputError`` if somebody else still holds it after ``patience`` seconds. Windows has no such
    lock.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield ()
        return
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _wait_for(handle, directory, time.monotonic() + patience)
        yield (handle,)
    finally:
        os.close(handle)


def _wait_for(handle: int, directory: Path, until: float) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise InputError(
                    f"another command works in {directory}; wait for its end, or choose another "
                    "place with --out"
                ) from None
        except OSError:  # a file system without locks
            return
        time.sleep(0.1)


def end_with_parent() -> None:
    """From now on this process ends when the other end of its standard input closes."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os._exit(_ENDED)

    threading.Thread(target=watch, daemon=True).start()
