"""The load of benchmarks/serving.py, a process of its own: reads its orders as JSON from stdin.

    {"port", "bodies": [...], "expected": [[[p, ...]]], "connections", "seconds", "rate" | null}

``rate`` null: closed loop, every connection sends its next request when it has its answer. Else
open loop: requests come at that rate whatever becomes of the ones before, as from many clients.
Prints one JSON object.
"""

import asyncio
import json
import sys
import time

import numpy as np

TOLERANCE = 1e-4


class Connections:
    """Keep-alive connections, opened when all are in use."""

    def __init__(self, port, most):
        self.port, self.most, self.open = port, most, 0
        self.free = []

    async def take(self):
        if self.free:
            return self.free.pop()
        if self.open >= self.most:
            return None
        self.open += 1
        return await asyncio.open_connection("127.0.0.1", self.port)

    def lose(self):
        self.open -= 1


class Load:
    def __init__(self, orders):
        self.orders = orders
        self.connections = Connections(orders["port"], orders["connections"])
        head = "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.requests = [
            f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode() for body in orders["bodies"]
        ]
        self.expected = [np.array(rows) for rows in orders["expected"]]
        self.answers = {}
        self.latency, self.shed_latency = [], []
        self.wrong = self.lost = self.unsent = 0

    async def ask(self, number, due):
        """One request. ``due``: when it came; waiting for a connection counts."""
        k = number % len(self.requests)
        try:
            connection = await self.connections.take()
        except OSError:
            connection = None
            self.connections.lose()
        if connection is None:
            self.unsent += 1
            return
        reader, writer = connection
        try:
            writer.write(self.requests[k])
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length")
            )
            body = await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError):
            self.lost += 1
            self.connections.lose()
            return
        code = int(head.split(b" ", 2)[1])
        self.answers[code] = self.answers.get(code, 0) + 1
        took = time.perf_counter() - due
        if code == 200:
            self.latency.append(took)
            said = json.loads(body)["predictions"]
            rows = np.array([list(p["probabilities"].values()) for p in said])
            right = rows.shape == self.expected[k].shape and np.allclose(
                rows, self.expected[k], atol=TOLERANCE
            )
            self.wrong += not right
        else:
            self.shed_latency.append(took)
        self.connections.free.append(connection)

    async def closed(self):
        until = time.perf_counter() + self.orders["seconds"]

        async def one(first):
            number = first
            while time.perf_counter() < until:
                await self.ask(number, time.perf_counter())
                number += 1

        await asyncio.gather(*(one(7 * k) for k in range(self.orders["connections"])))

    async def open(self):
        rate, seconds = self.orders["rate"], self.orders["seconds"]
        rng = np.random.default_rng(0)
        moments = np.cumsum(rng.exponential(1 / rate, int(2 * rate * seconds) + 10))
        began = time.perf_counter()
        tasks = []
        for number, moment in enumerate(moments[moments < seconds].tolist()):
            wait = began + moment - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            elif number % 16 == 0:
                await asyncio.sleep(0)
            tasks.append(asyncio.create_task(self.ask(number, began + moment)))
        sending = time.perf_counter() - began
        await asyncio.gather(*tasks)
        return sending, len(tasks)


async def main():
    orders = json.load(sys.stdin)
    load = Load(orders)
    began = time.perf_counter()
    sending, asked = None, None
    if orders["rate"] is None:
        await load.closed()
    else:
        sending, asked = await load.open()
    seconds = time.perf_counter() - began
    asked = asked if asked is not None else sum(load.answers.values()) + load.lost + load.unsent
    print(
        json.dumps(
            {
                "asked": asked,
                "offered_per_second": asked / (sending or seconds),
                "seconds": seconds,
                "answers": load.answers,
                "throughput": load.answers.get(200, 0) / seconds,
                "p50": float(np.quantile(load.latency, 0.5)) if load.latency else None,
                "p99": float(np.quantile(load.latency, 0.99)) if load.latency else None,
                "shed_p99": float(np.quantile(load.shed_latency, 0.99))
                if load.shed_latency
                else None,
                "wrong": load.wrong,
                "lost": load.lost,
                "unsent": load.unsent,
            }
        )
    )


asyncio.run(main())
