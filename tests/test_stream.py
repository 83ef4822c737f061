"""A stream says what the offline model says, however its observations come in."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import roughformer as rf
from roughformer.inference.targets import ClassTargets
from roughformer.stream import Answers, answers_of
from roughformer.stream.engines import CausalStreams
from roughformer.stream.state import read_snapshot, write_snapshot
from small import make
from stream_cases import CASES, predictor, series

MODELS: dict[str, dict[str, Any]] = {
    "classes": {},
    "numbers": {"classes": 0},
    "gaussian": {"classes": 0, "model": {"uncertainty": "gaussian"}},
    "committee": {"members": 2},
    "wide": {"model": {"wide": 8, "n_wide": 2, "scaling": "rank"}},
    "no layers": {"model": {"n_layers": 0}},
}


def rows_of(answers: Answers) -> np.ndarray:
    if answers.probabilities is not None:
        return answers.probabilities
    assert answers.point is not None
    spread = answers.point if answers.deviation is None else answers.deviation
    return np.concatenate([(answers.point - 70) / 10, spread / 10], axis=1)


def offline(model: rf.Predictor, batch: rf.SeriesBatch) -> np.ndarray:
    """Of the last window of each series."""
    output, mask = model.forward(batch)
    return rows_of(answers_of(model, model.at_last_window(output, mask)))


def so_far(batch: rf.SeriesBatch, who: list[int], at: np.ndarray) -> rf.SeriesBatch:
    rows = [np.arange(batch.offsets[b], at[b]) for b in who]
    return rf.SeriesBatch(
        batch.times[np.concatenate(rows)],
        batch.values[np.concatenate(rows)],
        np.cumsum([0, *map(len, rows)]),
        static=batch.static[who],
        static_names=list(batch.static_names),
    )


def opened(model: rf.Predictor, batch: rf.SeriesBatch, **options: Any) -> rf.StreamBatch:
    streams = rf.StreamBatch(model, len(batch), **options)
    for b in range(len(batch)):
        known = dict(zip(batch.static_names, batch.static[b], strict=True))
        streams.open(b, {name: known[name] for name in streams.static_names})
    return streams


def worst_difference(model: rf.Predictor, batch: rf.SeriesBatch, seed: int) -> float:
    """Push the batch in random chunks, with snapshots, and hold everything against offline."""
    rng = np.random.default_rng(seed)
    streams = opened(model, batch)
    n, at, end = len(batch), batch.offsets[:-1].copy(), batch.offsets[1:]
    events: dict[int, list[tuple[int, float, np.ndarray]]] = {b: [] for b in range(n)}
    worst = 0.0
    while (at < end).any():
        size = np.minimum(rng.integers(0, 12, n), end - at)
        rows = np.concatenate([np.arange(a, a + s) for a, s in zip(at, size, strict=True)])
        slots = np.repeat(np.arange(n), size)
        mixed = np.argsort(batch.times[rows] + rng.random(n)[slots], kind="stable")
        found = streams.push(slots[mixed], batch.times[rows[mixed]], batch.values[rows[mixed]])
        at = at + size
        said = rows_of(found.answers)
        for i, slot in enumerate(found.slot):
            events[slot].append((found.window[i], found.time[i], said[i]))
        who = [b for b in range(n) if at[b] > batch.offsets[b] and rng.random() < 0.5]
        if who:
            now = rows_of(streams.predict(who))
            worst = max(worst, np.abs(now - offline(model, so_far(batch, who, at))).max())
        if rng.random() < 0.3:  # the streams move to another machine, in another order
            order = rng.permutation(n)
            blob = streams.snapshot(order)
            streams = rf.StreamBatch(model, n)
            streams.restore(order, blob)
    output, mask = model.forward(batch)
    edges = model.window_edges(batch)
    for b in range(n):
        expected = rows_of(answers_of(model, output[b]))
        assert [window for window, _, _ in events[b]] == list(range(len(events[b])))
        assert len(events[b]) >= mask[b].sum() - 1
        for window, time, said_then in events[b]:
            worst = max(worst, np.abs(said_then - expected[window]).max())
            assert time == pytest.approx(edges[b][window + 1], abs=1e-9)
    np.testing.assert_array_equal(streams.count(np.arange(n)), batch.lengths)
    return worst


@pytest.mark.parametrize("case", CASES)
def test_stream_is_offline_for_any_tokens(case):
    model = predictor(series(), **CASES[case])
    assert max(worst_difference(model, series(seed=s), s) for s in (1, 2)) < 1e-5


@pytest.mark.parametrize("kind", MODELS)
def test_stream_is_offline_for_any_model(kind):
    model = predictor(series(), context=4, clock=2, **MODELS[kind])
    assert max(worst_difference(model, series(seed=s), s) for s in (3, 4)) < 1e-5


@pytest.mark.parametrize(
    "options",
    [{"context": 3}, {"context": 40, "clock": 2}, {}, {"members": 2, "windows": {"points": 3}}],
)
def test_one_push_of_many_windows_says_what_many_pushes_say(options):
    model = predictor(series(), **options)
    rng = np.random.default_rng(0)
    # More windows than a context, than go through the model at a time, and not as many of each.
    sizes = [700, 5, 230, 230]
    slots = np.repeat(np.arange(4), sizes)
    times = np.concatenate([np.cumsum(rng.exponential(0.25, size)) for size in sizes])
    values = rng.normal(size=(len(slots), 2))
    at_once, one_by_one = rf.StreamBatch(model, 4), rf.StreamBatch(model, 4)
    events = at_once.push(slots, times, values)
    said = rows_of(events.answers)
    assert len(events) > 300
    found: dict[tuple[int, int], tuple[float, np.ndarray]] = {}
    for i in range(len(slots)):
        part = one_by_one.push(slots[i : i + 1], times[i : i + 1], values[i : i + 1])
        for slot, window, time, row in zip(
            part.slot, part.window, part.time, rows_of(part.answers), strict=True
        ):
            found[slot, window] = time, row
    assert list(zip(events.slot, events.window, strict=True)) == sorted(found)
    for slot, window, time, row in zip(events.slot, events.window, events.time, said, strict=True):
        assert found[slot, window][0] == time
        np.testing.assert_allclose(found[slot, window][1], row, atol=1e-6)
    # And so do the streams after it.
    for streams in (at_once, one_by_one):
        streams.push([0, 1], [300.0, 100.0], [[1.0, np.nan], [0.0, 1.0]])
    now = [rows_of(streams.predict([0, 1, 2, 3])) for streams in (at_once, one_by_one)]
    np.testing.assert_allclose(now[0], now[1], atol=1e-6)


def test_large_stamps_and_regular_times_are_no_matter():
    model = predictor(series(), windows={"duration": 0.1}, context=4, clock=2)
    t = 1.7e9 + np.arange(50) * 0.025  # every fourth one is a window's end, but for rounding
    x = np.random.default_rng(0).normal(size=(50, 2))
    batch = rf.SeriesBatch(t, x, [0, 50], static=np.zeros((1, 2)), static_names=["age", "height"])
    assert worst_difference(model, batch, 0) < 1e-5


def test_an_observation_at_a_windows_end_closes_it_at_once():
    model = predictor(series(missing=0.0), context=3)
    stream = rf.Stream(model)
    assert stream.push(0.0, [0.0, 1.0]) == []
    assert [e.window for e in stream.push(0.5, [1.0, 1.0])] == [0]
    closed = stream.predict()
    assert stream.push(0.6, [1.0, 2.0]) == []
    assert not np.allclose(closed.probabilities, stream.predict().probabilities, atol=1e-7)


def test_time_passes_without_observations():
    model = predictor(series(), context=3, clock=2)
    stream = rf.Stream(model)
    stream.push([1.0, 1.2], [[0.0, 1.0], [2.0, np.nan]])
    events = stream.advance(2.3)
    assert [e.time for e in events] == pytest.approx([1.5, 2.0])
    batch = rf.SeriesBatch(
        [1.0, 1.2, 2.3],
        [[0.0, 1.0], [2.0, np.nan], [np.nan, np.nan]],
        [0, 3],
        static=np.zeros((1, 2)),
        static_names=["age", "height"],
    )
    np.testing.assert_allclose(
        stream.predict().probabilities, model.probabilities(batch), atol=1e-6
    )
    assert stream.advance(2.0) == []  # already past
    assert stream.count == 2
    with pytest.raises(rf.InputError, match="not after"):
        stream.push(2.3, [0.0, 0.0])


def test_cost_and_memory_do_not_grow_with_history():
    model = predictor(series(missing=0.0), context=4, clock=2)
    stream = rf.Stream(model)
    before = stream.nbytes
    rng = np.random.default_rng(0)
    events = 0
    for i in range(100):
        t = i * 5.0 + np.arange(10_000) * 0.0005
        events += len(stream.push(t, rng.normal(size=(10_000, 2))))
    assert stream.count == 1_000_000
    assert events == 999
    assert stream.nbytes == before < 20_000
    # What was long ago has no part in what is said now: that is what keeps it flat.
    tail = rf.Stream(model)
    t = 400.0 + np.arange(20_000) * 0.0005
    x = rng.normal(size=(20_000, 2))
    long = rf.Stream(model)
    long.push(np.arange(0.0, 400.0, 0.5), rng.normal(size=(800, 2)))
    for stream in (tail, long):
        stream.push(t, x)
    np.testing.assert_allclose(
        tail.predict().probabilities, long.predict().probabilities, atol=1e-5
    )


def test_without_a_context_windows_are_limited():
    model = predictor(series(missing=0.0))
    stream = rf.Stream(model, max_windows=4)
    stream.push([0.0, 1.9], np.zeros((2, 2)))
    with pytest.raises(rf.CapacityError, match=r"more than 4 windows.*context="):
        stream.push(2.1, [0.0, 0.0])
    assert stream.count == 2
    assert len(stream.push(2.0, [0.0, 0.0])) == 1


def test_no_streams_and_no_rows():
    model = predictor(series())
    none = rf.StreamBatch(model, 0)
    assert len(none.push([], [], np.zeros((0, 2)))) == 0
    one = rf.StreamBatch(model, 1)
    events = one.push(np.zeros(0, int), [], np.zeros((0, 2)))
    assert len(events) == len(events.answers) == 0
    assert one.last_time(0) != one.last_time(0)
    with pytest.raises(rf.InputError, match="no observation yet"):
        one.predict(0)
    one.push([0], [3.0], [[np.nan, np.nan]])
    assert len(one.predict([0])) == 1


@pytest.mark.parametrize(
    ("rows", "words", "row"),
    [
        (([0, 2], [0, 1], np.zeros((2, 2))), "no stream 2", 1),
        (([0, 0], [0, np.nan], np.zeros((2, 2))), "time must be finite", 1),
        (([0], [0], [[np.inf, 0]]), "finite, or NaN", 0),
        (([0, 1, 0], [1, 7, 1], np.zeros((3, 2))), "not after 1", 2),
        (([1, 1], [6, 5], np.zeros((2, 2))), "not after 6", 1),
        (([1], [4], np.zeros((1, 2))), "not after 5", 0),
    ],
)
def test_a_wrong_row_changes_nothing(rows, words, row):
    model = predictor(series(), context=2)
    streams = rf.StreamBatch(model, 2)
    streams.push([1], [5.0], [[1.0, 2.0]])
    before = streams.snapshot([0, 1])
    with pytest.raises(rf.InputError, match=words) as raised:
        streams.push(*rows)
    assert raised.value.row == row
    assert streams.snapshot([0, 1]) == before


def test_wrong_shapes_are_refused():
    streams = rf.StreamBatch(predictor(series()), 2)
    with pytest.raises(rf.InputError, match=r"values of shape \(1, 2\)"):
        streams.push([0], [0.0], [[1.0]])
    with pytest.raises(rf.InputError, match="array of numbers"):
        streams.push([0], ["soon"], [[1.0, 2.0]])
    with pytest.raises(rf.InputError, match="whole numbers"):
        streams.push([0.5], [0.0], [[1.0, 2.0]])
    for far in (1e9, 1e29):
        with pytest.raises(rf.InputError, match="windows of a stream would end with one push"):
            streams.push([0, 0], [0.0, far], np.zeros((2, 2)))
    with pytest.raises(rf.InputError, match=r"at most 1e\+30"):
        streams.push([0], [1e100], np.zeros((1, 2)))
    with pytest.raises(rf.InputError, match="array of numbers"):
        rf.Stream(predictor(series())).push("soon", [1.0, 2.0])
    with pytest.raises(rf.InputError, match="shape"):
        rf.Stream(predictor(series())).push([0.0, 1.0], [1.0, 2.0, 3.0])


def test_late_rows_can_be_left_out():
    model = predictor(series(), context=2)
    tidy, untidy = rf.StreamBatch(model, 2), rf.StreamBatch(model, 2, unordered="drop")
    x = np.arange(14.0).reshape(7, 2)
    slots, times = np.array([0, 1, 0, 0, 1, 0, 0]), np.array([0, 9, 2, 1, 9, 2, 3.0])
    keep = [0, 1, 2, 6]
    tidy.push(slots[keep], times[keep], x[keep])
    assert untidy.push(slots, times, x).dropped == 3
    assert tidy.snapshot([0, 1]) == untidy.snapshot([0, 1])
    assert untidy.push([0], [3.0], [[0.0, 0.0]]).dropped == 1


def test_a_stream_can_begin_anew():
    model = predictor(series(), context=2, static=("age",))
    streams = rf.StreamBatch(model, 2)
    fresh = streams.snapshot([1])
    streams.push([1, 1], [0.0, 3.0], np.ones((2, 2)))
    streams.open(1)
    assert streams.snapshot([1]) == fresh
    streams.open(1, {"age": 2.0})
    assert streams.snapshot([1]) != fresh
    with pytest.raises(rf.InputError, match="'weight'"):
        streams.open(1, {"weight": 1.0})


def test_snapshots_are_checked():
    batch = series()
    model, other = predictor(batch, context=2), predictor(batch, context=2, seed=1)
    stream = rf.Stream(model)
    stream.push(0.0, [0.0, 1.0])
    blob = stream.snapshot()
    assert rf.Stream.restore(model, blob).snapshot() == blob
    with pytest.raises(rf.CheckpointError, match="another model"):
        rf.Stream.restore(other, blob)
    broken = bytearray(blob)
    broken[-1] ^= 1
    with pytest.raises(rf.CheckpointError, match="damaged"):
        rf.Stream.restore(model, bytes(broken))
    with pytest.raises(rf.CheckpointError, match="not a snapshot"):
        rf.Stream.restore(model, b"something else")
    with pytest.raises(rf.CheckpointError, match="does not fit 2 streams"):
        rf.StreamBatch(model, 2).restore([0, 1], blob)


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda streams: pickle.loads(pickle.dumps(streams)),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize(
    "options",
    [
        {"tokens": {"context": 3, "clock": 2, "static": ("age",)}, "members": 2},
        {"tokens": {"observations": True}, "streams": {"max_windows": 200, "unordered": "drop"}},
        {"tokens": {}, "streams": {"span": 3.0, "every": 1.0}},
    ],
)
def test_a_copy_goes_on_as_the_original_would(how, options):
    batch = series(n=3, seed=1, points=60)
    model = predictor(series(), members=options.get("members", 1), **options["tokens"])
    original = opened(model, batch, **options.get("streams", {}))
    slots = np.repeat(np.arange(3), batch.lengths)
    order = np.argsort(batch.times - np.repeat(batch.span[0], batch.lengths), kind="stable")
    early, late = order[: len(order) // 2], order[len(order) // 2 :]
    original.push(slots[early], batch.times[early], batch.values[early])
    before = original.snapshot([0, 1, 2])
    twin = COPIES[how](original)
    assert twin.snapshot([0, 1, 2]) == before
    said = twin.push(slots[late], batch.times[late], batch.values[late])
    assert len(said) > 0
    after = rows_of(twin.predict([0, 1, 2]))
    assert original.snapshot([0, 1, 2]) == before  # the copy has memory of its own
    expected = original.push(slots[late], batch.times[late], batch.values[late])
    np.testing.assert_array_equal(said.slot, expected.slot)
    np.testing.assert_array_equal(said.time, expected.time)
    np.testing.assert_array_equal(rows_of(said.answers), rows_of(expected.answers))
    np.testing.assert_array_equal(after, rows_of(original.predict([0, 1, 2])))


@pytest.mark.parametrize("how", COPIES)
def test_copies_of_one_stream_and_of_none(how):
    model = predictor(series(), context=2)
    stream = rf.Stream(model)
    stream.push([0.0, 0.7], np.zeros((2, 2)))
    twin = COPIES[how](stream)
    twin.push(0.9, [1.0, 2.0])
    assert (stream.count, twin.count) == (2, 3)
    assert COPIES[how](rf.StreamBatch(model, 0)).n == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"windows": 5}, "by duration or by points"),
        ({"lags": (0.1,)}, "lags"),
        ({"hold": False}, None),
    ],
)
def test_models_that_cannot_be_run_window_by_window(options, words):
    if words is None:
        batch = series()
        tokenizer = rf.Tokenizer.fit(rf.TokenConfig(windows=5), batch)
        module = rf.RFormer(rf.RFormerConfig(n_features=tokenizer.n_features, n_outputs=2))
        targets = ClassTargets(classes=("a", "b"), dtype="<U1")
        model, words = rf.Predictor(tokenizer, module, targets), "causal=True"
    else:
        model = predictor(series(), **options)
    with pytest.raises(rf.InputError, match=words):
        rf.Stream(model)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("window", 1e6), ("window", -1.0), ("window", 0.5), ("points", 0.0), ("points", -3.0),
        ("count", 2**63 - 1), ("count", -1), ("last_time", np.inf), ("last_time", np.nan),
        ("start", np.nan), ("start", 1e300), ("time", -1.0), ("opened", 1e9), ("local", np.inf),
        ("answer", np.nan), ("member0_block0", np.nan), ("held", np.inf),
    ],
)  # fmt: skip
def test_a_state_that_no_stream_can_be_in_is_refused(name, value):
    batch = series(2)
    streams = opened(predictor(batch), batch)
    streams.push([0, 0, 1], [1.0, 1.3, 7.0], np.ones((3, 2)))
    before = streams.snapshot([0, 1])
    rows = read_snapshot(streams._model_key(), before)
    rows[name][0] = value
    with pytest.raises(rf.CheckpointError, match="no stream can be in this state"):
        streams.restore([0, 1], write_snapshot(streams._model_key(), rows))
    assert streams.snapshot([0, 1]) == before


@pytest.mark.parametrize("context", [None, 3])
def test_a_push_that_fails_half_way_changes_nothing(monkeypatch, context):
    batch = series(3)
    streams = opened(predictor(batch, context=context), batch)
    streams.push([0, 1, 2], [0.0, 0.0, 0.0], np.ones((3, 2)))
    streams.push([0, 1], [15.0, 4.0], np.ones((2, 2)))
    before = streams.snapshot([0, 1, 2])
    said = CausalStreams._forward

    def fail(self, slots, *rest):
        said(self, slots, *rest)
        raise RuntimeError("out of memory")

    rows = [0, 1, 1, 2], [20.0, 30.0, 40.0, 0.01], np.zeros((4, 2))
    monkeypatch.setattr(CausalStreams, "_forward", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        streams.push(*rows)
    monkeypatch.undo()
    assert streams.snapshot([0, 1, 2]) == before
    assert len(streams.push(*rows)) > 0


def test_what_is_said_as_json():
    stream = rf.Stream(predictor(series(), context=2))
    (event, *_) = stream.push([0.0, 0.7], np.zeros((2, 2)))
    plain = event.plain()
    assert plain["window"] == 0
    assert plain["label"] in ("c0", "c1", "c2")
    assert sum(plain["probabilities"].values()) == pytest.approx(1)
    number = rf.Stream(predictor(series(), classes=0, model={"uncertainty": "quantile"}))
    number.push(0.0, [0.0, 0.0])
    (answer,) = number.predict().plain()
    assert isinstance(answer["point"], float)
    assert len(answer["quantiles"]) == 3
    with pytest.raises(rf.InputError, match="fitted estimator"):
        rf.Stream(3)


def test_from_a_trained_estimator_and_its_directory(tmp_path):
    batch = series(n=12, missing=0.1)
    labels = np.array(["a", "b"])[np.arange(12) % 2]
    model = make(rf.RFormerClassifier,
        causal=True, windows=rf.Windows.by_duration(0.5), epochs=1, d_model=8, n_heads=2,
        random_state=0, validation=0,
    )  # fmt: skip
    model.fit(batch, labels)
    model.save(tmp_path / "model")
    ends, shares = model.predict_windows(batch)[0]
    t, x = batch.series(0)
    for source in (model, tmp_path / "model", tmp_path):
        events = rf.Stream(source).push(t, x)
        assert [e.time for e in events] == pytest.approx(ends[: len(events)])
        for event, share in zip(events, shares, strict=False):
            np.testing.assert_allclose(event.answer.probabilities[0], share, atol=1e-5)


def test_no_streams_say_nothing():
    model = predictor(series())
    for n in (0, 2):
        streams = rf.StreamBatch(model, n)
        assert len(streams.predict([])) == 0
        assert len(streams.push([], [], np.zeros((0, 2)))) == 0
