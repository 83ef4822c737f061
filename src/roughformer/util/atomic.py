"""Files and directories that are whole at every moment, whatever kills their writer.

A file is written aside, flushed to the disk and renamed into place. A directory that is not empty
cannot be renamed over, so the new one, ``.NAME.new``, and the old one change places in one system
call (Linux ``renameat2``) or, where there is none, in two renames with the old one as ``.NAME.old``
in between; readers and the next writer look there. What a killed writer left behind is removed by
the next one.
"""

import contextlib
import ctypes
import functools
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from roughformer.errors import InputError

if sys.platform != "win32":
    import fcntl


T = TypeVar("T")
# A reader starts again when the directory was replaced under its hands. Opening the files takes
# microseconds and a save takes milliseconds, so this many misses in a row do not happen.
_ATTEMPTS = 100
_POSIX = os.name == "posix"
_READ = os.O_RDONLY | (os.O_NONBLOCK if _POSIX else getattr(os, "O_BINARY", 0))
_PATIENCE = 10.0  # seconds: processes of a command that was killed need a moment to end
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def write_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Make ``path`` hold ``data``; a reader finds the old bytes or the new ones, never a part.

    Parameters
    ----------
    path : path
        File to write.
    data : bytes
        Its new content.
    """
    with writing(path) as aside, open(aside, "xb") as file:
        file.write(data)


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[str]:
    """A name to write a file under, ``PATH.<random>.part``. When all went well, what is there is
    flushed to the disk and becomes ``path``, else it is removed.
    """
    target = os.path.realpath(path)
    aside = f"{target}.{secrets.token_hex(8)}.part"
    try:
        yield aside
        _flush(aside)
        os.replace(aside, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)
        raise
    _flush_directory(os.path.dirname(target))


def replace_directory(
    path: str | os.PathLike[str],
    contents: Iterable[tuple[str, bytes]],
    may_replace: Callable[[str], None],
) -> None:
    """Make the directory ``path`` hold exactly the files ``contents``, pairs of name and bytes.

    ``may_replace(path)`` is called first if something is there, and raises if it must stay.
    Writers of one directory wait for each other (not on Windows, nor where the file system has no
    locks); readers never wait.
    """
    target = os.path.realpath(path)
    parent = os.path.dirname(target)
    make_directories(parent)
    with locked(parent):
        _clean_up(target)
        if os.path.lexists(target):
            may_replace(target)
        fresh, _ = _siblings(target)
        try:
            os.mkdir(fresh)
            for name, data in contents:
                _write_through(os.path.join(fresh, name), data)
            _flush_directory(fresh)
            _put_in_place(target)
            _flush_directory(parent)
        finally:
            _clean_up(target)


def read_directory(path: str | os.PathLike[str], read: Callable[[Callable[[str], int]], T]) -> T:
    """``read(open_file)`` on the directory ``path`` as it is at one moment.

    ``open_file(name)`` gives a file descriptor; it never waits, not even for the other end of a
    pipe. ``read`` must notice files that do not belong together: if it fails because a writer
    replaced the directory meanwhile, it is called again on the new one. ``FileNotFoundError`` if
    there is none.
    """
    target = os.path.realpath(path)
    for _ in range(_ATTEMPTS):
        # Between the two renames of a writer there is only the old one, under its other name.
        place = next((p for p in (target, _siblings(target)[1]) if os.path.lexists(p)), target)
        before = _identity(place)
        if os.path.isfile(place):
            raise NotADirectoryError(place)
        try:
            return read(functools.partial(_open_in, place))
        except Exception:
            # The old one under its other name may be on its way out, file by file.
            same = _identity(place) == before and before is not None
            if same and (place == target or not os.path.lexists(target)):
                raise
    raise FileNotFoundError(target)


def _open_in(directory: str, name: str) -> int:
    return os.open(os.path.join(directory, name), _READ)


def _identity(path: str) -> tuple[int, int, int] | None:
    """What changes when another directory takes the place of this one; None if there is none. A
    number of an inode may come again, but not with the same time of its last change.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def _siblings(target: str) -> tuple[str, str]:
    """Where a new directory is written, and where the old one is between two renames."""
    parent, name = os.path.split(target)
    return os.path.join(parent, f".{name}.new"), os.path.join(parent, f".{name}.old")


def _clean_up(target: str) -> None:
    """Remove what a writer left, after putting the old directory back if it was between renames."""
    fresh, old = _siblings(target)
    if os.path.isdir(old) and not os.path.lexists(target):
        os.rename(old, target)
    for left_over in (fresh, old):
        if os.path.lexists(left_over):
            shutil.rmtree(left_over, ignore_errors=True)


def _put_in_place(target: str) -> None:
    fresh, old = _siblings(target)
    if not os.path.lexists(target):
        os.rename(fresh, target)
    elif not _exchange(fresh, target):
        os.rename(target, old)
        _flush_directory(os.path.dirname(target))
        os.rename(fresh, target)


def _exchange(one: str, other: str) -> bool:
    """Let two paths change places in one step; False if the system or file system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    places = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other))
    return bool(rename(*places, _RENAME_EXCHANGE) == 0)


def _write_through(path: str, data: bytes) -> None:
    """Write a new file and wait until the disk has it."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_directory(path: str) -> None:
    """Wait until the disk has the names in a directory; Windows cannot be asked to."""
    if _POSIX:
        _flush(path)


def _flush(path: str) -> None:
    """Wait until the disk has what was written to a file, by whatever handle."""
    # Windows flushes only through a handle that may write.
    handle = os.open(path, _READ if _POSIX else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_directories(path: str) -> None:
    """``os.makedirs``, also where they exist; and the disk has them."""
    if not os.path.isdir(path):
        make_directories(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
        _flush_directory(os.path.dirname(path))


def _lock(handle: int, wait: bool) -> None:
    """Lock an open file; without ``wait`` ``BlockingIOError`` if another process has it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks
        pass


@contextlib.contextmanager
def locked(directory: str, wait: bool = True) -> Iterator[None]:
    """Hold the one lock of ``directory``; it goes with the process, so none is left behind.
    ``wait=False``: ``BlockingIOError`` if another process has it.
    """
    if sys.platform == "win32":
        yield
        return
    handle = os.open(directory, _READ)
    try:
        _lock(handle, wait)
        yield
    finally:
        # A process forked meanwhile has the handle too, so closing ours would not release it.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


@contextlib.contextmanager
def holding(path: str | os.PathLike[str]) -> Iterator[bool]:
    """Whether the lock file ``path`` is this process's alone; it goes with the process, or at the
    end.
    """
    if sys.platform == "win32":
        yield True
        return
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(handle, wait=False)
        except BlockingIOError:
            os.close(handle)
            yield False
            return
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                break
        os.close(handle)  # its holder has just removed it
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(handle)


@contextlib.contextmanager
def directory_lock(directory: Path, patience: float = _PATIENCE) -> Iterator[tuple[int, ...]]:
    """Hold the lock of a directory; gives what to pass on to processes (``pass_fds``).

    It is free when the last process that it was passed on to has ended. Windows has no such lock.

    Parameters
    ----------
    directory : Path
        Made if need be; the lock is the file ``lock`` in it.
    patience : float, default 10.0
        Seconds to wait for another holder.

    Raises
    ------
    InputError
        If somebody else still holds the lock then.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield ()
        return
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    until = time.monotonic() + patience
    try:
        while True:
            try:
                _lock(handle, wait=False)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise InputError(
                        f"another command works in {directory}; wait for its end, or choose "
                        "another place with --out"
                    ) from None
            time.sleep(0.1)
        yield (handle,)
    finally:
        os.close(handle)
