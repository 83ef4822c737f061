"""Services of the page's models in threads of the tests' process."""

import asyncio
import threading
import time
from contextlib import contextmanager

import httpx

from roughformer.serve import Options, Service
from roughformer.serve.config import Limits
from roughformer.serve.model import ServedForecaster, ServedModel
from roughformer.serve.server import Server, listen


class Served:
    """A running service: its address, a client, and the objects behind it."""

    def __init__(self, predictor, port=0, **options):
        served = isinstance(predictor, ServedForecaster)
        model = predictor if served else ServedModel(predictor)
        self.service = Service(model, Limits(), Options(threads=1, **options))
        self.server = Server(self.service)
        bound = listen("127.0.0.1", port)
        self.port = bound.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.http = httpx.Client(base_url=self.url, timeout=30)
        self.thread = threading.Thread(target=self._run, args=(bound,), daemon=True)
        self.thread.start()
        wait_for(lambda: self.service.ready)

    def _run(self, bound):
        async def main():
            self.loop = asyncio.get_running_loop()
            await self.server.serve([bound])

        asyncio.run(main())

    def streams(self):
        """Ids of the open streams."""
        return set(self.service.streams.entries)

    def accepted(self, name):
        return self.http.get(f"v1/streams/{name}").json()["accepted"]

    def stop(self):
        self.http.close()
        self.loop.call_soon_threadsafe(self.server.handle_exit, 15, None)
        self.thread.join(15)


@contextmanager
def served(predictor, **options):
    running = Served(predictor, **options)
    try:
        yield running
    finally:
        running.stop()


def wait_for(condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)
