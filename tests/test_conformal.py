"""Intervals of regressors and prediction sets of classifiers that hold as often as was asked."""

import numpy as np
import pytest

import roughformer as rf
from roughformer.errors import InputError
from roughformer.inference.calibration import conformal_bound
from small import make

TINY = {"windows": 2, "depth": 1, "d_model": 8, "n_heads": 2, "epochs": 2, "random_state": 0,
        "n_jobs": 1, "basepoint": True}  # fmt: skip


def levels(n, seed):
    """Series whose level is the target, but for noise."""
    rng = np.random.default_rng(seed)
    target = rng.normal(size=n)
    return target[:, None] + 0.5 * rng.normal(size=(n, 6)), target


@pytest.fixture(scope="module")
def regressor():
    return make(rf.RFormerRegressor, **TINY).fit(*levels(100, 0))


@pytest.fixture(scope="module")
def classifier():
    x, target = levels(100, 0)
    return make(rf.RFormerClassifier, **TINY).fit(x, np.digitize(target, [-0.5, 0.5]))


def test_the_bound_is_the_order_statistic_of_split_conformal_prediction():
    scores = np.arange(1.0, 100.0)[::-1]  # 99 of them
    assert conformal_bound(scores, 0.9) == 90
    assert conformal_bound(scores, 0.99) == 99
    with pytest.raises(InputError, match=r"needs at least 199 held-out series.* calibrated on 99"):
        conformal_bound(scores, 0.995)


def test_intervals_of_a_regressor_hold_on_new_series_as_often_as_asked(regressor):
    regressor.calibrate(*levels(2000, 1))
    x, target = levels(2000, 2)
    for coverage in (0.5, 0.9):
        lower, upper = regressor.predict_interval(x, coverage=coverage)
        assert lower.shape == (2000,)
        assert abs(np.mean((lower <= target) & (target <= upper)) - coverage) < 0.03


def test_sets_of_a_classifier_hold_on_new_series_as_often_as_asked(classifier):
    x, target = levels(2000, 1)
    classifier.calibrate(x, np.digitize(target, [-0.5, 0.5]))
    x, target = levels(2000, 2)
    true = np.digitize(target, [-0.5, 0.5])
    sets = classifier.predict_set(x, coverage=0.9)
    assert sets.shape == (2000, 3)
    assert sets.any(axis=1).all()
    assert 0.88 <= np.mean(sets[np.arange(2000), true]) <= 0.93


def test_calibration_is_saved_with_the_model(regressor, tmp_path):
    regressor.calibrate(*levels(50, 1)).save(tmp_path / "m")
    x, _ = levels(5, 3)
    loaded = rf.RFormerRegressor.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_interval(x), regressor.predict_interval(x))


def test_without_calibration_or_with_too_little_it_says_so(regressor, classifier):
    x, target = levels(20, 4)
    fresh = make(rf.RFormerRegressor, **TINY).fit(x, target)
    with pytest.raises(InputError, match="calibrate"):
        fresh.predict_interval(x)
    with pytest.raises(InputError, match="at least 99 held-out series"):
        regressor.calibrate(x, target).predict_interval(x, coverage=0.99)
    with pytest.raises(InputError, match="one label for each"):
        classifier.calibrate(x, target[:3])
