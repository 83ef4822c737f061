"""Callbacks: what they get, how they end a training, and where they are kept."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone

import roughformer as rf
from roughformer.errors import InputError
from roughformer.estimators import RFormerClassifier
from small import TINY, make, make_sine, walks

Y = np.arange(24) % 2


def test_a_callback_gets_the_record_of_each_epoch_and_cannot_change_it():
    seen = []

    def callback(record):
        seen.append(dict(record))
        record.clear()

    model = make(RFormerClassifier, **TINY, callbacks=[callback]).fit(walks(), Y)
    assert seen == model.history_
    assert [record["epoch"] for record in seen] == [1, 2]


def test_a_callback_that_returns_true_ends_training_and_the_best_weights_are_kept(tmp_path):
    options = TINY | {"epochs": 20, "learning_rate": 0.05, "patience": None, "calibrate": False}
    stop = make(
        RFormerClassifier,
        **options,
        callbacks=[lambda r: np.bool_(r["epoch"] == 5)],
        run_dir=tmp_path,
    )
    stop.fit(walks(), Y)
    assert len(stop.history_) == 5
    loss = rf.RFormerClassifier.load(tmp_path / "model").predict_proba(walks())
    held = stop.validation_index_
    score = -np.log(loss[held, Y[held]]).mean()
    assert score == pytest.approx(min(r["valid_metric"] for r in stop.history_), rel=1e-4)
    again = make(RFormerClassifier, **options, run_dir=tmp_path, resume=True).fit(walks(), Y)
    assert len(again.history_) == 5  # the run was ended, not interrupted


def test_every_callback_is_called_and_only_true_stops():
    seen = []
    callbacks = [lambda r: True, lambda r: seen.append(r["epoch"]), lambda r: 1]
    model = make(RFormerClassifier, **TINY, callbacks=callbacks).fit(walks(), Y)
    assert (len(model.history_), seen) == (1, [1])
    model.set_params(training__callbacks=callbacks[1:]).fit(walks(), Y)
    assert len(model.history_) == 2


def test_what_a_callback_raises_ends_fit():
    def fail(record):
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="the disk is full"):
        make(RFormerClassifier, **TINY, callbacks=[fail]).fit(walks(), Y)


def test_members_are_told_of_in_turn():
    seen = []
    model = make(RFormerClassifier, **TINY, n_estimators=2, callbacks=[seen.append]).fit(walks(), Y)
    assert [(r["member"], r["epoch"]) for r in seen] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert "member" not in model.history_[0]


def test_callbacks_are_cloned_by_reference_and_not_saved(tmp_path):
    seen = []
    model = make(RFormerClassifier, **TINY, callbacks=[seen.append])
    assert clone(model).training.callbacks[0].__self__ is seen
    model.fit(walks(), Y).save(tmp_path / "model")
    assert rf.RFormerClassifier.load(tmp_path / "model").training.callbacks == ()
    alone = make(RFormerClassifier, **TINY).fit(walks(), Y)
    np.testing.assert_array_equal(alone.predict_proba(walks()), model.predict_proba(walks()))


def test_what_cannot_be_called_is_refused():
    with pytest.raises(InputError, match=r"callbacks.*callable"):
        rf.TrainConfig(callbacks=["log"])


def test_the_recipe_for_mlflow_logs_each_epoch(monkeypatch):
    class Run:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

    logged = []
    mlflow = SimpleNamespace(
        start_run=Run, log_metrics=lambda numbers, step: logged.append((step, numbers))
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    page = (Path(__file__).parents[1] / "docs" / "training.md").read_text()
    (recipe,) = re.findall(r"```python\n(import mlflow.*?)```", page, flags=re.DOTALL)
    exec(recipe, {"rf": rf, "batch": make_sine(24, n_classes=2, length=40)})
    assert [step for step, _ in logged] == [1, 2]
    assert {"train_loss", "valid_loss", "learning_rate"} <= logged[0][1].keys()
    assert 0 <= logged[0][1]["valid_accuracy"] <= 1
