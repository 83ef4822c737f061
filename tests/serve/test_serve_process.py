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

from serving import Socket, plain, read_all, wait_for

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
    from roughformer.serve.streams import unpack
    from roughformer.stream import StreamBatch

    streams = StreamBatch(model.predictor, 1)
    streams.restore([0], unpack(next(directory.glob("bed.*.stream")).read_bytes()).blob)
    return streams.last_time([0])[0]


def test_workers_share_a_socket_and_one_keeps_the_streams(model, directory):
    times, values = recording(78, 80)
    options = ("--snapshot-dir", str(directory), "--snapshot-seconds", "0.2")
    process = Process(model.directory, "--workers", "3", *options)
    url = process.http.base_url
    children = Path(f"/proc/{process.process.pid}/task/{process.process.pid}/children")

    def workers():
        return {pid for pid in children.read_text().split() if is_worker(pid)}

    def is_worker(pid):
        try:
            return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:  # it has just ended
            return False

    def accepted():
        answer = httpx.get(f"{url}/v1/streams/bed", timeout=20)  # a connection each
        return answer.json().get("accepted") if answer.status_code == 200 else None

    try:
        first = workers()
        assert len(first) == 3
        # Connections that have begun with whole series go on with streams, and the other way.
        clients = [httpx.Client(base_url=url, timeout=20) for _ in range(6)]
        answers = {client.post("/v1/predict", json=GOOD).text for client in clients}
        assert len(answers) == 1
        assert clients[0].post("/v1/streams", json={"id": "bed"}).status_code == 201
        events = []
        for k, client in enumerate(clients):
            rows = slice(8 * k, 8 * k + 8)
            body = {"times": plain(times[rows]), "values": plain(values[rows])}
            events += client.post("/v1/streams/bed/push", json=body).json()["events"]
            assert client.post("/v1/predict", json=GOOD).text in answers
            assert accepted() == 8 * k + 8
        for _ in range(4):
            with process.socket("/v1/streams/bed") as socket:
                at = socket.receive()["accepted"]
                rows = slice(at, at + 8)
                more, _ = socket.push(times[rows], values[rows])
                events += more
        agrees(events, model, times, values)
        # A request whose first line comes in pieces.
        for _ in range(4):
            with sockets.create_connection(("127.0.0.1", process.port), timeout=20) as slow:
                for part in (b"GE", b"T /v1/str", b"eams/bed HTTP/1.1\r\nHost: local", b"host\r\n"):
                    slow.sendall(part)
                    time.sleep(0.05)
                slow.sendall(b"Connection: close\r\n\r\n")
                assert b'"accepted":80' in read_all(slow)
        for victim in sorted(first, key=int):  # the one with the streams, too
            time.sleep(0.5)
            alive = workers()
            os.kill(int(victim), signal.SIGKILL)
            wait_for(lambda old=alive, one=victim: len(workers() - {one}) == len(old), 30)
            wait_for(lambda: accepted() == 80, 30)
    finally:
        assert process.end(signal.SIGTERM) == 0
    assert not [pid for pid in first if Path(f"/proc/{pid}").exists()]
