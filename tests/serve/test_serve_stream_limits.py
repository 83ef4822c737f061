"""Snapshots that were made to harm, streams that would grow without end, starts that fail."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from serving import running
from wards import WELL

from roughformer.errors import InputError
from roughformer.serve.limits import Limits
from roughformer.serve.model import ServedModel
from roughformer.serve.server import run
from roughformer.serve.service import Options, Service
from roughformer.serve.snapshots import unpack
from roughformer.serve.streams import StreamOptions


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
