"""The second process of ``streaming.py``: starts the service, sends rows in real time, listens.

python benchmarks/_stream_client.py DIRECTORY_OF_A_MODEL STREAMS SECONDS
"""

import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import websockets

RATE, PER_TICK = 125.0, 5  # observations a second of a stream, and of one message
WARM_UP = 2.0  # seconds that are not counted


def start(place: str) -> tuple[subprocess.Popen[str], str]:
    command = [str(Path(sys.executable).with_name("roughformer")), "serve", place, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(r"http://([\d.]+:\d+)", line)
        if found:
            return process, found.group(1)
    raise SystemExit("the service did not start")


def wait_for(address: str) -> None:
    for _ in range(200):
        try:
            with urllib.request.urlopen(f"http://{address}/readyz", timeout=1) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("the service is not ready")


def message(names: pa.Array, channels: list[str], times: np.ndarray, x: np.ndarray) -> bytes:
    columns = [names, pa.array(times), *(pa.array(x[:, c]) for c in range(x.shape[1]))]
    batch = pa.record_batch(columns, names=["stream", "time", *channels])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


async def measure(address: str, n: int, seconds: float) -> dict[str, Any]:
    async with websockets.connect(f"ws://{address}/v1/streams", max_size=2**26) as socket:
        hello = json.loads(await socket.recv())
        ids = [f"s{i}" for i in range(n)]
        await socket.send(json.dumps({"type": "open", "ids": ids}))
        assert json.loads(await socket.recv())["type"] == "opened"
        rng = np.random.default_rng(0)
        phase, who = rng.random(n), np.repeat(np.arange(n), PER_TICK)
        names = pa.array(ids).dictionary_encode().take(pa.array(who))
        noise = rng.normal(size=(16, n * PER_TICK, 2))
        ticks = int((seconds + WARM_UP) * RATE / PER_TICK)
        begin = time.perf_counter()
        late, behind, count, acks = [], [], 0, 0

        async def send() -> None:
            for k in range(ticks):
                due = begin + (k + 1) * PER_TICK / RATE  # when its last row has been seen
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                behind.append(time.perf_counter() - due)
                t = (k * PER_TICK + np.arange(PER_TICK)) / RATE
                rows = message(names, hello["channels"], np.tile(t, n) + phase[who], noise[k % 16])
                await socket.send(rows)

        async def listen() -> None:
            nonlocal count, acks
            while acks < ticks:
                told = json.loads(await asyncio.wait_for(socket.recv(), 30))
                now = time.perf_counter() - begin
                if told["type"] == "ack":
                    acks += 1
                elif told["type"] == "windows":
                    for event in told["events"]:
                        # The first row at or after the end; it went with its tick.
                        own = event["time"] - phase[int(event["id"][1:])]
                        row = np.ceil(own * RATE - 1e-6)
                        due = (row // PER_TICK + 1) * PER_TICK / RATE
                        if due > WARM_UP:
                            late.append(now - due)
                            count += 1
                else:
                    raise SystemExit(json.dumps(told))

        await asyncio.gather(send(), listen())
        spent = time.perf_counter() - begin
    return {
        "streams": n, "rows_a_second": n * RATE, "seconds": seconds,
        "took_longer_by_s": spent - ticks * PER_TICK / RATE, "predictions": count,
        "p50_ms": 1e3 * float(np.median(late)), "p99_ms": 1e3 * float(np.quantile(late, 0.99)),
        "client_behind_p99_ms": 1e3 * float(np.quantile(behind, 0.99)),
    }  # fmt: skip


def main() -> None:
    place, n, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    process, address = start(place)
    try:
        wait_for(address)
        print(json.dumps(asyncio.run(measure(address, n, seconds))))
    finally:
        process.terminate()
        process.wait(15)


if __name__ == "__main__":
    main()
