"""Labels of windows that are not known count nowhere: loss, prior, weights, scores, calibration."""

import numpy as np
import pytest
import torch

import roughformer as rf
from roughformer.errors import InputError
from roughformer.estimators import RFormerClassifier
from roughformer.estimators.aims import class_counts
from roughformer.targets import ClassTargets, known_labels
from small import TINY, walks

X = walks(30, length=17)
CAUSAL = TINY | {"windows": rf.Windows.by_points(4), "causal": True, "validation": 0.3}


def labels(seed=0):
    """Classes 0 and 1 of 30 x 4 windows, and which of them are known: the first windows are."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, (30, 4)), np.arange(4) < rng.integers(1, 5, (30, 1))


def test_nan_none_and_masks_say_the_same():
    y, known = labels()
    marked = [
        np.where(known, y.astype(float), np.nan),
        np.where(known, y.astype(object), None),
        np.where(known, y.astype(object), float("nan")),
        np.ma.MaskedArray(y, mask=~known),
        np.ma.MaskedArray(np.where(known, y, 7), mask=~known),
        [
            [int(v) if k else None for v, k in zip(*row, strict=True)]
            for row in zip(y, known, strict=True)
        ],
    ]
    models = [RFormerClassifier(**CAUSAL).fit(X, one) for one in marked]
    for model in models:
        assert model.classes_.tolist() == [0, 1]
        assert model.history_[-1]["valid_loss"] == models[0].history_[-1]["valid_loss"]
        np.testing.assert_array_equal(model.predict_proba(X), models[0].predict_proba(X))


def test_the_score_on_validation_is_of_the_known_windows():
    y, known = labels()
    marked = np.where(known, y.astype(float), np.nan)
    options = CAUSAL | {"metric": "accuracy", "epochs": 4, "learning_rate": 0.02}
    model = RFormerClassifier(**options).fit(X, marked)
    held = model.validation_index_
    assert not known[held].all()
    said = np.array([p.argmax(axis=1) for _, p in model.predict_windows(X[held])])
    share = (said == y[held])[known[held]].mean()
    assert max(record["valid_metric"] for record in model.history_) == pytest.approx(share)


@pytest.mark.parametrize("weight", [None, "balanced", {0: 3.0}])
def test_weights_and_temperature_are_of_the_known_windows(weight):
    y, known = labels()
    marked = np.where(known, y.astype(float), np.nan)
    model = RFormerClassifier(**CAUSAL, class_weight=weight).fit(X, marked)
    counts = np.bincount(y[known], minlength=2)
    target = ClassTargets.fit(np.array([0.0, 1.0])).numbers(marked)
    assert class_counts(target, 2).tolist() == counts.tolist()
    if weight == "balanced":
        want = counts.sum() / (2 * counts)
        np.testing.assert_allclose(model._class_weight(target), want, rtol=1e-6)
    assert np.isfinite(model.predictor_.calibration)
    assert model.predictor_.calibration != 1.0


def test_a_class_that_is_rare_among_the_known_starts_rare():
    y = np.full((30, 4), np.nan)
    y[:, 0] = 0
    y[0, 0] = 1
    options = CAUSAL | {"epochs": 1, "learning_rate": 1e-9, "validation": 0.0}
    model = RFormerClassifier(**options).fit(X, y)
    bias = model.predictor_.model.head.map.bias
    assert float(bias.softmax(dim=0)[1].detach()) == pytest.approx(1 / 30, rel=1e-3)


def test_a_training_part_without_any_label_does_no_harm():
    y = np.full((30, 4), np.nan)
    y[0, 1:3] = 1.0, 0.0
    groups = np.arange(30) > 0
    options = CAUSAL | {"validation": 0.05, "epochs": 1}
    trained_on = set()
    for seed in range(4):
        model = RFormerClassifier(**(options | {"random_state": seed})).fit(X, y, groups=groups)
        assert np.isfinite(model.predict_proba(X)).all()
        trained_on.add(model.predictor_.facts["trained_on"])
    assert trained_on == {1, 29}  # with labels, and without any


@pytest.mark.parametrize(
    ("y", "causal", "words"),
    [
        (np.full((30, 4), np.nan), True, "no window has a known label"),
        (np.where(np.arange(30) == 3, np.nan, 1.0), True, "must not be NaN"),
        (np.ma.MaskedArray(np.arange(30) % 2, mask=np.arange(30) == 3), False, "series 3 has no"),
        (np.ma.MaskedArray(np.ones((30, 1)), mask=np.arange(30)[:, None] == 3), False, "series 3"),
        (np.full((30, 4), np.inf), True, "infinite"),
        ([["a", "b"], ["a"]] * 15, True, "fill up with NaN or None"),
        (np.zeros((30, 4, 1)), True, "labels must have shape"),
    ],
)
def test_labels_that_are_missing_where_they_must_not_be(y, causal, words):
    with pytest.raises(InputError, match=words):
        RFormerClassifier(**(CAUSAL | {"causal": causal})).fit(X, y)


def test_class_numbers_are_negative_where_nothing_is_known():
    targets = ClassTargets.fit(np.array(["a", "c"]))
    marked = np.array([["c", None], [None, "a"]], dtype=object)
    assert targets.numbers(marked).tolist() == [[1, -1], [-1, 0]]
    assert targets.numbers(marked[:0]).shape == (0, 2)
    assert known_labels(np.zeros((0, 3)))[1].shape == (0, 3)
    assert class_counts(torch.tensor([[-1, 2], [2, -1]]), 4).tolist() == [0, 0, 2, 0]
    with pytest.raises(InputError, match=r"the label 'b' of series 1 is none"):
        targets.numbers(np.array([["c", None], [None, "b"]], dtype=object))
    with pytest.raises(InputError, match="series 1 has no label"):
        ClassTargets.fit(np.array([0.0, 1.0])).numbers(np.array([0.0, np.nan]))
