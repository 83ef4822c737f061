"""Connections of streams move to the process that keeps the streams.

With several processes whichever is free accepts a connection. Where a request begins that is not
for whole series, the connection goes on in the first of them: its descriptor and what has been read
of it are passed over a Unix socket.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

__all__ = ["Mailbox", "hand_over", "is_for_any"]

# What every process answers for.
_ANY = (b"/v1/predict", b"/v1/forecast", b"/v1/explain", b"/v1/read", b"/healthz", b"/readyz")
_SECONDS = 1.0  # between two processes of one machine
_PART = 1 << 16


def is_for_any(line: bytes) -> bool:
    """Whether every process can answer a request with this first line."""
    target = line.split(b" ", 2)[1:2]
    return bool(target) and target[0].partition(b"?")[0] in _ANY


def hand_over(connection: socket.socket, data: bytes, to: Path) -> None:
    """Pass a connection and what was read of it; ``OSError`` if nobody takes it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as box:
        box.settimeout(_SECONDS)
        box.connect(str(to))
        sent = socket.send_fds(box, [data[:_PART]], [connection.fileno()])
        box.sendall(data[sent:])


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
        self._loop.add_reader(self._box, self._take)

    def close(self) -> None:
        """Take no more."""
        self._loop.remove_reader(self._box)
        self._box.close()

    def _take(self) -> None:
        with contextlib.suppress(OSError):  # the other process has ended
            sender, _ = self._box.accept()
            with sender:
                sender.settimeout(_SECONDS)
                data, descriptors, _, _ = socket.recv_fds(sender, _PART, 1)
                connection = socket.socket(fileno=descriptors[0])
                while part := sender.recv(_PART):
                    data += part
            task = self._loop.create_task(
                self._loop.connect_accepted_socket(lambda: self._protocol(data), connection)
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
