"""Options of the estimators, and models that are stored."""

import numpy as np
import pytest
import torch

import roughformer as rf
from roughformer.errors import CheckpointError, InputError
from roughformer.estimators import RFormerClassifier, RFormerRegressor
from small import TINY, make, make_sine, walks


def test_presets():
    paper = RFormerClassifier.from_preset("paper", epochs=3)
    assert (paper.windows, paper.depth, paper.learning_rate, paper.epochs) == (75, 2, 1e-3, 3)
    heart = RFormerRegressor.from_preset("paper")
    assert (heart.windows, heart.depth, heart.views) == (75, 4, ("local",))
    assert RFormerRegressor.from_preset("default").get_params() == RFormerRegressor().get_params()
    with pytest.raises(InputError, match="presets are default, paper"):
        RFormerClassifier.from_preset("best")


def test_a_budget_of_time_ends_a_long_training():
    options = TINY | {"epochs": 10**6, "max_seconds": 0.5, "patience": None}
    model = make(RFormerRegressor, **options).fit(walks(), np.arange(24))
    assert 1 <= len(model.history_) < 10**5
    assert np.isfinite(model.predict(walks())).all()


def test_log_signatures_have_fewer_words():
    few = make(RFormerRegressor, **TINY, transform="logsignature").fit(walks(), np.arange(24))
    many = make(RFormerRegressor, **TINY).fit(walks(), np.arange(24))
    assert few.predictor_.encoder.n_features < many.predictor_.encoder.n_features


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, "epochs"),
        ({"d_model": 9}, "multiple of n_heads"),
        ({"model": "lstm"}, "unknown model 'lstm'"),
        ({"metric": "f1"}, "metric must be"),
        ({"validation": 1.0}, "validation fraction"),
        ({"views": ("left",)}, "views"),
        ({"windows": "many"}, "windows must be"),
        ({"spectrum": "wide"}, "spectrum: Input should be"),
        ({"drop": 1.5}, "drop"),
    ],
)
def test_wrong_options_are_refused_with_words_when_fitting(options, words):
    with pytest.raises(InputError, match=words):
        make(RFormerRegressor, **(TINY | options)).fit(walks(), np.arange(24))


def test_a_model_of_the_other_task_is_not_loaded(tmp_path):
    make(RFormerRegressor, **TINY).fit(walks(), np.arange(24)).save(tmp_path / "model")
    with pytest.raises(InputError, match="holds a model for regression"):
        RFormerClassifier.load(tmp_path / "model")


@pytest.mark.parametrize(
    "windows", [np.array([0.0, 2.0, 6.0]), rf.Windows.by_duration(1.5), rf.Windows.by_points(9), 4]
)
def test_windows_of_any_kind_are_stored_with_the_model(windows, tmp_path):
    batch = make_sine(12, n_classes=2, length=40)
    options = {"windows": windows, "epochs": 1, "d_model": 8, "n_heads": 2, "random_state": 0}
    model = make(rf.RFormerClassifier, **options, run_dir=tmp_path / "run").fit(batch)
    for directory in (tmp_path / "run" / "model", tmp_path / "saved"):
        if directory.name == "saved":
            model.save(directory)
        again = rf.RFormerClassifier.load(directory)
        assert again.epochs == 1
        assert np.array_equal(again.predict_proba(batch), model.predict_proba(batch))
        refitted = again.set_params(run_dir=None).fit(batch)
        assert np.array_equal(refitted.predict_proba(batch), model.predict_proba(batch))


def test_another_class_weight_or_metric_is_another_training(tmp_path):
    batch = make_sine(12, n_classes=2, length=20)
    options = {"windows": 4, "epochs": 1, "d_model": 8, "n_heads": 2, "run_dir": tmp_path}
    make(RFormerClassifier, **options, random_state=0).fit(batch)
    for other in ({"metric": "accuracy"}, {"class_weight": "balanced"}):
        with pytest.raises(CheckpointError, match="another configuration"):
            make(RFormerClassifier, **options, **other, random_state=0, resume=True).fit(batch)


def test_mixed_precision_ends_with_training(tmp_path):
    batch = make_sine(12, n_classes=2, length=40)
    options = {"windows": 4, "epochs": 1, "d_model": 8, "n_heads": 2, "precision": "bfloat16"}
    model = make(RFormerClassifier, **options).fit(batch)
    model.save(tmp_path / "model")
    again = RFormerClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(batch), model.predict_proba(batch))


@pytest.mark.parametrize(("device", "words"), [("foo", "one of cpu"), ("cuda", "no such device")])
def test_a_model_is_loaded_onto_a_device_that_is_there(device, words, tmp_path):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("cuda is here")
    with pytest.raises(InputError, match=words):
        RFormerClassifier.load(tmp_path, device=device)


def test_numbers_of_numpy_are_numbers():
    options = {"epochs": np.int64(1), "n_jobs": np.int64(1), "drop": np.float32(0.5)}
    options |= {
        "n_estimators": np.int64(2),
        "learning_rate": np.float32(1e-3),
        "windows": np.int32(4),
    }
    options |= {"random_state": np.int64(0), "patience": np.int16(3)}
    one = make(RFormerRegressor, **(TINY | options)).fit(walks(), np.arange(24))
    plain = {name: value.item() for name, value in options.items()}
    other = make(RFormerRegressor, **(TINY | plain)).fit(walks(), np.arange(24))
    np.testing.assert_array_equal(one.predict(walks()), other.predict(walks()))
    for wrong in (np.int64(0), True, 1.5, "two"):
        with pytest.raises(InputError, match="n_jobs must be None, -1 or a positive whole number"):
            make(RFormerRegressor, **(TINY | {"n_jobs": wrong})).fit(walks(), np.arange(24))


def test_what_is_no_path_and_no_class_is_said_to_be_none():
    model = make(RFormerClassifier, **TINY).fit(walks(), np.arange(24) % 2)
    for call in (lambda: model.save(None), lambda: RFormerClassifier.load(3)):
        with pytest.raises(InputError, match="the directory of a model must be a path, got"):
            call()
    with pytest.raises(InputError, match="target must be one of the classes"):
        model.explain(walks(2), target=np.array([0, 1]))


def test_a_changed_copy_of_a_group_leaves_the_group_as_it_was():
    config = rf.TokenConfig(windows=4, static=("age",))
    other = config.model_copy(update={"static": ()})
    assert (config.static, other.static) == (("age",), ())
