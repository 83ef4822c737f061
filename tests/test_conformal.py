"""Intervals of regressors and prediction sets of classifiers that hold as often as was asked."""

import warnings

import numpy as np
import pytest

import roughformer as rf
from roughformer.errors import InputError
from roughformer.inference.calibration import calibrate_scores
from roughformer.serve.model import ServedModel
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
    scores = np.arange(1.0, 100.0)[::-1, None] / 100  # of 99 series
    batch = rf.SeriesBatch.from_numpy3d(np.zeros((99, 1, 50)))
    (found,) = calibrate_scores(batch, lambda thinned: scores)
    observed = np.array([50.0, 5.0])
    np.testing.assert_allclose(found.bound(0.9, observed), 0.9)
    np.testing.assert_allclose(found.bound(0.99, observed), 0.99)
    with pytest.raises(InputError, match=r"needs at least 199 held-out series.* calibrated on 99"):
        found.bound(0.995, observed)


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


def noisy(n, seed, drop=0.0):
    """Noise around a level, which is the target: the fewer points, the less is known of it."""
    rng = np.random.default_rng(seed)
    target = rng.normal(size=n)
    values = target[:, None] + rng.normal(size=(n, 40))
    series = rf.SeriesBatch.from_numpy3d(values[:, None], np.tile(np.arange(40.0), (n, 1)))
    return series.drop_points(drop, seed=seed), target


@pytest.mark.parametrize("default", [False, True])
def test_intervals_and_sets_hold_where_much_is_missing(default):
    options = {"random_state": 0, "n_jobs": 1} if default else TINY
    train, target = noisy(150, 0)
    regressor = make(rf.RFormerRegressor, **options).fit(train, target)
    classifier = make(rf.RFormerClassifier, **options).fit(train, target > 0)
    held, target = noisy(1000, 1)
    regressor.calibrate(held, target)
    classifier.calibrate(held, target > 0)
    width, size = [], []
    for drop in (0.0, 0.8):
        test, target = noisy(2000, 2, drop)
        lower, upper = regressor.predict_interval(test)
        assert abs(np.mean((lower <= target) & (target <= upper)) - 0.9) < 0.03
        sets = classifier.predict_set(test)
        assert sets[np.arange(2000), (target > 0).astype(int)].mean() > 0.87
        width.append(np.mean(upper - lower))
        size.append(sets.mean())
    if default:  # the small network looks at three points only, which stay
        assert width[-1] > 1.1 * width[0]
        assert size[-1] > size[0]


def test_calibration_is_saved_with_the_model(regressor, tmp_path):
    regressor.calibrate(*levels(50, 1)).save(tmp_path / "m")
    x, _ = levels(5, 3)
    loaded = rf.RFormerRegressor.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_interval(x), regressor.predict_interval(x))


def test_the_default_has_intervals_and_sets_that_hold_without_more_data():
    train, target = noisy(200, 0)
    regressor = rf.RFormerRegressor(random_state=0, n_jobs=1).fit(train, target)
    classifier = rf.RFormerClassifier(random_state=0, n_jobs=1).fit(train, target > 0)
    test, target = noisy(2000, 1)
    lower, upper = regressor.predict_interval(test)
    assert 0.87 < np.mean((lower <= target) & (target <= upper)) < 0.95
    sets = classifier.predict_set(test)
    assert 0.87 < sets[np.arange(2000), (target > 0).astype(int)].mean() < 0.99
    # Of series with fewer values they tell nothing, and say so.
    sparse, _ = noisy(10, 2, drop=0.5)
    with pytest.warns(UserWarning, match="10 of 10 series have far fewer values"):
        lower, upper = regressor.predict_interval(sparse)
    assert np.isinf(lower).all()
    assert np.isinf(upper).all()
    with pytest.warns(UserWarning, match="far fewer values"):
        assert classifier.predict_set(sparse).all()


def test_intervals_for_new_groups_are_wider_where_groups_differ():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(40), 5)
    target = rng.normal(size=200)
    offset = rng.normal(size=40)[group]  # cannot be known of another group
    x = (target + 0.1 * rng.normal(size=200))[:, None] + np.zeros((200, 8))
    x[:, 0] = 10.0 * group  # which group it is can be seen
    width = []
    for groups in (None, group):
        model = rf.RFormerRegressor(random_state=0, n_jobs=1)
        model.fit(x, target + 3 * offset, groups=groups)
        lower, upper = model.predict_interval(x)
        width.append(np.mean(upper - lower))
    assert width[1] > 1.2 * width[0]


def test_too_few_groups_promise_no_interval_and_predict_all_the_same():
    train, target = noisy(60, 0)
    model = rf.RFormerRegressor(random_state=0, n_jobs=1)
    model.fit(train, target, groups=np.repeat(np.arange(3), 20))
    assert not model.predictor_.promises(0.9)
    assert model.predictor_.promises(0.7)
    served = ServedModel(model.predictor_)
    assert served.about()["coverage"] is None
    assert "interval" not in served.predict(train[:2])[0]
    with pytest.raises(InputError, match="calibrated on 3"):
        model.predict_interval(train)


def test_without_calibration_or_with_too_little_it_says_so(regressor, classifier):
    x, target = levels(20, 4)
    fresh = make(rf.RFormerRegressor, **TINY).fit(x, target)
    with pytest.raises(InputError, match="calibrate"):
        fresh.predict_interval(x)
    with pytest.raises(InputError, match="at least 99 held-out series"):
        regressor.calibrate(x, target).predict_interval(x, coverage=0.99)
    with pytest.raises(InputError, match="one label for each"):
        classifier.calibrate(x, target[:3])


def test_channels_that_are_never_seen_are_told_of_whole_series_not_of_thinned_ones():
    x, _ = levels(30, 5)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        calibrate_scores(rf.SeriesBatch.from_arrays(x[..., None]), warned_scores)
    assert len(told) == 1


def warned_scores(batch):
    warnings.warn(f"in {batch.n_points} points", rf.UnobservedWarning, stacklevel=2)
    return np.zeros((len(batch), 1))
