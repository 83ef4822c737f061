"""Exported files, run as their users run them, = the predictor on sizes they were not traced with.

An export takes seconds, so a few models stand for all: the steps of the others are in
``test_graph.py`` and ``test_step.py``.
"""

import json

import numpy as np
import pytest
from export_models import beats, rates_predictor, series, streamed_predictor

import roughformer as rf
from roughformer.export import Graph, StepGraph, export_model, export_step
from roughformer.export.check import differences, run_stream, step_differences
from roughformer.export.files import open_graph
from roughformer.export.graphs import output_names

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

pytestmark = pytest.mark.filterwarnings("ignore::roughformer.UnobservedWarning")
SIZES = [(1, 29), (6, 75), (3, 2), (4, 1)]


def at_cuts():
    """Series with every other point at the end of a window of 1.7: a cut that is rounded to float32
    lies on the other side of it.
    """
    batch = series(3, seed=60, longest=61)
    times = [np.arange(n) * 0.85 for n in batch.lengths]
    return batch.with_times(np.concatenate(times))


def whole_gap(model, file, format, batches, dtype=np.float64):
    """The largest difference on series that the export itself has not tried."""
    graph = Graph(model)
    run = open_graph(file.read_bytes(), format, graph.outputs)
    gaps = [
        max(differences(model, graph, run, batch, dtype, extra=i % 3).values())
        for i, batch in enumerate(batches)
    ]
    return max(gaps)


def step_gap(model, file, format, batches, dtype=np.float64, max_windows=1024):
    """The same of a step, for streams that bring one point or many at a time."""
    graph = StepGraph(model, max_windows)
    run = open_graph(file.read_bytes(), format, graph.outputs)
    gaps = [
        max(step_differences(model, graph, run, batch, dtype, points=points).values())
        for batch in batches
        for points in (1, 9)
    ]
    return max(gaps)


def other_sizes():
    made = [series(n, longest, seed=seed + 40) for seed, (n, longest) in enumerate(SIZES)]
    return [*made, at_cuts()]


def test_onnx_is_the_causal_model(causal):
    # A model that said the same of everything would agree with any graph.
    assert np.ptp(causal.predictor.probabilities(other_sizes()[1])[:, 0]) > 0.01
    assert whole_gap(causal.predictor, causal.file, "onnx", other_sizes(), np.float32) < 1e-5
    onnx.checker.check_model(onnx.load(causal.file))


def test_the_step_in_onnx_is_the_causal_model(causal):
    assert step_gap(causal.predictor, causal.step, "onnx", other_sizes(), np.float32) < 1e-5
    onnx.checker.check_model(onnx.load(causal.step))


def test_the_step_in_onnx_is_a_stream(causal):
    model = causal.predictor
    graph = StepGraph(model)
    run = open_graph(causal.step.read_bytes(), "onnx", graph.outputs)
    batch = series(3, 60, seed=5)
    batch = batch.with_values(batch.values.astype(np.float32))
    for b, said in enumerate(run_stream(graph, run, batch, 4, np.float32)):
        static = dict(zip(batch.static_names, batch.static[b].tolist(), strict=True))
        events = rf.Stream(model, static=static).push(*batch.series(b))
        ended = [answer for answer in said if answer["ended"]]
        assert len(ended) == len(events)
        for answer, event in zip(ended, events, strict=True):
            assert answer["time"] == pytest.approx(event.time, abs=1e-9)
            right = event.answer.probabilities[0]
            assert answer["probabilities"] == pytest.approx(right, abs=1e-5)


def test_onnx_is_the_model_with_all_lifts(lifted):
    assert whole_gap(lifted.predictor, lifted.file, "onnx", other_sizes()) < 1e-5
    assert not lifted.step.exists()


def test_onnx_is_the_model_of_rates(tmp_path):
    model = rates_predictor(0, step=0.1)
    path = tmp_path / "rates.onnx"
    done = export_model(model, path)
    assert done.largest < 1e-5
    assert set(done.differences) == {"point", "deviation"}
    batches = [beats(n, seed, longest) for seed, (n, longest) in enumerate([(1, 61), (5, 200)])]
    assert whole_gap(model, path, "onnx", batches) < 1e-5


def test_programs_of_torch_are_the_model(tmp_path):
    model = streamed_predictor(task="regression", uncertainty="gaussian", depth=1)
    whole, step = tmp_path / "m.pt2", tmp_path / "m.step.pt2"
    assert export_model(model, whole, format="torch").largest < 1e-5
    assert whole_gap(model, whole, "torch", other_sizes()) < 1e-5
    done = export_step(model, step, format="torch", max_windows=100)
    assert done.largest < 1e-5
    assert set(done.differences) == set(output_names(model))
    assert step_gap(model, step, "torch", other_sizes(), max_windows=100) < 1e-5
    about = json.loads((tmp_path / "m.step.pt2.json").read_text())
    assert about["max_windows"] == 100
    assert about["windows"] == {"duration": 1.7}
