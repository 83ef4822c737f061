"""scikit-learn's own checks, and what its users do: pipelines, grids, cross-validation, clones."""

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import get_tags
from sklearn.utils._testing import assert_allclose_dense_sparse
from sklearn.utils.estimator_checks import parametrize_with_checks

import roughformer as rf
from roughformer.errors import InputError
from roughformer.estimators import RFormerClassifier, RFormerRegressor
from roughformer.series import SeriesBatch
from small import make

TINY = {
    "windows": 9, "depth": 1, "basepoint": True, "clock": 0, "spectrum": None, "d_model": 8,
    "n_heads": 2, "dropout": 0.0, "learning_rate": 0.05, "batch_size": 64, "epochs": 8,
    "random_state": 0, "n_jobs": 1,
}  # fmt: skip
FAST = TINY | {"epochs": 2, "windows": 2}

_LENGTHS = (
    "X.shape[1] of an array (B, L) is the number of points of a series, which may differ between "
    "fit and predict; n_features_in_ is the number of channels, and is compared"
)
_TABLES = (
    "a DataFrame is a table of observations, not of samples by features, and is refused with the "
    "way to read it; other array-likes are taken (see test_array_likes_are_taken)"
)
_STOCHASTIC = (
    "weight 2 is not exactly a series given twice: batches and the validation part are drawn among "
    "the series; losses, scores and weight 0 are exact (see tests/test_sample_weight.py)"
)
NOT_FOR_SERIES = {
    "check_n_features_in": _LENGTHS,
    "check_n_features_in_after_fitting": _LENGTHS,
    # The rest of this check is in test_what_check_classifiers_train_asks_for.
    "check_classifiers_train": _LENGTHS,
    "check_classifier_data_not_an_array": _TABLES,
    "check_regressor_data_not_an_array": _TABLES,
    "check_sample_weights_pandas_series": _TABLES,
    "check_sample_weight_equivalence_on_dense_data": _STOCHASTIC,
}


@parametrize_with_checks(
    [make(RFormerClassifier, **TINY), make(RFormerRegressor, **TINY)],
    expected_failed_checks=lambda estimator: NOT_FOR_SERIES,
    xfail_strict=True,
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_check(estimator, check, monkeypatch):
    # Probabilities are float64 numbers of a float32 model, whose sums depend on how a batch is cut.
    close = partial(assert_allclose_dense_sparse, rtol=1e-5)
    monkeypatch.setattr("sklearn.utils.estimator_checks.assert_allclose_dense_sparse", close)
    check(estimator)


def blobs(n=90, seed=0):
    """Three classes of univariate series of 6 points, told by their levels."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return rng.normal(size=(n, 6)) + 3.0 * y[:, None], y


def test_what_check_classifiers_train_asks_for():
    x, y = blobs()
    model = make(RFormerClassifier, **TINY)
    with pytest.raises(ValueError, match="90 series but labels of shape"):
        model.fit(x, y[:-1])
    from_lists = clone(model).fit(x.tolist(), y.tolist())
    assert from_lists.score(x, y) > 0.83
    shares = from_lists.predict_proba(x)
    np.testing.assert_array_equal(from_lists.classes_[shares.argmax(axis=1)], from_lists.predict(x))
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_array_equal(shares, model.fit(x, y).predict_proba(x))


def test_other_lengths_are_welcome_and_other_channels_are_not():
    x, y = blobs()
    model = make(RFormerClassifier, **FAST).fit(x, y)
    assert model.n_features_in_ == 1
    assert model.predict(x[:, :4]).shape == (90,)
    with pytest.raises(InputError, match="fitted to the channels"):
        model.predict(np.zeros((2, 6, 3)))
    with pytest.raises(InputError, match=r"expected 1 channel, .*; give layout='channels_first'"):
        model.predict(x[:, None, :])


class Wrapped:
    """Something that only numpy can make an array of."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


def test_array_likes_are_taken():
    x, y = blobs()
    plain = make(RFormerClassifier, **FAST).fit(x, y).predict_proba(x)
    for other in (Wrapped(x), list(x), x.tolist(), x.astype(object), x[:, :, None], tuple(x)):
        found = make(RFormerClassifier, **FAST).fit(other, list(y)).predict_proba(other)
        np.testing.assert_array_equal(plain, found)


def test_what_is_no_series_is_refused_with_words():
    sparse = pytest.importorskip("scipy.sparse")
    pandas = pytest.importorskip("pandas")
    x, y = blobs()
    model = make(RFormerClassifier, **FAST)
    for wrong, words in (
        (sparse.csr_matrix(x), "sparse input is not supported"),
        (x + 1j, "Complex data not supported"),
        (x[0], "Reshape your data"),
        (np.float64(1.0), "expected many series"),
        (x[:, :0], r"0 feature\(s\) \(shape=\(90, 0\)\)"),
        (x[:0], "no series were given"),
        (np.where(x > 3, np.inf, x), "infinite|finite"),
        (pandas.DataFrame(x), "cannot tell which column of the table holds the times"),
        ({"a": 1}, "cannot be read as columns"),
        ("series", "expected a SeriesBatch"),
    ):
        with pytest.raises(InputError, match=words):
            model.fit(wrong, y)
    with pytest.raises(InputError, match="requires y to be passed, but the target y is None"):
        model.fit(x)


def test_tags():
    for estimator in (RFormerClassifier(), RFormerRegressor()):
        tags = get_tags(estimator)
        assert tags.input_tags.allow_nan
        assert tags.input_tags.two_d_array
        assert tags.input_tags.three_d_array
        assert not tags.input_tags.sparse
        assert not tags.non_deterministic
        assert tags.requires_fit
        assert tags.target_tags.required
        assert tags.transformer_tags is None
    assert get_tags(RFormerRegressor()).target_tags.multi_output


@pytest.mark.parametrize("kind", [RFormerClassifier, RFormerRegressor])
def test_everything_needs_fit_first(kind, tmp_path):
    model, x = make(kind, **FAST), blobs()[0]
    calls = [model.predict, model.predict_windows, model.explain]
    calls += [model.predict_proba] if kind is RFormerClassifier else [model.predict_quantiles]
    for call in calls:
        with pytest.raises(NotFittedError):
            call(x)
    with pytest.raises(NotFittedError):
        model.save(tmp_path / "model")


def test_parameters_are_kept_as_given_and_clone_and_repr_know_them():
    odd = {
        "windows": [0.0, 1.0, 2.5], "tokens": rf.TokenConfig(lags=[1.0]),
        "class_weight": {"a": 2.0},
    }  # fmt: skip
    model = RFormerClassifier(**odd)
    for name, value in odd.items():
        assert getattr(model, name) is value
    assert set(vars(model)) == set(model.get_params(deep=False))
    assert clone(model).get_params() == model.get_params()
    assert "windows=[0.0, 1.0, 2.5]" in repr(model)
    assert model.set_params(epochs=7).epochs == 7
    with pytest.raises(ValueError, match="Invalid parameter 'epoch'"):
        model.set_params(epoch=7)


def test_in_a_pipeline_with_what_scales_each_point():
    x, y = blobs()
    model = make_pipeline(StandardScaler(), make(RFormerClassifier, **TINY)).fit(x, y)
    assert model.score(x, y) > 0.8
    cut = make_pipeline(FunctionTransformer(lambda v: v[:, :3]), make(RFormerRegressor, **FAST))
    assert cut.fit(x, y).predict(x).shape == (90,)
    assert not hasattr(model, "transform")


def test_grid_search_chooses_and_refits():
    x, y = blobs()
    grid = {"learning_rate": [1e-6, 0.05], "windows": [2]}
    found = GridSearchCV(make(RFormerClassifier, **TINY), grid, cv=2, error_score="raise").fit(x, y)
    assert found.best_params_["learning_rate"] == 0.05
    assert found.predict(x).shape == (90,)


def test_cross_validation_by_groups():
    x, y = blobs()
    groups = np.repeat(np.arange(9), 10)
    scores = cross_val_score(
        make(RFormerClassifier, **FAST), x, y, groups=groups, cv=GroupKFold(3), error_score="raise"
    )
    assert scores.shape == (3,)
    shares = cross_val_predict(make(RFormerClassifier, **FAST), x, y, cv=3, method="predict_proba")
    assert shares.shape == (90, 3)


@pytest.mark.parametrize("kind", [RFormerClassifier, RFormerRegressor])
def test_pickle_and_save_give_the_same_predictions_bit_for_bit(kind, tmp_path):
    x, y = blobs()
    what = "predict_proba" if kind is RFormerClassifier else "predict"
    options = {"uncertainty": "gaussian"} if kind is RFormerRegressor else {}
    model = make(kind, **FAST, **options).fit(x, y)
    before = getattr(model, what)(x)
    model.save(tmp_path / "model")
    for other in (pickle.loads(pickle.dumps(model)), kind.load(tmp_path / "model")):
        np.testing.assert_array_equal(getattr(other, what)(x), before)
        np.testing.assert_array_equal(getattr(other.fit(x, y), what)(x), before)
        assert other.get_params() == model.get_params()


@pytest.mark.parametrize("kind", [RFormerClassifier, RFormerRegressor])
def test_the_same_seed_gives_the_same_model_and_another_one_another(kind):
    x, y = blobs()

    def predict(seed):
        model = make(kind, **(FAST | {"dropout": 0.1, "drop": (0.0, 0.3), "random_state": seed}))
        found = model.fit(x, y)
        return found.predict_proba(x) if kind is RFormerClassifier else found.predict(x)

    state = torch.get_rng_state()
    first = predict(1)
    np.testing.assert_array_equal(first, predict(1))
    np.testing.assert_array_equal(first, predict(np.random.RandomState(1)))
    assert not np.array_equal(first, predict(2))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("n_jobs", [None, 1, 2, -1])
def test_threads_are_as_before(n_jobs):
    x, y = blobs()
    before = torch.get_num_threads()
    model = make(RFormerRegressor, **(FAST | {"n_jobs": n_jobs})).fit(x, y)
    model.predict(x)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("n_jobs", [0, -2, 1.5, True, "all"])
def test_wrong_numbers_of_threads(n_jobs):
    with pytest.raises(InputError, match="n_jobs must be"):
        make(RFormerRegressor, **(FAST | {"n_jobs": n_jobs})).fit(*blobs())


def test_inputs_are_not_changed():
    x, y = blobs()
    x[0, 1] = np.nan
    x_before, y_before = x.copy(), y.copy()
    x.flags.writeable = y.flags.writeable = False
    model = make(RFormerClassifier, **(FAST | {"jitter": 0.1, "drop": 0.3})).fit(x, y)
    model.predict(x)
    model.explain(x[:2])
    np.testing.assert_array_equal(x, x_before)
    np.testing.assert_array_equal(y, y_before)


def test_a_batch_takes_its_times_along_into_each_split():
    rng = np.random.default_rng(0)
    times = [np.sort(rng.uniform(0, 5, n)) for n in rng.integers(4, 9, size=30)]
    batch = SeriesBatch.from_arrays([np.sin(t)[:, None] for t in times], times)
    y = np.arange(30) % 2
    groups = np.arange(30) % 6
    model = make(RFormerClassifier, **FAST)
    scores = cross_val_score(
        model, batch, y, groups=groups, cv=GroupKFold(2), params={"groups": groups},
        error_score="raise",
    )  # fmt: skip
    assert scores.shape == (2,)
    found = GridSearchCV(model, {"depth": [1, 2]}, cv=2, error_score="raise").fit(batch, y)
    assert found.predict(batch).shape == (30,)
    one_by_one = model.fit([batch[i] for i in range(30)], y).predict_proba(batch)
    np.testing.assert_array_equal(one_by_one, model.fit(batch, y).predict_proba(batch))
