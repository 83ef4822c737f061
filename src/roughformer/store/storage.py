"""Files on disks and in object stores: a path or any URI that pyarrow or fsspec knows.

A file is put whole or not at all. On a disk it is written aside and renamed. Object stores show an
object when its upload is complete; it is uploaded from a finished copy, so that a broken connection
costs another upload and nothing else.
"""

import contextlib
import errno
import os
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as fs
from pydantic import BaseModel

from roughformer.errors import InputError
from roughformer.util.atomic import make_directories, writing

T = TypeVar("T")
_ATTEMPTS, _WAIT = 6, 0.2  # 0.2 + 0.4 + ... seconds: six of them in all
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # two letters at least: C:/ is a path
# Errors that are answers, not accidents on the way.
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, InputError)


@dataclass(frozen=True)
class Place:
    """A file or directory: a file system and a path in it."""

    system: fs.FileSystem
    path: str
    scheme: str = ""  # empty: a path of this machine

    @classmethod
    def of(cls, location: "str | os.PathLike[str] | Place") -> "Place":
        """A path or URI."""
        if isinstance(location, Place):
            return location
        text = os.fspath(location)
        match = _SCHEME.match(text)
        if match is None:
            return cls(fs.LocalFileSystem(), os.path.abspath(text))
        scheme = match[1].lower()
        system, path = _system(text, scheme)
        if isinstance(system, fs.LocalFileSystem):
            return cls(system, os.path.abspath(path))
        return cls(system, path.rstrip("/"), scheme)

    def __truediv__(self, name: str) -> "Place":
        """A place below."""
        return replace(self, path=f"{self.path}/{name}")

    def __str__(self) -> str:
        """The path, or the URI without secrets and options."""
        return f"{self.scheme}://{self.path}" if self.scheme else self.path

    @property
    def local(self) -> bool:
        """Whether it is on a disk of this machine."""
        return not self.scheme

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    def info(self) -> fs.FileInfo:
        """Kind, size and time of change; ``FileNotFoundError`` if nothing is there."""
        info = retrying(lambda: self.system.get_file_info(self.path), self)
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError(2, "there is no such file; check the path", str(self))
        return info

    def open(self) -> pa.NativeFile:
        """To read it."""
        return retrying(lambda: self.system.open_input_file(self.path), self)

    def open_large(self) -> pa.NativeFile:
        """To read much of it: in a process with ``map_files``, a file of this machine is mapped
        into memory, where it can be, which spares one copy of all its bytes.
        """
        if self.local and _mapping:
            # Too little room for addresses (ulimit -v), or a file system that does not map.
            with contextlib.suppress(OSError, pa.ArrowInvalid):
                return pa.memory_map(self.path)
        return self.open()

    def read(self) -> bytes:
        """All of it."""

        def whole() -> bytes:
            with self.system.open_input_file(self.path) as file:
                return bytes(file.read())

        return retrying(whole, self)

    def listing(self, recursive: bool = False) -> list[fs.FileInfo]:
        """What is in this directory, by path; nothing if it does not exist."""
        selector = fs.FileSelector(self.path, recursive=recursive, allow_not_found=True)
        entries = retrying(lambda: self.system.get_file_info(selector), self)
        return sorted(entries, key=lambda info: info.path)

    def at(self, info: fs.FileInfo) -> "Place":
        """The place of an entry of a ``listing``."""
        return replace(self, path=info.path)

    def remove(self) -> None:
        """Delete the file; it need not exist."""

        def delete() -> None:
            try:
                self.system.delete_file(self.path)
            except FileNotFoundError:
                pass
            except OSError:
                # Some stores have no separate error for a missing file.
                if self.system.get_file_info(self.path).type != fs.FileType.NotFound:
                    raise

        retrying(delete, self)

    def remove_directory(self) -> None:
        """Delete the directory with all that is in it; it need not exist."""

        def delete() -> None:
            with contextlib.suppress(FileNotFoundError):
                self.system.delete_dir(self.path)

        retrying(delete, self)

    def make_directory(self) -> None:
        """Have the directory, where there are any."""
        if self.local:
            make_directories(self.path)

    def put(self, data: bytes | Callable[[Any], None]) -> int:
        """Make it hold ``data``, or what ``data(stream)`` writes; its size. Others see all or
        nothing of it.
        """
        if self.local:
            with writing(self.path) as aside:
                _fill(aside, data)
                return os.path.getsize(aside)
        if isinstance(data, bytes):
            self._upload(pa.py_buffer(data))
            return len(data)
        with tempfile.TemporaryDirectory(prefix="roughformer-") as directory:
            copy = os.path.join(directory, "copy")
            _fill(copy, data)
            with pa.memory_map(copy) as mapped:
                whole = mapped.read_buffer()
                self._upload(whole)
                return int(whole.size)

    def _upload(self, data: pa.Buffer) -> None:
        def upload() -> None:
            # One write: an upload that ends early for any reason must not become an object.
            with self.system.open_output_stream(self.path) as stream:
                stream.write(data)

        retrying(upload, self)


class DataFile(BaseModel, frozen=True, extra="forbid"):
    """A file that a store was made of; a change of it changes ``modified`` or the rest."""

    path: str
    size: int
    modified: int  # nanoseconds since 1970
    fingerprint: str  # of the Parquet footer
    keys: dict[str, str] = {}  # columns that its path tells: name -> text


_mapping = False


def map_files() -> None:
    """From now on this process maps files that it reads (``Place.open_large``). If another program
    makes one shorter meanwhile, the system kills the process: only workers may risk that.
    """
    global _mapping
    _mapping = True


def retrying(call: Callable[[], T], place: Place) -> T:
    """``call()``, again with growing pauses when the connection to ``place`` fails."""
    for attempt in range(_ATTEMPTS):
        try:
            return call()
        except OSError as error:
            final = isinstance(error, _FINAL) or error.errno == errno.ENOSPC
            if place.local or final or attempt == _ATTEMPTS - 1:
                raise
            # Not all at the same moment, where many workers lost the same server.
            time.sleep(_WAIT * 2**attempt * random.uniform(0.5, 1.0))
    raise AssertionError("the last attempt returns or raises")


def _fill(path: str, data: bytes | Callable[[Any], None]) -> None:
    with pa.OSFile(path, "wb") as stream:
        if isinstance(data, bytes):
            stream.write(data)
        else:
            data(stream)


def _system(uri: str, scheme: str) -> tuple[fs.FileSystem, str]:
    """pyarrow's own file system for a URI, else fsspec's."""
    try:
        system, path = fs.FileSystem.from_uri(uri)
        return system, path
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        problem = str(error).splitlines()[0]
    try:
        import fsspec

        remote, path = fsspec.core.url_to_fs(uri)
    except ImportError as error:
        raise InputError(
            f"cannot reach a place of the kind {scheme}:// ({problem}); install the fsspec package "
            f"for it ({error})"
        ) from None
    except ValueError as error:
        raise InputError(f"no file system is known for {scheme}://: {error}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(remote)), path


def walk(place: Place) -> Iterator[fs.FileInfo]:
    """Files below a directory, by path; hidden ones and those that begin with _ are no data."""
    for info in place.listing(recursive=True):
        if info.type == fs.FileType.File and not is_hidden(info.path[len(place.path) :]):
            yield info


def is_hidden(path: str) -> bool:
    """Whether a part of a relative path begins with . or _"""
    return any(part[:1] in "._" for part in path.strip("/").split("/"))
