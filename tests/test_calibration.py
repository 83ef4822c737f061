"""Probabilities and deviations that say how often the model is wrong."""

import numpy as np
import pytest
import torch

from roughformer.estimators import RFormerClassifier
from roughformer.inference.calibration import fit_deviation_factor, fit_temperature
from small import TINY, make, walks


def test_temperature_makes_confidence_honest():
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(rng.normal(size=(4000, 3)))
    shares = logits.softmax(dim=1).numpy()
    labels = torch.from_numpy((shares.cumsum(axis=1) < rng.random((4000, 1))).sum(axis=1))
    assert fit_temperature(3 * logits, labels) == pytest.approx(3, rel=0.1)
    assert fit_temperature(logits / 3, labels) == pytest.approx(1 / 3, rel=0.1)
    assert fit_temperature(logits[:0], labels[:0]) == 1.0
    # Weights that count a class double are those of a part that has it twice.
    twice = torch.cat([torch.arange(4000), torch.where(labels == 0)[0]])
    weighted = fit_temperature(logits, labels, torch.tensor([2.0, 1.0, 1.0]))
    assert weighted == pytest.approx(fit_temperature(logits[twice], labels[twice]), rel=1e-2)


@pytest.mark.parametrize("n", [4, 40, 400])
def test_a_few_right_answers_do_not_prove_that_all_will_be_right(n):
    """Rule of succession: after n of n right ones the next is right with (n + 1) / (n + 2)."""
    labels = torch.arange(n) % 2
    logits = torch.stack([1.0 - labels, labels.double()], dim=1)
    share = (logits / fit_temperature(logits, labels)).softmax(dim=1).amax(dim=1)
    np.testing.assert_allclose(share, (n + 1) / (n + 2), rtol=1e-3)


def test_deviations_are_scaled_to_what_was_missed():
    rng = np.random.default_rng(0)
    mean, target = torch.zeros(5000, 1), torch.from_numpy(3 * rng.normal(size=(5000, 1)))
    assert fit_deviation_factor(mean, torch.ones(5000, 1), target) == pytest.approx(3, rel=0.05)
    target[::2] = torch.nan
    assert fit_deviation_factor(mean, torch.ones(5000, 1), target) == pytest.approx(3, rel=0.05)
    assert fit_deviation_factor(mean[:0], mean[:0], mean[:0]) == 1.0


def test_calibration_changes_probabilities_and_not_classes():
    y = np.arange(24) % 3
    one = make(RFormerClassifier, **TINY).fit(walks(), y)
    other = make(RFormerClassifier, **TINY, calibrate=False).fit(walks(), y)
    assert other.predictor_.calibration == 1.0
    assert one.predictor_.calibration != 1.0
    np.testing.assert_array_equal(one.predict(walks()), other.predict(walks()))
    assert not np.allclose(one.predict_proba(walks()), other.predict_proba(walks()))
