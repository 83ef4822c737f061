"""Numbers as targets: several, not all known, with uncertainty, and rates."""

import numpy as np
import pytest
import torch

from roughformer.errors import InputError
from roughformer.estimators import RFormerRegressor
from small import TINY, make, make_sine, walks


def test_several_targets_with_some_not_known():
    y = np.column_stack([np.arange(24.0), np.arange(24.0) * 1000, np.ones(24)])
    y[::3, 0] = np.nan
    y[1::2, 1] = np.nan
    model = make(RFormerRegressor, **TINY).fit(walks(), y)
    found = model.predict(walks())
    assert found.shape == (24, 3)
    assert np.isfinite(found).all()
    each = []
    for k in range(2):
        known = ~np.isnan(y[:, k])
        error = ((found[known, k] - y[known, k]) ** 2).mean()
        each.append(1 - error / y[known, k].var())
    assert model.score(walks(), y) == pytest.approx(np.mean([*each, 0.0]), abs=1e-9)
    assert make(RFormerRegressor, **TINY).fit(walks(), y[:, :1]).predict(walks()).shape == (24, 1)
    assert make(RFormerRegressor, **TINY).fit(walks(), y[:, 2]).predict(walks()).shape == (24,)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.full(24, np.nan), "at least one series where it is known"),
        (np.full(24, np.inf), "finite"),
        (["a"] * 24, "must be numbers"),
        (np.zeros(23), "24 series but targets of shape"),
        (np.zeros((24, 4, 1)), "need causal=True"),
    ],
)
def test_targets_that_are_none(y, words):
    with pytest.raises(InputError, match=words):
        make(RFormerRegressor, **TINY).fit(walks(), y)


def test_deviations_are_positive_and_in_the_unit_of_the_target():
    y = walks()[:, -1, 0]
    small = make(RFormerRegressor, **TINY, uncertainty="gaussian").fit(walks(), y)
    large = make(RFormerRegressor, **TINY, uncertainty="gaussian").fit(walks(), 1000 * y)
    point, deviation = small.predict(walks(), return_std=True)
    assert point.shape == deviation.shape == (24,)
    assert (deviation > 0).all()
    np.testing.assert_allclose(large.predict(walks(), return_std=True)[1] / 1000, deviation, 1e-3)
    with pytest.raises(InputError, match="uncertainty='gaussian'"):
        make(RFormerRegressor, **TINY).fit(walks(), y).predict(walks(), return_std=True)


def test_quantiles_never_cross_and_the_middle_is_the_point():
    y = np.column_stack([np.arange(24.0), -np.arange(24.0)])
    options = {"uncertainty": "quantile", "quantiles": (0.05, 0.5, 0.9, 0.99)}
    model = make(RFormerRegressor, **TINY, **options).fit(walks(), y)
    levels = model.predict_quantiles(walks(seed=1))
    assert levels.shape == (24, 2, 4)
    assert (np.diff(levels, axis=-1) >= 0).all()
    np.testing.assert_array_equal(levels[..., 1], model.predict(walks(seed=1)))
    assert make(RFormerRegressor, **TINY, **options).fit(walks(), y[:, 0]).predict_quantiles(
        walks()
    ).shape == (24, 4)
    with pytest.raises(InputError, match="uncertainty='quantile'"):
        make(RFormerRegressor, **TINY).fit(walks(), y).predict_quantiles(walks())


def test_a_rate_doubles_when_time_runs_twice_as_fast():
    rng = np.random.default_rng(0)
    rates = rng.uniform(1.0, 2.0, 48)
    times = np.linspace(0, 12, 96)
    x = np.sin(2 * np.pi * rates[:, None] * times + rng.uniform(0, 6, (48, 1)))
    options = {"model": "tempo", "warp": 0.3, "epochs": 12, "learning_rate": 0.02}
    model = make(RFormerRegressor, **(TINY | options)).fit(x, rates, times=times)
    assert np.abs(model.predict(x, times) - rates).mean() < 0.1
    faster = model.predict(x, times / 1.25)
    np.testing.assert_allclose(np.median(faster / model.predict(x, times)), 1.25, rtol=0.03)
    assert (model.predict(x, times, return_std=True)[1] > 0).all()
    with pytest.raises(InputError, match="must be positive"):
        make(RFormerRegressor, **(TINY | options)).fit(x, -rates, times=times)


def test_a_model_of_rates_works_in_any_unit_of_time_():
    batch = make_sine(12, n_classes=12, length=200, low=10, high=30)
    rates = batch.static[:, 0] / (2 * np.pi)
    options = {"model": "tempo", "epochs": 2, "random_state": 0, "n_jobs": 1}
    first = make(RFormerRegressor, **options).fit(batch, rates).predict(batch)
    tiny = batch.with_times(batch.times * 1e-10)
    again = make(RFormerRegressor, **options).fit(tiny, rates * 1e10).predict(tiny)
    assert np.allclose(again * 1e-10, first, rtol=1e-3)


def test_members_that_disagree_are_less_sure():
    batch, y = make_sine(20, n_classes=2, length=40), np.linspace(0, 1, 20)
    options = {"windows": 4, "epochs": 1, "d_model": 8, "n_heads": 2, "random_state": 0}
    model = make(
        RFormerRegressor, **options, n_estimators=2, uncertainty="gaussian", calibrate=False
    )
    model.fit(batch, y)
    inputs = model.predictor_.encoder.encode(batch)
    with torch.no_grad():
        each = torch.stack([m(**inputs) for m in model.predictor_.model.members])[:, :, 0]
        whole = model.predictor_.model(**inputs)[:, 0]
    mean, variance = each[..., 0], each[..., 1].exp()
    expected = variance.mean(dim=0) + mean.var(dim=0, correction=0)
    assert torch.allclose(whole[:, 1].exp(), expected, rtol=1e-4)
