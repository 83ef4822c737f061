"""The baselines as estimators and models of the library: registered, saved, refused in words."""

import copy
import inspect
import json
import pickle
import re

import numpy as np
import pytest

import roughformer as rf
from command import SMALL, fails, succeeds
from roughformer.errors import InputError
from roughformer.estimators import estimator_class
from roughformer.export import export_model
from roughformer_paper.baselines import (
    BASELINES,
    GRUClassifier,
    NeuralCDEClassifier,
    SampleEncoder,
    TransformerClassifier,
    TransformerRegressor,
)
from roughformer_paper.datasets import make_sine

Y = np.arange(24) % 2


def walks():
    return np.random.default_rng(0).normal(size=(24, 20, 2)).cumsum(axis=1)


def described(documented):
    """Names in the section of parameters."""
    text = inspect.getdoc(documented)
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n-{3,}|\Z)", text, re.M | re.S)
    return re.findall(r"^(\**\w+)(?: : .+)?$", section[1], re.M)


GROUPS = list(dict.fromkeys(cls.groups["model"] for cls in BASELINES))


@pytest.mark.parametrize("documented", [*BASELINES, *GROUPS], ids=lambda cls: cls.__name__)
def test_the_docstring_of_a_class_describes_each_parameter_and_no_other(documented):
    assert "{" + "training}" not in documented.__doc__
    assert set(described(documented)) == set(inspect.signature(documented).parameters)


@pytest.mark.parametrize("cls", BASELINES, ids=lambda cls: cls.__name__)
def test_an_argument_that_a_baseline_does_not_know_is_refused_in_its_own_name(cls):
    with pytest.raises(TypeError, match=rf"^{cls.__name__}.__init__\(\) got an unexpected"):
        cls(clock=8)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("model.zz", "unknown parameter 'model.zz'; model has quantiles, d_model, "),
        ("zz", "unknown parameter 'zz'; GRUClassifier has static, causal, "),
        ("windows", "'windows': GRUClassifier has no tokens; leave it out"),
    ],
)
def test_a_name_is_only_proposed_if_it_is_near(name, words):
    with pytest.raises(InputError, match=re.escape(words)):
        GRUClassifier.setting_name(name)


def test_each_model_has_an_estimator_of_its_own(tmp_path):
    gru = GRUClassifier(epochs=1, random_state=0, model={"d_model": 4}).fit(walks(), Y)
    assert not isinstance(gru, rf.RFormerClassifier)
    gru.save(tmp_path / "gru")
    again = GRUClassifier.load(tmp_path / "gru")
    np.testing.assert_array_equal(again.predict_proba(walks()), gru.predict_proba(walks()))
    with pytest.raises(
        InputError, match=r"a model of the kind 'gru', and RFormerClassifier is for"
    ):
        rf.RFormerClassifier.load(tmp_path / "gru")
    for cls in BASELINES:
        assert estimator_class(cls.task, cls.kind) is cls
        assert len(inspect.signature(cls).parameters) <= 20


def test_groups_can_be_hashed_copied_and_pickled():
    groups = {group() for group in GROUPS}
    assert {copy.copy(group) for group in groups} == groups
    assert pickle.loads(pickle.dumps(groups)) == groups
    assert "fill" in inspect.signature(GRUClassifier.groups["model"]).parameters


def test_an_estimator_has_no_parameters_that_its_model_does_not_use():
    for kind in (GRUClassifier, TransformerRegressor):
        assert not {"windows", "depth", "views", "tokens"} & set(kind().get_params())
    with pytest.raises(InputError, match=r"unknown parameter 'clock'"):
        GRUClassifier.from_preset("default", clock=2)
    with pytest.raises(InputError, match="the preset 'paper' is RFormer's; GRUClassifier has"):
        GRUClassifier.from_preset("paper")
    with pytest.raises(InputError, match="GRUModelConfig has no option 'n_heads'"):
        GRUClassifier(model={"n_heads": 2}).fit(walks(), Y)
    with pytest.raises(InputError, match="model: stride is set by the data; leave it out"):
        NeuralCDEClassifier(model={"stride": 5}, epochs=1).fit(walks(), Y)


@pytest.mark.parametrize("cls", [GRUClassifier, TransformerClassifier])
def test_baselines_cannot_be_exported(cls, tmp_path):
    model = cls(model={"d_model": 4}, epochs=1, random_state=0, n_jobs=1).fit(walks(), Y)
    with pytest.raises(InputError, match=r"cannot be exported.*RFormer"):
        export_model(model.predictor_, tmp_path / "model.onnx")


def test_targets_of_each_sample_are_refused_while_samples_are_dropped():
    y = np.zeros((24, 20), np.int64) + Y[:, None]
    with pytest.raises(InputError, match="targets of each sample cannot be used while"):
        GRUClassifier(causal=True, drop=0.5, epochs=1).fit(walks(), y)


def test_feature_channels_of_samples():
    encoder = SampleEncoder(channels=("a", "b"), time_unit=1.0)
    named = dict(zip(encoder.names, encoder.feature_channels(), strict=True))
    assert named == {"a": (0,), "b": (1,), "seen a": (0,), "seen b": (1,), "gap": ()}


def test_a_run_of_the_command_line_knows_its_model(tmp_path):
    files = {name: tmp_path / f"{name}.parquet" for name in ("sine", "test")}
    for seed, path in enumerate(files.values()):
        make_sine(16, n_classes=2, length=24, seed=seed).save(path)
    out = tmp_path / "run"
    options = ("--model", "transformer", "--valid", files["test"], "-q", "--out", out)
    succeeds("train", files["sine"], *SMALL[2:], *options)
    assert json.loads((out / "model" / "config.json").read_text())["kind"] == "transformer"
    assert "validation" in json.loads((out / "metrics.json").read_text())
    wrong = {
        ("--windows", "5"): "unknown parameter 'windows': GRUClassifier has no",
        ("--preset", "paper"): "the preset 'paper' is RFormer's",
        ("--set", "model.zz=1"): "model.zz",
    }
    for given, words in wrong.items():
        assert words in fails("train", files["sine"], "--model", "gru", *given, "--out", out, "-q")
