"""The graph as a module = the predictor, for every kind of token and any raggedness."""

import numpy as np
import pytest
import torch
from export_models import (
    beats,
    padded,
    predictor,
    rates_predictor,
    run_module,
    series,
)
from hypothesis import given
from hypothesis import strategies as st

import roughformer as rf
from roughformer.export import Graph
from roughformer.export.check import differences, expected_of
from roughformer.signatures.torch_backend import observed
from roughformer.tokens.tempo import with_variation

EXPLICIT = (101.0, 103.5, 104.0, 107.0)
CAUSAL = {"hold": True, "model": {"causal": True}}
CASES = {
    "both views": {},
    "local, depth 1": {"depth": 1, "views": ("local",), "time": "none"},
    "global, depth 3, span": {"depth": 3, "views": ("global",), "time": "span"},
    "logsignature": {"depth": 3, "transform": "logsignature"},
    "lags": {"lags": (0.7, 2.3)},
    "counts, basepoint": {"counts": True, "basepoint": True},
    "all lifts": {
        "transform": "logsignature", "basepoint": True, "lags": (1.0,), "counts": True,
        "time": "span", "clock": 2,
    },
    "clock": {"clock": 3},
    "spectrum": {"spectrum": {"count": 70}},
    "spectrum, log axis": {"spectrum": {"count": 20, "axis": "log"}, "clock": 2},
    "observations, ranks, wide": {
        "observations": True, "depth": 0, "model": {"scaling": "rank", "wide": 8},
    },
    "observations and signatures": {
        "observations": True, "windows": {"duration": 1.3}, "model": {"wide": 8},
    },
    "static": {"static": ("age", "kind")},
    "duration": {"windows": {"duration": 1.7}},
    "points": {"windows": {"points": 3}, "clock": 2},
    "explicit": {"windows": EXPLICIT, "clock": 2, "basepoint": True, "observations": True},
    "causal, duration": {"windows": {"duration": 1.7}, "clock": 2, **CAUSAL},
    "causal, points": {"windows": {"points": 2}, "lags": (1.0,), "time": "span", **CAUSAL},
    "causal, explicit": {"windows": (*EXPLICIT, 130.0), "static": ("age",), **CAUSAL},
    "causal, observations": {"windows": {"duration": 1.7}, "observations": True, **CAUSAL},
    "context": {
        "windows": {"duration": 1.1}, "context": 3, "basepoint": True, "clock": 2, "hold": True,
        "model": {"causal": True, "context": 3},
    },
    "context, logsignature": {
        "windows": {"points": 2}, "context": 4, "transform": "logsignature", "hold": True,
        "model": {"causal": True, "context": 4}, "members": 2,
    },
    "gaussian, committee": {"task": "regression", "uncertainty": "gaussian", "members": 2},
    "quantiles, committee": {"task": "regression", "uncertainty": "quantile", "members": 2},
    "causal quantiles": {"task": "regression", "uncertainty": "quantile", **CAUSAL},
    "numbers": {"task": "regression", "model": {"pooling": "attention"}},
    "committee": {"members": 2, "model": {"pooling": "last"}},
}  # fmt: skip


def gap(model, batch, dtype=np.float64, extra=0):
    graph = Graph(model)
    found = differences(model, graph, run_module(graph), batch, dtype, extra)
    assert found
    return max(found.values())


@pytest.mark.filterwarnings("ignore::roughformer.UnobservedWarning")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_graph_says_what_the_predictor_says(case):
    model = predictor(**CASES[case])
    for seed, (n, longest) in enumerate([(5, 24), (3, 1), (4, 2), (1, 40)]):
        assert gap(model, series(n, longest, seed), extra=seed) < 1e-6


@pytest.mark.parametrize("case", ["duration", "causal, duration", "causal, points", "lags"])
def test_large_stamps_lose_no_digits(case):
    model = predictor(**CASES[case])
    for seed in range(4):
        assert gap(model, series(5, 30, seed, start=1.7e9)) < 1e-6


@pytest.mark.filterwarnings("ignore::roughformer.UnobservedWarning")
@given(data=st.data())
def test_any_raggedness(data):
    case = data.draw(st.sampled_from(list(CASES)))
    lengths = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    # Steps of a quarter: points fall onto cuts, which irregular ones never do.
    step = data.draw(st.sampled_from([0.25, None]))
    times, values = [], []
    for m in lengths:
        gaps = rng.integers(1, 5, m) * step if step else rng.uniform(0.01, 1.5, m)
        times.append(100.0 + np.cumsum(gaps))
        x = rng.standard_normal((m, 2)).cumsum(axis=0)
        x[rng.random(x.shape) < data.draw(st.sampled_from([0.0, 0.5, 1.0]))] = np.nan
        values.append(x)
    static = rng.choice([0.0, 1.0, 2.0, 61.5, np.nan], (len(lengths), 2))
    batch = rf.SeriesBatch.from_arrays(
        values, times, channels=["a", "b"], static=static, static_names=["age", "kind"]
    )
    assert gap(predictor(**CASES[case]), batch, extra=data.draw(st.integers(0, 2))) < 1e-5


def test_what_stands_in_the_padding_does_not_matter():
    graph = Graph(predictor(lags=(1.0,), clock=2, observations=True, windows={"points": 4}))
    batch = series(4, 20, seed=3)
    run = run_module(graph)
    junks = (np.nan, 0.0, -7e30, np.inf)
    answers = [run(padded(batch, 3, junk))["probabilities"] for junk in junks]
    assert all((a == answers[0]).all() for a in answers)


def test_a_series_alone_and_in_a_batch():
    graph = Graph(predictor(**CASES["causal, duration"]))
    batch = series(5, 20, seed=1)
    together = run_module(graph)(padded(batch))["probabilities"]
    for b in range(5):
        alone = run_module(graph)(padded(batch[b : b + 1]))["probabilities"]
        assert np.abs(alone[0] - together[b]).max() < 1e-6


def test_windows_of_a_causal_model():
    model = predictor(**CASES["causal, duration"])
    batch = series(4, 20, seed=2)
    found = run_module(Graph(model))(padded(batch, 2))
    edges = model.window_edges(batch)
    for b in range(4):
        n = len(edges[b]) - 1
        assert found["window_mask"][b].sum() == n
        assert found["window_end"][b, :n] == pytest.approx(edges[b][1:], abs=1e-12)
        assert (found["window_probabilities"][b, n - 1] == found["probabilities"][b]).all()
    assert "window_probabilities" in expected_of(model, batch)


def test_float32_values():
    assert gap(predictor(), series(4, 20, seed=5), np.float32) < 1e-5


def test_a_spike_in_one_window_leaves_the_others_alone():
    model = predictor(depth=3, views=("local",))
    batch = series(3, 30, seed=5, missing=0.0)
    values = batch.values.copy()
    values[3] += 1e4  # level 3: 1e12 of what is usual
    graph = Graph(model)
    batch = batch.with_values(values)
    right = model.encoder.encode(batch)["tokens"].numpy()
    tensors = {k: torch.from_numpy(x) for k, x in padded(batch).items()}
    found = graph.encoder.padded(observed(**tensors))[0]["tokens"].numpy()
    usual = np.abs(model.encoder.encode(series(3, 30, seed=5, missing=0.0))["tokens"].numpy())
    quiet = np.abs(right) < 100 * usual.max()
    assert np.abs(found - right)[quiet].max() < 1e-2 * usual.max()


@pytest.mark.parametrize("n_windows", [0, 1, 2, 4])
def test_spectra_of_windows_for_rates(n_windows):
    model = rates_predictor(n_windows)
    for seed, (n, longest) in enumerate([(3, 120), (1, 40), (4, 300)]):
        batch = beats(n, seed, longest)
        right = model.encoder.encode(batch)["spectra"].numpy()
        tensors = {k: torch.from_numpy(x) for k, x in padded(batch, seed).items()}
        found = model.encoder.padded(observed(**tensors), None)[0]["spectra"].numpy()
        assert found.shape == right.shape
        assert np.abs(found - right).max() < 2e-3  # the oracle has float32 inside
        assert gap(model, batch) < 1e-5
    assert gap(model, series(3, 1, missing=0.0)) < 1e-6
    assert with_variation(batch).n_channels == 4


def test_gradients_flow_to_the_values():
    graph = Graph(predictor(lags=(1.0,), clock=2))
    inputs = {k: torch.from_numpy(x) for k, x in padded(series(2, 12, missing=0.0)).items()}
    inputs["values"].requires_grad_()
    graph(**inputs)[0][:, 0].sum().backward()
    slope = inputs["values"].grad
    assert slope[0, : int(inputs["lengths"][0])].abs().sum() > 0
    assert slope.isfinite().all()


def test_the_model_itself_stays_as_it_is():
    model = predictor(observations=True, model={"scaling": "rank"})
    before = type(model.model.standardize)
    Graph(model)
    assert type(model.model.standardize) is before
    assert all(p.requires_grad for p in model.model.parameters())
