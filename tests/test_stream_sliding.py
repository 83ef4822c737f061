"""Streams of a model that looks at series as a whole: its predictions for the last span."""

import numpy as np
import pytest

import roughformer as rf
from roughformer.inference.targets import ClassTargets
from roughformer.stream.state import read_snapshot, write_snapshot


def whole_model() -> rf.Predictor:
    rng = np.random.default_rng(0)
    batch = rf.SeriesBatch.from_arrays([rng.normal(size=(20, 2)) for _ in range(6)])
    tokenizer = rf.Tokenizer.fit(rf.TokenConfig(windows=4), batch)
    module = rf.RFormer(
        rf.RFormerConfig(n_features=tokenizer.n_features, n_outputs=2, d_model=8, n_heads=2)
    )
    module.fit_scaling(tokenizer.encode(batch))
    return rf.Predictor(tokenizer, module.eval(), ClassTargets(classes=("a", "b"), dtype="<U1"))


def said_of(model: rf.Predictor, t: np.ndarray, x: np.ndarray, at: float, span: float):
    inside = (t > at - span) & (t <= at)
    return model.probabilities(rf.SeriesBatch(t[inside], x[inside], [0, inside.sum()]))[0]


@pytest.mark.parametrize("seed", range(4))
def test_events_are_predictions_for_the_last_span(seed):
    rng = np.random.default_rng(seed)
    model = whole_model()
    streams = rf.StreamBatch(model, 3, span=4.0, every=1.5)
    series = {
        b: (5.0 + np.cumsum(rng.exponential(0.3, 60)), rng.normal(size=(60, 2))) for b in (0, 2)
    }
    at, count = {0: 0, 2: 0}, {0: 0, 2: 0}
    while min(at.values()) < 60:
        rows = [(b, i) for b in at for i in range(at[b], min(at[b] + int(rng.integers(9)), 60))]
        for b, i in rows:
            at[b] = i + 1
        found = streams.push(
            np.array([b for b, _ in rows], dtype=int),
            np.array([series[b][0][i] for b, i in rows]),
            np.array([series[b][1][i] for b, i in rows]).reshape(-1, 2),
        )
        for i, slot in enumerate(found.slot):
            t, x = series[slot]
            count[slot] += 1
            assert found.window[i] == count[slot] - 1
            assert found.time[i] == pytest.approx(t[0] + 1.5 * count[slot])
            expected = said_of(model, t, x, found.time[i], 4.0)
            np.testing.assert_allclose(found.answers.probabilities[i], expected, atol=1e-6)
        if at[0]:
            t, x = (part[: at[0]] for part in series[0])
            expected = said_of(model, t, x, t[-1], 4.0)
            np.testing.assert_allclose(streams.predict(0).probabilities[0], expected, atol=1e-6)
        blob = streams.snapshot([2, 0])
        streams = rf.StreamBatch(model, 3, span=4.0, every=1.5)
        streams.restore([2, 0], blob)
    for b in (0, 2):
        assert count[b] == int((series[b][0][-1] - series[b][0][0]) // 1.5)


def test_what_is_held_is_what_lies_in_the_span():
    stream = rf.Stream(whole_model(), span=2.0, every=1.0)
    stream.push(np.arange(0, 100, 0.1), np.zeros((1000, 2)))
    few = stream.nbytes
    stream.push(np.arange(100, 1000, 0.1), np.zeros((9000, 2)))
    assert stream.nbytes <= few + 24
    stream.push([1000.0, 1000.1], [[0.0, 1.0], [1.0, 0.0]])
    silent = stream.advance(1010.0)
    # Nothing was seen in the last span of the later ones: nothing can be said.
    assert [e.time for e in silent] == [1001.0, 1002.0]
    with pytest.raises(rf.InputError, match="no observation in the last 2"):
        stream.predict()


def test_options_and_limits():
    model = whole_model()
    with pytest.raises(rf.InputError, match="belong together"):
        rf.Stream(model, span=1.0)
    with pytest.raises(rf.InputError, match="every must be a positive duration"):
        rf.Stream(model, span=1.0, every=0.0)
    small = rf.Stream(model, span=1.0, every=0.5, max_points=3)
    with pytest.raises(rf.CapacityError, match="more than the 3 allowed"):
        small.push([0.0, 0.1, 0.2, 0.3], np.zeros((4, 2)))
    assert small.count == 0
    with pytest.raises(rf.InputError, match="fall due with one push"):
        small.push([0.0, 1e9], np.zeros((2, 2)))
    stream = rf.Stream(model, span=1.0, every=0.5)
    stream.push(0.0, [1.0, 2.0])
    with pytest.raises(rf.CheckpointError, match="other options"):
        rf.Stream.restore(model, stream.snapshot(), span=2.0, every=0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("now", np.nan), ("now", 1e9), ("start", -1e300), ("due", 2**63 - 1), ("due", -5),
        ("begun", False), ("count", -1), ("kept_times", [2.0, 1.0]), ("kept_times", [1.0, 1e9]),
        ("kept_values", [[np.inf, 0.0], [0.0, 0.0]]), ("kept_offsets", [0, 5]),
        ("kept_offsets", [-1, 2]),
    ],
)  # fmt: skip
def test_a_state_that_no_stream_can_be_in_is_refused(name, value):
    stream = rf.StreamBatch(whole_model(), 1, span=4.0, every=1.0)
    stream.push([0, 0], [1.0, 2.0], np.ones((2, 2)))
    before = stream.snapshot(0)
    rows = read_snapshot(stream._model_key(), before)
    rows[name][:] = value
    with pytest.raises(rf.CheckpointError, match="does not fit"):
        stream.restore(0, write_snapshot(stream._model_key(), rows))
    assert stream.snapshot(0) == before
