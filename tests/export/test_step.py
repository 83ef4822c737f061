"""A stream run by the step graph, some points at a time = the predictor on the whole series, and
``Stream``.
"""

import numpy as np
import pytest
import torch
from export_models import run_module, series, streamed_predictor

import roughformer as rf
from roughformer.errors import InputError
from roughformer.export import StepGraph
from roughformer.export.check import padded_inputs, run_stream, step_differences
from roughformer.export.graphs import output_names

CASES = {
    "local": {"views": ("local",)},
    "both views": {},
    "points, clock, static": {"windows": {"points": 3}, "clock": 2, "static": ("age", "kind")},
    "basepoint, logsignature": {"basepoint": True, "transform": "logsignature", "depth": 3},
    "context": {"context": 3, "basepoint": True, "clock": 2},
    "context 1": {"context": 1},
    "context 8, committee": {"context": 8, "members": 2, "time": "none"},
    "points, context 5": {"context": 5, "windows": {"points": 2}},
    "gaussian": {"task": "regression", "uncertainty": "gaussian"},
    "quantiles, committee": {"task": "regression", "uncertainty": "quantile", "members": 2},
    "observations": {
        "observations": True, "depth": 0, "context": 4, "model": {"scaling": "rank", "wide": 4},
    },
    "observations and signatures": {"observations": True, "windows": {"points": 4}},
    "two layers": {"model": {"n_layers": 2}},
    "no attention": {"model": {"n_layers": 0}},
}  # fmt: skip


def step_inputs(graph, batch, first, points, state):
    return padded_inputs(graph, batch, points=points, first=first) | {"state": state}


@pytest.mark.filterwarnings("ignore::roughformer.UnobservedWarning")
@pytest.mark.parametrize("case", CASES)
def test_step_by_step_is_the_whole_series(case):
    model = streamed_predictor(**CASES[case])
    graph = StepGraph(model)
    run = run_module(graph)
    for seed, (n, longest) in enumerate([(4, 30), (1, 40), (2, 2), (2, 1)]):
        batch = series(n, longest, seed, start=1.7e9 if seed % 2 else 100.0)
        for points in (1, 6):
            found = step_differences(model, graph, run, batch, points=points)
            assert set(found) == set(output_names(model))
            assert max(found.values()) < 1e-5


@pytest.mark.parametrize("case", CASES)
def test_step_by_step_is_a_stream(case):
    model = streamed_predictor(**CASES[case])
    graph = StepGraph(model)
    batch = series(2, 60, seed=3)
    for b, said in enumerate(run_stream(graph, run_module(graph), batch, 7)):
        static = dict(zip(batch.static_names, batch.static[b].tolist(), strict=True))
        names = graph.static_names
        stream = rf.Stream(model, static={name: static[name] for name in names} or None)
        events = stream.push(*batch.series(b))
        answers = [*(event.answer for event in events), stream.predict()]
        ends = [*(event.time for event in events), stream.last_time]
        for k, step in enumerate(said):
            assert step["time"] == pytest.approx(ends[k], abs=1e-9)
            assert step["ended"] == (k < len(events))
            for name in output_names(model):
                right = getattr(answers[k], name)[0]
                assert step[name] == pytest.approx(right, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("rule", [{"duration": 1.7}, {"points": 2}])
def test_points_at_the_very_end_of_a_window(rule):
    """Every other point lies on a cut: it ends its window at once, as in ``Stream``."""
    model = streamed_predictor(windows=rule, context=3)
    graph = StepGraph(model)
    batch = series(3, 31, seed=4)
    for start in (0.0, 0.1, 1.7e9):
        exact = batch.with_times(
            np.concatenate([start + np.arange(n) * 0.85 for n in batch.lengths])
        )
        for points in (1, 6):
            found = step_differences(model, graph, run_module(graph), exact, points=points)
            assert max(found.values()) < 1e-5


def test_a_gap_ends_one_window_after_the_other():
    graph = StepGraph(streamed_predictor())
    run = run_module(graph)
    batch = rf.SeriesBatch.from_arrays([np.ones((2, 2))], [np.array([10.0, 17.0])])
    said = run_stream(graph, run, batch, 5)[0]
    assert [answer["ended"].item() for answer in said] == [True] * 4 + [False]
    assert [answer["taken"].item() for answer in said[:4]] == [1, 0, 0, 0]
    assert [answer["time"].item() for answer in said] == pytest.approx([11.7, 13.4, 15.1, 16.8, 17])


def test_streams_of_a_batch_do_not_meet():
    graph = StepGraph(streamed_predictor(context=3, observations=True, clock=2))
    run = run_module(graph)
    batch = series(4, 40, seed=6)
    together = run_stream(graph, run, batch, 3)
    for b in range(4):
        alone = run_stream(graph, run, batch[b : b + 1], 3)[0]
        assert len(alone) == len(together[b])
        for one, other in zip(alone, together[b], strict=True):
            assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-6)


def test_without_points_nothing_changes():
    graph = StepGraph(streamed_predictor(context=3, observations=True, clock=2))
    run = run_module(graph)
    batch = series(3, 9, seed=2, shortest=9)
    begin = np.zeros(3, dtype=np.int64)
    fresh = np.zeros((3, graph.state_size))
    silent = {"lengths": begin, "times": np.full((3, 9), np.nan)}
    nothing = run(step_inputs(graph, batch, begin, 9, fresh) | silent)
    assert np.isnan(nothing["probabilities"]).all()
    assert np.isnan(nothing["time"]).all()
    assert (nothing["next_state"] == 0).all()
    once = run(step_inputs(graph, batch, begin, 9, fresh))
    assert (once["taken"] > 0).all()
    again = run(step_inputs(graph, batch, begin, 9, once["next_state"]) | silent)
    assert again["probabilities"] == pytest.approx(once["probabilities"], abs=1e-7)
    assert (again["taken"] == 0).all()
    assert (~again["ended"]).all()
    assert (again["next_state"] == once["next_state"]).all()


def test_without_a_context_a_stream_ends_after_so_many_windows():
    model = streamed_predictor()
    graph = StepGraph(model, max_windows=4)
    batch = series(1, 40, seed=1)
    said = run_stream(graph, run_module(graph), batch, 50)[0]
    known = [bool(np.isfinite(answer["probabilities"]).all()) for answer in said]
    assert known == [True] * 4 + [False] * (len(said) - 4)
    assert max(step_differences(model, graph, run_module(graph), batch).values()) < 1e-5
    assert StepGraph(streamed_predictor(context=2)).max_windows is None


def test_gradients_flow_through_a_step():
    graph = StepGraph(streamed_predictor(context=2, clock=2))
    inputs = step_inputs(graph, series(2, 9, seed=0), np.zeros(2, dtype=np.int64), 9,
                         np.zeros((2, graph.state_size)))  # fmt: skip
    tensors = {name: torch.from_numpy(x) for name, x in inputs.items()}
    tensors["values"] = tensors["values"].nan_to_num().requires_grad_()
    graph(**tensors)[0][:, 0].sum().backward()
    assert tensors["values"].grad.isfinite().all()
    assert tensors["values"].grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"windows": 4}, "by duration or by points"),
        ({"lags": (1.0,)}, "lags need the past itself"),
        ({"time": "span"}, "made of the whole series"),
        ({"hold": False}, "made of the whole series"),
        ({"model": {"causal": False}}, r"looks at a series as a whole; train one with causal=True"),
    ],
)
def test_refusals(options, why):
    with pytest.raises(InputError, match=f"no step graph can be made of this model: .*{why}"):
        StepGraph(streamed_predictor(**options))
