"""A forecaster as one graph: query times are an input, sizes are free, quantiles calibrated."""

import json

import numpy as np
import pytest
from export_models import run_module

import roughformer as rf
from command import fails, succeeds
from roughformer.export import export_model
from roughformer.export.files import open_graph
from roughformer.export.forecast import ForecastGraph, forecast_differences
from roughformer.model import QUANTILES

TINY = {"steps": 20, "d_model": 16, "n_layers": 1, "random_state": 0, "n_jobs": 1}
DAY = np.datetime64("2024-03-01T00:00:00", "ns")


def series(n, seed, longest=40):
    """Two channels to forecast (a season, and one whose size differs from series to series) and a
    planned one; times in hours; an age each.
    """
    rng = np.random.default_rng(seed)
    lengths = np.r_[longest, rng.integers(2, longest, n - 1)]
    times = [np.cumsum(rng.exponential(0.3, k)) for k in lengths]
    values = [
        np.column_stack([np.sin(2 * np.pi * t / 3), 50 + 10 * np.cos(t), np.cos(t)]) for t in times
    ]
    for x in values:
        x[rng.random(x.shape) < 0.3] = np.nan
        x[-1, 0] = 0.5
        x[:, 1] *= 10 ** rng.uniform(0, 2)
    return values, times, rng.normal(size=(n, 1))


def dates(hours):
    return DAY + np.rint(3.6e6 * hours).astype("timedelta64[ms]")


def seconds(hours):
    return (dates(hours) - np.datetime64(0, "s")) / np.timedelta64(1, "s")


@pytest.fixture(scope="module")
def model():
    options = TINY | {"horizon": 3600.0 * 8, "periods": (3600.0 * 3,), "known_future": [2]}
    x, t, age = series(60, 0)
    model = rf.RFormerForecaster(**options, context=16)
    model.fit(x, [dates(s) for s in t], static=age)
    assert model.predictor_.networks[0].config.relative == (1,)
    return model


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    """The graph, by the command, and what that said."""
    folder = tmp_path_factory.mktemp("forecaster")
    model.save(folder / "model")
    x, t, age = series(5, 4)
    rf.SeriesBatch.from_arrays(x, [dates(s) for s in t], static=age).save(folder / "x.parquet")
    file = folder / "model.onnx"
    printed = succeeds("export", folder / "model", "--out", file, "--data", folder / "x.parquet")
    return open_graph(file.read_bytes(), "onnx", ("value", "quantiles")), printed, folder


@pytest.fixture(scope="module")
def run(exported):
    return exported[0]


def padded(x, t, age, length):
    values = np.full((len(x), length, x[0].shape[1]), np.nan)
    times = np.zeros((len(x), length))
    for b, (v, s) in enumerate(zip(x, t, strict=True)):
        values[b, : len(v)], times[b, : len(s)] = v, seconds(s)
    lengths = np.array([len(s) for s in t], dtype=np.int64)
    return {"values": values, "times": times, "lengths": lengths, "static": age}


@pytest.mark.parametrize(("n", "longest", "extra", "asked"), [(1, 3, 0, 1), (7, 50, 5, 9)])
def test_the_graph_answers_as_the_model_does_for_any_sizes(model, run, n, longest, extra, asked):
    x, t, age = series(n, 1, longest)
    assert any(model.predictor_.networks[0].config.harmonics)  # seasons are part of the graph
    x[0][2:, 1] = np.nan  # last seen long before the context
    x[-1][:, 0] += 30  # far beyond all training values
    at = np.array([s[-1] for s in t])[:, None] + np.linspace(0.05, 7.9, asked)
    found = run(padded(x, t, age, longest + extra) | {"at": seconds(at)})
    series_of_model = {"times": [dates(s) for s in t], "at": dates(at), "static": age}
    wanted = model.predict(x, **series_of_model)
    np.testing.assert_allclose(found["value"][..., :2], wanted[..., :2], rtol=1e-5, atol=1e-4)
    quantiles = model.predict_quantiles(x, **series_of_model, levels=QUANTILES)
    np.testing.assert_allclose(
        found["quantiles"][:, :, :2], quantiles[:, :, :2], rtol=1e-5, atol=1e-4
    )


def test_the_graph_of_several_networks_answers_as_they_do_together():
    # The module itself: an export of each network more takes seconds.
    x, t, _ = series(20, 0)
    model = rf.RFormerForecaster(**TINY, context=16, n_estimators=2, horizon=8.0).fit(x, t)
    predictor = model.predictor_
    graph = ForecastGraph(predictor)
    batch = rf.SeriesBatch.from_arrays(x, t)
    gaps = forecast_differences(predictor, graph, np.dtype(np.float64), run_module(graph), batch, 3)
    assert max(gaps.values()) < 1e-5


def test_no_times_have_no_answers(run):
    x, t, age = series(2, 2)
    found = run(padded(x, t, age, 40) | {"at": np.zeros((2, 0))})
    assert (found["value"].shape, found["quantiles"].shape) == ((2, 0, 3), (2, 0, 3, 9))


def test_times_within_a_series_are_not_answered(run):
    x, t, age = series(1, 2)
    at = seconds(np.array([[t[0][5], t[0][-1], t[0][-1] + 1]]))
    found = run(padded(x, t, age, 40) | {"at": at})
    np.testing.assert_array_equal(np.isnan(found["value"][0, :, 0]), [True, True, False])


def test_a_known_future_goes_into_the_graph(model, run):
    x, t, age = series(1, 3)
    given, end = x[0].copy(), 30
    given[end:, :2] = np.nan
    end = np.flatnonzero(~np.isnan(given[:, :2]).all(axis=1))[-1]
    at = t[0][end] + np.array([[0.1, 1.0, 2.5]])
    inputs = padded([given], t, age, 44) | {"at": seconds(at)}
    found = run(inputs)["value"]
    wanted = model.predict([given], [dates(t[0])], at=dates(at), static=age)
    np.testing.assert_allclose(found[..., :2], wanted[..., :2], rtol=0, atol=1e-5)
    assert np.isnan(found[..., 2]).all()
    past = inputs["times"][..., None] <= seconds(t[0][end])
    without = run(inputs | {"values": np.where(past, inputs["values"], np.nan)})["value"]
    assert np.abs(without[..., :2] - found[..., :2]).max() > 1e-3
    given[:, :2] = np.nan  # nothing but a plan: forecasts from the first point on
    at = t[0][[0, 3]][None]
    found = run(padded([given], t, age, 44) | {"at": seconds(at)})["value"]
    wanted = model.predict([given], [dates(t[0])], at=dates(at), static=age)
    np.testing.assert_allclose(found[..., :2], wanted[..., :2], rtol=1e-5, atol=1e-4)


def test_the_command_line_exports_a_forecaster(exported):
    _, printed, folder = exported
    assert "on 5 series" in printed.out
    about = json.loads((folder / "model.onnx.json").read_text())
    assert about["inputs"]["at"]["shape"] == ["series", "queries"]
    assert about["quantiles"] == list(QUANTILES)
    said = fails("export", folder / "model", "--step", "--out", folder / "other.onnx")
    assert "no step graph" in said


def test_a_forecaster_of_a_few_plain_series_is_exported(tmp_path):
    x, t, _ = series(12, 6)
    model = rf.RFormerForecaster(**TINY, context=16).fit([v[:, :2] for v in x], t)
    assert len(ForecastGraph(model.predictor_).edges) == 0  # too few to tell horizons apart
    assert export_model(model.predictor_, tmp_path / "model.onnx").largest < 1e-4
