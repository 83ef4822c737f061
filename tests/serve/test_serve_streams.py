"""Streams over HTTP and WebSocket say what the offline model says, and survive moving."""

import json

import numpy as np
import pyarrow as pa
import pytest
from wards import CHANNELS, WELL, recording
from websockets.exceptions import ConnectionClosed

import roughformer as rf
from roughformer.inference.alarms import AlarmState
from roughformer.serve.config import StreamOptions
from serving import arrow, plain, running


def offline(model, times, values):
    """Ends of windows and probabilities (L, 2), of all windows that are over."""
    batch = rf.SeriesBatch.from_arrays([values], [times], channels=CHANNELS)
    ((ends, said),) = model.estimator.predict_windows(batch)
    return ends[:-1], said[:-1]  # the last one is cut short by the end of the series


def agrees(windows, model, times, values):
    ends, said = offline(model, times, values)
    assert [w["window"] for w in windows] == list(range(len(ends)))
    np.testing.assert_allclose([w["time"] for w in windows], ends, rtol=0, atol=1e-6)
    got = [[w["prediction"]["probabilities"][c] for c in ("sick", "well")] for w in windows]
    np.testing.assert_allclose(got, said, atol=1e-5)


def chunks(n, rng):
    cuts = np.sort(rng.choice(np.arange(1, n), min(rng.integers(0, 9), n - 1), replace=False))
    return np.split(np.arange(n), cuts)


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_over_a_socket_says_what_the_offline_model_says(server, model, name, seed):
    times, values = recording(100 + seed)
    windows = []
    with server.socket(f"/v1/streams/{name}") as socket:
        assert socket.receive() | {"bytes": 0} == {
            "type": "hello", "id": name, "channels": ["hr", "spo2"], "last_time": None,
            "accepted": 0, "bytes": 0,
            "alarms": [{"name": str(WELL), "active": False, "since": None}],
        }  # fmt: skip
        accepted = 0
        for rows in chunks(len(times), np.random.default_rng(seed)):
            found, ack = socket.push(times[rows], values[rows])
            windows += found
            accepted += len(rows)
            assert ack == {"type": "ack", "last_time": times[rows[-1]], "accepted": accepted,
                           "dropped": 0}  # fmt: skip
        agrees(windows, model, times, values)
        socket.send(type="predict")
        said = socket.receive()
    assert said["type"] == "prediction"
    assert said["time"] == times[-1]
    batch = rf.SeriesBatch.from_arrays([values], [times], channels=CHANNELS)
    now = [said["prediction"]["probabilities"][c] for c in ("sick", "well")]
    np.testing.assert_allclose(now, model.estimator.predict_proba(batch)[0], atol=1e-5)


def test_a_stream_over_plain_http_says_the_same(server, model, name):
    times, values = recording(7)
    windows = []
    for rows in chunks(len(times), np.random.default_rng(1)):
        body = {"times": plain(times[rows]), "values": plain(values[rows])}
        answer = server.http.post(f"/v1/streams/{name}/push", json=body)
        assert answer.status_code == 200, answer.text
        windows += answer.json()["events"]
    agrees(windows, model, times, values)
    state = server.http.get(f"/v1/streams/{name}").json()
    assert (state["accepted"], state["last_time"]) == (len(times), times[-1])
    said = server.http.get(f"/v1/streams/{name}/prediction").json()
    assert said["prediction"]["label"] in ("sick", "well")


def test_many_streams_over_one_socket_in_arrow(server, model):
    names = [f"bed-{k}" for k in range(8)]
    recordings = [recording(200 + k, 40 + k) for k in range(8)]
    rows = [(t[i], k, i) for k, (t, _) in enumerate(recordings) for i in range(len(t))]
    rows.sort()
    windows = {name: [] for name in names}
    with server.socket("/v1/streams") as socket:
        assert socket.receive() == {"type": "hello", "channels": ["hr", "spo2"]}
        socket.send(type="open", ids=names)
        opened = socket.receive()
        assert opened["type"] == "opened"
        assert opened["streams"][0] == {"id": "bed-0", "last_time": None, "accepted": 0}
        for part in np.array_split(np.arange(len(rows)), 7):
            chosen = [rows[i] for i in part]
            values = np.array([recordings[k][1][i] for _, k, i in chosen])
            table = pa.table(
                {
                    "stream": pa.array([names[k] for _, k, _ in chosen]).dictionary_encode(),
                    "time": [t for t, _, _ in chosen],
                    "spo2": values[:, 1],
                    "hr": pa.array(values[:, 0], from_pandas=True),  # NaN or null: not observed
                }
            )
            socket.raw.send(arrow(table))
            for message in socket.until("ack", "error"):
                for event in message.get("events", []):
                    windows[event["id"]].append(event)
            assert message == {"type": "ack", "rows": len(chosen), "dropped": 0}
        for name, (times, values) in zip(names, recordings, strict=True):
            agrees(windows[name], model, times, values)
        socket.send(type="open", ids=names[:1])
        (state,) = socket.receive()["streams"]
        assert state == {"id": "bed-0", "last_time": recordings[0][0][-1], "accepted": 40}
        for name in names:
            socket.send(type="close", id=name)
            assert socket.receive() == {"type": "closed", "id": name}


def test_json_and_binary_go_together_on_the_socket_of_many(server):
    with server.socket("/v1/streams") as socket:
        socket.receive()
        socket.send(type="open", id="mixed")
        socket.receive()
        _, ack = socket.push_to("mixed", [0.0, 1.0], [[1, 2], [3, 4]])
        assert ack["id"] == "mixed"
        assert ack["accepted"] == 2
        socket.raw.send(arrow({"stream": ["mixed"], "time": [1.5], "hr": [1.0]}))
        assert socket.receive()["rows"] == 1
        socket.send(type="state", id="mixed")
        assert socket.receive()["accepted"] == 3
        socket.send(type="advance", id="mixed", time=4.5)
        kinds = [message["type"] for message in socket.until("ack")]
        assert kinds == ["window", "window", "ack"]
        socket.send(type="close", id="mixed")
        assert socket.receive()["type"] == "closed"


WRONG = [
    ("no json", 400, "not valid JSON", None),
    ("[1]", 400, "expected `object`, got `list`", None),
    ('{"type": "explode"}', 400, "invalid value 'explode' at type", None),
    ('{"type": "push"}', 400, "missing required field `times`", None),
    ('{"type": "push", "times": [5], "values": [[1, 2]], "x": 1}', 400, "unknown field `x`", None),
    ('{"type": "push", "times": [5, 5], "values": [[1, 2], [1, 2]]}', 400, "is not after 5", 1),
    ('{"type": "push", "times": [5, 6], "values": [[1, 2], [1]]}', 400, "must have 2 values", 1),
    ('{"type": "push", "times": [5, 3], "values": [[1, 2], [1, 2]]}', 400, "is not after 5", 1),
    ('{"type": "push", "times": [1], "values": [[1, 2]]}', 400, "is not after 3, the last one", 0),
    ('{"type": "push", "times": [5, 1e6], "values": [[1, 2], [1, 2]]}', 400, "50 windows", 1),
    ('{"type": "push", "times": [NaN], "values": [[1, 2]]}', 400, "not valid JSON", None),
    ('{"type": "advance"}', 400, "missing required field `time`", None),
    ('{"type": "advance", "time": "soon"}', 400, "expected `number`, got `string` at time", None),
    ('{"type": "advance", "time": 1e12}', 400, "50 windows", 0),
    (b"bytes", 400, "takes JSON", None),
]


def test_a_wrong_message_is_told_and_nothing_of_it_is_applied(server, name):
    with server.socket(f"/v1/streams/{name}") as socket:
        socket.receive()
        socket.send(type="predict")
        assert socket.receive()["status"] == 409  # nothing observed yet
        socket.push([0.0, 3.0], [[1, 2], [3, 4]])
        for message, status, words, row in WRONG:
            socket.raw.send(message)
            error = socket.receive()
            assert (error["type"], error["status"], error["row"]) == ("error", status, row), error
            assert words in error["message"]
        _, ack = socket.push([3.5], [[1, 2]])
        assert (ack["accepted"], ack["last_time"]) == (3, 3.5)


@pytest.mark.parametrize(
    ("columns", "words", "row"),
    [
        ({"stream": ["none"], "time": [0.0], "hr": [1.0]}, "no stream 'none'", 0),
        ({"stream": ["known", "none"], "time": [9.0, 9.0], "hr": [1.0, 1.0]}, "'none'", 1),
        ({"stream": ["known"], "time": [None], "hr": [1.0]}, "needs a time", 0),
        ({"stream": ["known"], "time": [9.0], "pulse": [1.0]}, "no channel 'pulse'", None),
        ({"stream": ["known"], "time": ["9"], "hr": [1.0]}, "must hold numbers", None),
        ({"stream": ["known"] * 2, "time": [9.0, 8.0], "hr": [1.0, 1.0]}, "is not after 9", 1),
        ({"time": [9.0], "hr": [1.0]}, "one column 'stream'", None),
        ({"stream": ["known"], "time": [9.0], "hr": [float("inf")]}, "must be finite", 0),
        ({"stream": ["known"] * 2001, "time": np.arange(2001.0)}, "may have 2000 rows", None),
    ],
)
def test_a_wrong_table_is_told_and_nothing_of_it_is_applied(server, columns, words, row):
    with server.socket("/v1/streams") as socket:
        socket.receive()
        socket.send(type="open", id="known")
        before = socket.receive()["streams"]
        socket.raw.send(arrow(columns))
        error = socket.receive()
        assert (error["type"], error["row"]) == ("error", row)
        assert words in error["message"]
        socket.send(type="open", id="known")
        assert socket.receive()["streams"] == before


def test_pushes_of_many_clients_at_once_each_get_their_own_answer(server):
    names = [f"c{k}" for k in range(6)]
    with server.socket("/v1/streams") as owner:
        owner.receive()
        owner.send(type="open", ids=names)
        owner.receive()
        gate = server.block()
        sockets = [server.socket("/v1/streams").__enter__() for _ in names]
        for k, socket in enumerate(sockets):
            times = [0.0, 1.0, 2.5] if k != 3 else [2.0, 1.0, 0.0]
            socket.send(type="push", id=names[k], times=times, values=[[1, 2]] * 3)
        while server.service.worker.n_waiting < 5:
            pass
        gate.set()
        for k, socket in enumerate(sockets):
            *_, last = socket.until("ack", "error")
            assert last["type"] == ("ack" if k != 3 else "error")
            socket.raw.close()
        for name in names:
            owner.send(type="close", id=name)
            owner.receive()


def test_two_pushes_to_one_stream_are_done_in_order(server, name):
    with server.socket("/v1/streams") as one, server.socket("/v1/streams") as two:
        one.receive(), two.receive()
        gate = server.block()
        one.send(type="push", id=name, times=[0.0, 1.0], values=[[1, 2]] * 2)
        while server.service.worker.n_waiting < 1:
            pass
        two.send(type="push", id=name, times=[2.0, 3.0], values=[[1, 2]] * 2)
        while server.service.worker.n_waiting < 2:
            pass
        gate.set()
        assert one.until("ack", "error")[-1]["accepted"] == 2
        assert two.until("ack", "error")[-1]["accepted"] == 4


def test_all_who_listen_are_told_of_windows_whoever_pushed(server, name):
    body = {"times": [0.0, 3.0], "values": [[1, 2], [2, 1]]}
    with server.socket(f"/v1/streams/{name}") as listener:
        listener.receive()
        events = server.http.post(f"/v1/streams/{name}/push", json=body).json()["events"]
        assert listener.receive() == {"type": "window", **events[0]}
        with server.socket(f"/v1/streams/{name}") as pusher:
            hello = pusher.receive()
            assert (hello["last_time"], hello["accepted"]) == (3.0, 2)
            windows, _ = pusher.push([4.5], [[0, 0]])
            assert listener.receive() == windows[0]


def test_a_stream_that_is_not_there_is_refused_and_a_deleted_one_is_closed(server):
    with server.socket("/v1/streams/nobody") as socket:
        assert socket.receive()["status"] == 404
        with pytest.raises(ConnectionClosed):
            socket.receive()
        assert socket.raw.close_code == 4404
    server.http.post("/v1/streams", json={"id": "gone"})
    assert server.http.post("/v1/streams", json={"id": "gone"}).status_code == 409
    with server.socket("/v1/streams/gone") as socket:
        socket.receive()
        server.http.delete("/v1/streams/gone")
        with pytest.raises(ConnectionClosed):
            socket.receive()
        assert socket.raw.close_code == 4410


@pytest.mark.parametrize("wish", ["", "a b", "a/b", "x" * 65, "a\n", "ä"])
def test_a_name_that_is_none_is_refused(server, wish):
    answer = server.http.post("/v1/streams", json={"id": wish})
    assert answer.status_code == 400
    assert "1 to 64 letters" in answer.json()["error"]["message"]


def test_alarms_ring_as_the_state_machine_says_and_go_along_in_a_snapshot(server, model, name):
    times, values = recording(31)
    half = len(times) // 2
    state = AlarmState(WELL, 1)
    with server.socket(f"/v1/streams/{name}") as socket:
        socket.receive()
        first, _ = socket.push(times[:half], values[:half])
    snapshot = server.http.get(f"/v1/streams/{name}/snapshot").content
    with running(model.predictor, streams=StreamOptions(alarms=(WELL,))) as other:
        moved = other.http.put("/v1/streams/moved/snapshot", content=snapshot)
        assert moved.json()["accepted"] == half
        with other.socket("/v1/streams/moved") as socket:
            assert socket.receive()["last_time"] == times[half - 1]
            second, _ = socket.push(times[half:], values[half:])
    agrees(first + second, model, times, values)
    for window in first + second:
        share = window["prediction"]["probabilities"]["well"]
        change = state.update(np.array([0]), np.array([window["time"]]), np.array([share]))[0]
        (alarm,) = window["alarms"]
        since = None if np.isnan(state.since[0]) else state.since[0]
        assert alarm == {"name": "well above 0.45 release 0.4", "active": bool(state.active[0]),
                         "changed": bool(change), "since": since, "value": share}  # fmt: skip


def test_a_snapshot_of_another_model_or_a_damaged_one_is_refused(server, name):
    server.http.post(
        f"/v1/streams/{name}/push", json={"times": [0.0, 3.0], "values": [[1, 2], [2, 1]]}
    )
    good = server.http.get(f"/v1/streams/{name}/snapshot").content
    for data in (b"", b"nonsense", good[:-1], good[:60] + b"x" + good[61:], good + b"x"):
        answer = server.http.put("/v1/streams/other/snapshot", content=data)
        assert answer.status_code == 400
        assert server.http.get("/v1/streams/other").status_code == 404
    again = server.http.put(f"/v1/streams/{name}/snapshot", content=good)
    assert again.json()["accepted"] == 2


def test_late_observations_are_dropped_and_counted_where_that_is_wanted(model):
    options = StreamOptions(unordered="drop")
    times, values = recording(5)
    with running(model.predictor, streams=options) as server:
        server.http.post("/v1/streams", json={"id": "s"})
        with server.socket("/v1/streams/s") as socket:
            socket.receive()
            first, _ = socket.push(times[:30], values[:30])
            second, ack = socket.push(times[20:], values[20:])  # ten of them once more
        assert (ack["accepted"], ack["dropped"]) == (60, 10)
        agrees(first + second, model, times, values)
        server.http.post("/v1/streams", json={"id": "t"})
        mixed = {"times": [0, 2, 1, 3], "values": [[1.0, 1.0]] * 4}  # late within one push
        found = server.http.post("/v1/streams/t/push", json=mixed).json()
        assert (found["accepted"], found["dropped"]) == (3, 1)


def test_the_messages_of_the_guide_are_what_is_sent(server, name):
    with server.socket(f"/v1/streams/{name}") as socket:
        socket.receive()
        windows, _ = socket.push([0.0, 2.5], [[1, 2], [None, 1]])
    assert set(windows[0]) == {"type", "id", "time", "window", "prediction", "alarms"}
    json.dumps(windows)
