"""WebSocket sessions with one stream, or with many over one connection.

Messages are handled one after the other, so a client that sends faster than the model works is
slowed down by its own connection, and nothing of a refused message is applied.
"""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from roughformer.serve.broadcast import SendQueue
from roughformer.serve.errors import APIError
from roughformer.serve.json_bodies import (
    Observations,
    check_object,
    loads,
    parse_observations,
    parse_static,
)
from roughformer.serve.service import Service, check_name
from roughformer.serve.streams import PushResult, Streams
from roughformer.serve.tables import observations_of_table, read_arrow

__all__ = ["PROTOCOL", "websocket_routes"]

PROTOCOL = "roughformer"  # beside it a browser may offer "bearer.TOKEN"
_KEYS = {
    "push": ("times", "values"),
    "advance": ("time",),
    "predict": (),
    "state": (),
    "open": ("ids", "static"),
    "close": (),
}


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
        message = await self.service.parse(loads, received["text"])
        kinds = list(_KEYS) if self.name is None else ["push", "advance", "predict", "state"]
        kind = message.get("type") if type(message) is dict else None
        if type(kind) is not str or kind not in kinds:
            raise APIError(400, f"a message is an object whose 'type' is one of {', '.join(kinds)}")
        id_key = ("id",) if self.name is None else ()
        body = check_object(message, ("type", *id_key, *_KEYS[kind]), f"a {kind} message")
        if kind == "open":
            await self._open(body)
            return
        name = check_name(body.get("id")) if self.name is None else self.name
        service, put = self.service, self.queue.put
        if kind == "close":
            await service.close_stream(name)
            put({"type": "closed", "id": name})
        elif kind == "predict":
            put({"type": "prediction", **await service.on_streams(lambda s: s.predict(name))})
        elif kind == "state":
            put({"type": "state", **await service.on_streams(lambda s: s.state(name))})
        else:
            if kind == "push":
                rows = parse_observations(body, name, service.model.channels, service.limits)
                result = await service.push(rows)
                service.broadcaster.show(rows, self.queue)
            else:
                moment: Any = body.get("time")
                if type(moment) not in (int, float) or not math.isfinite(moment):
                    raise APIError(400, "an advance message needs 'time': a number")
                result = await service.on_streams(lambda s: s.advance(name, float(moment)))
            for event in result.events:
                put({"type": "window", **event})
            service.publish(result.events, self.queue)
            tag = {"id": name} if self.name is None else {}
            put({"type": "ack", **tag, **result.state})

    async def _open(self, body: dict[str, Any]) -> None:
        """Streams that are open already stay as they are: the answer tells from where to send."""
        if (body.get("id") is None) == (body.get("ids") is None):
            raise APIError(400, "an open message needs either 'id' or a list 'ids'")
        listed = [body["id"]] if body.get("ids") is None else body["ids"]
        if type(listed) is not list or len(listed) > self.service.limits.max_streams:
            raise APIError(400, "'ids' must be a list of ids, no more than there may be streams")
        names = [check_name(name) for name in listed]
        static = parse_static(body.get("static"), self.service.model.static_names)

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
