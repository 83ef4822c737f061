"""SignatureTransformer: multiview_signature as a step of scikit-learn's pipelines."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import RidgeClassifierCV
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import roughformer as rf
from roughformer.errors import InputError
from roughformer.estimators import SignatureTransformer
from small import ragged

_LENGTHS = (
    "X.shape[1] of an array (B, L) is the number of points of a series, which may differ between "
    "fit and transform; n_features_in_ is the number of channels, and is compared"
)
NOT_FOR_SERIES = {
    "check_n_features_in": _LENGTHS,
    "check_n_features_in_after_fitting": _LENGTHS,
    "check_transformer_general": _LENGTHS,  # the rest of it is tested below
}


@parametrize_with_checks(
    [SignatureTransformer()],
    expected_failed_checks=lambda estimator: NOT_FOR_SERIES,
    xfail_strict=True,
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"windows": 3, "depth": 2, "views": "local", "lifts": ()},
        {"logsignature": True, "lifts": ["time", rf.Lag(0.5)]},
        {"windows": [0.0, 4.0, 8.0], "lifts": {"global": ["time"], "local": [rf.Clock(2)]}},
    ],
)
def test_features_are_the_signatures_of_the_windows_side_by_side(options):
    x = np.random.default_rng(0).normal(size=(6, 9, 2)).cumsum(axis=1)
    model = SignatureTransformer(**options)
    features = model.fit_transform(x)
    given = {"windows": 5, "depth": 3, "lifts": ("time",)} | options
    kind = "logsignature" if given.pop("logsignature", False) else "signature"
    tokens = rf.multiview_signature(x, transform=kind, **given)
    np.testing.assert_array_equal(features, tokens.reshape(6, -1))
    np.testing.assert_array_equal(clone(model).fit(x).transform(x), features)
    names = model.get_feature_names_out()
    assert len(set(names)) == len(names) == features.shape[1]


def test_names_tell_window_view_and_word():
    batch = rf.SeriesBatch.of(np.zeros((2, 4, 1)), channels=["hr"])
    model = SignatureTransformer(windows=2, depth=1, views="local").fit(batch)
    want = ["1:local:hr", "1:local:time", "2:local:hr", "2:local:time"]
    assert sorted(model.get_feature_names_out()) == want
    assert "2:local:pulse" in model.get_feature_names_out(["pulse"])
    with pytest.raises(InputError, match="input_features should have length equal"):
        model.get_feature_names_out(["a", "b"])


def test_irregular_ragged_incomplete_series_are_transformed():
    series, times = ragged(20)
    model = SignatureTransformer(windows=4, depth=2)
    features = model.fit_transform(series, times=times)
    batch = rf.SeriesBatch.from_arrays(series, times)
    np.testing.assert_array_equal(features, model.transform(batch))
    np.testing.assert_array_equal(features, model.transform(series, times))
    turned = model.transform([x.T for x in series], times, layout="channels_first")
    np.testing.assert_array_equal(features, turned)


def test_windows_by_duration_leave_zeros_at_the_end_and_never_cut_a_series():
    model = SignatureTransformer(windows=rf.Windows.by_duration(2.0), depth=1, views="local")
    long, short = np.arange(9.0)[None, :, None], np.arange(5.0)[None, :, None]
    assert model.fit(long).n_windows_ == 4
    features = model.transform(short)
    assert features.shape == (1, 8)
    assert features[0, :4].all()
    assert not features[0, 4:].any()
    with pytest.raises(InputError, match="a series has 4 windows, but 2 was the largest number"):
        model.fit(short).transform(long)


def test_in_pipelines_and_searches():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = (
        rng.normal(size=(60, 40, 2)).cumsum(axis=1)
        + np.where(y, 1, -1)[:, None, None] * (np.linspace(0, 12, 40)[None, :, None])
    )
    steps = make_pipeline(SignatureTransformer(windows=2), StandardScaler(), RidgeClassifierCV())
    assert cross_val_score(steps, x, y, cv=3, error_score="raise").mean() > 0.9
    assert cross_val_score(steps, rf.SeriesBatch.of(x), y, cv=3, error_score="raise").mean() > 0.9
    grid = {"signaturetransformer__depth": [1, 2]}
    assert GridSearchCV(steps, grid, cv=2, error_score="raise").fit(x, y).score(x, y) > 0.9
    both = make_union(SignatureTransformer(windows=1), SignatureTransformer(windows=8, depth=1))
    assert both.fit_transform(x).shape[0] == 60


def test_frames_in_give_frames_out_with_the_ids_as_index():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"id": list("bbbaaa"), "t": [0, 1, 2] * 2, "x": [1.0, 2, 4, 3, 5, 0]})
    batch = rf.SeriesBatch.of(table)
    model = SignatureTransformer(windows=1, depth=2)
    plain = model.fit_transform(batch)
    assert isinstance(plain, np.ndarray)
    for output in ("default", "pandas"):
        found = model.set_output(transform=output).fit_transform(
            table, pd.Series([0, 1], list("ba"))
        )
        assert found.index.tolist() == ["b", "a"]
        assert found.columns.tolist() == model.get_feature_names_out().tolist()
        np.testing.assert_array_equal(found.to_numpy(), plain)
    wrapped = model.transform(batch)
    assert wrapped.columns.tolist() == model.get_feature_names_out().tolist()
    with pytest.raises(InputError, match="y must be in the order of the series"):
        model.fit(table, pd.Series([1, 0], list("ab")))
    model.fit(table, pd.Series([1, 0]))  # by position


def test_what_does_not_fit_the_training_series_is_refused():
    model = SignatureTransformer()
    with pytest.raises(NotFittedError):
        model.transform(np.zeros((1, 4, 1)))
    with pytest.raises(InputError, match="no series were given"):
        model.fit(np.zeros((0, 4, 1)))
    model.fit(np.zeros((2, 4, 1)))
    with pytest.raises(InputError, match="was fitted to the channels"):
        model.transform(np.zeros((2, 4, 2)))
    assert model.transform(np.zeros((3, 7))).shape == (3, 5 * 2 * 14)
