"""Spaces: from TOML and back, what they refuse, and what the default one holds."""

import tomllib

import optuna
import pytest

import roughformer as rf
from roughformer.errors import InputError
from roughformer.estimators import estimator_class
from roughformer.runs.run import settings_of, to_toml
from roughformer.tune import Choice, Range, default_space, parse_space
from small import make_sine


def check(name, value):
    return settings_of(rf.RFormerClassifier, "default", {name: value})[name]


def parsed(text):
    return parse_space(rf.RFormerClassifier.settings(tomllib.loads(text)), check)


def settings(**changes):
    start = {"windows": 20, "depth": 2, "basepoint": False}
    return settings_of(rf.RFormerClassifier, "default", start | changes)


def test_lists_are_choices_tables_are_ranges_and_values_are_fixed():
    space, fixed = parsed(
        'd_model = [32, 64]\ndropout = { low = 0.0, high = 0.4, step = 0.1 }\ndepth = 2\n'
        'windows = [20, { duration = 60.0 }]\nspectrum = ["none", "auto"]\n'
        'views = ["local", "global,local"]\nn_layers = { low = 1, high = 3 }\n'
    )  # fmt: skip
    assert fixed == {"depth": 2}
    assert space["model__d_model"] == Choice((32, 64))
    assert space["model__dropout"] == Range(0.0, 0.4, step=0.1)
    assert space["windows"] == Choice((20, {"duration": 60.0}))
    assert space["tokens__spectrum"] == Choice((None, "auto"))
    assert space["views"] == Choice((("local",), ("global", "local")))
    assert space["model__n_layers"].whole


def test_a_window_by_duration_is_a_value_and_not_a_range():
    space, fixed = parsed("windows = { duration = 60.0 }\nd_model = [8, 16]")
    assert fixed == {"windows": {"duration": 60.0}}
    assert list(space) == ["model__d_model"]


def test_what_a_study_draws_becomes_settings_and_goes_back():
    space, _ = parsed(
        'windows = [20, { duration = 60.0 }]\nviews = ["local", "global,local"]\n'
        "spectrum = ['none', 'auto']\nlearning_rate = { low = 1e-3, high = 1e-2 }"
    )
    study = optuna.create_study()
    for _ in range(20):
        trial = study.ask()
        assert space.place(space.suggest(trial)) == trial.params


def test_what_lies_outside_has_no_place():
    space, _ = parsed("d_model = [8, 16]\ndropout = { low = 0.0, high = 0.4, step = 0.2 }\n"
                      "n_layers = { low = 1, high = 2 }")  # fmt: skip
    assert space.place({"model__d_model": 32, "model__dropout": 0.1, "model__n_layers": 3}) == {}
    inside = {"model__d_model": 8, "model__dropout": 0.4, "model__n_layers": 1}
    assert space.place(inside) == inside


def test_the_default_space_written_as_toml_is_read_back_the_same():
    space = default_space(make_sine(8, n_classes=2, length=60), settings())
    again, fixed = parsed(to_toml(space.plain(), {}))
    assert again == space
    assert fixed == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "nothing to search"),
        ("depth = 2", "nothing to search"),
        ("d_modle = [8, 16]", "did you mean 'model.d_model'"),
        ("d_model = []", "leaves nothing to choose"),
        ("d_model = [8, 8]", "the choice 8 twice"),
        ('d_model = ["many"]', "d_model"),
        ("dropout = { low = 0.0 }", "lacks low or high"),
        ("dropout = { low = 0.0, high = 0.4, lag = 1 }", "has 'lag'"),
        ("dropout = { low = 0.4, high = 0.4 }", "low must be below high"),
        ('dropout = { low = "a", high = 0.4 }', "must be numbers"),
        ("dropout = { low = 0.0, high = 0.4, log = true }", "starts above 0"),
        ("dropout = { low = 0.1, high = 0.4, log = 1 }", "true or false"),
        ("dropout = { low = 0.1, high = 0.4, step = -1 }", "step must be"),
        ("n_layers = { low = 1, high = 3, step = 0.5 }", "a whole step"),
    ],
)
def test_a_wrong_space_is_refused_by_name(text, words):
    with pytest.raises(InputError, match=words):
        parsed(text)


def test_the_default_space_holds_the_start_and_leaves_out_what_is_fixed():
    batch = make_sine(8, n_classes=2, length=60)
    start = settings(learning_rate=0.05, d_model=48)
    space = default_space(batch, start, fixed=("depth",))
    assert "depth" not in space
    assert set(space.place(start)) == set(space)
    assert max(w for w in space["windows"].values) <= 30


@pytest.mark.parametrize("length", [0, 1, 2])
def test_series_of_hardly_any_points_leave_a_space(length):
    batch = rf.SeriesBatch.from_arrays([[[0.0]] * length] * 2, [list(range(length))] * 2) \
        if length else make_sine(1, n_classes=1, length=2)[:0]  # fmt: skip
    space = default_space(batch, settings())
    assert {"learning_rate", "model__d_model"} <= set(space)


def test_a_causal_model_gets_windows_by_duration_and_no_spectrum():
    batch = make_sine(8, n_classes=2, length=60)
    space = default_space(batch, settings(causal=True, windows={"duration": 0.5}))
    assert all(set(w) == {"duration"} for w in space["windows"].values)
    assert "tokens__spectrum" not in space


def test_a_baseline_is_not_searched_for_what_it_does_not_use():
    space = default_space(
        make_sine(8, n_classes=2, length=60),
        settings_of(estimator_class("classification", "gru"), "default"),
    )
    assert not {"windows", "depth", "views", "tokens__clock", "model__n_heads"} & set(space)
    assert "learning_rate" in space


def test_many_channels_leave_deep_signatures_out():
    batch = rf.SeriesBatch.of([[[float(c) for c in range(30)]] * 4] * 2, layout="time_first")
    assert 4 not in default_space(batch, settings())["depth"].values
