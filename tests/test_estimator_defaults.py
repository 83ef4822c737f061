"""What "auto" chooses from the training series."""

import numpy as np
import pytest

import roughformer as rf
from roughformer.estimators.parameters import token_config

OPTIONS = rf.RFormerClassifier()._token_options()


def keeps_levels(values):
    batch = rf.SeriesBatch.from_arrays(list(values))
    return token_config(batch, OPTIONS, causal=False).basepoint


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def waves(rng, n=40, length=60):
    return 3 * np.sin(np.linspace(0, 20, length) + rng.uniform(0, 6, (n, 1)))[..., None]


def test_levels_that_tell_series_apart_are_kept(rng):
    level = rng.choice([-1.0, 1.0], 40)[:, None, None]
    assert keeps_levels(waves(rng) + level)
    assert keeps_levels(np.concatenate([waves(rng), waves(rng) + level], axis=2))


def test_series_that_were_centred_have_no_level(rng):
    x = waves(rng) + rng.normal(size=(40, 1, 1))
    assert not keeps_levels(x - x.mean(axis=1, keepdims=True))


def test_walks_from_one_place_have_no_level_to_keep(rng):
    steps = rng.normal(size=(40, 59, 1)).cumsum(axis=1)
    walks = np.concatenate([np.zeros((40, 1, 1)), steps], axis=1)
    assert not keeps_levels(walks)
    assert keeps_levels(walks + 20 * rng.normal(size=(40, 1, 1)))


def test_missing_and_constant_and_lonely_series_do_not_matter(rng):
    x = waves(rng)
    x[rng.random(x.shape) < 0.3] = np.nan
    x[:3] = np.nan
    assert not keeps_levels(x)
    assert not keeps_levels(np.ones((5, 10, 1)))
    assert not keeps_levels(waves(rng, n=1) + 7)


def test_a_class_that_is_a_level_is_learned(rng):
    y = rng.integers(2, size=80)
    x = (
        waves(rng, n=80)
        + np.where(y, 1.0, -1.0)[:, None, None]
        + 0.1 * rng.normal(size=(80, 60, 1))
    )
    model = rf.RFormerClassifier(epochs=15, random_state=0, windows=10).fit(list(x[:60]), y[:60])
    assert model.score(list(x[60:]), y[60:]) >= 0.95
