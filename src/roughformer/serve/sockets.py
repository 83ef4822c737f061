"""WebSocket routes: one stream, or many over one connection."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, WebSocket

from roughformer.serve.conversations import ManyStreams, OneStream, error_message
from roughformer.serve.guard import PROTOCOL
from roughformer.serve.outbox import Outbox
from roughformer.serve.refusal import Refusal
from roughformer.serve.service import Service
from roughformer.serve.stream_routes import check_name

__all__ = ["socket_routes"]


def socket_routes() -> APIRouter:
    """``/v1/streams/{id}`` and ``/v1/streams``."""
    router = APIRouter()

    @router.websocket("/v1/streams/{name}")
    async def one(socket: WebSocket, name: str) -> None:
        service: Service = socket.app.state.service
        async with _accepted(socket, service) as outbox:
            try:
                observations = _wanted(socket.query_params.get("observations", "false"))
                state = await service.on_streams(lambda s: s.state(check_name(name)))
            except Refusal as refusal:
                outbox.put(error_message(refusal))
                outbox.close(4404 if refusal.status == 404 else 4400, refusal.message[:100])
                return
            outbox.put({"type": "hello", **state})
            service.hub.join(name, outbox, observations=observations)
            try:
                await OneStream(service, outbox, name).run(socket)
            finally:
                service.hub.leave(name, outbox)

    @router.websocket("/v1/streams")
    async def many(socket: WebSocket) -> None:
        service: Service = socket.app.state.service
        async with _accepted(socket, service) as outbox:
            outbox.put({"type": "hello", "channels": list(service.model.channels)})
            await ManyStreams(service, outbox).run(socket)

    return router


def _wanted(text: str) -> bool:
    if text not in ("true", "false"):
        raise Refusal(400, f"observations must be true or false, got {text[:20]!r}")
    return text == "true"


@asynccontextmanager
async def _accepted(socket: WebSocket, service: Service) -> AsyncIterator[Outbox]:
    offered = socket.scope.get("subprotocols", ())
    await socket.accept(PROTOCOL if PROTOCOL in offered else None)
    outbox = Outbox(socket, service.limits.outbox)
    service.hub.outboxes.add(outbox)
    try:
        yield outbox
    finally:
        try:
            await outbox.finish()
        finally:
            service.hub.outboxes.discard(outbox)
