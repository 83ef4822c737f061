"""Weights of series: in the loss, in the prior, in scores and calibration; and what is refused."""

import numpy as np
import pytest
import torch

import roughformer as rf
from roughformer.errors import InputError
from roughformer.estimators import RFormerClassifier, RFormerRegressor
from roughformer.estimators.fitting import class_counts
from roughformer.inference.calibration import fit_deviation_factor, fit_temperature
from roughformer.model import OutputConfig, loss_of
from roughformer.train.validation import classification_scores, regression_scores
from small import TINY, make, walks

X = walks()
Y = np.arange(24) % 2
KINDS = (RFormerClassifier, RFormerRegressor)


def answers(model, x=X):
    return model.predict_proba(x) if isinstance(model, RFormerClassifier) else model.predict(x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drop", [0.0, 0.3])
def test_equal_weights_of_any_size_change_nothing_that_matters(kind, drop):
    plain = make(kind, **TINY, drop=drop).fit(X, Y)
    for size in (1.0, 1e-20, 1e12):
        weighted = make(kind, **TINY, drop=drop).fit(X, Y, sample_weight=np.full(24, size))
        np.testing.assert_allclose(answers(weighted), answers(plain), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("members", [1, 2])
def test_a_series_of_weight_zero_is_as_good_as_not_there(kind, members):
    weight = np.where(np.arange(24) % 4 == 3, 0.0, 1.0 + np.arange(24))
    kept = weight > 0
    groups = np.arange(24) // 3
    options = TINY | {"n_estimators": members}
    whole = make(kind, **options).fit(X, Y, sample_weight=weight, groups=groups)
    part = make(kind, **options).fit(
        X[kept], Y[kept], sample_weight=weight[kept], groups=groups[kept]
    )
    np.testing.assert_array_equal(answers(whole), answers(part))
    np.testing.assert_array_equal(
        whole.validation_index_, np.flatnonzero(kept)[part.validation_index_]
    )


def test_heavy_series_are_learned_and_light_ones_are_not():
    x = np.repeat(X[:1], 24, axis=0)  # all alike: the weighted mean is the best answer
    y = np.where(np.arange(24) < 12, 0.0, 10.0)
    weight = np.where(y == 0, 9.0, 1.0)
    model = make(RFormerRegressor, **(TINY | {"epochs": 60, "validation": 0.0, "dropout": 0.0}))
    assert model.fit(x, y).predict(x)[0] == pytest.approx(5.0, abs=0.7)
    assert model.fit(x, y, sample_weight=weight).predict(x)[0] == pytest.approx(1.0, abs=0.7)
    classes = make(RFormerClassifier, **(TINY | {"epochs": 60, "validation": 0.0, "dropout": 0.0}))
    shares = classes.fit(x, y > 5, sample_weight=weight).predict_proba(x)
    assert shares[0, 1] == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (np.ones(23), r"sample_weight must have shape \(24,\), got \(23,\)"),
        (np.ones((24, 1)), r"sample_weight must have shape \(24,\)"),
        (np.zeros(24), "some weight must be above zero"),
        (-np.ones(24), "finite and not negative"),
        (np.full(24, np.nan), "finite and not negative"),
        (["heavy"] * 24, "sample_weight must be numbers"),
    ],
)
def test_wrong_weights_are_refused(weight, words):
    with pytest.raises(InputError, match=words):
        make(RFormerRegressor, **TINY).fit(X, Y, sample_weight=weight)


def test_other_weights_are_another_training(tmp_path):
    options = TINY | {"run_dir": tmp_path}
    make(RFormerRegressor, **options).fit(X, Y, sample_weight=np.ones(24))
    with pytest.raises(rf.CheckpointError, match="another configuration"):
        make(RFormerRegressor, **options, resume=True).fit(X, Y, sample_weight=1 + np.arange(24))


def outputs_of(uncertainty="none", task="regression"):
    return OutputConfig(n_outputs=2, task=task, uncertainty=uncertainty)


@pytest.mark.parametrize("uncertainty", ["none", "gaussian", "quantile"])
def test_the_loss_of_weighted_numbers_is_that_of_repeated_ones(uncertainty):
    torch.manual_seed(0)
    config = outputs_of(uncertainty)
    output = config.shaped(torch.randn(5, 2 * config.outputs_per_target, dtype=torch.double))
    target = torch.randn(5, 2, dtype=torch.double)
    target[1, 0] = float("nan")
    weight = torch.tensor([1, 2, 0, 3, 1])
    again = torch.arange(5).repeat_interleave(weight)
    found = loss_of(output, target, config, sample_weight=weight.double())
    torch.testing.assert_close(found, loss_of(output[again], target[again], config))


@pytest.mark.parametrize("axes", [(), (4,)])
@pytest.mark.parametrize("class_weight", [None, torch.tensor([1.0, 5.0])])
def test_the_loss_of_weighted_classes_is_that_of_repeated_ones(axes, class_weight):
    torch.manual_seed(0)
    config = outputs_of(task="classification")
    output, target = torch.randn(5, *axes, 2), torch.randint(-1, 2, (5, *axes))
    weight = torch.tensor([1, 2, 0, 3, 1])
    again = torch.arange(5).repeat_interleave(weight)
    found = loss_of(output, target, config, class_weight, 0.1, weight.float())
    torch.testing.assert_close(
        found, loss_of(output[again], target[again], config, class_weight, 0.1)
    )
    counts = class_counts(target, 2, weight.double())
    torch.testing.assert_close(counts, class_counts(target[again], 2).double())


def test_weighted_scores_and_calibration_are_those_of_repeated_series():
    rng = np.random.default_rng(0)
    weight = rng.integers(1, 4, 30)
    again = np.repeat(np.arange(30), weight)
    labels, logits = rng.integers(0, 2, 30), rng.normal(size=(30, 2))
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = classification_scores(shares, labels, weight)
    expected = classification_scores(shares[again], labels[again])
    assert found == pytest.approx(expected)
    true, predicted = rng.normal(size=(30, 2)), rng.normal(size=(30, 2))
    true[3, 0] = np.nan
    found = regression_scores(predicted, true, weight)
    assert found == pytest.approx(regression_scores(predicted[again], true[again]))
    y, mu, w = torch.from_numpy(true), torch.from_numpy(predicted), torch.from_numpy(weight)
    factor = fit_deviation_factor(mu, mu.exp(), y, w)
    assert factor == pytest.approx(fit_deviation_factor(mu[again], mu[again].exp(), y[again]))
    z, c = torch.from_numpy(logits), torch.from_numpy(labels)
    same = fit_temperature(z, c, None, torch.full((30,), 7.0))
    assert same == pytest.approx(fit_temperature(z, c), rel=1e-6)


def test_a_causal_model_weights_all_windows_of_a_series():
    y = np.tile(np.arange(4) % 2, (24, 1))
    options = TINY | {"causal": True, "class_weight": "balanced", "metric": "accuracy"}
    weight = 1.0 + np.arange(24)
    model = make(RFormerClassifier, **options).fit(X, y, sample_weight=weight)
    assert np.isfinite(model.predict_proba(X)).all()
    numbers = make(RFormerRegressor, **(TINY | {"causal": True, "uncertainty": "gaussian"}))
    numbers.fit(X, y[..., None], sample_weight=weight)
    assert np.isfinite(numbers.predict(X)).all()
