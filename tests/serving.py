"""A service in a thread of the tests' process, and clients for it."""

import asyncio
import json
import socket
import threading
import time
from contextlib import contextmanager

import httpx
import pyarrow as pa
from websockets.sync.client import connect

from roughformer.serve import Options, Service
from roughformer.serve.config import Limits
from roughformer.serve.model import ServedForecaster, ServedModel
from roughformer.serve.server import Server, listen


class Running:
    """A server, on a port of its own unless one is given."""

    def __init__(self, predictor, directory=None, limits=None, port=0, **options):
        served = isinstance(predictor, ServedForecaster)
        model = predictor if served else ServedModel(predictor, directory)
        self.service = Service(model, limits or Limits(), Options(threads=1, **options))
        self.server = Server(self.service)
        self.bound = listen("127.0.0.1", port)
        # Small buffers of the system, so that who does not read is noticed soon.
        self.bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768)
        self.port = self.bound.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.loop = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self.http = httpx.Client(base_url=self.url, timeout=30)
        wait_for(lambda: self.service.ready)

    def _run(self):
        async def main():
            self.loop = asyncio.get_running_loop()
            await self.server.serve([self.bound])

        asyncio.run(main())

    def stop(self):
        self.http.close()
        self.loop.call_soon_threadsafe(self.server.handle_exit, 15, None)
        self.thread.join(15)
        assert not self.thread.is_alive()

    def streams(self):
        """Ids of the open streams."""
        return set(self.service.streams.entries)

    def accepted(self, name):
        return self.http.get(f"/v1/streams/{name}").json()["accepted"]

    def block(self):
        """The worker waits until the event that is returned is set."""
        gate, inside = threading.Event(), threading.Event()

        def work():
            inside.set()
            gate.wait(20)

        self.loop.call_soon_threadsafe(self.service.worker.submit, "call", work)
        assert inside.wait(10)
        return gate

    def socket(self, path, **options):
        return Socket(f"ws://127.0.0.1:{self.port}{path}", **options)

    def deaf(self, path):
        """A WebSocket that takes little of what it does not read."""
        plain_socket = socket.socket()
        plain_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        plain_socket.connect(("127.0.0.1", self.port))
        return self.socket(path, max_queue=1, sock=plain_socket)

    def raw(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def predict(self, series, **more):
        return self.http.post("/v1/predict", json={"series": series, **more})

    def metric(self, name):
        text = self.http.get("/metrics").text
        found = [line for line in text.splitlines() if line.startswith(name)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)


@contextmanager
def running(*arguments, **options):
    server = Running(*arguments, **options)
    try:
        yield server
    finally:
        server.stop()


class Socket:
    """A WebSocket that speaks JSON."""

    def __init__(self, address, **options):
        given = {"open_timeout": 20, "close_timeout": 5, "max_size": None}
        self.context = connect(address, **(given | options))

    def __enter__(self):
        self.raw = self.context.__enter__()
        return self

    def __exit__(self, *error):
        self.context.__exit__(*error)

    def send(self, **message):
        self.raw.send(json.dumps(message))

    def receive(self):
        return json.loads(self.raw.recv(timeout=20))

    def until(self, *kinds):
        """Messages up to the first one of these kinds."""
        found = []
        while not found or found[-1]["type"] not in kinds:
            found.append(self.receive())
        return found

    def push(self, times, values, **more):
        """The windows that it ended, and the last answer: ack or error."""
        self.send(type="push", times=plain(times), values=plain(values), **more)
        *windows, last = self.until("ack", "error")
        return windows, last

    def push_to(self, name, times, values):
        """``push`` on the socket of many streams."""
        return self.push(times, values, id=name)


def plain(array):
    """Lists for JSON: NaN is null."""
    if isinstance(array, list) or array.ndim == 1:
        return array if isinstance(array, list) else array.tolist()
    return [[None if x != x else x for x in row] for row in array.tolist()]


def arrow(columns):
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def wait_for(condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)


def read_all(connection):
    """What the server says until it closes or a whole answer with a length is there."""
    data = b""
    while True:
        head, _, body = data.partition(b"\r\n\r\n")
        length = [
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        ]
        if length and b"\r\n\r\n" in data and len(body) >= length[0]:
            return data
        part = connection.recv(65536)
        if not part:
            return data
        data += part
