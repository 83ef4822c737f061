"""Labels of windows that are not known count nowhere: loss, prior, weights, scores, calibration."""

import numpy as np
import pytest
import torch

import roughformer as rf
from roughformer.errors import InputError
from roughformer.estimators import RFormerClassifier, RFormerRegressor
from roughformer.estimators.fitting import class_counts
from roughformer.inference.targets import ClassTargets, check_numbers, known_labels
from small import TINY, make, walks

pd = pytest.importorskip("pandas")
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
    models = [make(RFormerClassifier, **CAUSAL).fit(X, one) for one in marked]
    for model in models:
        assert model.classes_.tolist() == [0, 1]
        assert model.history_[-1]["valid_loss"] == models[0].history_[-1]["valid_loss"]
        np.testing.assert_array_equal(model.predict_proba(X), models[0].predict_proba(X))


def test_the_score_on_validation_is_of_the_known_windows():
    y, known = labels()
    marked = np.where(known, y.astype(float), np.nan)
    options = CAUSAL | {"metric": "accuracy", "epochs": 4, "learning_rate": 0.02}
    model = make(RFormerClassifier, **options).fit(X, marked)
    held = model.validation_index_
    assert not known[held].all()
    said = np.array([p.argmax(axis=1) for _, p in model.predict_windows(X[held])])
    share = (said == y[held])[known[held]].mean()
    assert max(record["valid_metric"] for record in model.history_) == pytest.approx(share)


@pytest.mark.parametrize("weight", [None, "balanced", {0: 3.0}])
def test_weights_and_temperature_are_of_the_known_windows(weight):
    y, known = labels()
    marked = np.where(known, y.astype(float), np.nan)
    model = make(RFormerClassifier, **CAUSAL, class_weight=weight).fit(X, marked)
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
    model = make(RFormerClassifier, **options).fit(X, y)
    bias = model.predictor_.model.head.map.bias
    assert float(bias.softmax(dim=0)[1].detach()) == pytest.approx(1 / 30, rel=1e-3)


def test_a_training_part_without_any_label_does_no_harm():
    y = np.full((30, 4), np.nan)
    y[0, 1:3] = 1.0, 0.0
    groups = np.arange(30) > 0
    options = CAUSAL | {"validation": 0.05, "epochs": 1}
    trained_on = set()
    for seed in range(4):
        model = make(RFormerClassifier, **(options | {"random_state": seed})).fit(
            X, y, groups=groups
        )
        assert np.isfinite(model.predict_proba(X)).all()
        trained_on.add(model.predictor_.metadata["trained_on"])
    assert trained_on == {1, 29}  # with labels, and without any


@pytest.mark.parametrize(
    ("y", "causal", "words"),
    [
        (np.full((30, 4), np.nan), True, "no window has a known label"),
        (np.where(np.arange(30) == 3, np.nan, 1.0), True, "series 3 has no label"),
        (np.ma.MaskedArray(np.arange(30) % 2, mask=np.arange(30) == 3), False, "series 3 has no"),
        (np.ma.MaskedArray(np.ones((30, 1)), mask=np.arange(30)[:, None] == 3), False, "series 3"),
        (np.full((30, 4), np.inf), True, "infinite"),
        ([["a", "b"], ["a"]] * 15, True, "fill up with NaN or None"),
        (np.zeros((30, 4, 1)), True, "labels must have shape"),
    ],
)
def test_labels_that_are_missing_where_they_must_not_be(y, causal, words):
    with pytest.raises(InputError, match=words):
        make(RFormerClassifier, **(CAUSAL | {"causal": causal})).fit(X, y)


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


def numbers_said_otherwise():
    """Targets of 30 series, some not known, in every way that says so."""
    y = np.arange(30.0)
    known = np.arange(30) % 3 > 0
    masked = np.ma.MaskedArray(np.where(known, y, 1e6), mask=~known)
    return np.where(known, y, np.nan), [
        masked,
        list(masked),
        masked[:, None],
        np.where(known, y.astype(object), None),
        pd.Series(np.where(known, y, np.nan)).astype("Float64"),
        pd.Series(np.where(known, y, np.nan)).astype("Float64").to_numpy(dtype=object),
    ]


def test_numbers_that_are_masked_none_or_na_are_nan():
    want, ways = numbers_said_otherwise()
    for y in ways:
        found, _ = check_numbers(y, 30)
        np.testing.assert_array_equal(found, want[:, None])


def test_what_is_masked_is_neither_learned_nor_validated_nor_scored():
    plain, (masked, *_) = numbers_said_otherwise()
    found = [
        make(RFormerRegressor, **TINY).fit(X, y, validation_data=(X, y)) for y in (plain, masked)
    ]
    assert found[0].predictor_.targets == found[1].predictor_.targets
    metric = [[record["valid_metric"] for record in model.history_] for model in found]
    assert metric[0] == metric[1]
    assert max(metric[1]) < 30
    np.testing.assert_array_equal(found[0].predict(X), found[1].predict(X))
    known = ~np.isnan(plain)
    alone = found[0].score(X[known], plain[known])
    assert found[0].score(X, masked) == pytest.approx(alone, abs=1e-5)


def test_masked_numbers_of_windows_count_nowhere():
    y, known = labels()
    wide = np.where(known, y, 1000.0)[..., None]
    masked = np.ma.MaskedArray(wide, mask=~known[..., None])
    options = CAUSAL | {"epochs": 1}
    one, other = (
        make(RFormerRegressor, **options).fit(X, way) for way in (masked, masked.filled(np.nan))
    )
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    assert 0 < one.predictor_.targets.mean[0] < 1


def test_masked_values_of_series_are_not_observed():
    hide = np.random.default_rng(0).random(X.shape) < 0.2
    masked = np.ma.MaskedArray(np.where(hide, 1e6, X), mask=hide)
    model = make(RFormerRegressor, **TINY).fit(masked, np.arange(30.0))
    gaps = np.where(hide, np.nan, X)
    np.testing.assert_array_equal(model.predict(masked), model.predict(gaps))
    rows, same = [row[0] for row in masked], [row[0] for row in gaps]
    flat = make(RFormerRegressor, **TINY).fit(rows, np.arange(30.0))
    np.testing.assert_array_equal(flat.predict(rows), flat.predict(same))


def test_na_of_pandas_is_an_unknown_label():
    y, known = labels()
    nan = np.where(known, y.astype(float), np.nan)
    frame = pd.DataFrame(nan).astype("Int64")
    want = make(RFormerClassifier, **CAUSAL).fit(X, nan).predict_proba(X)
    for way in (frame, frame.to_numpy(dtype=object)):
        np.testing.assert_array_equal(
            make(RFormerClassifier, **CAUSAL).fit(X, way).predict_proba(X), want
        )
    one = pd.Series([pd.NA, *([0, 1] * 14), 0], dtype="Int64")
    with pytest.raises(InputError, match="series 0 has no label"):
        make(RFormerClassifier, **TINY).fit(X, one)
