"""uvicorn's protocols with patience that ends: for headers, for what is left of a refused body, and
for readers that do not read. And with bounds on connections, beyond which a few more are taken for
questions about health.
"""

import asyncio
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from roughformer.serve.limits import Limits

__all__ = ["Http", "Sockets"]

_HEADERS = 10.0  # seconds for the head of a request, from its first byte to its last
_CROWDED = 2.0  # likewise, on a connection beyond the bounds
_LANE = 64  # such connections; the oldest one goes when there is another
# Seconds in which the rest of a refused body is thrown away, so that the client reads why it was
# refused instead of meeting a reset connection.
_LINGER = 2.0
_READ = 10.0  # seconds to read the rest of an answer on a connection that is closed


class Http(H11Protocol):
    """HTTP/1.1. ``limits``: those of the service, set by a class for each."""

    limits = Limits()
    crowded = False  # one of more connections than there may be: asked for health only
    _patience: asyncio.TimerHandle | None = None
    _in_head = False  # whether it is for a head

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A request must begin soon."""
        super().connection_made(transport)
        clients, lane = _clients(self.config), _lane(self.config)
        clients[_address(self)] += 1
        if (
            len(self.connections) > self.limits.max_connections
            or clients[_address(self)] > self.limits.max_per_client
        ):
            self.crowded = True
            self.app_state = {**self.app_state, "crowded": True}
            self.timeout_keep_alive = 0
            if len(lane) >= _LANE:
                next(iter(lane)).transport.abort()
            lane[self] = None
        self._set_patience(_CROWDED if self.crowded else _HEADERS)
        self._in_head = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to wait for."""
        self._end_patience()
        _count_out(self)
        _lane(self.config).pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a head, not for ever."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None:
            if not self._in_head:  # one deadline for the whole head, not for each part
                self._set_patience(_HEADERS)
                self._in_head = True
        elif self.conn.their_state is not h11.SEND_BODY or self.conn.our_state is not h11.DONE:
            self._end_patience()  # nothing is thrown away

    def on_response_complete(self) -> None:
        """A body that was refused half-way may go on arriving for a moment."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._set_patience(_LINGER)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """From here on it is the other protocol's, which counts it out at its end."""
        self._end_patience()
        _lane(self.config).pop(self, None)
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
        self._in_head = False
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def _address(connection: Any) -> str:
    return connection.client[0] if connection.client else ""


def _clients(config: Any) -> Counter[str]:
    """Open connections by address; kept, since counting them for each new one would take long."""
    if not hasattr(config, "clients"):
        config.clients = Counter()
    found: Counter[str] = config.clients
    return found


def _count_out(connection: Any) -> None:
    clients, address = _clients(connection.config), _address(connection)
    clients[address] -= 1
    if clients[address] <= 0:
        del clients[address]


def _lane(config: Any) -> dict[Any, None]:
    """Connections beyond the bounds, the oldest first."""
    if not hasattr(config, "lane"):
        config.lane = {}
    found: dict[Any, None] = config.lane
    return found


class Sockets(WebSocketsSansIOProtocol):
    """WebSocket."""

    def connection_lost(self, exc: Exception | None) -> None:
        """One connection less."""
        _count_out(self)
        super().connection_lost(exc)

    async def run_asgi(self) -> None:
        """A client that does not read cannot keep the connection after its end."""
        await super().run_asgi()
        transport: Any = self.transport
        self.loop.call_later(_READ, transport.abort)
