"""WebSocket sessions with one stream, or with many over one connection.

Messages are handled one after the other, so a client that sends faster than the model works is
slowed down by its own connection, and nothing of a refused message is applied.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, WebSocket
from msgspec.json import Decoder
from starlette.websockets import WebSocketDisconnect

from roughformer.serve.broadcast import SendQueue
from roughformer.serve.errors import APIError
from roughformer.serve.json_bodies import (
    Advance,
    Close,
    Message,
    Observations,
    Open,
    Predict,
    Push,
    State,
    decode,
    observations_of,
    static_of,
)
from roughformer.serve.service import Service, check_name
from roughformer.serve.streams import PushResult, Streams
from roughformer.serve.tables import observations_of_table, read_arrow

PROTOCOL = "roughformer"  # beside it a browser may offer "bearer.TOKEN"
_ONE: Any = Decoder(Push | Advance | Predict | State)
_MANY: Any = Decoder(Push | Advance | Predict | State | Open | Close)


def websocket_routes() -> APIRouter:
    """``/v1/streams/{id}`` and ``/v1/streams``."""
    router = APIRouter()

    @router.websocket("/v1/streams/{name}")
    async def one(socket: WebSocket, name: str) -> None:
        service: Service = socket.app.state.service
        async with _accept(socket, service) as queue:
            try:
                observations = socket.query_params.get("observations", "false")
                if observations not in ("true", "false"):
                    raise APIError(
                        400, f"observations must be true or false, got {observations[:20]!r}"
                    )
                state = await service.on_streams(lambda s: s.state(check_name(name)))
            except APIError as error:
                queue.put(_error_message(error))
                queue.close(4404 if error.status == 404 else 4400, error.message[:100])
                return
            queue.put({"type": "hello", **state})
            service.broadcaster.subscribe(name, queue, observations=observations == "true")
            try:
                await _Session(service, queue, name).run(socket)
            finally:
                service.broadcaster.unsubscribe(name, queue)

    @router.websocket("/v1/streams")
    async def many(socket: WebSocket) -> None:
        service: Service = socket.app.state.service
        async with _accept(socket, service) as queue:
            queue.put({"type": "hello", "channels": list(service.model.channels)})
            await _Session(service, queue, None).run(socket)

    return router


@asynccontextmanager
async def _accept(socket: WebSocket, service: Service) -> AsyncIterator[SendQueue]:
    offered = socket.scope.get("subprotocols", ())
    await socket.accept(PROTOCOL if PROTOCOL in offered else None)
    queue = SendQueue(socket, service.limits.send_buffer)
    service.broadcaster.queues.add(queue)
    try:
        yield queue
    finally:
        try:
            await queue.finish()
        finally:
            service.broadcaster.queues.discard(queue)


class _Session:
    """Receive, do, answer, with the stream ``name``; None: each message names its own."""

    def __init__(self, service: Service, queue: SendQueue, name: str | None) -> None:
        self.service, self.queue, self.name = service, queue, name

    async def run(self, socket: WebSocket) -> None:
        """Until the client goes, or the queue is closed."""
        closed = asyncio.create_task(self.queue.closed.wait())
        try:
            while not self.queue.closing:
                message = asyncio.create_task(socket.receive())
                await asyncio.wait({message, closed}, return_when=asyncio.FIRST_COMPLETED)
                if not message.done():
                    message.cancel()
                    return
                received = message.result()
                if received["type"] == "websocket.disconnect":
                    return
                try:
                    await self._handle(received)
                except APIError as error:
                    self.queue.put(_error_message(error))
                except Exception as error:
                    self.queue.put(_error_message(self.service.log_unexpected(error)))
                await self.queue.wait_for_room()
        except (WebSocketDisconnect, RuntimeError):
            return
        finally:
            closed.cancel()

    async def _handle(self, received: Any) -> None:
        if self.service.stopping:
            raise APIError(503, "the service is stopping", retry_after=5)
        if received.get("text") is None:
            await self._push_arrow(received.get("bytes") or b"")
            return
        message: Message = await self.service.parse(self._decode, received["text"])
        if isinstance(message, Open):
            await self._open(message)
            return
        if self.name is not None and message.id not in (None, self.name):
            raise APIError(400, f"this socket is for the stream {self.name!r} only")
        name = check_name(message.id) if self.name is None else self.name
        service, put = self.service, self.queue.put
        if isinstance(message, Close):
            await service.close_stream(name)
            put({"type": "closed", "id": name})
        elif isinstance(message, Predict):
            put({"type": "prediction", **await service.on_streams(lambda s: s.predict(name))})
        elif isinstance(message, State):
            put({"type": "state", **await service.on_streams(lambda s: s.state(name))})
        else:
            if isinstance(message, Push):
                rows = observations_of(message, name, service.model.channels, service.limits)
                result = await service.push(rows)
                service.broadcaster.show(rows, self.queue)
            else:
                assert isinstance(message, Advance)
                moment = message.time
                result = await service.on_streams(lambda s: s.advance(name, moment))
            for event in result.events:
                put({"type": "window", **event})
            service.publish(result.events, self.queue)
            tag = {"id": name} if self.name is None else {}
            put({"type": "ack", **tag, **result.state})

    def _decode(self, text: str) -> Message:
        message: Message = decode(_MANY if self.name is None else _ONE, text)
        return message

    async def _open(self, message: Open) -> None:
        """Streams that are open already stay as they are: the answer tells from where to send."""
        if (message.id is None) == (message.ids is None):
            raise APIError(400, "an open message needs either 'id' or a list 'ids'")
        listed = [message.id] if message.ids is None else message.ids
        if len(listed) > self.service.limits.max_streams:
            raise APIError(400, "'ids' must be no more than there may be streams")
        names = [check_name(name) for name in listed]
        static = static_of(message.static, self.service.model.static_names)

        def work(streams: Streams) -> list[dict[str, Any]]:
            streams.check_room(len({name for name in names if name not in streams.entries}))
            return [
                streams.open(name, static) if name not in streams.entries else streams.state(name)
                for name in names
            ]

        states = await self.service.on_streams(work)
        keys = ("id", "last_time", "accepted")
        opened = [{key: state[key] for key in keys} for state in states]
        self.queue.put({"type": "opened", "streams": opened})

    async def _push_arrow(self, data: bytes) -> None:
        """Push rows of any streams, as Arrow."""
        service = self.service
        if self.name is not None:
            raise APIError(400, "this socket takes JSON; binary messages go to /v1/streams")

        def parse(data: bytes) -> Observations:
            table = read_arrow(data, service.limits.max_rows)
            return observations_of_table(table, service.model.channels)

        rows = await service.parse(parse, data)
        result = await service.push(rows) if len(rows.times) else PushResult()
        service.broadcaster.show(rows)
        if result.events:
            self.queue.put({"type": "windows", "events": result.events})
        service.publish(result.events)
        self.queue.put({"type": "ack", "rows": result.rows, "dropped": result.dropped})


def _error_message(error: APIError) -> dict[str, Any]:
    row = None if error.position is None else error.position.get("row")
    return {"type": "error", "status": error.status, "message": error.message, "row": row}
