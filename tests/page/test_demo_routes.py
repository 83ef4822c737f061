"""Recordings and explanations over HTTP."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from roughformer.explain import explain
from roughformer.serve import demo
from roughformer.serve.demo import load_recording
from roughformer.serve.pulse import make_pulse
from serving import Running


def body_of(batch, **more):
    times, values = batch.series(0)
    rows = [[None if np.isnan(x) else float(x) for x in row] for row in values]
    return {"series": [{"times": times.tolist(), "values": rows}], **more}


def part(served, name, start, end):
    return served.http.get(f"v1/demo/{name}", params={"from": start, "to": end})


def test_made_up_recordings_are_always_there(rates):
    found = rates.http.get("v1/demo").json()["recordings"]
    assert [one["name"] for one in found] == ["exercise", "tachycardia", "disturbed", "slow"]
    for one in found:
        assert one["channels"] == ["PPG", "ECG"]
        assert one["truth"] == {"name": "heart rate", "unit": "beats/min"}
        assert one["seconds"] >= 240


@pytest.mark.parametrize("name", ["exercise", "disturbed"])
def test_the_pieces_of_a_recording_are_the_whole(rates, name):
    whole = load_recording(name)
    seconds = float(whole.times[-1])
    pieces = [
        part(rates, name, s, min(s + 100, seconds)).json() for s in np.arange(0, seconds, 100)
    ]
    times = np.concatenate([piece["times"] for piece in pieces])
    values = np.concatenate([np.array(piece["values"], dtype=float) for piece in pieces])
    np.testing.assert_array_equal(times, whole.times)
    np.testing.assert_allclose(values, whole.values, atol=1e-4)
    truth = np.concatenate([piece["truth"]["values"] for piece in pieces])
    np.testing.assert_allclose(truth, whole.truth, atol=0.01)
    assert np.isnan(values).any() == (name == "disturbed")


def test_the_truth_is_the_mean_over_the_second_before(rates):
    samples = load_recording("slow")
    np.testing.assert_allclose(samples.truth_times, np.arange(1, 241))
    assert abs(samples.truth[49] - 68) < 2
    assert abs(samples.truth[110] - 44) < 2


def test_recordings_are_made_the_same_way_every_time():
    first = load_recording("tachycardia")
    demo.load_recording.cache_clear()
    again = load_recording("tachycardia")
    assert again is not first
    np.testing.assert_array_equal(again.values, first.values)


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("v1/demo/nothing", 404, "there is no recording 'nothing'; there are exercise,"),
        ("v1/demo/slow?from=5&to=4", 400, "from <= to"),
        ("v1/demo/slow?from=0&to=240", 400, "from <= to <= from + 120"),
        ("v1/demo/slow?from=nan", 400, "from"),
        ("v1/demo/slow?from=-1", 400, "from"),
        ("v1/demo/slow?to=soon", 400, "to"),
    ],
)
def test_what_is_not_there_is_refused(rates, path, status, words):
    answer = rates.http.get(path)
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]


def test_beyond_the_end_there_is_nothing(rates):
    assert part(rates, "slow", 1000, 1010).json()["times"] == []


def test_an_explanation_is_that_of_the_library(rates, rate_model):
    one = make_pulse(1, 32.0, seed=8, disturbed=0.0)
    (found,) = explain(rate_model.predictor_, one, n_words=None)
    told = rates.http.post("v1/explain", json=body_of(one)).json()
    assert told["value"] == pytest.approx(found.value, rel=1e-5)
    assert [c["name"] for c in told["channels"]] == ["PPG", "ECG"]
    importance = [c["importance"] for c in told["channels"]]
    np.testing.assert_allclose(importance, [*found.channels.values()], atol=1e-4)
    windows = told["windows"]
    np.testing.assert_allclose([w["importance"] for w in windows], found.windows, atol=1e-4)
    np.testing.assert_allclose([w["start"] for w in windows], found.window_edges[:-1])
    np.testing.assert_allclose([w["end"] for w in windows], found.window_edges[1:])
    for parts in (told["channels"], windows):
        assert sum(p["share"] for p in parts) == pytest.approx(1.0)


def test_a_class_can_be_asked_for(classes):
    one = make_pulse(1, 12.0, seed=8, disturbed=0.0)
    slow, fast = (
        classes.http.post("v1/explain", json=body_of(one, target=name)).json()
        for name in ("slow", "fast")
    )
    assert (slow["target"], fast["target"]) == ("slow", "fast")
    assert slow["value"] == pytest.approx(-fast["value"], abs=1e-4)  # two classes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda body: body["series"].append(body["series"][0]), "one series is explained"),
        (lambda body: body.update(series=[]), "length >= 1"),
        (lambda body: body.update(target=3), "target must be the number of an output"),
        (lambda body: body.update(words=3), "unknown field `words`"),
        (lambda body: body["series"][0]["times"].reverse(), "times"),
        (lambda body: body["series"][0]["values"][3].pop(), "values"),
    ],
)
def test_a_wrong_body_is_refused_with_words(rates, change, words):
    body = body_of(make_pulse(1, 2.0, seed=8, disturbed=0.0))
    change(body)
    answer = rates.http.post("v1/explain", json=body)
    assert answer.status_code == 400
    assert words in json.dumps(answer.json()["error"])


def test_what_is_too_long_is_refused(rates, classes):
    n = 20_001
    long = {"times": list(range(n)), "values": [[0.0, 0.0]] * n}
    answer = rates.http.post("v1/explain", json={"series": [long]})
    assert answer.status_code == 400
    assert "at most 20000 observations" in answer.json()["error"]["message"]
    far = {"times": [0.0, 4000.0], "values": [[0.0, 0.0]] * 2}
    answer = classes.http.post("v1/explain", json={"series": [far]})
    assert answer.status_code == 400
    assert "at most 200 windows" in answer.json()["error"]["message"]


def test_a_long_explanation_does_not_hold_up_the_stop(rate_model, monkeypatch):
    begun, never = threading.Event(), threading.Event()

    def explain_for_ever(*_, **__):
        begun.set()
        never.wait(30)

    monkeypatch.setattr("roughformer.serve.model.explain", explain_for_ever)
    body = body_of(make_pulse(1, 2.0, seed=8, disturbed=0.0))
    with ThreadPoolExecutor(1) as pool:
        running = Running(rate_model.predictor_)
        asked = pool.submit(httpx.post, f"{running.url}v1/explain", json=body, timeout=30)
        assert begun.wait(10)
        began = time.monotonic()
        running.stop()
        assert not running.thread.is_alive()
        assert time.monotonic() - began < 10
        assert asked.result().status_code == 503
        assert "stopping" in asked.result().json()["error"]["message"]
    never.set()


def test_one_observation_can_be_explained(rates):
    one = {"times": [3.0], "values": [[1.0, None]]}
    answer = rates.http.post("v1/explain", json={"series": [one]})
    assert answer.status_code == 200
    assert len(answer.json()["windows"]) == 4
