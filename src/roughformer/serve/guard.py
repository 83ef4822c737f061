"""What surrounds every request: token, origin, the stop, metrics, and errors without traces."""

import asyncio
import hmac
import ipaddress
import logging
import secrets
import time
from typing import Any
from urllib.parse import SplitResult, urlsplit

import orjson
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roughformer.serve.refusal import Refusal, error_body
from roughformer.serve.service import Service
from roughformer.serve.worker import client_of_task

__all__ = ["PROTOCOL", "Guard", "unexpected"]

log = logging.getLogger("roughformer.serve")
PROTOCOL = "roughformer"  # of WebSockets; beside it a browser may offer "bearer.TOKEN"
_HEALTH = ("/healthz", "/readyz")
_FREE = (*_HEALTH, "/", "/series", "/docs", "/openapi.json")  # nothing of them is secret
_ALWAYS = (*_HEALTH, "/metrics")  # answered also while stopping
_WORK = ("/v1/predict", "/push")
_HTTP = "http.response"
_PLAIN = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]


def unexpected(service: Service, error: BaseException) -> dict[str, Any]:
    """Log the trace, and what the client gets to know: a number to ask about."""
    number = secrets.token_hex(6)
    service.metrics.errors.inc()
    log.error("error %s", number, exc_info=error)
    return error_body(f"an unexpected error happened; it is in the server's log as {number}")


class Guard:
    """Around the app. Refusals here cost nothing: no body is read, no job is queued."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        """See the class."""
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or one WebSocket from its beginning to its end."""
        client_of_task.set(tuple(scope.get("client") or ("", 0)))
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            refusal = self._refusal(scope)
            if refusal is None and len(self.service.hub.outboxes) >= self._sockets:
                refusal = Refusal(503, f"there are {self._sockets} open sockets", retry_after=5)
            if refusal is None:
                await self._trying(scope, receive, send)
            else:
                await _refuse(send, refusal, "websocket.http.response")
        else:
            await self.app(scope, receive, send)

    @property
    def _sockets(self) -> int:
        return self.service.limits.max_connections

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, began = self.service, time.perf_counter()
        status = 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *_PLAIN]
            await send(message)

        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            part = len(message.get("body", b""))
            size += part
            service.body_bytes += part
            if part and service.body_bytes > service.limits.max_bodies:
                raise Refusal(503, "the bodies of all requests are too much", retry_after=1)
            return message

        service.open_requests += 1
        try:
            refusal = self._refusal(scope) or self._overload(scope)
            if refusal is None:
                await self._trying(scope, counted, watched)
            else:
                await _refuse(watched, refusal, _HTTP)
        finally:
            service.open_requests -= 1
            service.body_bytes -= size
            route = getattr(scope.get("route"), "path", "other")
            service.metrics.requests.labels(route, str(status)).inc()
            service.metrics.latency.labels(route).observe(time.perf_counter() - began)
            if status in (503, 429):
                service.metrics.shed.labels("full" if status == 503 else "streams").inc()

    async def _trying(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except asyncio.CancelledError:
            # Only the stop cancels requests: those that were not done in time.
            if started or scope["type"] != "http" or not self.service.stopping:
                raise
            await _refuse(send, Refusal(503, "the service is stopping", retry_after=5), _HTTP)
        except Exception as error:
            # The app has answered and logged what its handlers saw; the rest ends here.
            if not started:
                kind = _HTTP if scope["type"] == "http" else "websocket.http.response"
                body = unexpected(self.service, error)
                await _answer(send, 500, body, {}, kind)
            elif scope["type"] == "websocket":
                unexpected(self.service, error)

    def _overload(self, scope: Scope) -> Refusal | None:
        """Work for the model is refused here if there is no room: a refusal must cost little."""
        if scope["method"] == "POST" and scope["path"].endswith(_WORK):
            try:
                self.service.check_room()
            except Refusal as refusal:
                return refusal
        return None

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers, path = Headers(scope=scope), scope["path"]
        if self.service.stopping and path not in _ALWAYS:
            return Refusal(503, "the service is stopping", retry_after=5)
        if scope.get("state", {}).get("crowded") and path not in _HEALTH:
            limits = self.service.limits
            return Refusal(
                503,
                f"there are too many connections: max_connections = {limits.max_connections} in "
                f"all, max_per_client = {limits.max_per_client} of one address",
                retry_after=5,
            )
        origin = headers.get("origin")
        if origin is not None and _parts(origin).netloc != headers.get("host"):
            # Browsers tell where a script comes from; those of other sites are not wanted.
            return Refusal(403, f"requests of pages of {origin[:100]!r} are not taken")
        token = self.service.options.token
        if token is None and not _meant_for_us(headers, scope):
            # The name of another site may be made to lead here, so that its scripts seem ours.
            return Refusal(
                403,
                f"the service is for this machine only, not for {headers.get('host', '')[:100]!r}; "
                "to serve other names it needs a token",
            )
        if token is None or path in _FREE or path.startswith("/page/"):
            return None
        if _matches(_offered(headers, scope), token):
            return None
        return Refusal(401, "a bearer token is needed: Authorization: Bearer TOKEN")


def _meant_for_us(headers: Headers, scope: Scope) -> bool:
    """Whether what came over the loopback interface was sent to a name of this machine."""
    if not _is_loopback((scope.get("server") or ("",))[0]):
        return True
    name = _parts(f"//{headers.get('host', '')}").hostname or ""
    return name == "localhost" or name.endswith(".localhost") or _is_loopback(name)


def _parts(address: str) -> SplitResult:
    """Of an address; all are empty if it is none."""
    try:
        return urlsplit(address)
    except ValueError:
        return SplitResult("", "", "", "", "")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _offered(headers: Headers, scope: Scope) -> str:
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    for name in scope.get("subprotocols", ()):
        if name.startswith("bearer."):
            return str(name.removeprefix("bearer."))
    return ""


def _matches(offered: str, token: str) -> bool:
    """In time that does not tell how much of it is right."""
    return hmac.compare_digest(offered.encode("utf-8", "replace"), token.encode())


async def _refuse(send: Send, refusal: Refusal, kind: str) -> None:
    body = error_body(refusal.message, refusal.position)
    await _answer(send, refusal.status, body, refusal.headers, kind)


async def _answer(
    send: Send, status: int, body: dict[str, Any], headers: dict[str, str], kind: str
) -> None:
    data = orjson.dumps(body)
    told = {"content-type": "application/json", "content-length": str(len(data)), **headers}
    pairs = [(k.lower().encode(), v.encode()) for k, v in told.items()]
    await send({"type": f"{kind}.start", "status": status, "headers": pairs})
    await send({"type": f"{kind}.body", "body": data})
