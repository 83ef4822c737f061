"""uvicorn with deadlines and connection limits, signals, and the graceful stop."""

import asyncio
import logging
import multiprocessing
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from roughformer.errors import InputError
from roughformer.serve.app import create_app
from roughformer.serve.config import Limits
from roughformer.serve.service import Service

__all__ = ["Server", "listen", "run", "run_workers"]

_HEAD_SECONDS = 10.0  # for the head of a request, from its first byte to its last
_CROWDED_SECONDS = 2.0  # likewise, on a connection beyond the limits
_MAX_CROWDED = 64  # such connections; the oldest one goes when there is another
# Seconds in which the rest of a refused body is thrown away, so that the client reads why it was
# refused instead of meeting a reset connection.
_LINGER_SECONDS = 2.0
_READ_SECONDS = 10.0  # to read the rest of an answer on a connection that is closed


log = logging.getLogger("roughformer.serve")
# Seconds after which a thread lets another one have the interpreter. The model's thread gives it
# away with each operation of torch; with Python's 5 ms it would wait longer than it works when
# requests rush in.
_SWITCH = 2e-4
_SEEN = 0.3  # seconds in which others can see that the service is not ready any more
_LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "plain": {"format": "%(asctime)s %(levelname)s %(message)s"},
        "json": {"format": "%(message)s"},
    },
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "plain"},
        "access": {"class": "logging.StreamHandler", "formatter": "json"},
    },
    "loggers": {
        "roughformer.serve": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "roughformer.serve.access": {"handlers": ["access"], "level": "INFO", "propagate": False},
        "uvicorn.error": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
    },
}


class _Config(uvicorn.Config):
    """uvicorn's, with what connections share."""

    def __init__(self, limits: Limits, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.limits = limits
        self.n_connections: Counter[str] = Counter()  # by address
        self.crowded: dict[Any, None] = {}  # connections beyond the limits, the oldest first

    def count_out(self, connection: Any) -> None:
        """Forget a connection that has ended."""
        address = _address(connection)
        self.n_connections[address] -= 1
        if self.n_connections[address] <= 0:
            del self.n_connections[address]
        self.crowded.pop(connection, None)


def _address(connection: Any) -> str:
    return connection.client[0] if connection.client else ""


class _HTTPProtocol(H11Protocol):
    """HTTP/1.1 with deadlines: for heads, for what is left of a refused body, and for clients that
    do not read. Beyond the limits on connections, a few more are accepted for health checks.
    """

    config: _Config
    _deadline: asyncio.TimerHandle | None = None
    _in_head = False  # whether the deadline is for a head

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request soon."""
        super().connection_made(transport)
        config, limits = self.config, self.config.limits
        config.n_connections[_address(self)] += 1
        crowded = (
            len(self.connections) > limits.max_connections
            or config.n_connections[_address(self)] > limits.max_per_client
        )
        if crowded:
            self.app_state = {**self.app_state, "crowded": True}
            self.timeout_keep_alive = 0
            if len(config.crowded) >= _MAX_CROWDED:
                next(iter(config.crowded)).transport.abort()
            config.crowded[self] = None
        self._set_deadline(_CROWDED_SECONDS if crowded else _HEAD_SECONDS)
        self._in_head = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._clear_deadline()
        self.config.count_out(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a head, not for ever."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None:
            if not self._in_head:  # one deadline for the whole head, not for each part
                self._set_deadline(_HEAD_SECONDS)
                self._in_head = True
        elif self.conn.their_state is not h11.SEND_BODY or self.conn.our_state is not h11.DONE:
            self._clear_deadline()  # nothing is being thrown away

    def on_response_complete(self) -> None:
        """Let a body that was refused half-way arrive for another moment."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._set_deadline(_LINGER_SECONDS)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand over to the other protocol, which counts the connection out at its end."""
        self._clear_deadline()
        self.config.crowded.pop(self, None)
        super().handle_websocket_upgrade(event)

    def timeout_keep_alive_handler(self) -> None:
        """Close; closing waits for the reader, but not for ever."""
        super().timeout_keep_alive_handler()
        self._close()

    def _set_deadline(self, seconds: float) -> None:
        self._clear_deadline()
        self._deadline = self.loop.call_later(seconds, self._close)

    def _close(self) -> None:
        self.transport.close()
        self.loop.call_later(_READ_SECONDS, self.transport.abort)

    def _clear_deadline(self) -> None:
        self._in_head = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _WebSocketProtocol(WebSocketsSansIOProtocol):
    """WebSocket, with an end for clients that do not read."""

    config: _Config

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.config.count_out(self)
        super().connection_lost(exc)

    async def run_asgi(self) -> None:
        """Close; a client that does not read cannot keep the connection after its end."""
        await super().run_asgi()
        transport: Any = self.transport
        self.loop.call_later(_READ_SECONDS, transport.abort)


def listen(host: str, port: int) -> socket.socket:
    """Bind a socket; port 0: any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sees TCP and lets small packets go at once.
    server = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind((host, port))
    except OSError:
        server.close()
        raise
    return server


class Server(uvicorn.Server):
    """Stop in order: refuse new work, finish what was accepted, close, save, end with 0."""

    def __init__(self, service: Service, ready: Callable[[], object] | None = None) -> None:
        """``ready`` is called when connections are accepted."""
        limits = service.limits
        config = _Config(
            limits,
            create_app(service),
            http=_HTTPProtocol,
            ws=_WebSocketProtocol,
            ws_max_size=limits.max_message,
            ws_per_message_deflate=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
            log_config=_LOGGING,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="on",
        )
        super().__init__(config)
        self.service = service
        self._ready = ready
        self._stop: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: object) -> None:
        """Handle a signal: the second one ends at once."""
        if self._stop is not None:
            self.force_exit = self.should_exit = True
            return
        self._stop = asyncio.get_event_loop().create_task(self.end())

    async def end(self) -> None:
        """Finish what was accepted, within a part of ``stop_seconds``; the rest is for saving."""
        service = self.service
        service.refuse_new_work()
        log.info("stopping: no new work, %d requests to finish", service.open_requests)
        await asyncio.sleep(_SEEN)
        await service.drain(service.limits.stop_seconds * 0.6)
        await service.close_sockets()
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then call ``ready``; unlike uvicorn's, a failure is an error like others."""
        try:
            await super().startup(sockets)
        except SystemExit:
            raise InputError("the service could not start; the reason is above") from None
        if self._ready is not None:
            self._ready()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal; unlike uvicorn's, the process then ends with 0."""
        loop = asyncio.get_running_loop()
        caught = []
        for sig in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(sig, self.handle_exit, sig, None)
                caught.append(sig)
            except (ValueError, RuntimeError, NotImplementedError):
                break  # not the main thread, or a system without
        try:
            await self._serve(sockets)
        finally:
            for sig in caught:
                loop.remove_signal_handler(sig)


def run(service: Service, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve until a signal comes. ``say`` gets the line with the address once it can be used."""
    _allow_files(service.limits)
    sys.setswitchinterval(_SWITCH)
    bound = listen(host, port)
    line = _address_line(host, bound)
    asyncio.run(Server(service, lambda: say(line)).serve([bound]))


def run_workers(
    build: Callable[[], Service], n: int, host: str, port: int, say: Callable[[str], None]
) -> None:
    """Serve by ``n`` processes that accept from one socket, until a signal comes.

    ``build`` makes the service in each of them. A process that dies is replaced; all of them stop
    in order when this one does, however it ends: they hold the other ends of its pipes.
    """
    bound, context = listen(host, port), multiprocessing.get_context("spawn")

    def start() -> tuple[Any, Connection]:
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(build, bound, theirs), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def interrupt(*signal_and_frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    workers, ready = [start() for _ in range(n)], set()
    try:
        for process, pipe in workers:
            pipe.recv()
            ready.add(process.pid)
        say(_address_line(host, bound))
        while True:
            ended = wait([process.sentinel for process, _ in workers])
            for k, (process, pipe) in enumerate(workers):
                if process.sentinel in ended:
                    log.error("a worker ended (%s); another takes over", process.exitcode)
                    pipe.close()
                    workers[k] = start()
            time.sleep(1.0)  # one that cannot start is not tried in a tight circle
    except EOFError:
        raise InputError("a worker could not start; the reason is above") from None
    except KeyboardInterrupt:
        log.info("stopping %d workers", n)
    finally:
        for process, pipe in workers:
            if process.pid not in ready and not pipe.poll():
                process.kill()  # it is still starting
            pipe.close()
        for process, _ in workers:
            process.join()
        signal.signal(signal.SIGTERM, before)


def _work(build: Callable[[], Service], bound: socket.socket, pipe: Connection) -> None:
    """A worker, from its start to its end."""

    async def serve() -> None:
        server = Server(service, lambda: pipe.send(None))
        loop = asyncio.get_running_loop()

        def stop() -> None:  # the other end is closed
            loop.remove_reader(pipe.fileno())
            if server._stop is None:  # Ctrl-C reaches all processes
                server.handle_exit(signal.SIGTERM, None)

        loop.add_reader(pipe.fileno(), stop)
        await server.serve([bound])

    service = build()
    _allow_files(service.limits)
    sys.setswitchinterval(_SWITCH)
    asyncio.run(serve())


def _address_line(host: str, bound: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"serving on http://{shown}:{bound.getsockname()[1]} (stop with Ctrl-C)"


def _allow_files(limits: Limits) -> None:
    """Each connection is an open file; many systems allow 1024 until they are asked."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = limits.max_connections + 256
    if soft != resource.RLIM_INFINITY and soft < want:
        most = want if hard == resource.RLIM_INFINITY else min(want, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
