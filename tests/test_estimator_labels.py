"""Labels of any kind, and the weights of their classes."""

import numpy as np
import pytest

import roughformer as rf
from roughformer.errors import InputError
from roughformer.estimators import RFormerClassifier, RFormerRegressor
from small import TINY, make, make_sine, walks


@pytest.mark.parametrize(
    "names",
    [
        ["no", "yes", "maybe so"],
        [-3, 0, 7],
        [0.0, 1.0, 2.0],
        [False, True],
        np.array(["a", "bc", "d"], dtype=object),
        ["only one"],
    ],
    ids=["texts", "whole", "floats", "bools", "objects", "one"],
)
def test_labels_come_back_as_they_were_given(names, tmp_path):
    y = np.array([names[i % len(names)] for i in range(24)], dtype=np.asarray(names).dtype)
    model = make(RFormerClassifier, **TINY).fit(walks(), y)
    model.save(tmp_path / "model")
    for found in (model, RFormerClassifier.load(tmp_path / "model")):
        np.testing.assert_array_equal(found.classes_, np.unique(y))
        predicted = found.predict(walks(5))
        assert predicted.dtype == y.dtype
        assert set(predicted.tolist()) <= set(y.tolist())
        assert found.predict_proba(walks(5)).shape == (5, len(names))


def test_labels_of_the_batch_are_used_where_none_are_given():
    batch = rf.SeriesBatch.from_tensor(walks(), labels=np.arange(24) % 2)
    one = make(RFormerClassifier, **TINY).fit(batch)
    other = make(RFormerClassifier, **TINY).fit(walks(), np.arange(24) % 2)
    np.testing.assert_array_equal(one.predict_proba(batch), other.predict_proba(batch))


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.arange(24) + 0.5, "Unknown label type"),
        (np.where(np.arange(24) == 3, np.nan, 1.0), "series 3 has no label; leave"),
        (np.where(np.arange(24) == 3, np.inf, 1.0), "must not be NaN or infinite"),
        (np.where(np.arange(24) == 3, None, 0.5), "series 3 has no label"),
        (np.full(24, 0.5, dtype=object), "Unknown label type"),
        (np.array([b"a", b"b"] * 12), r"text, whole numbers or booleans, got \|S1; make text"),
        (np.array(["2020-01-01", "2021-01-01"] * 12, dtype="datetime64[D]"), "got datetime64"),
        (np.array([1 + 1j, 2] * 12), "got complex128"),
        (np.zeros(23), "24 series but labels of shape"),
        (np.zeros((24, 4)), "needs causal=True"),
        (3, "24 series but labels of shape"),
    ],
)
def test_labels_that_are_none(y, words):
    with pytest.raises(InputError, match=words):
        make(RFormerClassifier, **TINY).fit(walks(), y)


@pytest.mark.parametrize("held", [["c"] * 5, [1] * 5])
def test_a_label_that_was_not_trained_is_refused_in_validation(held):
    y = np.array(["a", "b"] * 12)
    with pytest.raises(InputError, match="is none of the model's classes"):
        make(RFormerClassifier, **TINY).fit(walks(), y, validation_data=(walks(5), held))


def test_the_score_is_the_share_of_right_ones_and_a_column_is_no_trap():
    y = np.arange(24) % 3
    model = make(RFormerClassifier, **TINY).fit(walks(), y)
    share = (model.predict(walks()) == y).mean()
    assert model.score(walks(), y) == model.score(walks(), y[:, None]) == share


def test_class_weight_moves_predictions_to_the_class_that_matters():
    y = (np.arange(60) % 6 == 0).astype(int)
    x = walks(60)

    def share_of_ones(weight):
        options = TINY | {"epochs": 6, "class_weight": weight, "learning_rate": 0.02}
        return make(RFormerClassifier, **options).fit(x, y).predict_proba(x)[:, 1].mean()

    plain, balanced, heavy = map(share_of_ones, (None, "balanced", {1: 1000.0}))
    assert plain < balanced < heavy
    assert heavy > 0.8
    for wrong, words in (({2: 1.0}, r"names \[2\]"), ("heavy", "None, 'balanced' or a dict")):
        with pytest.raises(InputError, match=words):
            share_of_ones(wrong)


def test_class_weights_of_numbers_survive_saving(tmp_path):
    model = make(RFormerClassifier, **TINY, class_weight={np.int64(0): 2.0, 1: 3.0})
    model.fit(walks(), np.arange(24) % 2).save(tmp_path / "model")
    assert RFormerClassifier.load(tmp_path / "model").class_weight == {0: 2.0, 1: 3.0}


@pytest.mark.parametrize("labels", [["a", 1] * 6, [b"x", "a"] * 6])
def test_labels_of_several_kinds_are_refused(labels):
    batch = make_sine(12, n_classes=2, length=40)
    with pytest.raises(InputError, match="labels must be of one kind"):
        RFormerClassifier(epochs=1).fit(batch, np.array(labels, dtype=object))


def test_labels_as_objects_score_as_those_of_their_own_kind():
    y = np.arange(24) % 3
    numbers = make(RFormerClassifier, **TINY).fit(walks(), y)
    share = numbers.score(walks(), y)
    assert numbers.score(walks(), y.astype(object)) == share
    assert numbers.score(walks(), y.astype(float)) == share
    objects = make(RFormerClassifier, **TINY).fit(walks(), y.astype(object))
    assert objects.score(walks(), y) == objects.score(walks(), y.astype(object)) == share
    with pytest.raises(InputError, match="the labels are text, those of the model are numbers"):
        numbers.score(walks(), y.astype(str))
    with pytest.raises(InputError, match=r"got \|S1"):
        numbers.score(walks(), y.astype("S1"))


def test_a_class_that_was_not_trained_counts_as_missed():
    model = make(RFormerClassifier, **TINY).fit(walks(), np.arange(24) % 2)
    assert model.score(walks(), np.full(24, 7)) == 0.0


@pytest.mark.parametrize("kind", [RFormerClassifier, RFormerRegressor])
def test_without_y_the_score_is_of_the_labels_of_the_series(kind):
    y = np.arange(24) % 2
    batch = rf.SeriesBatch.from_tensor(walks(), labels=y)
    model = make(kind, **TINY).fit(batch)
    assert model.score(batch) == model.score(batch, None) == model.score(walks(), y)
    with pytest.raises(InputError, match="score needs y, or series with labels"):
        model.score(walks())
