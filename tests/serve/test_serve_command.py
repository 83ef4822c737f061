"""The command's own refusals, the token, and who may ask."""

import subprocess
import sys

import pytest
from websockets.exceptions import InvalidStatus

from command import fails, succeeds
from roughformer.serve.middleware import is_loopback
from serving import running

TOKEN = "a-token.of_the~tests"


def test_help_names_the_options():
    out = succeeds("serve", "--help").out
    for option in ("--token-file", "--snapshot-dir", "--alarm", "--limit", "--workers"):
        assert option in out


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        (("serve",), "give either RUN or --demo", 2),
        (("serve", "{model}", "--demo"), "give either RUN or --demo", 2),
        (("serve", "nowhere"), "there is no directory 'nowhere'", 1),
        (("serve", "{model}", "--late", "keep"), "refuse or drop", 2),
        (("serve", "{model}", "--port", "70000"), "--port", 2),
        (("serve", "{model}", "--alarm", "loud"), "an alarm is written", 1),
        (("serve", "{model}", "--alarm", "above 0.5"), "class=NAME, one of sick, well", 1),
        (("serve", "{model}", "--alarm", "class=x above 0.5"), "one of sick, well", 1),
        (("serve", "{model}", "--alarm", "well above 0.5 release 0.6"), "release must not be", 1),
        (("serve", "{model}", "--limit", "body_seconds=0"), "body_seconds must be", 1),
        (("serve", "{model}", "--idle-seconds", "-5"), "idle_seconds must be", 1),
        (("serve", "{model}", "--snapshot-seconds", "nan"), "snapshot_seconds must be", 1),
        (("serve", "{model}", "--snapshot-dir", "{bad}"), "a file is in the way", 1),
        (("serve", "{model}", "--token-file", "{bytes}"), "must be 8 to 512 letters", 1),
        (("serve", "{model}", "--token-file", "{missing}"), "there is no such file", 1),
        (("serve", "{model}", "--token-file", "{bad}"), "must be 8 to 512 letters", 1),
    ],
)
def test_wrong_options_are_refused_with_words(model, tmp_path, options, words, code):
    (tmp_path / "bad").write_text("with blanks\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe12345678")
    places = {"model": model.directory, "missing": tmp_path / "none"}
    places |= {"bad": tmp_path / "bad", "bytes": tmp_path / "bytes"}
    assert words in fails(*(word.format(**places) for word in options), code=code)


def test_the_command_says_how_to_install_what_is_missing(model):
    code = (
        "import sys\n"
        "sys.modules['fastapi'] = None\n"
        f"sys.argv = ['roughformer', 'serve', {str(model.directory)!r}]\n"
        "from roughformer.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'roughformer[serve]'" in done.stderr


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False),
     ("10.0.0.3", False), ("example.org", False)],
)  # fmt: skip
def test_which_hosts_are_this_machine(host, own):
    assert is_loopback(host) is own


@pytest.fixture(scope="module")
def guarded(model):
    with running(model.predictor, token=TOKEN) as server:
        yield server


def test_without_the_token_only_health_and_pages_answer(guarded):
    for path in ("/healthz", "/readyz", "/docs", "/openapi.json"):
        assert guarded.http.get(path).status_code == 200
    for path in ("/v1/model", "/metrics", "/v1/streams/x", "/nothing"):
        assert guarded.http.get(path).status_code == 401
        for given in ("Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer é", ""):
            answer = guarded.http.get(path, headers={"Authorization": given.encode()})
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert TOKEN not in answer.text
    answer = guarded.http.get("/v1/model", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200


def test_a_socket_needs_the_token_in_its_header_or_as_a_protocol(guarded):
    own = {"Authorization": f"Bearer {TOKEN}"}
    for given in ({}, {"additional_headers": {"Authorization": "Bearer wrong"}},
                  {"subprotocols": ["roughformer", "bearer.wrong"]}):  # fmt: skip
        with pytest.raises(InvalidStatus, match="401"), guarded.socket("/v1/streams", **given):
            pass
    with guarded.socket("/v1/streams", additional_headers=own) as socket:
        assert socket.receive()["type"] == "hello"
        assert socket.raw.subprotocol is None
    offered = ["roughformer", f"bearer.{TOKEN}"]
    with guarded.socket("/v1/streams", subprotocols=offered) as socket:
        assert socket.receive()["type"] == "hello"
        assert socket.raw.subprotocol == "roughformer"


def test_scripts_of_other_sites_are_refused(server):
    own = f"http://127.0.0.1:{server.port}"
    assert server.http.get("/v1/model", headers={"Origin": own}).status_code == 200
    refused = server.http.get("/v1/model", headers={"Origin": "https://evil.example"})
    assert refused.status_code == 403
    with (
        pytest.raises(InvalidStatus, match="403"),
        server.socket("/v1/streams", origin="https://evil.example"),
    ):
        pass
    with server.socket("/v1/streams", origin=own) as socket:
        assert socket.receive()["type"] == "hello"


def test_the_names_of_other_sites_do_not_lead_here(server):
    """A site may let its name point to 127.0.0.1: its scripts are then of the same origin."""
    refused = server.http.get("/v1/model", headers={"Host": "evil.example"})
    assert refused.status_code == 403
    assert "for this machine only, not for 'evil.example'" in refused.json()["error"]["message"]
    for name in ("localhost", "127.0.0.1:1", "[::1]:80", "rough.localhost"):
        assert server.http.get("/v1/model", headers={"Host": name}).status_code == 200
