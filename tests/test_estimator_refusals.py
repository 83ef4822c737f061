"""What cannot be meant is refused in words, and what can hardly be meant is warned of."""

import warnings

import numpy as np
import pytest

import roughformer as rf
from roughformer.errors import InputError
from roughformer.estimators import RFormerClassifier, RFormerRegressor
from small import TINY, make, walks

Y = np.arange(24.0)
TWO = np.stack([Y, -Y], axis=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lags": "a"}, "lags: Input should be a valid tuple, got 'a'"),
        ({"lags": None}, "lags: "),
        ({"lags": -1.0}, "lags are positive"),
        ({"views": "up"}, "views.*got 'up'"),
        ({"causal": "yes"}, "causal must be True or False, got 'yes'"),
        ({"uncertainty": "histogram"}, "uncertainty must be one of none, gaussian, quantile; got"),
        ({"static": "age"}, "static: "),
        ({"quantiles": 1}, "quantiles: .* tuple, got 1"),
        ({"quantiles": (0.9, 0.1)}, "quantiles must increase"),
        ({"validation": "a"}, "validation fraction must be a number"),
        ({"validation": None}, "validation fraction must be a number"),
        ({"windows": {"duration": 2, "points": 3}}, "windows as a dict have one entry"),
        ({"windows": {}}, "windows as a dict have one entry"),
        ({"windows": {"days": 3}}, "windows as a dict have one entry"),
        ({"windows": {"points": 2.5}}, "whole number >= 1, got 2.5"),
        ({"windows": {"duration": -1}}, "must be positive, got -1"),
        ({"model": "x"}, "unknown model 'x'"),
        ({"model.steps": 3}, "unknown parameter 'model.steps'"),
        ({"model.n_features": 3}, "unknown parameter 'model.n_features'"),
        ({"model.clip": -3}, "clip: .*greater than 0, got -3"),
        ({"run_dir": 3}, "run_dir must be the path of a directory, got 3"),
    ],
)
def test_options(options, words):
    with pytest.raises(InputError, match=words):
        make(RFormerRegressor, **(TINY | options)).fit(walks(), Y)


def test_one_number_is_one_lag():
    one, many = (
        make(RFormerRegressor, **TINY, lags=lags).fit(walks(), Y) for lags in (2.0, (2.0,))
    )
    assert one.predictor_.encoder == many.predictor_.encoder
    np.testing.assert_array_equal(one.predict(walks()), many.predict(walks()))


def test_one_name_is_one_view():
    one, many = (
        make(RFormerRegressor, **TINY | {"views": views}).fit(walks(), Y)
        for views in ("local", ("local",))
    )
    assert rf.TokenConfig(views="local").views == ("local",)
    assert one.predictor_.encoder == many.predictor_.encoder


def test_options_of_the_model_reach_it():
    model = make(RFormerRegressor, **TINY, clip=3.0).fit(walks(), Y)
    assert model.predictor_.model.config.clip == 3.0


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([None, *["a"] * 12, *["b"] * 11], r"series 0 has no group \(None\)"),
        ([1.0, np.nan, *range(22)], r"series 1 has no group \(nan\)"),
        (np.array([*["a"] * 12, *[1] * 12], dtype=object), "of one kind"),
        (np.zeros((24, 2)), r"got shape \(24, 2\)"),
        (3, r"got shape \(\)"),
    ],
    ids=["None", "NaN", "mixed", "two axes", "no axis"],
)
def test_groups(groups, words, members):
    with pytest.raises(InputError, match=words):
        make(RFormerRegressor, **TINY, n_estimators=members).fit(walks(), Y, groups=groups)


@pytest.mark.parametrize(
    ("model", "y", "held", "words"),
    [
        (
            make(RFormerRegressor, **TINY),
            TWO,
            Y,
            r"must be 2 for each series, .* got shape \(24,\)",
        ),
        (make(RFormerRegressor, **TINY), Y, TWO, "must be 1 for each series"),
        (make(RFormerRegressor, **TINY), Y, np.zeros((24, 4, 1)), "need causal=True"),
        (make(RFormerRegressor, "tempo", **TINY), Y + 1, -Y, "rate-like targets must be positive"),
        (make(RFormerClassifier, **TINY), Y % 2, np.zeros((24, 4)), "needs causal=True"),
        (make(RFormerClassifier, **TINY), Y % 2, 3, "24 validation series but labels of shape"),
        (make(RFormerClassifier, **TINY), Y % 2, Y * np.nan, "series 0 has no label"),
        (
            make(RFormerRegressor, **TINY, causal=True),
            np.zeros((24, 4, 1)),
            np.zeros((24, 3, 1)),
            "targets for 3 windows, but the series with most windows has 4",
        ),
    ],
)
def test_validation_targets_that_do_not_fit_those_of_training(model, y, held, words):
    with pytest.raises(InputError, match=words):
        model.fit(walks(), y, validation_data=(walks(), held))


def test_validation_targets_may_come_as_a_column_and_with_gaps():
    held = Y[:, None].copy()
    held[3] = np.nan
    one = make(RFormerRegressor, **TINY).fit(walks(), Y, validation_data=(walks(), held))
    other = make(RFormerRegressor, **TINY).fit(walks(), Y, validation_data=(walks(), held[:, 0]))
    np.testing.assert_array_equal(one.predict(walks()), other.predict(walks()))


def test_scores_of_targets_that_do_not_fit():
    number = make(RFormerRegressor, **TINY).fit(walks(), Y)
    numbers = make(RFormerRegressor, **TINY).fit(walks(), TWO)
    classes = make(RFormerClassifier, **TINY).fit(walks(), Y % 2)
    half = np.stack([Y, Y * np.nan], axis=1)
    for model, y, words in (
        (number, np.zeros((24, 4, 1)), r"of shape \(24, 1\), got \(24, 4, 1\)"),
        (number, TWO, r"of shape \(24, 1\), got \(24, 2\)"),
        (numbers, Y, r"of shape \(24, 2\), got \(24, 1\)"),
        (number, Y * np.nan, "target 0 is known for no series, and R² needs at least two"),
        (numbers, half, "target 1 is known for no series"),
        (number, np.where(Y == 5, Y, np.nan), "target 0 is known for one series"),
        (classes, np.zeros((24, 4)), r"one label for each of 24 series, got shape \(24, 4\)"),
        (classes, np.zeros(20), r"one label for each of 24 series, got shape \(20,\)"),
        (classes, np.where(Y == 5, np.nan, 1.0), "series 5 has no label"),
    ):
        with pytest.raises(InputError, match=words):
            model.score(walks(), y)


@pytest.mark.parametrize(
    ("n", "labels", "words"),
    [
        (24, ["calm"] * 24, "all labels are 'calm': the model will always answer that"),
        (1, [1], "there is one series only"),
    ],
)
def test_one_class_or_one_series_is_warned_of_once(n, labels, words):
    with pytest.warns(UserWarning, match=words) as caught:
        make(RFormerClassifier, **TINY).fit(walks(n), labels)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_one_series_is_warned_of_in_a_regression_too_and_more_are_not():
    with pytest.warns(UserWarning, match="one series only"):
        make(RFormerRegressor, **TINY).fit(walks(1), [1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        make(RFormerRegressor, **TINY).fit(walks(), np.zeros(24))
        make(RFormerClassifier, **TINY).fit(walks(), Y % 2)


@pytest.mark.parametrize("windows", [{"duration": 2.5}, {"points": 4}])
def test_windows_as_a_dict_are_those_of_the_rule(windows):
    ((kind, amount),) = windows.items()
    rule = rf.Windows.by_duration(amount) if kind == "duration" else rf.Windows.by_points(amount)
    assert rf.TokenConfig(windows=windows) == rf.TokenConfig(windows=rule)
