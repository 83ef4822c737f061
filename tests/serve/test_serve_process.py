"""The command as a process: killed, restarted, stopped, with a token."""

import json
import os
import signal
import socket as sockets
import subprocess
import sys
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
from test_serve_streams import agrees
from wards import recording

from serving import Socket, read_all, wait_for

TOKEN = "a-token.of_the~tests"
GOOD = {"series": [{"times": [0.0, 1.0], "values": [[1, 2], [None, 3]]}]}


class Process:
    """``roughformer serve`` on a free port."""

    def __init__(self, run, *options, **environment):
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from roughformer.cli import main; main()", "serve", str(run),
             "--port", "0", "--threads", "1", *options],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )  # fmt: skip
        self.said = []
        for line in self.process.stderr:
            self.said.append(line)
            if "serving on" in line:
                break
        self.port = int(line.split("http://127.0.0.1:")[1].split()[0])
        self.headers = {"Authorization": f"Bearer {TOKEN}"}
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", timeout=30, headers=self.headers
        )
        assert self.is_ready()  # the address is told when it can be used

    def is_ready(self):
        try:
            return self.http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def socket(self, path):
        address = f"ws://127.0.0.1:{self.port}{path}"
        return Socket(address, additional_headers=self.headers)

    def end(self, sig):
        self.process.send_signal(sig)
        self.said += self.process.communicate(timeout=20)[1].splitlines()
        self.http.close()
        return self.process.returncode


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "snapshots"


def test_killed_restarted_stopped(model, directory):
    times, values = recording(77, 80)
    options = ("--snapshot-dir", str(directory), "--snapshot-seconds", "0.2")
    with_token = {"ROUGHFORMER_TOKEN": TOKEN}
    process = Process(model.directory, *options, **with_token)
    assert httpx.get(f"http://127.0.0.1:{process.port}/v1/model").status_code == 401
    process.http.post("/v1/streams", json={"id": "bed"})
    with process.socket("/v1/streams/bed") as socket:
        socket.receive()
        before, _ = socket.push(times[:30], values[:30])
        wait_for(lambda: any(directory.glob("bed.*.stream")))
        written = next(directory.glob("bed.*.stream")).stat().st_mtime_ns
        more, _ = socket.push(times[30:40], values[30:40])
        wait_for(lambda: next(directory.glob("bed.*.stream")).stat().st_mtime_ns > written)
        lost, ack = socket.push(times[40:50], values[40:50])
        assert ack["accepted"] == 50
        assert process.end(signal.SIGKILL) == -signal.SIGKILL
    (directory / "other.00000000.stream").write_bytes(b"damaged")

    process = Process(model.directory, *options, **with_token)
    with process.socket("/v1/streams/bed") as socket:
        hello = socket.receive()
        at = hello["accepted"]
        assert at in (40, 50)  # what was pushed after the last snapshot may be lost
        assert hello["last_time"] == times[at - 1]
        rest, _ = socket.push(times[at:], values[at:])
    kept = before + more + (lost if at == 50 else [])
    agrees(kept + rest, model, times, values)
    assert not (directory / "other.00000000.stream").exists()
    assert (directory / "other.00000000.stream.damaged").read_bytes() == b"damaged"

    # A request that has begun is finished, new ones are refused, and the end is a good one.
    body = json.dumps(GOOD).encode()
    head = (
        f"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    with sockets.create_connection(("127.0.0.1", process.port), timeout=20) as begun:
        begun.sendall(head + body[:10])
        time.sleep(0.3)
        process.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        wait_for(lambda: process.http.get("/readyz").status_code == 503)
        refused = process.http.post("/v1/predict", json=GOOD)
        assert refused.status_code == 503
        assert "stopping" in refused.json()["error"]["message"]
        begun.sendall(body[10:])
        assert b" 200 " in read_all(begun)
    assert process.process.wait(10) == 0
    assert time.monotonic() - began < 10
    said = "".join(process.said) + process.process.stderr.read()
    assert "Traceback" not in said
    assert "cannot be restored" in said
    # What was pushed last is in the last snapshot.
    assert np.isclose(times[-1], _last_time(model, directory))


def _last_time(model, directory):
    from roughformer.serve.snapshotter import unpack
    from roughformer.stream import StreamBatch

    streams = StreamBatch(model.predictor, 1)
    streams.restore([0], unpack(next(directory.glob("bed.*.stream")).read_bytes()).blob)
    return streams.last_time([0])[0]


def test_workers_share_a_socket_are_replaced_and_stop_in_order(model):
    process = Process(model.directory, "--workers", "2", "--access-log")
    try:
        assert "they live in one process" in "".join(process.said)
        assert process.http.post("/v1/streams", json={}).status_code == 409
        children = Path(f"/proc/{process.process.pid}/task/{process.process.pid}/children")

        def workers():
            lines = (Path(f"/proc/{pid}/cmdline") for pid in children.read_text().split())
            return {line.parent.name for line in lines if b"spawn_main" in line.read_bytes()}

        first = workers()
        assert len(first) == 2
        answers = set()
        for _ in range(12):  # a connection each
            answers.add(httpx.post(f"{process.http.base_url}/v1/predict", json=GOOD).text)
        assert len(answers) == 1
        victim = first.pop()
        os.kill(int(victim), signal.SIGKILL)
        wait_for(lambda: len(workers() - {victim}) == 2, 30)
        wait_for(process.is_ready)
    finally:
        assert process.end(signal.SIGTERM) == 0
    assert not [pid for pid in first if Path(f"/proc/{pid}").exists()]
