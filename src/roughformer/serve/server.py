"""From options to a running process: uvicorn, signals, the graceful stop."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable

import uvicorn

from roughformer.errors import InputError
from roughformer.serve.app import create_app
from roughformer.serve.limits import Limits
from roughformer.serve.protocols import Http, Sockets
from roughformer.serve.service import Service

__all__ = ["Server", "listen", "run"]

log = logging.getLogger("roughformer.serve")
# Seconds after which a thread lets another one have the interpreter. The model's thread gives it
# away with each operation of torch; with Python's 5 ms it would wait longer than it works when
# requests rush in.
_SWITCH = 2e-4
_SEEN = 0.3  # seconds in which others can see that the service is not ready any more
_LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "loggers": {
        "roughformer.serve": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "uvicorn.error": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
    },
}


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0: any that is free."""
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
    """Stops in order: refuse new work, finish what was accepted, close, save, end with 0."""

    def __init__(self, service: Service, ready: Callable[[], object] | None = None) -> None:
        """Not started; ``ready`` is called when connections are accepted."""
        limits = service.limits
        config = uvicorn.Config(
            create_app(service),
            http=type("Http", (Http,), {"limits": limits}),
            ws=Sockets,
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
        """Of a signal: the second one ends at once."""
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
        """Tell when it is done; unlike uvicorn's, a failure is an error like others."""
        try:
            await super().startup(sockets)
        except SystemExit:
            raise InputError("the service could not start; the reason is above") from None
        if self._ready is not None:
            self._ready()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Until a signal; unlike uvicorn's, the process then ends well."""
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
    shown = f"[{host}]" if ":" in host else host
    line = f"serving on http://{shown}:{bound.getsockname()[1]} (stop with Ctrl-C)"
    asyncio.run(Server(service, lambda: say(line)).serve([bound]))


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
