"""uvicorn's protocols with patience that ends: for headers, for what is left of a refused body, and
for readers that do not read.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

__all__ = ["Http", "Sockets"]

_HEADERS = 10.0  # seconds for the head of a request
# Seconds in which the rest of a refused body is thrown away, so that the client reads why it was
# refused instead of meeting a reset connection.
_LINGER = 2.0
_READ = 10.0  # seconds to read the rest of an answer on a connection that is closed


class Http(H11Protocol):
    """HTTP/1.1."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A request must begin soon."""
        super().connection_made(transport)
        self._set_patience(_HEADERS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to wait for."""
        self._end_patience()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a head, not for ever."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None:
            self._set_patience(_HEADERS)
        elif self.conn.their_state is not h11.SEND_BODY or self.conn.our_state is not h11.DONE:
            self._end_patience()  # nothing is thrown away

    def on_response_complete(self) -> None:
        """A body that was refused half-way may go on arriving for a moment."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._set_patience(_LINGER)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """From here on it is the other protocol's."""
        self._end_patience()
        super().handle_websocket_upgrade(event)

    def timeout_keep_alive_handler(self) -> None:
        """Closing waits for the reader: not for ever."""
        super().timeout_keep_alive_handler()
        self._give_up()

    def _set_patience(self, seconds: float) -> None:
        self._end_patience()
        self._patience = self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        self.transport.close()
        self.loop.call_later(_READ, self.transport.abort)

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


class Sockets(WebSocketsSansIOProtocol):
    """WebSocket."""

    async def run_asgi(self) -> None:
        """A client that does not read cannot keep the connection after its end."""
        await super().run_asgi()
        transport: Any = self.transport
        self.loop.call_later(_READ, transport.abort)
