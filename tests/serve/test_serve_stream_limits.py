"""Snapshots that were made to harm, streams that would grow without end, starts that fail."""

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from wards import WELL

from roughformer.errors import InputError
from roughformer.serve import Options, Service
from roughformer.serve.config import Limits, StreamOptions
from roughformer.serve.model import ServedModel
from roughformer.serve.server import run
from roughformer.serve.streams import unpack
from roughformer.serve.worker import Job, in_turn
from roughformer.stream.engines import CausalStreams
from serving import arrow, running, wait_for


@pytest.mark.parametrize(
    ("about", "status"),
    [
        ('{"name": "x", "alarms": [{"alarm": "%s", "active": true, "since": %s}]}', 200),
        ("[" * 100_000, 400),
        ('{"name": "x", "alarms": [[1]]}', 400),
    ],
)
def test_a_snapshot_that_was_made_to_harm_does_none(server, name, about, status):
    server.http.post(f"/v1/streams/{name}/push", json={"times": [0.0], "values": [[1, 2]]})
    blob = unpack(server.http.get(f"/v1/streams/{name}/snapshot").content).blob
    line = about % (WELL, "9" * 400) if "%s" in about else about
    rest = line.encode() + b"\n" + blob
    head = f"roughformer stream 1 {hashlib.sha256(rest).hexdigest()}\n".encode()
    answer = server.http.put(f"/v1/streams/{name}/snapshot", content=head + rest)
    assert answer.status_code == status
    assert server.http.get(f"/v1/streams/{name}").json()["accepted"] == 1


def test_a_stream_that_would_hold_too_much_is_told_so_in_words_for_clients(model):
    options = StreamOptions(span=32.0, every=16.0)
    n = 70_000
    body = {"times": (np.arange(n) / 1e4).tolist(), "values": [[1, 2]] * n}
    with running(model.predictor, streams=options) as server:
        server.http.post("/v1/streams", json={"id": "s"})
        answer = server.http.post("/v1/streams/s/push", json=body)
        assert answer.status_code == 400
        assert "a stream would hold more observations" in answer.json()["error"]["message"]
        assert server.http.get("/v1/streams/s").json()["accepted"] == 0


def test_a_directory_among_the_snapshots_is_left_alone(model, tmp_path):
    (tmp_path / "other.stream").mkdir()
    with running(model.predictor, snapshot_dir=tmp_path) as server:
        assert server.http.get("/readyz").status_code == 200
    assert (tmp_path / "other.stream").is_dir()


def test_a_service_that_cannot_start_says_so_and_tells_no_address(model, monkeypatch):
    service = Service(ServedModel(model.predictor), Limits(), Options())

    async def fail():
        raise OSError("no")

    monkeypatch.setattr(service, "start", fail)
    said = []
    # In a thread: the tests of the page leave an event loop in this one.
    with ThreadPoolExecutor(1) as other, pytest.raises(InputError, match="could not start"):
        other.submit(run, service, "127.0.0.1", 0, said.append).result()
    assert said == []


def names(server, *wanted):
    for name in wanted:
        assert server.http.post("/v1/streams", json={"id": name}).status_code == 201
    return wanted


def push(server, name, *times):
    body = {"times": list(times), "values": [[1, 2]] * len(times)}
    return server.http.post(f"/v1/streams/{name}/push", json=body)


def accepted(server, name):
    return server.http.get(f"/v1/streams/{name}").json()["accepted"]


def test_an_error_reaches_the_stream_that_caused_it_and_no_other(model, monkeypatch):
    said = CausalStreams._forward

    def fail(self, slots, *rest, **more):
        found = said(self, slots, *rest, **more)
        if bad in slots:
            raise RuntimeError("a bug")
        return found

    monkeypatch.setattr(CausalStreams, "_forward", fail)
    with running(model.predictor) as server, ThreadPoolExecutor(5) as pool:
        all_names = names(server, "a", "b", "bad", "c", "d")
        bad = server.service.streams.entries["bad"].slot
        for name in all_names:
            assert push(server, name, 0.0).status_code == 200
        gate = server.block()  # all five are taken in one round
        asked = {name: pool.submit(push, server, name, 3.0, 5.0) for name in all_names}
        wait_for(lambda: server.service.worker.n_waiting == 5)
        gate.set()
        codes = {name: future.result().status_code for name, future in asked.items()}
        assert codes == {"a": 200, "b": 200, "bad": 500, "c": 200, "d": 200}
        counts = {name: accepted(server, name) for name in all_names}
        assert counts == {"a": 3, "b": 3, "bad": 1, "c": 3, "d": 3}


def test_a_push_is_answered_by_what_happened_however_long_it_takes(model, monkeypatch):
    said = CausalStreams._forward

    def slow(self, *rest, **more):
        time.sleep(0.6)
        return said(self, *rest, **more)

    with running(model.predictor, limits=Limits(request_seconds=0.3)) as server:
        names(server, "s")
        push(server, "s", 0.0)
        monkeypatch.setattr(CausalStreams, "_forward", slow)
        answer = push(server, "s", 3.0)
        assert answer.status_code == 200
        assert answer.json()["accepted"] == accepted(server, "s") == 2
        gate = server.block()  # it is not begun in time: 503, and nothing is applied
        assert push(server, "s", 6.0).status_code == 503
        gate.set()
        wait_for(lambda: server.service.worker.idle)
        assert accepted(server, "s") == 2


def test_the_work_of_one_message_is_bounded_over_all_its_streams(model):
    limits = Limits(max_ended=100)
    with running(model.predictor, limits=limits) as server:
        wanted = names(server, *(f"s{k}" for k in range(4)))
        with server.socket("/v1/streams") as socket:
            socket.receive()
            for times, kind in (([0.0], "ack"), ([80.0], "error"), ([40.0], "ack")):
                rows = {"stream": wanted, "time": times * 4, "hr": [1.0] * 4, "spo2": [2.0] * 4}
                socket.raw.send(arrow(rows))
                told = socket.until("ack", "error")[-1]
                assert told["type"] == kind
                if kind == "error":
                    assert told["status"] == 400
                    assert "this ends 160 windows" in told["message"]
                    assert "max_ended = 100 is the limit" in told["message"]
        assert [accepted(server, name) for name in wanted] == [2] * 4


def test_with_a_span_a_long_silence_is_no_work(model):
    options = StreamOptions(span=8.0, every=1.0)
    with running(model.predictor, limits=Limits(max_runs=20), streams=options) as server:
        names(server, "s")
        assert push(server, "s", 0.0, 900.0).status_code == 200
        refused = push(server, "s", *(900.0 + 7.5 * k for k in range(1, 4)))
        assert "max_runs = 20 is the limit" in refused.json()["error"]["message"]


def test_clients_take_turns_and_so_do_the_connections_of_one():
    came = [("a", 1), ("a", 1), ("a", 1), ("a", 2), ("b", 7), ("a", 2), ("b", 8), ("b", 7)]
    jobs = [Job("push", k, None, client=client) for k, client in enumerate(came)]
    assert [job.work for job in in_turn(jobs)] == [0, 4, 3, 6, 1, 7, 5, 2]


def test_a_backlog_waits_for_the_next_round(model, monkeypatch):
    """No more is begun when the time of a round is over; the rest comes back, given up or not."""
    service = Service(ServedModel(model.predictor), Limits(max_ended=1), Options())
    streams = service.streams
    moment = iter(np.arange(0.0, 100.0, 0.1))
    clock = SimpleNamespace(monotonic=lambda: next(moment))
    monkeypatch.setattr("roughformer.serve.worker.time", clock)
    jobs = [Job("call", lambda k=k: streams.open(f"s{k}", None), None) for k in range(6)]
    jobs[1].give_up()
    done = []
    later = service.engine.handle(jobs, done.extend)
    assert [job for job, _ in done] == [jobs[0]]
    assert later == jobs[2:]
    assert not jobs[0].give_up()
    assert jobs[2].give_up()


def test_whole_series_are_bounded_in_windows_over_all_of_them(model):
    limits = Limits(max_tokens=100)
    series = [{"times": [0, 90], "values": [[1, 2], [3, 4]]}] * 3
    with running(model.predictor, limits=limits) as server:
        assert server.predict(series[:2]).status_code == 200
        refused = server.predict(series)
        assert refused.status_code == 400
        assert "the limit is max_tokens = 100" in refused.json()["error"]["message"]
