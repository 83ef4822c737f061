"""What is said over a WebSocket with one stream, or with many.

Messages are handled one after the other, so a client that sends faster than the model works is
slowed down by its own connection, and nothing of a refused message is applied.
"""

import asyncio
import math
from abc import ABC, abstractmethod
from typing import Any

from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect

from roughformer.serve.guard import unexpected
from roughformer.serve.outbox import Outbox
from roughformer.serve.refusal import Refusal
from roughformer.serve.series import Rows, loads, object_of, rows_of, static_of
from roughformer.serve.service import Service
from roughformer.serve.stream_routes import check_name
from roughformer.serve.streams import Pushed, Streams
from roughformer.serve.table_bytes import read_arrow
from roughformer.serve.tables import rows_of_table

__all__ = ["ManyStreams", "OneStream", "error_message"]

Answer = dict[str, Any]
_KEYS = {
    "push": ("times", "values"),
    "advance": ("time",),
    "predict": (),
    "state": (),
    "open": ("ids", "static"),
    "close": (),
}


class _Conversation(ABC):
    """Receives, does, answers, until one side has enough."""

    def __init__(self, service: Service, outbox: Outbox) -> None:
        self.service, self.outbox = service, outbox

    async def run(self, socket: WebSocket) -> None:
        """Until the client goes, or the outbox is closed."""
        closed = asyncio.create_task(self.outbox.closed.wait())
        try:
            while not self.outbox.closing:
                message = asyncio.create_task(socket.receive())
                await asyncio.wait({message, closed}, return_when=asyncio.FIRST_COMPLETED)
                if not message.done():
                    message.cancel()
                    return
                received = message.result()
                if received["type"] == "websocket.disconnect":
                    return
                await self._answer(received)
                await self.outbox.room()
        except (WebSocketDisconnect, RuntimeError):
            return
        finally:
            closed.cancel()

    async def _answer(self, received: Any) -> None:
        try:
            if self.service.stopping:
                raise Refusal(503, "the service is stopping", retry_after=5)
            if received.get("text") is not None:
                await self.text(await self.service.parse(loads, received["text"]))
            else:
                await self.binary(received.get("bytes") or b"")
        except Refusal as refusal:
            self.outbox.put(error_message(refusal))
        except Exception as error:
            told = unexpected(self.service, error)["error"]["message"]
            self.outbox.put(error_message(Refusal(500, told)))

    @abstractmethod
    async def text(self, message: Any) -> None:
        """A message of JSON."""

    @abstractmethod
    async def binary(self, data: bytes) -> None:
        """A message of bytes."""

    async def on_streams(self, work: Any) -> Any:
        """In the worker; a socket waits its turn instead of being refused."""
        return await self.service.on_streams(work)

    async def do(self, kind: str, name: str, body: dict[str, Any], tag: Answer) -> None:
        """What the streams of both sockets have in common; ``tag``: the id, where it is needed."""
        put = self.outbox.put
        if kind == "push":
            rows = rows_of(body, name, self.service.model.channels, self.service.limits)
            done = await self.service.push(rows)
            self.service.hub.show(rows, but=self.outbox)
        elif kind == "advance":
            moment = _moment(body.get("time"))
            done = await self.on_streams(lambda s: s.advance(name, moment))
        elif kind == "predict":
            said = await self.on_streams(lambda s: s.predict(name))
            put({"type": "prediction", **said})
            return
        else:
            state = await self.on_streams(lambda s: s.state(name))
            put({"type": "state", **state})
            return
        for event in done.events:
            put({"type": "window", **event})
        self.service.hub.publish(done.events, but=self.outbox)
        put({"type": "ack", **tag, **_ack(done)})


class OneStream(_Conversation):
    """With one stream."""

    def __init__(self, service: Service, outbox: Outbox, name: str) -> None:
        """Of that ``name``."""
        super().__init__(service, outbox)
        self.name = name

    async def text(self, message: Any) -> None:
        """See ``_KEYS``."""
        kind = _kind(message, ("push", "advance", "predict", "state"))
        body = object_of(message, ("type", *_KEYS[kind]), f"a {kind} message", {})
        await self.do(kind, self.name, body, {})

    async def binary(self, data: bytes) -> None:
        """Not here."""
        raise Refusal(400, "this socket takes JSON; binary messages go to /v1/streams")


class ManyStreams(_Conversation):
    """With all streams: each message names its own."""

    async def text(self, message: Any) -> None:
        """See ``_KEYS``."""
        kind = _kind(message, tuple(_KEYS))
        body = object_of(message, ("type", "id", *_KEYS[kind]), f"a {kind} message", {})
        if kind == "open":
            await self._open(body)
            return
        name = check_name(body.get("id"))
        if kind != "close":
            await self.do(kind, name, body, {"id": name})
            return
        await self.on_streams(lambda s: s.close(name))
        await self.service.keeper.forget(name)
        self.service.hub.end(name, 4410, "the stream was deleted")
        self.outbox.put({"type": "closed", "id": name})

    async def _open(self, body: dict[str, Any]) -> None:
        """Streams that are there already stay as they are: the answer tells from where to send."""
        if (body.get("id") is None) == (body.get("ids") is None):
            raise Refusal(400, "an open message needs either 'id' or a list 'ids'")
        listed = [body["id"]] if body.get("ids") is None else body["ids"]
        if type(listed) is not list or len(listed) > self.service.limits.max_streams:
            raise Refusal(400, "'ids' must be a list of ids, no more than there may be streams")
        names = [check_name(name) for name in listed]
        static = static_of(body.get("static"), self.service.model.static_names, {})

        def work(streams: Streams) -> list[dict[str, Any]]:
            new = {name for name in names if name not in streams.entries}
            streams.check_room(len(new))
            return [
                streams.open(name, static) if name not in streams.entries else streams.state(name)
                for name in names
            ]

        states = await self.on_streams(work)
        keep = ("id", "last_time", "accepted")
        told = [{key: state[key] for key in keep} for state in states]
        self.outbox.put({"type": "opened", "streams": told})

    async def binary(self, data: bytes) -> None:
        """Rows of any streams, as Arrow."""
        limits = self.service.limits
        channels, most = self.service.model.channels, limits.max_rows
        rows = await self.service.parse(_rows, data, channels, most)
        done = await self._push(rows)
        self.service.hub.show(rows)
        if done.events:
            self.outbox.put({"type": "windows", "events": done.events})
        self.service.hub.publish(done.events)
        self.outbox.put({"type": "ack", "rows": done.rows, "dropped": done.dropped})

    async def _push(self, rows: Rows) -> Pushed:
        if not len(rows.times):
            return Pushed()
        return await self.service.push(rows)


def _rows(data: bytes, channels: tuple[str, ...], most: int) -> Rows:
    return rows_of_table(read_arrow(data, most), channels)


def _kind(message: Any, known: tuple[str, ...]) -> str:
    kind = message.get("type") if type(message) is dict else None
    if type(kind) is not str or kind not in known:
        raise Refusal(400, f"a message is an object whose 'type' is one of {', '.join(known)}")
    return kind


def _moment(raw: Any) -> float:
    if type(raw) not in (int, float) or not math.isfinite(raw):
        raise Refusal(400, "an advance message needs 'time': a number")
    return float(raw)


def _ack(done: Pushed) -> dict[str, Any]:
    return {"last_time": done.last_time, "accepted": done.accepted, "dropped": done.dropped}


def error_message(refusal: Refusal) -> Answer:
    """A refusal as a message."""
    row = None if refusal.position is None else refusal.position.get("row")
    return {"type": "error", "status": refusal.status, "message": refusal.message, "row": row}
