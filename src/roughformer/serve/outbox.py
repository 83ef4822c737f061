"""What waits to be sent over a WebSocket, bounded."""

import asyncio
import contextlib
from collections import deque
from typing import Any

import orjson
from starlette.websockets import WebSocket, WebSocketDisconnect

__all__ = ["Outbox"]

_PATIENCE = 5.0  # seconds that a reader who was too slow has to take what is on its way


class Outbox:
    """Sends in order, in a task of its own. Who reads so slowly that more than ``limit`` bytes wait
    is heard no more until it has read (``room``), and is cut off with 1013 if it takes too long or
    if others have something to tell it (``offer``): its slowness may not cost memory.
    """

    def __init__(self, socket: WebSocket, limit: int) -> None:
        """Of an accepted socket."""
        self._socket, self._limit = socket, limit
        self._waiting: deque[str] = deque()
        self._size = 0
        self._wake = asyncio.Event()
        self._read = asyncio.Event()  # so much is read that there is room again
        self._code: int | None = None
        self._reason = ""
        self.closed = asyncio.Event()  # nothing more will be sent
        self._task = asyncio.create_task(self._run())

    def put(self, message: dict[str, Any]) -> None:
        """Answer: send it when the ones before are sent."""
        if self.closing:
            return
        text = orjson.dumps(message).decode()
        self._waiting.append(text)
        self._size += len(text)
        self._wake.set()

    def offer(self, message: dict[str, Any]) -> None:
        """Tell of what somebody else did, to one who keeps up."""
        if self._size > self._limit:
            self._cut_off()
        self.put(message)

    async def room(self) -> None:
        """Wait until what was answered is read, but not for ever."""
        if self._size > self._limit:
            self._read.clear()
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self._read.wait()
            except TimeoutError:
                self._cut_off()

    def _cut_off(self) -> None:
        self._waiting.clear()
        self.close(1013, "what was said is not read fast enough")

    def close(self, code: int, reason: str = "") -> None:
        """Close the socket after what waits is sent."""
        if self._code is None:
            self._code, self._reason = code, reason
        self._wake.set()

    @property
    def closing(self) -> bool:
        """Nothing is taken any more."""
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
                        self._read.set()
                if self._code is not None:
                    await self._socket.close(self._code, self._reason)
                    return
        except (WebSocketDisconnect, RuntimeError):
            pass  # the other side has gone
        finally:
            self.closed.set()
            self._read.set()
