"""What surrounds every request: token, origin, the stop, metrics, and errors without traces."""

import asyncio
import hmac
import ipaddress
import logging
import time
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roughformer.serve.errors import APIError
from roughformer.serve.json_bodies import encode
from roughformer.serve.service import Service
from roughformer.serve.worker import client_of_task

access_log = logging.getLogger("roughformer.serve.access")
_HEALTH = ("/healthz", "/readyz")
_PUBLIC = (*_HEALTH, "/", "/series", "/ward", "/docs", "/openapi.json")  # nothing of them is secret
_ALWAYS = (*_HEALTH, "/metrics")  # answered also while stopping
_WORK = ("/v1/predict", "/v1/forecast", "/push")
_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]


class Middleware:
    """Around the app. Refusals here cost nothing: no body is read, no job is queued."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        """See the class."""
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or one WebSocket from its beginning to its end."""
        client_of_task.set(tuple(scope.get("client") or ("", 0)))
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            error, most = self._refusal(scope), self.service.limits.max_connections
            if error is None and len(self.service.broadcaster.queues) >= most:
                error = APIError(503, f"there are {most} open sockets", retry_after=5)
            if error is None:
                await self._run_app(scope, receive, send)
            else:
                await _send_error(scope, receive, send, error)
        else:
            await self.app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, began = self.service, time.perf_counter()
        status, size = 500, 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        async def receive_counted() -> Message:
            nonlocal size
            message = await receive()
            part = len(message.get("body", b""))
            size += part
            service.body_bytes += part
            if part and service.body_bytes > service.limits.max_bodies:
                raise APIError(503, "the bodies of all requests are too much", retry_after=1)
            return message

        service.open_requests += 1
        try:
            error = self._refusal(scope)
            if error is None and scope["method"] == "POST" and scope["path"].endswith(_WORK):
                try:
                    service.check_room()
                except APIError as full:
                    error = full
            if error is None:
                await self._run_app(scope, receive_counted, send_with_headers)
            else:
                await _send_error(scope, receive, send_with_headers, error)
        finally:
            service.open_requests -= 1
            service.body_bytes -= size
            route = getattr(scope.get("route"), "path", "other")
            service.metrics.requests.labels(route, str(status)).inc()
            seconds = time.perf_counter() - began
            service.metrics.latency.labels(route).observe(seconds)
            if service.options.access_log:
                _log_access(scope, status, size, seconds)
            if status in (503, 429):
                service.metrics.shed.labels("full" if status == 503 else "streams").inc()

    async def _run_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        http = scope["type"] == "http"
        try:
            await self.app(scope, receive, send_watched)
        except asyncio.CancelledError:
            # Only the stop cancels requests: those that were not done in time.
            if started or not http or not self.service.stopping:
                raise
            error = APIError(503, "the service is stopping", retry_after=5)
            await _send_error(scope, receive, send, error)
        except Exception as error:
            # The app has answered and logged what its handlers saw; the rest ends here.
            if not started or not http:
                failure = self.service.log_unexpected(error)
                if not started:
                    await _send_error(scope, receive, send, failure)

    def _refusal(self, scope: Scope) -> APIError | None:
        headers, path, limits = Headers(scope=scope), scope["path"], self.service.limits
        if self.service.stopping and path not in _ALWAYS:
            return APIError(503, "the service is stopping", retry_after=5)
        if scope.get("state", {}).get("crowded") and path not in _HEALTH:
            return APIError(
                503,
                f"there are too many connections: max_connections = {limits.max_connections} in "
                f"all, max_per_client = {limits.max_per_client} of one address",
                retry_after=5,
            )
        origin = headers.get("origin")
        if origin is not None and _split(origin).netloc != headers.get("host"):
            # Browsers tell where a script comes from; those of other sites are not wanted.
            return APIError(403, f"requests from pages of {origin[:100]!r} are not accepted")
        token = self.service.options.token
        if token is None and is_loopback((scope.get("server") or ("",))[0]):
            # The name of another site may be made to lead here, so that its scripts seem ours.
            host = headers.get("host", "")
            name = _split(f"//{host}").hostname or ""
            if not is_loopback(name):
                return APIError(
                    403,
                    f"the service is for this machine only, not for {host[:100]!r}; to serve other "
                    "names it needs a token",
                )
        if token is None or path in _PUBLIC or path.startswith("/page/"):
            return None
        # Compared in time that does not tell how much of it is right.
        if hmac.compare_digest(
            _token_of(headers, scope).encode("utf-8", "replace"), token.encode()
        ):
            return None
        return APIError(401, "a bearer token is needed: Authorization: Bearer TOKEN")


def _split(address: str) -> SplitResult:
    """Parts of an address; all are empty if it is none."""
    try:
        return urlsplit(address)
    except ValueError:
        return SplitResult("", "", "", "", "")


@lru_cache(maxsize=256)
def is_loopback(address: str) -> bool:
    """Whether an address or a name stands for this machine itself."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost" or address.endswith(".localhost")


def _token_of(headers: Headers, scope: Scope) -> str:
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    for name in scope.get("subprotocols", ()):
        if name.startswith("bearer."):
            return str(name.removeprefix("bearer."))
    return ""


def _log_access(scope: Scope, status: int, size: int, seconds: float) -> None:
    """Write a line of JSON; the query is left out, since it may hold what is private."""
    line = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "client": (scope.get("client") or ("",))[0],
        "method": scope["method"],
        "path": scope["path"][:200],
        "status": status,
        "bytes": size,
        "seconds": round(seconds, 6),
    }
    access_log.info(encode(line).decode())


async def _send_error(scope: Scope, receive: Receive, send: Send, error: APIError) -> None:
    response = JSONResponse(error.body, error.status, error.headers)
    await response(scope, receive, send)  # before a WebSocket is accepted: as its denial
