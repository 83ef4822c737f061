"""Operations: alarms to a webhook, access logs, and the files in deploy/."""

import hashlib
import hmac
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from command import succeeds
from roughformer.errors import InputError
from roughformer.inference.alarms import Alarm
from roughformer.serve import Options, StreamOptions
from serving import running, wait_for

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture
def receiver():
    """A server that refuses the first message once, and keeps what it gets."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((body, self.headers["X-Roughformer-Signature"]))
            self.send_response(503 if len(received) == 1 else 204)
            self.end_headers()

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/alarms", received
    server.shutdown()
    server.server_close()


def test_an_alarm_is_posted_signed_and_again_until_it_is_taken(model, receiver, monkeypatch):
    monkeypatch.setattr("roughformer.serve.webhook._PAUSE", 0.01)
    url, received = receiver
    streams = StreamOptions(alarms=(Alarm(0.0, of="sick"),))  # every prediction is above 0
    options = {"streams": streams, "webhook": url, "webhook_secret": "secret"}
    with running(model.predictor, **options) as server:
        server.http.post("/v1/streams", json={"id": "bed"})
        body = {"times": [0.0, 1.0, 5.0], "values": [[1, 2]] * 3}
        assert server.http.post("/v1/streams/bed/push", json=body).json()["events"]
        wait_for(lambda: len(received) == 2)
        wait_for(lambda: 'roughformer_webhooks_total{result="sent"} 1.0' in metrics(server))
        assert 'change="raised"} 1.0' in metrics(server)
    (first, _), (body, signature) = received
    assert body == first
    message = json.loads(body)
    assert (message["event"], message["id"]) == ("raised", "bed")
    seconds, value = re.fullmatch(r"t=(\d+),v1=(\w+)", signature).groups()
    expected = hmac.new(b"secret", f"{seconds}.".encode() + body, hashlib.sha256)
    assert hmac.compare_digest(expected.hexdigest(), value)


def metrics(server):
    return server.http.get("/metrics").text


def test_a_webhook_that_never_answers_costs_no_memory_and_no_push(model, monkeypatch):
    monkeypatch.setattr("roughformer.serve.webhook._MAX_WAITING", 2)
    monkeypatch.setattr("roughformer.serve.webhook._PAUSE", 60.0)
    streams = StreamOptions(alarms=(Alarm(0.0, of="sick"),))
    with running(model.predictor, streams=streams, webhook="http://127.0.0.1:9/") as server:
        for k in range(6):
            server.http.post("/v1/streams", json={"id": f"s{k}"})
            body = {"times": [0.0, 5.0], "values": [[1, 2]] * 2}
            assert server.http.post(f"/v1/streams/s{k}/push", json=body).status_code == 200
        assert 'roughformer_webhooks_total{result="dropped"}' in metrics(server)


def test_a_webhook_is_an_address():
    with pytest.raises(InputError, match="a webhook is an address"):
        Options(webhook="file:///etc/passwd")


def test_requests_are_logged_as_json_without_their_queries(model, caplog):
    with (
        caplog.at_level("INFO", "roughformer.serve.access"),
        running(model.predictor, access_log=True) as server,
    ):
        import logging

        logging.getLogger("roughformer.serve.access").addHandler(caplog.handler)
        server.http.get("/healthz?secret=1")
        server.http.post("/v1/predict", content=b"{")
    lines = [
        json.loads(record.message) for record in caplog.records if record.name.endswith("access")
    ]
    first, second = {line["path"]: line for line in lines}.values()
    assert (first["method"], first["path"], first["status"]) == ("GET", "/healthz", 200)
    assert (second["status"], second["bytes"], second["client"]) == (400, 1, "127.0.0.1")
    assert "secret" not in str(lines)


def test_the_files_of_deployments_use_options_that_exist():
    known = set(re.findall(r"--[a-z-]+", succeeds("serve", "--help").out))
    unit = (DEPLOY / "roughformer.service").read_text()
    used = set(re.findall(r" (--[a-z-]+)", unit))
    entry = json.loads(re.search(r"ENTRYPOINT (\[.*\])", (DEPLOY / "Dockerfile").read_text())[1])
    used |= {word for word in entry if word.startswith("--")}
    assert used <= known, used - known
    assert "ROUGHFORMER_TOKEN" in (DEPLOY / "compose.yaml").read_text()
