"""Connections of streams move to the process that keeps the streams.

With several processes whichever is free accepts a connection. Where a request begins that is not
for whole series, the connection goes on in the first of them: its descriptor and what has been read
of it are passed over a Unix socket. Neither process waits for the other.
"""

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["Mailbox", "hand_over", "is_for_any"]

# What every process answers for.
_ANY = (b"/v1/predict", b"/v1/forecast", b"/v1/explain", b"/v1/read", b"/healthz", b"/readyz")


def is_for_any(line: bytes) -> bool:
    """Whether every process can answer a request with this first line."""
    target = line.split(b" ", 2)[1:2]
    return bool(target) and target[0].partition(b"?")[0] in _ANY


def hand_over(connection: socket.socket, data: bytes, to: Path) -> None:
    """Pass a connection and what was read of it, at once and whole or not at all; ``OSError`` if
    nobody takes it.

    What was read is in a file without a name: its descriptor always fits into the empty buffer of
    the Unix socket. So only connecting can fail, when too many connections wait there already.
    """
    with tempfile.TemporaryFile() as read, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as box:
        read.write(data)
        read.seek(0)
        box.setblocking(False)
        box.connect(str(to))
        socket.send_fds(box, [b"."], [connection.fileno(), read.fileno()])


class Mailbox:
    """Where connections are taken over, from ``open`` until ``close``."""

    def __init__(self, path: Path, protocol: Callable[[bytes], asyncio.Protocol]) -> None:
        """``protocol(data)`` goes on with a connection of which ``data`` has been read."""
        self._protocol, self._loop = protocol, asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[object]] = set()
        path.unlink(missing_ok=True)  # of the process before
        self._box = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._box.bind(str(path))
        self._box.listen(1024)
        self._box.setblocking(False)
        self._loop.add_reader(self._box, self._accept)

    def close(self) -> None:
        """Take no more."""
        self._loop.remove_reader(self._box)
        self._box.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the other process has ended
            sender, _ = self._box.accept()
            sender.setblocking(False)
            self._loop.add_reader(sender, self._take, sender)

    def _take(self, sender: socket.socket) -> None:
        self._loop.remove_reader(sender)
        with sender:
            descriptors = socket.recv_fds(sender, 1, 2)[1]
        if len(descriptors) < 2:  # the other process has ended, or no more files may be open here
            for descriptor in descriptors:
                os.close(descriptor)
            return
        connection = socket.socket(fileno=descriptors[0])
        with open(descriptors[1], "rb") as read:
            data = read.read()
        task = self._loop.create_task(
            self._loop.connect_accepted_socket(lambda: self._protocol(data), connection)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
