"""What is too much, too slow or too many is refused at once, and costs the others nothing."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from roughformer.serve.config import Limits, StreamOptions
from serving import read_all, running, wait_for
from small import make

GOOD = {"times": [0.0, 1.0], "values": [[1, 2], [None, 3]]}
HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_a_body_that_says_it_is_too_large_is_not_read(server):
    with server.raw() as connection:
        connection.sendall(HEAD + b"Content-Length: 400001\r\n\r\n")
        answer = read_all(connection)
    assert b" 413 " in answer
    assert b"a body may have 400000 bytes, got 400001" in answer


def test_a_body_in_chunks_is_read_up_to_the_limit_only(server):
    with server.raw() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
        with suppress(OSError):  # the server stops listening at some point
            for _ in range(400):
                connection.sendall(chunk)
        connection.settimeout(10)
        answer = b""
        with suppress(OSError):
            answer = read_all(connection)
    assert b" 413 " in answer
    assert server.http.get("/healthz").status_code == 200


def test_a_client_gets_to_read_why_its_large_body_was_refused(server):
    answer = server.http.post("/v1/predict", content=b" " * 3_000_000)
    assert answer.status_code == 413


def test_a_connection_lives_on_after_a_refused_body_if_that_was_sent_to_its_end(
    server, monkeypatch
):
    monkeypatch.setattr("roughformer.serve.server._LINGER_SECONDS", 0.3)
    body = json.dumps({"series": [GOOD]}).encode()
    good = HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    with server.raw() as connection:
        for _ in range(2):
            connection.sendall(HEAD + b"Content-Length: 500000\r\n\r\n" + b" " * 500_000)
            assert b" 413 " in read_all(connection)
            time.sleep(0.5)
            connection.sendall(good)
            assert b" 200 " in read_all(connection)
        connection.sendall(HEAD + b"Content-Length: 500000\r\n\r\n" + b" " * 1000)
        assert b" 413 " in read_all(connection)
        assert connection.recv(10) == b""  # the rest did not come: closed


def test_a_body_that_does_not_come_is_given_up(server):
    with server.raw() as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        began = time.monotonic()
        answer = read_all(connection)
        assert b" 408 " in answer
        assert b"did not arrive within 1 s (1 bytes did)" in answer
        assert connection.recv(10) == b""  # and the connection is closed
        assert time.monotonic() - began < 9


def test_a_body_that_comes_in_time_is_taken_however_it_is_cut(server):
    body = json.dumps({"series": [GOOD]}).encode()
    with server.raw() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for byte in body:
            connection.sendall(b"1\r\n" + bytes([byte]) + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        assert b" 200 " in read_all(connection)


def test_a_client_that_goes_in_the_middle_leaves_nothing_behind(server):
    for _ in range(5):
        with server.raw() as connection:
            connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
    wait_for(lambda: server.service.open_requests == 0)
    assert server.predict([GOOD]).status_code == 200


def test_a_full_queue_is_told_at_once_and_what_was_accepted_is_answered(model):
    with running(model.predictor, limits=Limits(queue=4)) as server, ThreadPoolExecutor(4) as pool:
        gate = server.block()
        accepted = [pool.submit(server.predict, [GOOD]) for _ in range(4)]
        wait_for(lambda: server.service.worker.n_waiting == 4)
        for _ in range(3):
            refused = server.predict([GOOD])
            assert refused.status_code == 503
            assert refused.headers["Retry-After"] == "1"
            assert "4 requests are waiting" in refused.json()["error"]["message"]
        assert not any(future.done() for future in accepted)
        assert server.metric("roughformer_shed_total") == 3
        assert server.metric("roughformer_queue_length") == 4
        gate.set()
        assert [future.result().status_code for future in accepted] == [200] * 4
        assert server.predict([GOOD]).status_code == 200


def test_the_bodies_of_all_requests_together_are_bounded(model):
    limits = Limits(max_bodies=1000)
    with running(model.predictor, limits=limits) as server, server.raw() as slow:
        slow.sendall(HEAD + b"Content-Length: 990\r\n\r\n" + b" " * 980)
        wait_for(lambda: server.service.body_bytes == 980)
        refused = server.predict([GOOD])
        assert refused.status_code == 503
        assert "all requests" in refused.json()["error"]["message"]
        slow.sendall(b" " * 10)
        assert b" 400 " in read_all(slow)
        wait_for(lambda: server.service.body_bytes == 0)
        assert server.predict([GOOD]).status_code == 200


def test_a_request_that_waits_too_long_is_answered_and_not_computed(model):
    with running(model.predictor, limits=Limits(request_seconds=0.2)) as server:
        gate = server.block()
        late = server.predict([GOOD])
        assert late.status_code == 503
        assert "no answer within 0.2 s" in late.json()["error"]["message"]
        gate.set()
        wait_for(lambda: server.service.worker.idle)
        assert server.metric("roughformer_series_total") == 0


def test_too_many_streams_are_refused_until_one_is_deleted(model):
    limits = Limits(max_streams=3)
    with running(model.predictor, limits=limits) as server:
        names = [server.http.post("/v1/streams").json()["id"] for _ in range(3)]
        assert len(set(names)) == 3
        refused = server.http.post("/v1/streams", json={"id": "more"})
        assert refused.status_code == 429
        assert "Retry-After" in refused.headers
        with server.socket("/v1/streams") as socket:
            socket.receive()
            socket.send(type="open", ids=["a", "b"])
            assert socket.receive()["status"] == 429
        assert server.http.delete(f"/v1/streams/{names[0]}").status_code == 204
        assert server.http.post("/v1/streams", json={"id": "more"}).status_code == 201


def test_idle_streams_expire_but_not_those_that_somebody_listens_to(model):
    with running(model.predictor, idle_seconds=0.4) as server:
        for name in ("idle", "heard"):
            server.http.post("/v1/streams", json={"id": name})
        with server.socket("/v1/streams/heard") as socket:
            wait_for(lambda: "idle" not in server.service.streams.entries)
            time.sleep(0.6)
            assert "heard" in server.service.streams.entries
            assert socket.receive()["type"] == "hello"
        wait_for(lambda: not server.service.streams.entries)
        assert server.http.get("/v1/streams/heard").status_code == 404
        assert server.metric("roughformer_expired_total") == 2


def test_there_are_more_streams_than_slots_at_the_start(model):
    with running(model.predictor, limits=Limits(max_streams=300)) as server:
        with server.socket("/v1/streams") as socket:
            socket.receive()
            socket.send(type="open", ids=[f"s{k}" for k in range(150)])
            assert len(socket.receive()["streams"]) == 150
            _, ack = socket.push_to("s0", [0.0, 1.0], [[1, 2], [3, 4]])
            assert ack["accepted"] == 2
            socket.send(type="open", ids=[f"t{k}" for k in range(150)])
            socket.receive()
            _, ack = socket.push_to("s0", [2.5], [[1, 2]])
            assert ack["accepted"] == 3
        assert len(server.service.streams.entries) == 300


def all_of(socket):
    """Read what is on its way until the other side has closed."""
    with suppress(ConnectionClosed):
        while True:
            socket.raw.recv(timeout=10)
    return socket.raw.close_code


def test_a_listener_that_does_not_read_is_cut_off_and_costs_the_others_nothing(server, name):
    path, broadcaster = f"/v1/streams/{name}", server.service.broadcaster
    window = {"id": name, "time": 0.0, "window": 0, "prediction": {"label": "x" * 2000}}
    with server.deaf(path) as slow, server.socket(path) as quick:
        assert quick.receive()["type"] == "hello"
        wait_for(lambda: len(broadcaster.queues) == 2)
        for _ in range(1000):
            server.loop.call_soon_threadsafe(broadcaster.publish, [window])
            assert quick.receive()["type"] == "window"
            if any(box.closing for box in broadcaster.queues):
                break
        assert all_of(slow) == 1013
        _, ack = quick.push([0.0], [[1, 2]])
        assert ack["accepted"] == 1


def test_one_who_sends_but_does_not_read_is_heard_no_more(server, name, monkeypatch):
    monkeypatch.setattr("roughformer.serve.broadcast._PATIENCE", 2.0)
    with server.deaf(f"/v1/streams/{name}") as deaf:
        with suppress(ConnectionClosed):
            for _ in range(3000):
                deaf.send(type="state")
                if any(box.closing for box in server.service.broadcaster.queues):
                    break
        wait_for(lambda: any(box.closing for box in server.service.broadcaster.queues))
        assert all_of(deaf) == 1013


def test_a_message_that_is_too_large_closes_the_socket_with_1009(server, name):
    with server.socket(f"/v1/streams/{name}") as socket:
        socket.receive()
        socket.raw.send(" " * 300_001)
        with pytest.raises(Exception, match="1009"):
            socket.receive()


def test_a_model_that_is_not_causal_has_streams_over_a_span_only(model):
    import numpy as np

    import roughformer as rf

    options = {"windows": 4, "depth": 1, "clock": 0, "spectrum": None, "d_model": 8, "n_heads": 2}
    plain = make(rf.RFormerRegressor, **options, epochs=1, random_state=0, n_jobs=1)
    plain.fit(model.batch, np.arange(24.0))
    with running(plain.predictor_) as server:
        refused = server.http.post("/v1/streams", json={})
        assert refused.status_code == 409
        assert "span" in refused.json()["error"]["message"]
        assert server.predict([GOOD]).json()["predictions"][0].keys() == {"point"}
    streams = StreamOptions(span=8.0, every=2.0)
    with running(plain.predictor_, streams=streams) as server:
        name = server.http.post("/v1/streams", json={}).json()["id"]
        body = {"times": [0.0, 1.0, 4.5], "values": [[1, 2], [2, 3], [0, 1]]}
        events = server.http.post(f"/v1/streams/{name}/push", json=body).json()["events"]
        assert [event["time"] for event in events] == [2.0, 4.0] or len(events) >= 2


def test_the_whole_head_of_a_request_has_one_deadline(model, monkeypatch):
    monkeypatch.setattr("roughformer.serve.server._HEAD_SECONDS", 0.4)
    with running(model.predictor) as server:
        for first in (b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            with server.raw() as connection:
                if first:  # the head of the second request on a connection
                    connection.sendall(first)
                    read_all(connection)
                gone, sent = False, 0
                with suppress(OSError):
                    for byte in b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 100:
                        connection.sendall(bytes([byte]))
                        sent += 1
                        time.sleep(0.05)
                gone = sent < 100
                assert gone


def test_slow_heads_of_one_client_starve_nobody(model, monkeypatch):
    monkeypatch.setattr("roughformer.serve.server._MAX_CROWDED", 4)
    limits = Limits(max_connections=40, max_per_client=20)
    with running(model.predictor, limits=limits) as server:
        slow = [server.raw() for _ in range(60)]
        for connection in slow:
            with suppress(OSError):  # some of them are closed already
                connection.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        wait_for(lambda: len(server.server.server_state.connections) <= 24)
        for _ in range(3):
            assert httpx.get(f"http://127.0.0.1:{server.port}/healthz").status_code == 200
            assert httpx.get(f"http://127.0.0.1:{server.port}/readyz").status_code == 200
            refused = httpx.get(f"http://127.0.0.1:{server.port}/v1/model")
            assert refused.status_code == 503
            assert "max_per_client = 20 of one address" in refused.json()["error"]["message"]
        with pytest.raises(InvalidStatus), server.socket("/v1/streams"):
            pass
        for connection in slow:
            connection.close()
        wait_for(lambda: len(server.server.server_state.connections) == 0)
        assert server.predict([GOOD]).status_code == 200


def test_connections_are_counted_in_and_out(model):
    # A count for each new connection of all the others took seconds where there were thousands.
    with running(model.predictor) as server:
        server.http.post("/v1/streams", json={"id": "one"})
        clients = server.server.config.n_connections
        with server.raw(), server.socket("/v1/streams/one") as socket:
            socket.until("hello")
            wait_for(lambda: clients["127.0.0.1"] == 3)
        wait_for(lambda: clients["127.0.0.1"] == 1)
        assert len(server.server.server_state.connections) == 1
