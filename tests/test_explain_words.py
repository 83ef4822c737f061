"""Words of an explanation are integrals: they add up, and finer steps do not change them."""

import importlib
from itertools import pairwise

import numpy as np
import pytest

from roughformer.estimators import RFormerClassifier
from small import make

module = importlib.import_module("roughformer.explain")


@pytest.fixture(scope="module")
def series():
    rng = np.random.default_rng(0)
    times = [np.sort(rng.uniform(0, 10, n)) for n in rng.integers(20, 60, size=40)]
    values = [
        np.stack([np.sin(t) + 0.1 * rng.normal(size=len(t)), rng.normal(size=len(t)).cumsum()], 1)
        for t in times
    ]
    return values, times


@pytest.mark.parametrize("kind", ["neural-cde", "neural-rde"])
def test_words_add_up_where_the_answer_bends_at_every_step(series, kind, monkeypatch):
    values, times = series
    model = make(RFormerClassifier, kind, epochs=5, random_state=0, n_jobs=1)
    model.fit(values, np.arange(40) % 2, times=times)
    some = {"X": values[:4], "times": times[:4], "n_words": None}
    found = model.explain(**some)
    for e in found:
        assert sum(e.words.values()) == pytest.approx(e.value - e.baseline, rel=1e-4, abs=1e-4)
    monkeypatch.setattr(module, "_STEPS", 600)
    for e, fine in zip(found, model.explain(**some), strict=True):
        size = sum(map(abs, fine.words.values()))
        off = sum(abs(e.words[name] - fine.words[name]) for name in fine.words)
        assert off < 0.03 * size


def test_a_series_that_misses_is_integrated_in_more_pieces_and_no_other(series, monkeypatch):
    values, times = series
    model = make(RFormerClassifier, "neural-cde", epochs=5, random_state=0, n_jobs=1)
    model.fit(values, np.arange(40) % 2, times=times)
    asked = []
    integrals = module._Explainer._integrals

    def noted(self, which, pieces):
        asked.append((pieces, len(which)))
        return integrals(self, which, pieces)

    monkeypatch.setattr(module._Explainer, "_integrals", noted)
    model.explain(values[:6], times[:6])
    pieces, counts = zip(*asked, strict=True)
    assert pieces == tuple(2**k for k in range(len(pieces)))
    assert len(pieces) > 1
    assert counts[0] == 6
    assert all(a >= b for a, b in pairwise(counts))


def test_words_that_cannot_be_made_to_add_up_are_told(series, monkeypatch):
    values, times = series
    model = RFormerClassifier(epochs=2, windows=4, random_state=0, n_jobs=1)
    model.fit(values, np.arange(40) % 2, times=times)
    integrals = module._Explainer._integrals
    monkeypatch.setattr(module._Explainer, "_integrals", lambda self, *a: 0.5 * integrals(self, *a))
    with pytest.warns(UserWarning, match="words of 3 of 3 series do not add up"):
        model.explain(values[:3], times[:3])
