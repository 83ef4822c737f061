"""Groups of options: what they remember, how estimators take them, and what is refused."""

import copy
import inspect
import pickle
import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import roughformer as rf
from roughformer.errors import InputError
from small import walks

Y = np.arange(24) % 2
SMALL = {
    "windows": 3, "depth": 1, "epochs": 1, "random_state": 0, "n_jobs": 1,
    "tokens": rf.TokenConfig(clock=0, spectrum=None),
    "model": rf.ModelConfig(d_model=8, n_heads=2),
}  # fmt: skip


def test_a_group_shows_what_was_given_and_compares_copies_and_pickles_as_data():
    group = rf.TrainConfig(weight_decay=0.05, drop=0.5)
    assert repr(group) == str(group) == "TrainConfig(drop=(0.5, 0.5), weight_decay=0.05)"
    assert group.given == {"drop": (0.5, 0.5), "weight_decay": 0.05}
    assert group == rf.TrainConfig(drop=0.5, weight_decay=0.05) != rf.TrainConfig()
    again = pickle.loads(pickle.dumps(group))
    assert (again, again.given) == (group, group.given)
    assert copy.deepcopy(group) is group
    with pytest.raises(InputError, match="TrainConfig is frozen, weight_decay cannot be set; make"):
        group.weight_decay = 0.1


def test_nothing_in_a_group_can_be_changed_and_groups_can_be_keys():
    model = rf.RFormerClassifier(tokens=rf.TokenConfig(windows={"points": 5}))
    windows = clone(model).tokens.windows
    for change in (
        lambda: windows.update(points=9), lambda: windows.__setitem__("points", 9),
        lambda: windows.__ior__({"points": 9}), windows.clear, windows.popitem,
    ):  # fmt: skip
        with pytest.raises(InputError, match=r"'points': 5.* cannot be changed"):
            change()
    assert model.tokens.windows == {"points": 5}
    assert model.tokens.model_dump_json().startswith('{"windows":{"points":5')
    again = pickle.loads(pickle.dumps(model.tokens))
    assert {again, model.tokens, copy.copy(again)} == {again}
    groups = {rf.ModelConfig(), rf.RateModelConfig(), rf.TrainConfig(callbacks=[print])}
    assert rf.TrainConfig(callbacks=[print]) in groups


def test_groups_are_equal_if_the_same_options_were_given():
    assert rf.TokenConfig() != rf.TokenConfig(depth=2)  # the series choose the depth of one
    assert rf.TokenConfig(depth=2) == rf.TokenConfig(depth=2, clock="auto") != "auto"
    batch = rf.SeriesBatch.of(walks())
    few, more = (
        rf.Tokenizer.fit(rf.TokenConfig(depth=depth, windows={"points": 5}), batch)
        for depth in (1, 2)
    )
    again = rf.Tokenizer.model_validate_json(more.model_dump_json())
    assert again.config.given != more.config.given
    assert again == more != few
    assert hash(again) == hash(more)


def test_auto_is_the_same_as_not_given():
    assert rf.TokenConfig(clock="auto", time="span").given == {"time": "span"}
    assert rf.ModelConfig(wide="auto", scaling="auto").given == {}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: rf.ModelConfig(d_modle=8), "ModelConfig has no option 'd_modle'; did you mean 'd"),
        (lambda: rf.TrainConfig(weight_decay=-1), "weight_decay: .* got -1"),
        (lambda: rf.ModelConfig(d_model=9), "d_model must be a multiple of n_heads, got 9 and 4"),
    ],
)
def test_wrong_options_are_refused_when_a_group_is_made(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_the_signature_of_a_group_has_its_options_only():
    shown = inspect.signature(rf.ModelConfig).parameters
    assert {"d_model", "n_heads", "clip"} <= set(shown)
    assert not {"n_features", "n_outputs", "task", "causal"} & set(shown)


def test_options_reach_the_model_and_the_training_by_whatever_way_they_are_given():
    flat = rf.RFormerClassifier(**SMALL, learning_rate=0.01).fit(walks(), Y)
    grouped = rf.RFormerClassifier(
        **(SMALL | {"windows": None, "depth": None, "epochs": None}),
        training={"epochs": 1, "learning_rate": 0.01},
    ).set_params(tokens__windows=3, tokens__depth=1)
    assert grouped.tokens == rf.TokenConfig(windows=3, depth=1, clock=0, spectrum=None)
    np.testing.assert_array_equal(
        flat.predict_proba(walks()), grouped.fit(walks(), Y).predict_proba(walks())
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tokens": rf.TokenConfig(depth=2)}, r"depth=1 and tokens.depth=2 are the same parameter"),
        ({"training": {"epochs": 2}}, r"epochs=1 and training.epochs=2 are the same parameter"),
        ({"tokens": rf.TokenConfig(hold=True)}, "tokens: hold is set by causal; leave it out"),
        ({"training": rf.TrainConfig(seed=3)}, "training: seed is set by random_state"),
        ({"model": {"n_features": 3}}, "model: n_features is set by the data"),
        ({"model": "gru"}, "model must be a ModelConfig or a dict of its options, got 'gru'"),
        ({"model": {1: 3}}, "model must be a ModelConfig or a dict of its options"),
        ({"tokens": rf.ModelConfig()}, "tokens must be a TokenConfig or a dict"),
    ],
)
def test_what_contradicts_itself_is_refused_with_both_names(options, words):
    with pytest.raises(InputError, match=words):
        rf.RFormerClassifier(**(SMALL | options)).fit(walks(), Y)


def test_a_value_given_twice_alike_is_no_contradiction():
    model = rf.RFormerClassifier(**(SMALL | {"training": {"epochs": 1, "drop": (0.3, 0.3)}}))
    assert len(model.set_params(drop=0.3).fit(walks(), Y).history_) == 1


def test_groups_work_in_clones_parameters_and_grids():
    model = rf.RFormerClassifier(**SMALL)
    assert clone(model).get_params() == model.get_params()
    assert clone(model).tokens is model.tokens
    parameters = model.get_params()
    assert parameters["tokens__clock"] == 0
    assert parameters["tokens__basepoint"] == "auto"
    assert parameters["training__weight_decay"] == 0.01
    again = clone(model).set_params(**parameters).get_params()
    assert {k: v for k, v in again.items() if k not in model.groups} == {
        k: v for k, v in parameters.items() if k not in model.groups
    }
    changed = clone(model).set_params(tokens__clock=4, model__dropout=0.3)
    assert changed.tokens == rf.TokenConfig(clock=4, spectrum=None)
    assert changed.model.given == {"d_model": 8, "n_heads": 2, "dropout": 0.3}
    assert model.tokens.clock == 0
    assert changed.set_params(tokens__clock="auto").tokens.given == {"spectrum": None}
    with pytest.raises(
        InputError, match="TokenConfig has no option 'clocks'; did you mean 'clock'"
    ):
        model.set_params(tokens__clocks=4)
    grid = {"tokens__basepoint": [True, False], "training__weight_decay": [0.0]}
    found = GridSearchCV(model, grid, cv=2, error_score="raise").fit(walks(), Y)
    assert found.best_estimator_.training == rf.TrainConfig(weight_decay=0.0)


def test_set_params_changes_everything_or_nothing():
    model = rf.RFormerClassifier(tokens={"clock": 2})
    before = model.get_params()
    for wrong in ({"tokens__foo": 1}, {"tokens__clock": -1}, {"foo": 1}, {"clock": 8}):
        with pytest.raises(ValueError, match=r"foo|clock"):
            model.set_params(depth=5, tokens__time="span", **wrong)
        assert model.get_params() == before


def test_set_params_names_the_group_of_an_option():
    for name, grouped in [("clock", "tokens__clock"), ("d_model", "model__d_model")]:
        with pytest.raises(
            InputError, match=rf"'{name}' is an option of a group: .* set {grouped}"
        ):
            rf.RFormerClassifier().set_params(**{name: 8})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("batch_size", r"training=TrainConfig\(batch_size=\.\.\.\), or set training__batch_size"),
        ("context", r"tokens=TokenConfig\(context=\.\.\.\), or set tokens__context"),
    ],
)
def test_a_constructor_says_where_an_option_of_a_group_is(name, words):
    for cls in (rf.RFormerClassifier, rf.RFormerRegressor):
        assert len(inspect.signature(cls).parameters) <= 20
        with pytest.raises(InputError, match=words):
            cls(**{name: 3})


def test_quantiles_need_the_uncertainty_that_they_are_levels_of():
    for cls in (rf.RFormerClassifier, rf.RFormerRegressor):
        with pytest.raises(InputError, match="levels of uncertainty='quantile'"):
            cls(model={"quantiles": (0.2, 0.8)}).fit(walks(), Y)


@pytest.mark.parametrize(
    ("cls", "name", "words"),
    [
        (rf.RFormerClassifier, "epoch", "unknown parameter 'epoch'; did you mean 'epochs'?"),
        (
            rf.RFormerClassifier,
            "clocks",
            "unknown parameter 'clocks'; did you mean 'tokens.clock'?",
        ),
        (rf.RFormerClassifier, "model.head", "'model.head'; did you mean 'model.n_heads'?"),
        (rf.RateRegressor, "tokens.clock", "'tokens.clock': RateRegressor has no tokens"),
    ],
)
def test_a_name_is_only_proposed_if_it_is_near(cls, name, words):
    with pytest.raises(InputError, match=re.escape(words)):
        cls.setting_name(name)


def test_an_estimator_shows_what_was_given():
    model = rf.RFormerClassifier(windows=4, tokens=rf.TokenConfig(clock=8))
    assert repr(model) == "RFormerClassifier(tokens=TokenConfig(clock=8), windows=4)"


def test_label_smoothing_is_for_classes():
    with pytest.raises(InputError, match="label_smoothing is for classification"):
        rf.RFormerRegressor(training={"label_smoothing": 0.1}).fit(walks(), Y + 0.5)


def test_a_model_with_parameters_of_an_older_version_is_refused_in_words(tmp_path):
    model = rf.RFormerClassifier(**SMALL).fit(walks(), Y)
    model.predictor_.metadata["parameters"] = {"clock": 3, "epochs": 1}
    model.predictor_.save(tmp_path / "old")
    with pytest.raises(rf.CheckpointError, match="there is no parameter clock any more"):
        rf.RFormerClassifier.load(tmp_path / "old")
    rf.Predictor.load(tmp_path / "old")  # what it learned can still be used
