"""One definition: estimator, module, stream and graph say the same, whatever the tokens."""

import warnings
from unittest import mock

import numpy as np
import pytest
import torch
from export_models import padded, predictor, run_module, series
from hypothesis import given
from hypothesis import strategies as st

import roughformer as rf
from roughformer.export import Graph, StepGraph
from roughformer.export.check import differences, step_differences

pytestmark = pytest.mark.filterwarnings("ignore::roughformer.UnobservedWarning")


@st.composite
def token_options(draw):
    """Any tokens that can be; causal ones as often as not."""
    causal = draw(st.booleans())
    views = draw(
        st.sampled_from([("global", "local"), ("local", "global"), ("local",), ("global",)])
    )
    rules = [{"duration": 1.7}, {"points": 3}, {"points": 1}]
    options = {
        "windows": draw(st.sampled_from(rules if causal else [4, *rules, (101.0, 103.0, 107.5)])),
        "depth": draw(st.integers(1, 4)),
        "views": views,
        "transform": draw(st.sampled_from(["signature", "logsignature"])),
        "basepoint": draw(st.booleans()),
        "clock": draw(st.sampled_from([0, 2])) if "local" in views else 0,
        "observations": draw(st.booleans()),
        "static": draw(st.sampled_from([(), ("age", "kind")])),
        "time": draw(st.sampled_from(["unit", "none"] if causal else ["unit", "span", "none"])),
    }
    if causal:
        context = draw(st.sampled_from([None, 1, 3, 4]))
        options |= {"hold": True, "context": context}
        options["model"] = {"causal": True, "context": context}
    else:
        options |= {
            "lags": draw(st.sampled_from([(), (0.6,)])),
            "counts": draw(st.booleans()),
            "spectrum": draw(st.sampled_from([None, {"count": 12}])),
        }
    scaling = draw(st.sampled_from(["standard", "rank"]))
    options["model"] = options.get("model", {}) | {"scaling": scaling}
    return options


@given(options=token_options(), seed=st.integers(0, 1000))
def test_estimator_module_stream_and_graph_are_one(options, seed):
    check_one_definition(predictor(**options), series(4, longest=20, seed=seed), options)


@st.composite
def returning(draw):
    """Series with windows of whole periods: a channel of some shape, and a constant one or its
    double.
    """
    points = draw(st.integers(2, 24))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    angle = 2 * np.pi * np.arange(points) / points
    shape = draw(st.sampled_from([np.sin(angle), np.cos(angle), rng.standard_normal(points)]))
    level = draw(st.sampled_from([0.0, 0.7, 1e3]))
    second = draw(st.sampled_from(["constant", "double", "noise"]))
    periods = rng.integers(2, 5, 6)

    def one(n):
        x = level + rng.uniform(0.5, 2) * np.tile(shape, n)
        x = np.append(x, x[0])
        y = {"constant": np.full(len(x), rng.normal()), "double": 2 * x, "noise": x * 0}[second]
        return np.stack([x, rng.standard_normal(len(x)) if second == "noise" else y], axis=1)

    values = [one(n) for n in periods]
    times = [100 + np.arange(len(x)) * 0.37 for x in values]
    static = np.stack([rng.normal(60, 9, 6), rng.integers(0, 4, 6)], axis=1)
    batch = rf.SeriesBatch.from_arrays(
        values, times, channels=["a", "b"], static=static, static_names=["age", "kind"]
    )
    return batch, points, draw(token_options())


@given(case=returning())
def test_rounding_of_channels_that_return_is_not_scaled_up(case):
    batch, points, options = case
    if options["windows"] != 4:
        options["windows"] = {"points": points}
    check_one_definition(predictor(batch=batch, **options), batch, options)


def check_one_definition(model, batch, options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rf.UnobservedWarning)
        want, mask = model.forward(batch)
    inputs = {name: torch.from_numpy(x) for name, x in padded(batch).items()}
    if options["static"]:
        inputs["static"] = torch.tensor(batch.static)
    # The module on tensors: by the kernel, by the definition, and as a graph has it.
    slow = mock.patch("roughformer.signatures.operators.kernel_serves", return_value=False)
    with torch.no_grad():
        for found in (model.model(**inputs), _within(slow, model.model, inputs)):
            assert (
                float((found - want)[mask if mask.dim() < found.dim() else ...].abs().max()) < 1e-5
            )
    graph = Graph(model)
    assert max(differences(model, graph, run_module(graph), batch).values()) < 1e-5
    if not options.get("hold"):
        return
    # A stream: in the service's way, and as a graph has it.
    streams = rf.StreamBatch(model, len(batch))
    for b in range(len(batch)):
        if options["static"]:
            values = dict(zip(batch.static_names, batch.static[b], strict=True))
            streams.open(b, values)
    rows = np.repeat(np.arange(len(batch)), batch.lengths)
    events = streams.push(rows, batch.times, batch.values)
    said = np.log(events.answers.probabilities)
    whole = (want.double() / model.calibration).log_softmax(dim=-1).numpy()
    for slot, window, answer in zip(events.slot, events.window, said, strict=True):
        assert np.abs(answer - whole[slot, window]).max() < 1e-5
    last = np.log(streams.predict(np.arange(len(batch))).probabilities)
    ends = mask.sum(dim=1).numpy() - 1
    assert np.abs(last - whole[np.arange(len(batch)), ends]).max() < 1e-5
    step = StepGraph(model, 64)
    assert max(step_differences(model, step, run_module(step), batch, points=3).values()) < 1e-5


def _within(patch, model, inputs):
    with patch:
        return model(**inputs)
