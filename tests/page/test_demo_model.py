"""The demo's model: right on pulses it has not seen, also when most of them is missing; kept."""

import numpy as np
import pytest

import roughformer as rf
from roughformer.errors import InputError
from roughformer.inference.predictor import Predictor
from roughformer.serve import demo
from roughformer.serve.pulse import make_pulse


@pytest.fixture(scope="module")
def unseen():
    return make_pulse(40, demo.DEMO_SPAN, seed=1234)


@pytest.mark.parametrize("dropped", [0.0, 0.5, 0.8])
def test_it_is_right_on_new_pulses_whatever_is_dropped(rate_model, unseen, dropped):
    shown = unseen.drop_points(dropped, seed=1) if dropped else unseen
    error = np.abs(rate_model.predict(shown) - unseen.labels)
    assert np.median(error) < 1.5
    assert (error < 5).mean() > 0.85


def test_it_is_further_off_where_it_is_less_sure(rate_model, unseen):
    point, deviation = rate_model.predict(unseen, return_std=True)
    error = np.abs(point - unseen.labels)
    sure = deviation < np.median(deviation)
    assert error[sure].mean() < error[~sure].mean()


def test_its_intervals_hold_in_a_stream_of_which_much_is_dropped(rate_model):
    predictor = rate_model.predictor_
    unseen = make_pulse(120, demo.DEMO_SPAN + 1, seed=4321)
    for dropped in (0.0, 0.7):
        shown = unseen.drop_points(dropped, seed=1)
        stream = rf.StreamBatch(predictor, len(unseen), span=demo.DEMO_SPAN, every=demo.DEMO_SPAN)
        slots = np.repeat(np.arange(len(unseen)), shown.lengths)
        order = np.argsort(shown.times, kind="stable")
        events = stream.push(slots[order], shown.times[order], shown.values[order])
        assert len(events) == len(unseen)
        low, high = events.answers.interval[:, 0].T
        true = np.asarray(unseen.labels)[events.slot]
        assert 0.8 < ((low <= true) & (true <= high)).mean() < 0.99
        assert events.answers.plain()[0]["interval"] == [low[0], high[0]]


def test_it_is_trained_once_and_then_taken_from_the_cache(rate_model, tmp_path, monkeypatch):
    trained = []

    def train(**options):
        trained.append(options)
        return rate_model

    monkeypatch.setattr(demo, "train_demo_model", train)
    said = []
    first = demo.demo_model(tmp_path / "a" / "cache", threads=1, say=said.append)
    again = demo.demo_model(tmp_path / "a" / "cache", say=said.append)
    assert first == again
    assert trained == [{"threads": 1}]
    assert "about a minute" in said[0]
    assert str(first) in said[1]
    assert Predictor.load(first).metadata["data"] == {"target": "heart rate"}
    # What is damaged is made anew.
    weights = first / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    demo.demo_model(tmp_path / "a" / "cache", say=said.append)
    assert len(trained) == 2
    Predictor.load(first)


def test_the_cache_is_where_the_system_has_caches(rate_model, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "train_demo_model", lambda **_: rate_model)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert demo.demo_model(say=len).parent == tmp_path / "roughformer"


def test_a_cache_that_cannot_be_made_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "train_demo_model", None)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match="choose another directory with --cache"):
        demo.demo_model(file / "cache", say=len)
