"""What the estimators do with labels, times, gaps, groups, covariates, rates and the future."""

import numpy as np
import pytest
import torch

import roughformer as rf
from roughformer.calibration import fit_deviation_factor, fit_temperature
from roughformer.errors import CheckpointError, InputError
from roughformer.estimators import RFormerClassifier, RFormerRegressor
from roughformer.io import make_sine

TINY = {
    "windows": 4, "depth": 2, "clock": 0, "spectrum": None, "d_model": 8, "n_heads": 2,
    "epochs": 2, "random_state": 0, "n_jobs": 1,
}  # fmt: skip


def walks(n=24, channels=2, length=16, seed=0):
    return np.random.default_rng(seed).normal(size=(n, channels, length)).cumsum(axis=2)


def ragged(n=24, seed=0):
    """A list of (L_i, 2) with gaps, and times of their own."""
    rng = np.random.default_rng(seed)
    series, times = [], []
    for length in rng.integers(3, 20, n):
        values = rng.normal(size=(length, 2)).cumsum(axis=0)
        values[1:-1][rng.random((length - 2, 2)) < 0.3] = np.nan
        series.append(values)
        times.append(1.7e9 + np.cumsum(rng.uniform(0.1, 2.0, length)))
    return series, times


# Labels


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
    model = RFormerClassifier(**TINY).fit(walks(), y)
    model.save(tmp_path / "model")
    for found in (model, RFormerClassifier.load(tmp_path / "model")):
        np.testing.assert_array_equal(found.classes_, np.unique(y))
        predicted = found.predict(walks(5))
        assert predicted.dtype == y.dtype
        assert set(predicted.tolist()) <= set(y.tolist())
        assert found.predict_proba(walks(5)).shape == (5, len(names))


def test_labels_of_the_batch_are_used_where_none_are_given():
    batch = rf.SeriesBatch.from_numpy3d(walks(), labels=np.arange(24) % 2)
    one = RFormerClassifier(**TINY).fit(batch)
    other = RFormerClassifier(**TINY).fit(walks(), np.arange(24) % 2)
    np.testing.assert_array_equal(one.predict_proba(batch), other.predict_proba(batch))


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.arange(24) + 0.5, "Unknown label type"),
        (np.where(np.arange(24) == 3, np.nan, 1.0), "must not be NaN"),
        (np.zeros(23), "24 series but labels of shape"),
        (np.zeros((24, 4)), "needs causal=True"),
        (3, "24 series but labels of shape"),
    ],
)
def test_labels_that_are_none(y, words):
    with pytest.raises(InputError, match=words):
        RFormerClassifier(**TINY).fit(walks(), y)


@pytest.mark.parametrize("held", [["c"] * 5, [1] * 5])
def test_a_label_that_was_not_trained_is_refused_in_validation(held):
    y = np.array(["a", "b"] * 12)
    with pytest.raises(InputError, match="is none of the model's classes"):
        RFormerClassifier(**TINY).fit(walks(), y, validation_data=(walks(5), held))


def test_the_score_is_the_share_of_right_ones_and_a_column_is_no_trap():
    y = np.arange(24) % 3
    model = RFormerClassifier(**TINY).fit(walks(), y)
    share = (model.predict(walks()) == y).mean()
    assert model.score(walks(), y) == model.score(walks(), y[:, None]) == share


def test_class_weight_moves_predictions_to_the_class_that_matters():
    y = (np.arange(60) % 6 == 0).astype(int)
    x = walks(60)

    def share_of_ones(weight):
        options = TINY | {"epochs": 6, "class_weight": weight, "learning_rate": 0.02}
        return RFormerClassifier(**options).fit(x, y).predict_proba(x)[:, 1].mean()

    plain, balanced, heavy = map(share_of_ones, (None, "balanced", {1: 1000.0}))
    assert plain < balanced < heavy
    assert heavy > 0.8
    for wrong, words in (({2: 1.0}, r"names \[2\]"), ("heavy", "None, 'balanced' or a dict")):
        with pytest.raises(InputError, match=words):
            share_of_ones(wrong)


def test_class_weights_of_numbers_survive_saving(tmp_path):
    model = RFormerClassifier(**TINY, class_weight={np.int64(0): 2.0, 1: 3.0})
    model.fit(walks(), np.arange(24) % 2).save(tmp_path / "model")
    assert RFormerClassifier.load(tmp_path / "model").class_weight == {0: 2.0, 1: 3.0}


# Series


@pytest.mark.parametrize("kind", [RFormerClassifier, RFormerRegressor])
@pytest.mark.parametrize("windows", [3, rf.Windows.by_duration(5.0), rf.Windows.by_points(4)])
def test_ragged_series_with_times_and_gaps(kind, windows):
    series, times = ragged()
    model = kind(**(TINY | {"windows": windows})).fit(series, np.arange(24) % 2, times=times)
    together = model.predict(series, times)
    alone = [model.predict([x], [t])[0] for x, t in zip(series, times, strict=True)]
    backwards = model.predict(series[::-1], times[::-1])[::-1]
    if kind is RFormerClassifier:
        np.testing.assert_array_equal(together, alone)
        np.testing.assert_array_equal(together, backwards)
    else:
        np.testing.assert_allclose(together, alone, atol=1e-5)
        np.testing.assert_allclose(together, backwards, atol=1e-5)


def test_padded_tensors_are_the_same_as_lists():
    import torch

    series, times = ragged()
    lengths = np.array([len(x) for x in series])
    padded, stamps = torch.full((24, 20, 2), 7.0, dtype=torch.float64), np.zeros((24, 20))
    for b, (x, t) in enumerate(zip(series, times, strict=True)):
        padded[b, : len(x)], stamps[b, : len(t)] = torch.from_numpy(x), t
    y = np.arange(24.0)
    one = RFormerRegressor(**TINY).fit(series, y, times=times)
    other = RFormerRegressor(**TINY).fit(padded, y, times=stamps, lengths=lengths)
    np.testing.assert_array_equal(
        one.predict(series, times), other.predict(padded, stamps, lengths)
    )


def test_no_series_have_no_predictions():
    model = RFormerClassifier(**TINY).fit(walks(), np.arange(24) % 2)
    assert model.predict_proba(walks(0)).shape == (0, 2)
    assert model.predict(walks(0)).shape == (0,)


def test_static_covariates_are_used_only_if_asked_for():
    def batch(static):
        return rf.SeriesBatch.from_numpy3d(walks(), static=static, static_names=("age", "answer"))

    static = np.random.default_rng(0).normal(size=(24, 2))
    static[3, 0] = np.nan
    y = np.arange(24.0)
    without = RFormerRegressor(**TINY).fit(batch(static), y)
    np.testing.assert_array_equal(
        without.predict(batch(static)), without.predict(batch(static + 100))
    )
    model = RFormerRegressor(**TINY, static=("age",)).fit(batch(static), y)
    found = model.predict(batch(static))
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, model.predict(batch(static * [1, 5])))
    assert not np.allclose(found, model.predict(batch(static * [5, 1])))
    with pytest.raises(InputError, match="static"):
        model.predict(walks())
    with pytest.raises(InputError, match="weight"):
        RFormerRegressor(**TINY, static=("weight",)).fit(batch(static), y)


# Numbers


def test_several_targets_with_some_not_known():
    y = np.column_stack([np.arange(24.0), np.arange(24.0) * 1000, np.ones(24)])
    y[::3, 0] = np.nan
    y[1::2, 1] = np.nan
    model = RFormerRegressor(**TINY).fit(walks(), y)
    found = model.predict(walks())
    assert found.shape == (24, 3)
    assert np.isfinite(found).all()
    each = []
    for k in range(2):
        known = ~np.isnan(y[:, k])
        error = ((found[known, k] - y[known, k]) ** 2).mean()
        each.append(1 - error / y[known, k].var())
    assert model.score(walks(), y) == pytest.approx(np.mean([*each, 0.0]), abs=1e-9)
    assert RFormerRegressor(**TINY).fit(walks(), y[:, :1]).predict(walks()).shape == (24, 1)
    assert RFormerRegressor(**TINY).fit(walks(), y[:, 2]).predict(walks()).shape == (24,)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.full(24, np.nan), "at least one series where it is known"),
        (np.full(24, np.inf), "finite"),
        (["a"] * 24, "must be numbers"),
        (np.zeros(23), "24 series but targets of shape"),
        (np.zeros((24, 4, 1)), "need causal=True"),
    ],
)
def test_targets_that_are_none(y, words):
    with pytest.raises(InputError, match=words):
        RFormerRegressor(**TINY).fit(walks(), y)


def test_deviations_are_positive_and_in_the_unit_of_the_target():
    y = walks()[:, 0, -1]
    small = RFormerRegressor(**TINY, uncertainty="gaussian").fit(walks(), y)
    large = RFormerRegressor(**TINY, uncertainty="gaussian").fit(walks(), 1000 * y)
    point, deviation = small.predict(walks(), return_std=True)
    assert point.shape == deviation.shape == (24,)
    assert (deviation > 0).all()
    np.testing.assert_allclose(large.predict(walks(), return_std=True)[1] / 1000, deviation, 1e-3)
    with pytest.raises(InputError, match="uncertainty='gaussian'"):
        RFormerRegressor(**TINY).fit(walks(), y).predict(walks(), return_std=True)


def test_quantiles_never_cross_and_the_middle_is_the_point():
    y = np.column_stack([np.arange(24.0), -np.arange(24.0)])
    options = {"uncertainty": "quantile", "quantiles": (0.05, 0.5, 0.9, 0.99)}
    model = RFormerRegressor(**TINY, **options).fit(walks(), y)
    levels = model.predict_quantiles(walks(seed=1))
    assert levels.shape == (24, 2, 4)
    assert (np.diff(levels, axis=-1) >= 0).all()
    np.testing.assert_array_equal(levels[..., 1], model.predict(walks(seed=1)))
    assert RFormerRegressor(**TINY, **options).fit(walks(), y[:, 0]).predict_quantiles(
        walks()
    ).shape == (24, 4)
    with pytest.raises(InputError, match="uncertainty='quantile'"):
        RFormerRegressor(**TINY).fit(walks(), y).predict_quantiles(walks())


def test_a_rate_doubles_when_time_runs_twice_as_fast():
    rng = np.random.default_rng(0)
    rates = rng.uniform(1.0, 2.0, 48)
    times = np.linspace(0, 12, 96)
    x = np.sin(2 * np.pi * rates[:, None] * times + rng.uniform(0, 6, (48, 1)))
    options = {"rate_like": True, "warp": 0.3, "epochs": 12, "learning_rate": 0.02}
    model = RFormerRegressor(**(TINY | options)).fit(x, rates, times=times)
    assert np.abs(model.predict(x, times) - rates).mean() < 0.1
    faster = model.predict(x, times / 1.25)
    np.testing.assert_allclose(np.median(faster / model.predict(x, times)), 1.25, rtol=0.03)
    assert (model.predict(x, times, return_std=True)[1] > 0).all()
    with pytest.raises(InputError, match="must be positive"):
        RFormerRegressor(**(TINY | options)).fit(x, -rates, times=times)


# Causal models


@pytest.mark.parametrize("kind", [RFormerClassifier, RFormerRegressor])
@pytest.mark.parametrize("model", ["rformer", "transformer"])
def test_the_last_window_says_what_predict_says(kind, model):
    series, times = ragged()
    options = TINY | {"windows": rf.Windows.by_points(3), "causal": True, "model": model}
    found = kind(**options).fit(series, np.arange(24) % 2, times=times)
    each = found.predict_windows(series, times)
    whole = found.predict_proba if kind is RFormerClassifier else found.predict
    last = whole(series, times)
    for b, (ends, said) in enumerate(each):
        n = max(-(-(len(series[b]) - 1) // 3), 1) if model == "rformer" else len(series[b])
        assert len(ends) == len(said) == n
        assert (np.diff(ends) > 0).all()
        assert ends[-1] == times[b][-1]
        np.testing.assert_allclose(said[-1], last[b], atol=1e-6)


@pytest.mark.parametrize("model", ["rformer", "transformer"])
def test_the_past_does_not_depend_on_the_future(model):
    x = walks(24, length=17)
    options = TINY | {"windows": rf.Windows.by_points(4), "causal": True, "model": model}
    found = RFormerRegressor(**options).fit(x, np.arange(24.0))
    other = x.copy()
    other[:, :, 9:] = 5 * np.random.default_rng(1).normal(size=other[:, :, 9:].shape)
    seen = 2 if model == "rformer" else 9
    for full, changed, cut in zip(
        found.predict_windows(x),
        found.predict_windows(other),
        found.predict_windows(x[:, :, :9]),
        strict=True,
    ):
        np.testing.assert_allclose(changed[1][:seen], full[1][:seen], atol=1e-5)
        np.testing.assert_allclose(cut[1], full[1][:seen], atol=1e-5)
        assert not np.allclose(changed[1][seen:], full[1][seen:], atol=1e-3)


def test_targets_of_each_window():
    x = walks(40, length=17)
    options = TINY | {"windows": rf.Windows.by_points(4), "causal": True, "epochs": 3}
    numbers = np.cumsum(np.ones((40, 4, 2)), axis=1)
    numbers[0, 1] = np.nan
    each = RFormerRegressor(**options).fit(x, numbers).predict_windows(x)
    assert all(said.shape == (4, 2) for _, said in each)
    classes = np.where(np.arange(4) < 2, "calm", "storm") + np.zeros((40, 1), dtype="<U1")
    options |= {"epochs": 20, "learning_rate": 0.02}
    model = RFormerClassifier(**options).fit(x, classes)
    share = np.array([said[:, 1] for _, said in model.predict_windows(x)])
    assert (share[:, 0] < 0.5).mean() > 0.9
    assert (share[:, 3] > 0.5).mean() > 0.9


def test_only_causal_models_predict_at_every_window():
    model = RFormerRegressor(**TINY).fit(walks(), np.arange(24))
    with pytest.raises(InputError, match="fit with causal=True"):
        model.predict_windows(walks())
    with pytest.raises(InputError, match="sees the future"):
        RFormerRegressor(**(TINY | {"causal": True, "spectrum": "linear"})).fit(
            walks(), np.arange(24)
        )


# Validation


@pytest.mark.parametrize("kind", [RFormerClassifier, RFormerRegressor])
@pytest.mark.parametrize("seed", range(2))
def test_no_group_is_on_both_sides(kind, seed):
    groups = np.array([f"patient {i}" for i in np.arange(24) // 3])
    options = TINY | {"epochs": 1, "random_state": seed, "validation": 0.3}
    model = kind(**options).fit(walks(), np.arange(24) % 2, groups=groups)
    held = model.validation_index_
    inside = np.setdiff1d(np.arange(24), held)
    assert 0 < len(held) < 24
    assert not set(groups[held]) & set(groups[inside])
    assert model.predictor_.facts["trained_on"] == len(inside)


def test_groups_that_are_none():
    for groups, words in ((np.zeros(24), "one group only"), (np.zeros(3), "each of 24 series")):
        with pytest.raises(InputError, match=words):
            RFormerRegressor(**TINY).fit(walks(), np.arange(24), groups=groups)


def test_validation_data_keeps_all_series_for_training():
    held = (walks(8, seed=5), np.arange(8.0), np.arange(16.0))
    model = RFormerRegressor(**TINY).fit(walks(), np.arange(24), validation_data=held)
    assert model.predictor_.facts["trained_on"] == 24
    assert len(model.validation_index_) == 0
    best = min(record["valid_metric"] for record in model.history_)
    error = model.predict(held[0], held[2]) - held[1]
    assert np.sqrt((error**2).mean()) == pytest.approx(best, rel=1e-5)
    for wrong in (walks(8), (walks(8),), "all"):
        with pytest.raises(InputError, match="validation_data must be"):
            RFormerRegressor(**TINY).fit(walks(), np.arange(24), validation_data=wrong)


@pytest.mark.parametrize("kind", [RFormerClassifier, RFormerRegressor])
def test_without_validation_everything_is_trained_on(kind):
    model = kind(**TINY, validation=0.0).fit(walks(), np.arange(24) % 2)
    assert model.predictor_.facts["trained_on"] == 24
    assert model.predictor_.calibration == 1.0
    one = kind(**TINY).fit(walks(1), [1])
    assert one.predict(walks(1)).shape == (1,)


# Calibration


def test_temperature_makes_confidence_honest():
    import torch

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
    import torch

    labels = torch.arange(n) % 2
    logits = torch.stack([1.0 - labels, labels.double()], dim=1)
    share = (logits / fit_temperature(logits, labels)).softmax(dim=1).amax(dim=1)
    np.testing.assert_allclose(share, (n + 1) / (n + 2), rtol=1e-3)


def test_deviations_are_scaled_to_what_was_missed():
    import torch

    rng = np.random.default_rng(0)
    mean, target = torch.zeros(5000, 1), torch.from_numpy(3 * rng.normal(size=(5000, 1)))
    assert fit_deviation_factor(mean, torch.ones(5000, 1), target) == pytest.approx(3, rel=0.05)
    target[::2] = torch.nan
    assert fit_deviation_factor(mean, torch.ones(5000, 1), target) == pytest.approx(3, rel=0.05)
    assert fit_deviation_factor(mean[:0], mean[:0], mean[:0]) == 1.0


def test_calibration_changes_probabilities_and_not_classes():
    y = np.arange(24) % 3
    one = RFormerClassifier(**TINY).fit(walks(), y)
    other = RFormerClassifier(**TINY, calibrate=False).fit(walks(), y)
    assert other.predictor_.calibration == 1.0
    assert one.predictor_.calibration != 1.0
    np.testing.assert_array_equal(one.predict(walks()), other.predict(walks()))
    assert not np.allclose(one.predict_proba(walks()), other.predict_proba(walks()))


# Options


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
    model = RFormerRegressor(**options).fit(walks(), np.arange(24))
    assert 1 <= len(model.history_) < 10**5
    assert np.isfinite(model.predict(walks())).all()


def test_log_signatures_have_fewer_words():
    few = RFormerRegressor(**TINY, logsignature=True).fit(walks(), np.arange(24))
    many = RFormerRegressor(**TINY).fit(walks(), np.arange(24))
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
        ({"spectrum": "wide"}, "spectrum must be"),
        ({"drop": 1.5}, "drop"),
    ],
)
def test_wrong_options_are_refused_with_words_when_fitting(options, words):
    with pytest.raises(InputError, match=words):
        RFormerRegressor(**(TINY | options)).fit(walks(), np.arange(24))


def test_a_model_of_the_other_task_is_not_loaded(tmp_path):
    RFormerRegressor(**TINY).fit(walks(), np.arange(24)).save(tmp_path / "model")
    with pytest.raises(InputError, match="holds a model for regression"):
        RFormerClassifier.load(tmp_path / "model")


@pytest.mark.parametrize(
    "windows", [np.array([0.0, 2.0, 6.0]), rf.Windows.by_duration(1.5), rf.Windows.by_points(9), 4]
)
def test_windows_of_any_kind_are_stored_with_the_model(windows, tmp_path):
    batch = make_sine(12, n_classes=2, length=40)
    options = {"windows": windows, "epochs": 1, "d_model": 8, "n_heads": 2, "random_state": 0}
    model = rf.RFormerClassifier(**options, run_dir=tmp_path / "run").fit(batch)
    for directory in (tmp_path / "run" / "model", tmp_path / "saved"):
        if directory.name == "saved":
            model.save(directory)
        again = rf.RFormerClassifier.load(directory)
        assert again.epochs == 1
        assert np.array_equal(again.predict_proba(batch), model.predict_proba(batch))
        refitted = again.set_params(run_dir=None).fit(batch)
        assert np.array_equal(refitted.predict_proba(batch), model.predict_proba(batch))


@pytest.mark.parametrize("labels", [["a", 1] * 6, [None, "a"] * 6])
def test_labels_of_several_kinds_are_refused(labels):
    batch = make_sine(12, n_classes=2, length=40)
    with pytest.raises(InputError, match="labels must be of one kind"):
        RFormerClassifier(epochs=1).fit(batch, np.array(labels, dtype=object))


def test_targets_of_ragged_windows_are_padded_to_the_longest_series():
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((n, 1)) for n in (10, 40, 25, 31, 18, 22)]
    batch = rf.SeriesBatch.from_arrays(arrays)
    windows = rf.Windows.by_points(5)
    most = windows.place(batch).most
    options = {"windows": windows, "causal": True, "epochs": 2, "batch_size": 2, "d_model": 8}
    y = rng.standard_normal((6, most, 1))
    model = RFormerRegressor(**options, n_heads=2, validation=0.3).fit(batch, y)
    assert [len(end) for end, _ in model.predict_windows(batch)] == [2, 8, 5, 6, 4, 5]
    for wrong in (y[:, :3], np.concatenate([y, y], axis=1)):
        with pytest.raises(InputError, match="the series with most windows has 8"):
            RFormerRegressor(**options, n_heads=2, validation=0.0).fit(batch, wrong)


def test_targets_of_samples_are_not_used_while_samples_are_dropped():
    batch = make_sine(12, n_classes=2, length=20)
    y = np.zeros((12, 20), dtype=int)
    model = RFormerClassifier(model="transformer", causal=True, drop=0.5, epochs=1)
    with pytest.raises(InputError, match="while samples are dropped"):
        model.fit(batch, y)


@pytest.mark.parametrize(
    "options", [{}, {"model": "transformer"}, {"rate_like": True}, {"observations": True}]
)
def test_a_series_has_its_own_draw_of_dropped_points_wherever_the_batch_is_cut(options):
    batch = make_sine(12, n_classes=12, length=200, low=10, high=30)
    rates = batch.static[:, 0] / (2 * np.pi)
    model = RFormerRegressor(windows=4, epochs=1, d_model=8, n_heads=2, **options)
    predictor = model.fit(batch, rates).predictor_
    whole = predictor.raw(batch, drop=0.5, seed=3)[0]
    inputs = predictor.encoder.encode(batch[7:9], drop=0.5, seed=3, series=np.array([7, 8]))
    with torch.no_grad():
        assert torch.allclose(predictor.model(**inputs), whole[7:9], atol=1e-5)
    assert predictor.raw(batch[:0])[0].shape == (0, *whole.shape[1:])


def test_a_validation_part_of_one_class_is_judged_by_its_loss(tmp_path):
    batch = make_sine(12, n_classes=2, length=20)
    zero = batch[np.flatnonzero(batch.labels == 0)]
    options = {"windows": 4, "epochs": 2, "d_model": 8, "n_heads": 2, "metric": "auroc"}
    model = RFormerClassifier(**options, run_dir=tmp_path)
    model.fit(batch, validation_data=(zero, zero.labels))
    assert [r["metric"] for r in model.history_] == ["loss", "loss"]


def test_another_class_weight_or_metric_is_another_training(tmp_path):
    batch = make_sine(12, n_classes=2, length=20)
    options = {"windows": 4, "epochs": 1, "d_model": 8, "n_heads": 2, "run_dir": tmp_path}
    RFormerClassifier(**options, random_state=0).fit(batch)
    for other in ({"metric": "accuracy"}, {"class_weight": "balanced"}):
        with pytest.raises(CheckpointError, match="another configuration"):
            RFormerClassifier(**options, **other, random_state=0, resume=True).fit(batch)


def test_mixed_precision_ends_with_training(tmp_path):
    batch = make_sine(12, n_classes=2, length=40)
    options = {"windows": 4, "epochs": 1, "d_model": 8, "n_heads": 2, "precision": "bfloat16"}
    model = RFormerClassifier(**options).fit(batch)
    model.save(tmp_path / "model")
    again = RFormerClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(batch), model.predict_proba(batch))


def test_a_causal_model_of_incomplete_series_does_not_see_the_future():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((10, 2, 60)).cumsum(axis=2)
    x[rng.random(x.shape) < 0.3] = np.nan
    t = np.cumsum(rng.uniform(0.5, 1.5, (10, 60)), axis=1)
    options = {"windows": rf.Windows.by_duration(7.0), "causal": True, "epochs": 1, "d_model": 8}
    model = RFormerClassifier(**options, n_heads=2).fit(x, np.arange(10) % 2, times=t)
    before = model.predict_windows(x, times=t)
    changed = x.copy()
    for b in range(10):
        changed[b, :, t[b] > before[b][0][3]] += 5
    after = model.predict_windows(changed, times=t)
    for (_, p), (_, q) in zip(before, after, strict=True):
        assert np.allclose(p[:4], q[:4], atol=1e-6)
        assert not np.allclose(p[4:], q[4:], atol=1e-6)


def test_a_model_of_rates_works_in_any_unit_of_time_and_has_no_quantiles():
    batch = make_sine(12, n_classes=12, length=200, low=10, high=30)
    rates = batch.static[:, 0] / (2 * np.pi)
    options = {"rate_like": True, "epochs": 2, "random_state": 0, "n_jobs": 1}
    first = RFormerRegressor(**options).fit(batch, rates).predict(batch)
    tiny = batch.with_times(batch.times * 1e-10)
    again = RFormerRegressor(**options).fit(tiny, rates * 1e10).predict(tiny)
    assert np.allclose(again * 1e-10, first, rtol=1e-3)
    with pytest.raises(InputError, match="no quantiles"):
        RFormerRegressor(**options, uncertainty="quantile").fit(batch, rates)


def test_members_that_disagree_are_less_sure():
    batch, y = make_sine(20, n_classes=2, length=40), np.linspace(0, 1, 20)
    options = {"windows": 4, "epochs": 1, "d_model": 8, "n_heads": 2, "random_state": 0}
    model = RFormerRegressor(**options, members=2, uncertainty="gaussian", calibrate=False)
    model.fit(batch, y)
    inputs = model.predictor_.encoder.encode(batch)
    with torch.no_grad():
        each = torch.stack([m(**inputs) for m in model.predictor_.model.members])[:, :, 0]
        whole = model.predictor_.model(**inputs)[:, 0]
    mean, variance = each[..., 0], each[..., 1].exp()
    expected = variance.mean(dim=0) + mean.var(dim=0, correction=0)
    assert torch.allclose(whole[:, 1].exp(), expected, rtol=1e-4)


@pytest.mark.parametrize(("device", "words"), [("foo", "one of cpu"), ("cuda", "no such device")])
def test_a_model_is_loaded_onto_a_device_that_is_there(device, words, tmp_path):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("cuda is here")
    with pytest.raises(InputError, match=words):
        RFormerClassifier.load(tmp_path, device=device)
