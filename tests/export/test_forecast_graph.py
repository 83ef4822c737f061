"""A forecaster as one graph: query times are an input, sizes are free, quantiles calibrated."""

import json

import numpy as np
import pytest

import roughformer as rf
from command import fails, succeeds
from roughformer.export import export_forecaster
from roughformer.export.files import open_graph
from roughformer.model import QUANTILES

TINY = {"steps": 20, "horizon": 8.0, "d_model": 16, "n_layers": 1, "random_state": 0, "n_jobs": 1}


def series(n, seed, longest=40):
    rng = np.random.default_rng(seed)
    lengths = np.r_[longest, rng.integers(2, longest, n - 1)]
    times = [np.cumsum(rng.exponential(0.3, k)) for k in lengths]
    values = [np.column_stack([np.sin(t), 50 + 10 * np.cos(t)]) for t in times]
    for x in values:
        x[rng.random(x.shape) < 0.3] = np.nan
    return values, times


@pytest.fixture(scope="module")
def model():
    return rf.RFormerForecaster(**TINY, context=16, periods=(3.0,), n_estimators=2).fit(
        *series(60, 0)
    )


@pytest.fixture(scope="module")
def run(model, tmp_path_factory):
    file = tmp_path_factory.mktemp("forecaster") / "model.onnx"
    export_forecaster(model.predictor_, file)
    return open_graph(file.read_bytes(), "onnx", ("value", "quantiles"))


def padded(x, t, length):
    values = np.full((len(x), length, x[0].shape[1]), np.nan)
    times = np.zeros((len(x), length))
    for b, (v, s) in enumerate(zip(x, t, strict=True)):
        values[b, : len(v)], times[b, : len(s)] = v, s
    lengths = np.array([len(s) for s in t], dtype=np.int64)
    return {"values": values, "times": times, "lengths": lengths}


@pytest.mark.parametrize(("n", "longest", "extra", "asked"), [(1, 3, 0, 1), (7, 50, 5, 9)])
def test_the_graph_answers_as_the_model_does_for_any_sizes(model, run, n, longest, extra, asked):
    x, t = series(n, 1, longest)
    at = np.array([s[-1] for s in t])[:, None] + np.linspace(0.05, 7.9, asked)
    found = run(padded(x, t, longest + extra) | {"at": at})
    np.testing.assert_allclose(found["value"], model.predict(x, t, at=at), rtol=0, atol=1e-4)
    quantiles = model.predict_quantiles(x, t, at=at, levels=QUANTILES)
    np.testing.assert_allclose(found["quantiles"], quantiles, rtol=0, atol=1e-4)


def test_times_within_a_series_are_not_answered(run):
    x, t = series(1, 2)
    found = run(padded(x, t, 40) | {"at": np.array([[t[0][5], t[0][-1], t[0][-1] + 1]])})
    np.testing.assert_array_equal(np.isnan(found["value"][0, :, 0]), [True, True, False])


def test_dates_covariates_and_a_known_future_go_into_the_graph(tmp_path):
    x, t = series(60, 3)
    day = np.datetime64("2024-03-01T00:00:00", "ns")
    dates = [day + (1e9 * 3600 * s).astype("timedelta64[ns]") for s in t]
    age = np.random.default_rng(0).normal(size=(60, 1))
    options = TINY | {"horizon": 3600.0 * 8, "known_future": [1]}
    model = rf.RFormerForecaster(**options).fit(x, dates, static=age)
    export_forecaster(model.predictor_, tmp_path / "model.onnx")
    run = open_graph((tmp_path / "model.onnx").read_bytes(), "onnx", ("value", "quantiles"))
    seconds = [d.astype(np.int64) / 1e9 for d in dates]
    given, end = x[0].copy(), 30
    given[end:, 0] = np.nan
    end = np.flatnonzero(~np.isnan(given[:, 0]))[-1]
    at = seconds[0][end] + np.array([[100.0, 3600.0, 9000.0]])
    asked = (at * 1e9).astype(np.int64).astype("datetime64[ns]")
    inputs = padded([given], seconds[:1], 44) | {"at": at, "static": age[:1]}
    found = run(inputs)["value"]
    wanted = model.predict([given], dates[:1], at=asked, static=age[:1])
    np.testing.assert_allclose(found[..., 0], wanted[..., 0], rtol=0, atol=1e-5)
    assert np.isnan(found[..., 1]).all()
    without = run(inputs | {"values": np.where(inputs["times"][..., None] > seconds[0][end],
                                               np.nan, inputs["values"])})["value"]  # fmt: skip
    assert np.abs(without[..., 0] - found[..., 0]).max() > 1e-3


def test_the_command_line_exports_a_forecaster(model, tmp_path):
    model.save(tmp_path / "model")
    rf.SeriesBatch.from_arrays(*series(5, 4)).save(tmp_path / "series.parquet")
    out = tmp_path / "model.pt2"
    printed = succeeds("export", tmp_path / "model", "--format", "torch", "--out", out,
                       "--data", tmp_path / "series.parquet")  # fmt: skip
    assert "on 5 series" in printed.out
    about = json.loads((tmp_path / "model.pt2.json").read_text())
    assert about["inputs"]["at"]["shape"] == ["series", "queries"]
    assert about["quantiles"] == list(QUANTILES)
    said = fails("export", tmp_path / "model", "--step", "--out", tmp_path / "other.onnx")
    assert "no step graph" in said
