"""uvicorn with deadlines and connection limits, signals, and the graceful stop."""

import asyncio
import logging
import multiprocessing
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from roughformer.errors import InputError
from roughformer.serve.app import create_app
from roughformer.serve.config import Limits
from roughformer.serve.handover import Mailbox, hand_over, is_for_any
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
_MAX_LINE = 8192  # bytes of a request until its first line ends
_NOBODY = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-length: 46\r\n"
    b"content-type: application/json\r\nconnection: close\r\n\r\n"
    b'{"error":"the process of streams is starting"}'
)
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
        self.streams_at: Path | None = None  # mailbox of the process with the streams, if not this

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
    _begun = b""  # what came of a request whose first line is not complete
    handed_over = b""  # what another process has read of this connection

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
        if self.handed_over:
            self.data_received(self.handed_over)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._clear_deadline()
        self.config.count_out(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a head, not for ever; or let another process go on."""
        if self.config.streams_at is not None and self._at_beginning():
            data = self._begun = self._begun + data
            line, ended, _ = data.partition(b"\n")
            if not ended and len(data) < _MAX_LINE:
                self._unset_keepalive_if_required()
                if not self._in_head:
                    self._set_deadline(_HEAD_SECONDS)
                    self._in_head = True
                return
            self._begun = b""
            if ended and not is_for_any(line):
                self._hand_over(data, self.config.streams_at)
                return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None:
            if not self._in_head:  # one deadline for the whole head, not for each part
                self._set_deadline(_HEAD_SECONDS)
                self._in_head = True
        elif self.conn.their_state is not h11.SEND_BODY or self.conn.our_state is not h11.DONE:
            self._clear_deadline()  # nothing is being thrown away

    def _at_beginning(self) -> bool:
        """Whether what comes next is the beginning of a request."""
        return self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

    def _hand_over(self, data: bytes, to: Path) -> None:
        try:
            hand_over(self.transport.get_extra_info("socket"), data, to)
        except OSError:  # that process is starting
            self.transport.write(_NOBODY)
            self.transport.close()
        else:
            self.transport.abort()  # closes this end only

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

    def __init__(
        self,
        service: Service,
        ready: Callable[[], object] | None = None,
        mailbox: Path | None = None,
    ) -> None:
        """``ready`` is called when connections are accepted. ``mailbox``: of the process that keeps
        the streams, if there are several.
        """
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
        self._ready, self._path = ready, mailbox
        self._mailbox: Mailbox | None = None
        if not service.options.keeps_streams:
            config.streams_at = mailbox
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
        if self._path is not None and self.service.options.keeps_streams:
            self._mailbox = Mailbox(self._path, self._go_on)
        if self._ready is not None:
            self._ready()

    def _go_on(self, data: bytes) -> _HTTPProtocol:
        """The protocol of a connection of which another process has read ``data``."""
        protocol = _HTTPProtocol(self.config, self.server_state, self.lifespan.state)
        protocol.handed_over = data
        return protocol

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
            if self._mailbox is not None:
                self._mailbox.close()
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
    build: Callable[[bool], Service], n: int, host: str, port: int, say: Callable[[str], None]
) -> None:
    """Serve by ``n`` processes that accept from one socket, until a signal comes.

    ``build(keeps_streams)`` makes the service in each of them; the first one keeps the streams. A
    process that dies is replaced; all of them stop
    in order when this one does, however it ends: they hold the other ends of its pipes.
    """
    bound, context = listen(host, port), multiprocessing.get_context("spawn")
    folder = tempfile.TemporaryDirectory(prefix="roughformer-")  # for this user only
    mailbox = Path(folder.name) / "streams" if hasattr(socket, "send_fds") else None

    def start(k: int) -> tuple[Any, Connection]:
        ours, theirs = context.Pipe()
        arguments = (partial(build, k == 0), bound, theirs, mailbox)
        process = context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def interrupt(*signal_and_frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    workers, ready = [start(k) for k in range(n)], set()
    try:
        for process, pipe in workers:
            pipe.recv()
            ready.add(process.pid)
        say(_address_line(host, bound))
        while True:
            ended = wait([process.sentinel for process, _ in workers])
            for k, (process, pipe) in enumerate(workers):
                if process.sentinel in ended:
                    process.join()  # for its exit code, and to leave no zombie
                    log.error("a worker ended (%s); another takes over", process.exitcode)
                    pipe.close()
                    workers[k] = start(k)
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
        folder.cleanup()
        signal.signal(signal.SIGTERM, before)


def _work(
    build: Callable[[], Service], bound: socket.socket, pipe: Connection, mailbox: Path | None
) -> None:
    """A worker, from its start to its end."""

    async def serve() -> None:
        server = Server(service, lambda: pipe.send(None), mailbox)
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
