"""ROCKET features and ridge on irregular, ragged, incomplete series."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import RidgeClassifierCV
from sklearn.preprocessing import StandardScaler

import roughformer as rf
from roughformer import values_at
from roughformer.errors import InputError
from roughformer_paper.baselines.rocket import RocketClassifier, RocketRegressor, _transform

pytest.importorskip("aeon")

FEW = {"n_kernels": 168, "random_state": 0}


def waves(n=40, seed=0):
    """Slow or fast waves at irregular times, ragged, with gaps in both channels."""
    rng = np.random.default_rng(seed)
    values, times, labels = [], [], np.arange(n) % 2
    for label in labels:
        t = np.sort(rng.uniform(0, 4, rng.integers(40, 60)))
        x = np.stack([np.sin((3 + 6 * label) * t + rng.uniform(0, 6)), rng.normal(size=len(t))], 1)
        x[rng.random(x.shape) < 0.1] = np.nan
        values.append(x)
        times.append(t)
    names = np.array(["slow", "fast"])[labels]
    return rf.SeriesBatch.from_arrays(values, times, labels=names)


@pytest.fixture(scope="module")
def fitted():
    return RocketClassifier(**FEW).fit(waves())


def test_a_path_is_read_between_its_points_and_held_outside_of_them():
    x = [np.array([[0.0, np.nan], [1.0, 5.0], [3.0, 7.0]]), np.array([[2.0, 4.0]])]
    batch = rf.SeriesBatch.from_arrays(x, [np.array([10.0, 11.0, 12.0]), np.array([0.0])])
    found = values_at(batch, [0.0, 0.5, 1.5, 9.0])
    np.testing.assert_allclose(found[0], [[0, 5], [0.5, 5], [2, 6], [3, 7]])
    np.testing.assert_array_equal(found[1], [[2, 4]] * 4)
    each = values_at(batch, [[0.0, 1.0], [0.0, 0.0]])
    np.testing.assert_allclose(each[0], [[0, 5], [1, 5]])
    assert values_at(batch[:0], [0.0, 1.0]).shape == (0, 2, 2)


def test_irregular_ragged_incomplete_series_are_told_apart(fitted):
    test = waves(seed=1)
    assert fitted.score(test, test.labels) > 0.9
    assert fitted.classes_.tolist() == ["fast", "slow"]
    scores = fitted.decision_function(test)
    assert scores.shape == (40,)
    np.testing.assert_array_equal(fitted.predict(test), fitted.classes_[(scores > 0).astype(int)])


def test_on_even_series_it_is_aeons_transform_and_ridge():
    from aeon.transformations.collection.convolution_based import MiniRocket

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 1, 50)).cumsum(axis=2), np.arange(30) % 3
    even = rf.SeriesBatch.from_arrays(list(x.transpose(0, 2, 1)))
    ours = RocketClassifier(**FEW).fit(even, y)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    features = np.asarray(MiniRocket(168, random_state=seed).fit_transform(x.astype(np.float32)))
    scaler = StandardScaler().fit(features)
    ridge = RidgeClassifierCV(alphas=np.logspace(-3, 3, 10)).fit(scaler.transform(features), y)
    expected = ridge.decision_function(scaler.transform(features))
    found = ours.decision_function(even)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_the_grid_has_the_median_length_or_the_wish(fitted):
    assert fitted.n_points_ == int(np.median(waves().lengths))
    assert RocketClassifier(n_points=20, **FEW).fit(waves()).n_points_ == 20
    short = rf.SeriesBatch.from_arrays([np.ones((2, 1)), np.zeros((1, 1))])
    assert RocketClassifier(**FEW).fit(short, [0, 1]).n_points_ == 9


def test_one_series_is_answered_as_in_a_batch_and_a_seed_repeats():
    train, test = waves(20), waves(5, seed=2)
    first = RocketClassifier(**FEW).fit(train)
    state = np.random.get_state()[1].tolist()  # noqa: NPY002
    second = clone(first).fit(train)
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002
    scores = first.decision_function(test)
    np.testing.assert_array_equal(second.decision_function(test), scores)
    alone = [first.decision_function(test[i : i + 1])[0] for i in range(5)]
    np.testing.assert_allclose(alone, scores, rtol=1e-5, atol=1e-6)
    again = pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(again.decision_function(test), scores)


def test_multi_is_aeons_multirocket():
    # Not fitted here: aeon compiles it for a minute.
    from aeon.transformations.collection.convolution_based import MultiRocket

    found = _transform("multi", 168, 1, 3)
    assert isinstance(found, MultiRocket)
    assert (found.n_kernels, found.random_state) == (168, 3)


def test_threads_and_random_numbers_of_others_are_left_alone(monkeypatch):
    """numba sets torch's threads when it starts its own: once in a process, so here by hand."""
    from aeon.transformations.collection.convolution_based import MiniRocket

    def disturbing(method):
        def call(*args, **kwargs):
            torch.set_num_threads(2)
            np.random.seed(0)  # noqa: NPY002
            return method(*args, **kwargs)

        return call

    for name in ("fit", "transform"):
        monkeypatch.setattr(MiniRocket, name, disturbing(getattr(MiniRocket, name)))
    batch = waves(8)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        RocketClassifier(**FEW).fit(batch).predict(batch)
        assert torch.get_num_threads() == 1
        np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    finally:
        torch.set_num_threads(threads)


def test_a_level_far_above_what_varies_does_not_hide_it():
    batch, test = waves(60), waves(20, seed=1)

    def raised(b):
        return rf.SeriesBatch(b.times, b.values + 1e9, b.offsets, channels=b.channels)

    net = RocketClassifier(**FEW).fit(raised(batch), batch.labels)
    assert net.score(raised(test), test.labels) > 0.9


def test_a_regressor_finds_numbers_of_one_and_of_many_targets():
    train, test = waves(60), waves(20, seed=1)
    y, expected = ((b.labels == "fast") * 2.0 + 1 for b in (train, test))
    net = RocketRegressor(**FEW).fit(train, y)
    assert net.score(test, expected) > 0.5
    many = RocketRegressor(**FEW).fit(train, np.stack([y, -y], axis=1))
    found = many.predict(test)
    np.testing.assert_allclose(found[:, 0], -found[:, 1], atol=1e-6)


def test_what_cannot_be_is_refused_with_words(fitted):
    train = waves(6)
    with pytest.raises(InputError, match="no series were given"):
        RocketRegressor().fit(train[:0], [])
    with pytest.raises(InputError, match="at least two classes"):
        RocketClassifier(**FEW).fit(train, ["a"] * 6)
    with pytest.raises(InputError, match="a target for each of 6 series"):
        RocketClassifier(**FEW).fit(train, ["a", "b"])
    with pytest.raises(InputError, match="targets must be finite"):
        RocketRegressor(**FEW).fit(train, [1, 2, np.nan, 4, 5, 6])
    with pytest.raises(InputError, match="kernels must be 'mini' or 'multi'"):
        RocketClassifier(kernels="maxi").fit(train)
    with pytest.raises(InputError, match="n_points must be a whole number >= 9"):
        RocketClassifier(n_points=3).fit(train)
    with pytest.raises(InputError, match="nothing to predict"):
        fitted.predict(train[:0])
    other = waves(2)
    other = rf.SeriesBatch(other.times, other.values, other.offsets, channels=("b", "a"))
    with pytest.raises(InputError, match=r"these series have \['b', 'a'\]"):
        fitted.predict(other)
    with pytest.raises(InputError, match="the target y is None"):
        RocketRegressor().fit(rf.SeriesBatch.from_arrays([np.zeros((20, 1))] * 2))
