"""aeon's own checks, and what its checks do not see."""

import importlib
import sys

import numpy as np
import pytest

aeon = pytest.importorskip("aeon")

from aeon.testing.estimator_checking import parametrize_with_checks  # noqa: E402

from roughformer.aeon import RFormerAeonClassifier, RFormerAeonRegressor  # noqa: E402
from roughformer.estimators import RFormerClassifier, RFormerRegressor  # noqa: E402
from small import make  # noqa: E402

TINY = {"windows": 3, "depth": 1, "clock": 0, "spectrum": None, "d_model": 8, "n_heads": 2}


# aeon's check_estimator runs the same list; here each is a test with a name.
@parametrize_with_checks([RFormerAeonClassifier, RFormerAeonRegressor])
def test_aeon_check(check):
    check()


def series(n=20, seed=0):
    rng = np.random.default_rng(seed)
    found = [rng.normal(size=(2, length)).cumsum(axis=1) for length in rng.integers(5, 15, n)]
    found[0][1, 2] = np.nan
    return found, np.where(np.arange(n) % 2 == 1, "up", "down")


@pytest.mark.parametrize("kind", [RFormerAeonClassifier, RFormerAeonRegressor])
def test_all_capabilities_are_on(kind):
    for name in (
        "multivariate",
        "univariate",
        "unequal_length",
        "missing_values",
        "multithreading",
    ):
        assert kind.get_class_tag(f"capability:{name}")


def test_lists_have_channels_first_and_the_model_is_that_of_the_estimator():
    x, y = series()
    wish = make(RFormerClassifier, **TINY, epochs=2)
    found = RFormerAeonClassifier(wish, random_state=3).fit(x, y)
    assert found.estimator_.predictor_.encoder.channels == ("x0", "x1")
    assert not hasattr(wish, "predictor_")
    assert wish.random_state is None
    plain = make(RFormerClassifier, **TINY, epochs=2, random_state=3, n_jobs=1).fit(
        [a.T for a in x], y
    )
    np.testing.assert_array_equal(found.predict_proba(x), plain.predict_proba([a.T for a in x]))
    assert set(found.predict(x)) <= {"up", "down"}
    assert 0 <= found.score(x, y) <= 1


def test_its_own_random_state_counts_if_none_is_given():
    x, _ = series()
    y = np.arange(20.0)

    def predict(random_state, own):
        wish = make(RFormerRegressor, **TINY, epochs=1, random_state=own)
        return RFormerAeonRegressor(wish, random_state=random_state).fit(x, y).predict(x)

    np.testing.assert_array_equal(predict(None, 5), predict(5, 1))
    assert not np.array_equal(predict(None, 5), predict(None, 6))


def test_threads_do_not_change_the_result():
    x, y = series()
    shares = [
        RFormerAeonClassifier(make(RFormerClassifier, **TINY, epochs=1), random_state=0, n_jobs=n)
        .fit(x, y)
        .predict_proba(x)
        for n in (1, 2)
    ]
    np.testing.assert_allclose(*shares, atol=1e-5)


def test_without_aeon_the_error_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "roughformer.aeon")
    for name in ("aeon", "aeon.classification"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    words = r"needs the package aeon: pip install 'roughformer\[aeon\]'"
    with pytest.raises(ImportError, match=words):
        importlib.import_module("roughformer.aeon")
