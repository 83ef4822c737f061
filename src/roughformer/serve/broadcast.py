"""Messages to WebSocket clients: a bounded send queue for each, and who subscribes to what."""

import asyncio
import contextlib
from collections import deque
from typing import Any

import numpy as np
from starlette.websockets import WebSocket, WebSocketDisconnect

from roughformer.serve.json_bodies import Observations, encode

_PATIENCE = 5.0  # seconds that a reader who was too slow has to take what is on its way
_MAX_SHOWN = 20_000  # observations of one push; of more only the last are shown


class SendQueue:
    """Send messages in order, in a task of its own.

    A client that reads so slowly that more than ``limit`` bytes wait is not listened to until it
    has read (``wait_for_room``). It is closed with 1013 if that takes too long, or if others have
    something for it (``offer``): its slowness may not cost memory.
    """

    def __init__(self, socket: WebSocket, limit: int) -> None:
        """Serve an accepted socket."""
        self._socket, self._limit = socket, limit
        self._waiting: deque[str] = deque()
        self._size = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._code: int | None = None
        self._reason = ""
        self.closed = asyncio.Event()  # nothing more will be sent
        self._task = asyncio.create_task(self._run())

    def put(self, message: dict[str, Any]) -> None:
        """Send an answer after the ones before it."""
        if self.closing:
            return
        text = encode(message).decode()
        self._waiting.append(text)
        self._size += len(text)
        self._wake.set()

    def offer(self, message: dict[str, Any]) -> None:
        """Send what somebody else did, to a client that keeps up."""
        if self._size > self._limit:
            self._cut_off()
        self.put(message)

    async def wait_for_room(self) -> None:
        """Wait until the answers are read, but not for ever."""
        if self._size > self._limit:
            self._room.clear()
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self._room.wait()
            except TimeoutError:
                self._cut_off()

    def _cut_off(self) -> None:
        self._waiting.clear()
        self.close(1013, "messages are not read fast enough")

    def close(self, code: int, reason: str = "") -> None:
        """Close the socket after what waits is sent."""
        if self._code is None:
            self._code, self._reason = code, reason
        self._wake.set()

    @property
    def closing(self) -> bool:
        """Whether nothing is accepted any more."""
        return self._code is not None or self.closed.is_set()

    async def finish(self) -> None:
        """Wait, but not for ever, until all is sent that will be."""
        self.close(1000)
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.closed.wait()
        except TimeoutError:
            self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    text = self._waiting.popleft()
                    await self._socket.send_text(text)
                    self._size -= len(text)
                    if self._size <= self._limit:
                        self._room.set()
                if self._code is not None:
                    await self._socket.close(self._code, self._reason)
                    return
        except (WebSocketDisconnect, RuntimeError):
            pass  # the other side has gone
        finally:
            self.closed.set()
            self._room.set()


class Broadcaster:
    """Which sockets hear of which streams; and all sockets, to close them at the end."""

    def __init__(self) -> None:
        """Start without subscribers."""
        self._windows: dict[str, set[SendQueue]] = {}
        self._observations: dict[str, set[SendQueue]] = {}
        self.queues: set[SendQueue] = set()

    def subscribe(self, name: str, queue: SendQueue, *, observations: bool = False) -> None:
        """Send it the windows of the stream and, if wanted, its ``observations``."""
        self._windows.setdefault(name, set()).add(queue)
        if observations:
            self._observations.setdefault(name, set()).add(queue)

    def unsubscribe(self, name: str, queue: SendQueue) -> None:
        """Send it nothing more of the stream."""
        for subscribers in (self._windows, self._observations):
            subscribers.get(name, set()).discard(queue)
            if not subscribers.get(name):
                subscribers.pop(name, None)

    @property
    def names(self) -> list[str]:
        """Streams that have subscribers."""
        return list(self._windows)

    def publish(self, events: list[dict[str, Any]], sender: SendQueue | None = None) -> None:
        """Send windows to all who subscribe to their streams, except to the ``sender``."""
        for event in events if self._windows else ():
            for queue in self._windows.get(event["id"], ()):
                if queue is not sender:
                    queue.offer({"type": "window", **event})

    def show(self, rows: Observations, sender: SendQueue | None = None) -> None:
        """Send observations that were pushed likewise."""
        for k, name in enumerate(rows.names if self._observations else ()):
            queues = self._observations.get(name, set()) - {sender}
            if not queues:
                continue
            own = slice(None) if rows.codes is None else np.flatnonzero(rows.codes == k)
            message = {
                "type": "observations",
                "id": name,
                "times": rows.times[own][-_MAX_SHOWN:].tolist(),
                "values": rows.values[own][-_MAX_SHOWN:].tolist(),  # NaN becomes null
            }
            for queue in queues:
                queue.offer(message)

    def end(self, name: str, code: int, reason: str) -> None:
        """Close the sockets of a stream that is over."""
        for queue in list(self._windows.get(name, ())):
            queue.close(code, reason)
