"""HTTP: streams, one observation or many at a time."""

import re
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response

from roughformer.serve.bodies import read_body
from roughformer.serve.refusal import Refusal
from roughformer.serve.routes import answer, service_of
from roughformer.serve.schemas import ERRORS, OPEN, PUSH, SNAPSHOT
from roughformer.serve.series import Rows, loads, object_of, rows_of, static_of
from roughformer.serve.service import Service
from roughformer.serve.streams import Streams

__all__ = ["check_name", "stream_routes"]

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def check_name(name: Any) -> str:
    """An id of a stream, or 400."""
    if type(name) is not str or _NAME.fullmatch(name) is None:
        raise Refusal(400, "an id is 1 to 64 letters, digits or . _ -")
    return name


def stream_routes() -> APIRouter:
    """``/v1/streams`` and what is below it."""
    router = APIRouter(prefix="/v1/streams", tags=["streams"], responses=ERRORS)

    @router.post("", openapi_extra=OPEN, status_code=201)
    async def open_stream(request: Request) -> Response:
        """Open a stream; without an id it gets one."""
        service = service_of(request)
        data = await read_body(request, service.limits)
        body = object_of(loads(data) if data else {}, ("id", "static"), "the body", {})
        name = secrets.token_hex(8) if body.get("id") is None else check_name(body["id"])
        static = static_of(body.get("static"), service.model.static_names, {})
        return answer(await _ask(service, lambda s: s.open(name, static)), 201)

    @router.get("/{name}")
    async def state(request: Request, name: str) -> Response:
        """The state of a stream: from where to send, how much was accepted."""
        return answer(await _ask(service_of(request), lambda s: s.state(check_name(name))))

    @router.delete("/{name}", status_code=204)
    async def close(request: Request, name: str) -> Response:
        """End a stream."""
        service = service_of(request)
        await _ask(service, lambda s: s.close(check_name(name)))
        await service.keeper.forget(name)
        service.hub.end(name, 4410, "the stream was deleted")
        return Response(status_code=204)

    @router.post("/{name}/push", openapi_extra=PUSH)
    async def push(request: Request, name: str) -> Response:
        """Send observations; the answer has the windows that ended with them."""
        service = service_of(request)
        data = await read_body(request, service.limits)
        with service.accepting():
            rows = await service.parse(_rows, data, service, check_name(name))
            done = await service.push(rows)
        service.hub.show(rows)
        service.hub.publish(done.events)
        return answer(
            {
                "id": name,
                "events": done.events,
                "dropped": done.dropped,
                "last_time": done.last_time,
                "accepted": done.accepted,
            }
        )

    @router.get("/{name}/prediction")
    async def predict(request: Request, name: str) -> Response:
        """What the model says now."""
        return answer(await _ask(service_of(request), lambda s: s.predict(check_name(name))))

    @router.get("/{name}/snapshot")
    async def snapshot(request: Request, name: str) -> Response:
        """The stream as bytes, to go on elsewhere."""
        data = await _ask(service_of(request), lambda s: s.snapshot(check_name(name)))
        return Response(data, media_type="application/octet-stream")

    @router.put("/{name}/snapshot", openapi_extra=SNAPSHOT)
    async def restore(request: Request, name: str) -> Response:
        """Go on from a snapshot; the stream is opened if it is not there."""
        service = service_of(request)
        data = await read_body(request, service.limits)
        return answer(await _ask(service, lambda s: s.restore(check_name(name), data)))

    return router


async def _ask(service: Service, work: Callable[[Streams], T]) -> T:
    """Of the streams; it waits in the queue as all requests do."""
    with service.accepting():
        return await service.on_streams(work)


def _rows(data: bytes, service: Service, name: str) -> Rows:
    message = object_of(loads(data), ("times", "values"), "the body", {})
    return rows_of(message, name, service.model.channels, service.limits)
