"""The default recipe: parts, blend, yardsticks, and what an ensemble shares with other models."""

import json
import warnings

import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.metrics import log_loss

import roughformer as rf
from command import succeeds
from roughformer.estimators import ensemble
from roughformer.export import export_model
from roughformer.model import Forest, SignatureEnsemble
from roughformer.tokens.cells import CellEncoder
from roughformer.tokens.intervals import IntervalQuantiles
from roughformer.tokens.rhythm import RHYTHM, rhythm
from roughformer.util.checks import threads_for_boosting


def waves(n=60, length=40, seed=0):
    """Three classes of frequency, in the first of two channels."""
    rng = np.random.default_rng(seed)
    kind = np.arange(n) % 3
    x = rng.normal(size=(n, length, 2))
    x[:, :, 0] += 2 * np.sin(np.arange(length) * 0.3 * (1 + kind)[:, None])
    return x, np.array(["a", "b", "c"])[kind]


def irregular(x, y, seed=0):
    """The same with half of the points and a fifth of the values missing."""
    rng = np.random.default_rng(seed)
    values, times = [], []
    for series in x:
        keep = np.sort(rng.permutation(len(series))[: len(series) // 2])
        part = series[keep].copy()
        part[rng.random(part.shape) < 0.2] = np.nan
        values.append(part)
        times.append(keep.astype(float))
    return rf.SeriesBatch.from_arrays(values, times), y


@pytest.fixture(scope="module")
def fitted():
    return rf.RFormerClassifier(random_state=0).fit(*waves())


def test_the_default_learns_what_it_should(fitted):
    assert isinstance(fitted.predictor_.model, SignatureEnsemble)
    x, y = waves(seed=1)
    assert fitted.score(x, y) == 1.0
    batch, labels = irregular(*waves())
    model = rf.RFormerClassifier(random_state=0).fit(batch, labels)
    assert model.score(*irregular(*waves(seed=1))) > 0.9


def test_the_default_regressor_learns_what_it_should():
    x, _ = waves(120)
    y = x[:, :, 1].std(axis=1)
    model = rf.RFormerRegressor(random_state=0).fit(x[:80], y[:80])
    assert model.score(x[80:], y[80:]) > 0.6
    two = rf.RFormerRegressor(random_state=0).fit(x[:80], np.stack([y, -y], axis=1)[:80])
    assert two.predict(x[80:]).shape == (40, 2)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, "SignatureEnsemble"),
        ({"random_state": 3, "n_jobs": 1}, "SignatureEnsemble"),
        ({"epochs": 1}, "RFormer"),
        ({"epochs": 1, "windows": 5}, "RFormer"),
        ({"recipe": "attention", "training": {"epochs": 1}}, "RFormer"),
    ],
)
def test_options_of_the_network_choose_the_network(options, kind):
    x, y = waves(12, 20)
    model = rf.RFormerClassifier(**options).fit(x, y)
    assert type(model.predictor_.model).__name__ == kind


def test_what_an_ensemble_cannot_do_is_refused_in_words():
    x, y = waves(12, 20)
    with pytest.raises(ValueError, match="does not go with causal"):
        rf.RFormerClassifier(recipe="ensemble", causal=True).fit(x, y)
    with pytest.raises(ValueError, match=r"does not go with training\.epochs"):
        rf.RFormerClassifier(recipe="ensemble", epochs=3).fit(x, y)
    with pytest.raises(ValueError, match="recipe must be one of auto, ensemble, attention"):
        rf.RFormerClassifier(recipe="forest").fit(x, y)


@pytest.mark.parametrize("n", [1, 2, 3, 9, 10])
@pytest.mark.filterwarnings("ignore:there is one series only", "ignore:all labels are")
def test_few_series_are_enough_to_fit(n):
    x, y = waves(n, 5)
    assert rf.RFormerClassifier(random_state=0).fit(x, y).predict(x).shape == (n,)
    numbers = rf.RFormerRegressor(random_state=0).fit(x, np.arange(n)).predict(x)
    assert np.isfinite(numbers).all()


@pytest.mark.filterwarnings("ignore:all labels are")
def test_one_class_is_always_predicted():
    x, _ = waves(30, 10)
    model = rf.RFormerClassifier(random_state=0).fit(x, ["only"] * 30)
    np.testing.assert_array_equal(model.predict_proba(x[:2]), 1.0)


def test_the_same_seed_gives_the_same_model(fitted):
    x, y = waves()
    again = rf.RFormerClassifier(random_state=0).fit(x, y)
    np.testing.assert_array_equal(fitted.predict_proba(x), again.predict_proba(x))


def test_a_batch_is_predicted_as_its_series_one_by_one(fitted):
    batch, _ = irregular(*waves(9))
    alone = np.concatenate([fitted.predict_proba(batch[i : i + 1]) for i in range(9)])
    np.testing.assert_allclose(fitted.predict_proba(batch), alone, atol=1e-12)


def test_a_saved_ensemble_is_the_same(fitted, tmp_path):
    x, _ = waves(seed=2)
    fitted.save(tmp_path / "model")
    loaded = rf.RFormerClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(fitted.predict_proba(x), loaded.predict_proba(x))
    assert loaded.summary() == fitted.summary()


def test_an_exported_classifier_is_the_same(tmp_path):
    # As a program of torch: what ONNX makes of the parts, the regressor below says.
    x, y = waves(30, 12)
    model = rf.RFormerClassifier(random_state=0).fit(x, y)
    assert export_model(model.predictor_, tmp_path / "model.pt2", format="torch").largest < 1e-6


def test_a_stream_says_what_the_model_says_of_the_same_span(fitted):
    x, _ = waves(3)
    stream = rf.Stream(fitted, span=39.0, every=39.0)
    (event,) = stream.push(np.arange(40.0), x[0])
    expected = fitted.predict_proba(x[:1, 1:])  # the span is open at its beginning
    np.testing.assert_allclose(event.answer.probabilities, expected, atol=1e-12)


def test_explanations_find_the_channel_that_tells(fitted):
    x, y = waves(3)
    for told, label in zip(fitted.explain(x), y, strict=True):
        assert told.target == label
        assert len(told.windows) == len(told.window_edges) - 1 == 12
        assert told.channels["x0"] > abs(told.channels["x1"])
        first = next(iter(told.words))
        assert " of x0 over " in first


def test_series_for_validation_do_not_change_the_recipe():
    x, y = waves()
    model = rf.RFormerClassifier(random_state=0)
    model.fit(x[:40], y[:40], validation_data=(x[40:], y[40:]))
    assert isinstance(model.predictor_.model, SignatureEnsemble)


def test_the_command_line_trains_predicts_evaluates_and_explains_with_the_default(tmp_path):
    x, y = waves(30, 20)
    batch = rf.SeriesBatch.of(x).with_labels(y)
    batch.save(tmp_path / "data.parquet")
    data, run = tmp_path / "data.parquet", tmp_path / "run"
    out = succeeds("train", data, "--out", run, "--set", "random_state=0", "--threads", "1").out
    assert "accuracy" in out
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["validation"]["accuracy"] > 0.8
    assert "majority class" in metrics["yardsticks"]
    assert "Beside simple baselines" in (run / "report.html").read_text()
    for command in ("predict", "evaluate", "explain"):
        succeeds(command, run, data, "--threads", "1")


def test_summary_shows_the_yardsticks_and_a_verdict(fitted):
    text = fitted.summary()
    for name in ("model", "majority class", "ridge on functionals (PPV)", "log_loss"):
        assert name in text
    x, _ = waves(40)
    noise = np.random.default_rng(0).integers(0, 2, 40)
    hopeless = rf.RFormerClassifier(random_state=0).fit(x[:, :, 1:], noise).summary()
    assert "The model is not better than" in hopeless


def test_a_network_is_shown_beside_simple_baselines_on_its_validation_part():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 30, 1)), rng.integers(0, 2, 60)
    x[:, 0, 0] += 4.0 * y  # which boosting on summaries finds at once
    network = {"recipe": "attention", "windows": 4, "epochs": 1, "random_state": 0}
    model = rf.RFormerClassifier(**network).fit(x, y)
    text = model.summary()
    rows = ("validation scores", "majority class", "gradient boosting on summaries")
    assert all(row in text for row in (*rows, "ridge on functionals"))
    scores = model.predictor_.metadata["beside_baselines"]
    held = model.validation_index_
    assert scores["model"]["accuracy"] == pytest.approx(model.score(x[held], y[held]))
    majority = np.bincount(y[np.setdiff1d(np.arange(60), held)]).argmax()
    assert scores["majority class"]["accuracy"] == pytest.approx(np.mean(y[held] == majority))
    scores["model"]["accuracy"] = 0.3
    assert "The model is not better than the majority class" in model.summary()
    numbers = rf.RFormerRegressor(**network).fit(x, np.stack([y + x[:, 1, 0], x[:, 2, 0]], axis=1))
    assert set(numbers.predictor_.metadata["beside_baselines"]) == {
        "model", "gradient boosting on summaries", "ridge on functionals", "mean",
    }  # fmt: skip
    without = rf.RFormerClassifier(**network, training={"baselines": False}).fit(x, y)
    assert "majority class" not in without.summary()


def test_a_network_that_overfits_is_told():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 20, 2)), rng.integers(0, 2, 60)
    options = {"windows": 5, "epochs": 60, "validation": 0.5, "random_state": 0}
    training = {"patience": None, "weight_decay": 0.0, "metric": "accuracy"}
    model = rf.RFormerClassifier(recipe="attention", **options, training=training).fit(x, y)
    assert "It overfits: on the series that it was trained on its accuracy is" in model.summary()


def test_metric_and_resuming_do_not_choose_the_network(tmp_path):
    x, y = waves(24)
    training = {"metric": "accuracy", "resume": True, "baselines": False}
    model = rf.RFormerClassifier(training=training, run_dir=tmp_path, random_state=0).fit(x, y)
    assert isinstance(model.predictor_.model, SignatureEnsemble)


def test_out_of_fold_probabilities_are_honest():
    # Labels are noise: whoever was shown them would be sure of himself.
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 20, 1)), rng.integers(0, 2, 80)
    model = rf.RFormerClassifier(random_state=0).fit(x, y)
    scores = model.predictor_.metadata["out_of_fold"]["model"]
    assert scores["accuracy"] < 0.7
    fresh, truth = rng.normal(size=(300, 20, 1)), rng.integers(0, 2, 300)
    assert log_loss(truth, model.predict_proba(fresh)) < 1.0


def test_groups_stay_together_in_the_folds():
    y = np.repeat(np.arange(6), 10) % 2
    groups = np.repeat(np.arange(6), 10)
    for train, held in ensemble._folds(y, 60, groups, 0):
        assert not set(groups[train]) & set(groups[held])


def test_a_group_that_is_left_out_is_not_known_from_the_others():
    # Each class is a group: what is learnt from one says nothing of the other.
    rng = np.random.default_rng(0)
    y = np.arange(40) // 20
    x = rng.normal(size=(40, 20, 1)) + 0.5 * y[:, None, None]
    model = rf.RFormerClassifier(random_state=0).fit(x, y, groups=y)
    scores = model.predictor_.metadata["out_of_fold"]
    assert all(row["accuracy"] <= 0.5 for name, row in scores.items() if name != "majority class")


def test_one_group_is_told():
    x, y = waves(12, 10)
    with pytest.warns(UserWarning, match="all series are of one group"):
        rf.RFormerClassifier(random_state=0).fit(x, y, groups=np.zeros(12))
    with pytest.raises(ValueError, match="groups of shape"):
        rf.RFormerClassifier(random_state=0).fit(x, y, groups=np.zeros(5))


@pytest.mark.filterwarnings("ignore:all labels are")
def test_boosting_meets_one_class_only():
    x = np.random.default_rng(0).normal(size=(210, 8, 1))
    rf.RFormerClassifier(random_state=0).fit(x, np.zeros(210, int))
    half = np.arange(210) % 2
    rf.RFormerClassifier(random_state=0).fit(x, half, groups=half)


@pytest.mark.parametrize(("n", "threads"), [(300, 1), (20_000, 2)])
def test_boosting_of_few_series_uses_one_thread(n, threads):
    """Several wait for each other in busy loops: beside other work, eighty times as long."""
    from threadpoolctl import threadpool_info

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with threads_for_boosting(n):
            pools = [p for p in threadpool_info() if "scikit_learn" in p["filepath"]]
            assert [p["num_threads"] for p in pools] == [threads]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_constant_channel_is_no_noise_to_be_amplified(tmp_path):
    x, y = waves(24, 20)
    x[:, :, 1] = 0.1
    model = rf.RFormerClassifier(random_state=0).fit(x, y)
    path = model.predictor_.model.path
    cells = model.predictor_.encoder.encode(rf.SeriesBatch.of(x))["cells"]
    assert not path._scaled(cells)[:, [1, 3]].any()
    found = path.functionals(path._scaled(cells))
    expected = path.functionals.definition(path._scaled(cells))
    assert torch.equal(found.ppv, expected.ppv)


def test_the_unit_of_a_channel_does_not_matter():
    x, y = waves(30, 20)
    plain = rf.RFormerClassifier(random_state=0).fit(x, y).predict_proba(x)
    for size in (1e-10, 1e36):
        found = rf.RFormerClassifier(random_state=0).fit(x * size, y).predict_proba(x * size)
        np.testing.assert_allclose(found, plain, atol=0.15)
        assert (found.argmax(axis=1) == plain.argmax(axis=1)).all()


def test_weights_of_zero_leave_series_out():
    x, y = waves()
    weight = np.ones(60)
    weight[40:] = 0
    one = rf.RFormerClassifier(random_state=0).fit(x, y, sample_weight=weight)
    two = rf.RFormerClassifier(random_state=0).fit(x[:40], y[:40])
    np.testing.assert_allclose(one.predict_proba(x), two.predict_proba(x), atol=1e-6)


# The parts against scikit-learn


def test_ridge_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 25)).astype(np.float32)
    y = x[:, :2] @ rng.normal(size=(2, 3)) + 0.3 * rng.normal(size=(40, 3))
    weight = rng.uniform(0.5, 2, 40)
    (slope, level), decision = ensemble._ridge(
        torch.from_numpy(x), y, weight, [], False, np.random.default_rng(0)
    )
    mean = np.average(x, axis=0, weights=weight)
    z = (x - mean) / np.sqrt(((x - mean) ** 2).mean(axis=0)) / np.sqrt(25)
    found = [Ridge(alpha=a).fit(z, y, weight) for a in ensemble._PENALTIES]
    gaps = [np.abs(r.predict(z) - (x @ slope.T + level)).max() for r in found]
    assert min(gaps) < 1e-4
    chosen = ensemble._PENALTIES[int(np.argmin(gaps))]
    left_out = []
    for i in range(40):
        rest = np.arange(40) != i
        left_out.append(
            Ridge(alpha=chosen).fit(z[rest], y[rest], weight[rest]).predict(z[i : i + 1])[0]
        )
    np.testing.assert_allclose(decision, left_out, atol=1e-3)


def test_the_penalty_is_the_best_of_leave_one_out():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(30, 50))
    y = x[:, :1] + rng.normal(size=(30, 1))
    z = x - x.mean(axis=0)
    gram = torch.from_numpy(z @ z.T + ensemble._CONSTANT**2)
    found = ensemble._penalty(gram, torch.from_numpy(y - y.mean()), [])
    expected = RidgeCV(alphas=ensemble._PENALTIES).fit(x, y[:, 0]).alpha_
    assert found == pytest.approx(expected)


def test_ridge_of_many_series_is_close_to_ridge():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 8)).astype(np.float32)
    y = x[:, :1] + 0.1 * rng.normal(size=(300, 1))
    folds = ensemble._folds(None, 300, None, 0)
    arguments = (torch.from_numpy(x), y, np.ones(300), folds, False, np.random.default_rng(0))
    (one, a), _ = ensemble._ridge(*arguments)
    (two, b), decision = ensemble._ridge_of_many(*arguments)
    np.testing.assert_allclose(x @ one.T + a, x @ two.T + b, atol=0.05)
    held = folds[-1][1]
    assert np.isfinite(decision[held]).all()
    assert np.isnan(np.delete(decision, held, axis=0)).all()


def test_mostly_missing_values_add_ridge_on_summaries(tmp_path):
    rng = np.random.default_rng(6)
    x, _ = waves(80, 12)
    kind = rng.integers(0, 2, 80)
    x[:, :, 0] += 3 * kind[:, None]
    x[rng.random(x.shape) < 0.7] = np.nan
    batch = rf.SeriesBatch.of(x)
    model = rf.RFormerClassifier(random_state=0).fit(batch, kind)
    assert "ridge on summaries" in model.summary()
    part = model.predictor_.model.linear["linear"]
    summary = model.predictor_.encoder.encode(batch)["summary"]
    assert ((part(summary).argmax(dim=1).numpy() == kind).mean()) > 0.9
    # A word beyond all of training is as its largest one: a linear map has no bounds of its own.
    torch.testing.assert_close(part(summary + 1e20), part(summary + 1e25))
    model.save(tmp_path / "model")
    loaded = rf.RFormerClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(model.predict_proba(batch), loaded.predict_proba(batch))
    assert not model.predictor_.encoder.sparse(
        model.predictor_.encoder.encode(rf.SeriesBatch.of(np.nan_to_num(x)))["summary"]
    )


def test_trees_of_mostly_missing_values_learn_from_plain_words():
    rng = np.random.default_rng(7)
    x, _ = waves(240, 12)
    kind = rng.integers(0, 2, 240)
    x[:, :, 0] += kind[:, None]
    for missing, plain in ((0.7, True), (0.0, False)):
        x[rng.random(x.shape) < missing] = np.nan
        model = rf.RFormerClassifier(random_state=0).fit(x if plain else np.nan_to_num(x), kind)
        encoder = model.predictor_.encoder
        names = {encoder.summary_names[i].split(" of ")[0] for i in encoder.plain}
        assert {"log n", "mean", "last", "duration"} <= names
        assert "kurtosis" not in names
        for name in ("boosting", "summary"):
            used = set(model.predictor_.model.forests[name].feature.tolist())
            assert (used <= {0, *encoder.plain}) == plain


def test_a_blend_leaves_out_what_is_far_worse_however_small_the_errors():
    rng = np.random.default_rng(5)
    y = rng.normal(size=(300, 1))
    noise = rng.normal(size=(3, 300, 1))
    for size in (1.0, 1e-3):
        parts = y + size * noise * np.array([0.05, 0.05, 1.0])[:, None, None]
        weights = ensemble._blend_numbers(parts, y, np.ones(300))
        np.testing.assert_allclose(weights, [0.5, 0.5, 0.0], atol=0.06)


def test_a_saved_and_an_exported_regressor_are_the_same(tmp_path):
    pytest.importorskip("onnxruntime")
    x, _ = waves(40, 12)
    x = x[:, :, 1:]
    model = rf.RFormerRegressor(random_state=0).fit(x, x.std(axis=(1, 2)))
    model.save(tmp_path / "model")
    loaded = rf.RFormerRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(model.predict(x), loaded.predict(x))
    assert export_model(model.predictor_, tmp_path / "model.onnx").largest < 1e-6


@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_forests_are_those_of_scikit_learn(outputs):
    rng = np.random.default_rng(outputs)
    x = rng.normal(size=(120, 6)).astype(np.float32)
    fresh = rng.normal(size=(50, 6)).astype(np.float32)
    y = (x[:, 0] * 3).round().astype(int) % outputs
    if outputs > 1:
        trees = ExtraTreesClassifier(20, random_state=0).fit(x, y)
        found = Forest.of_extra_trees(trees, outputs)(torch.from_numpy(fresh))
        np.testing.assert_allclose(found, trees.predict_proba(fresh), atol=1e-6)
        boosted = HistGradientBoostingClassifier(max_iter=10).fit(x, y)
        before = np.concatenate([np.full((50, 3), np.nan, np.float32), fresh], axis=1)
        forest = Forest.of_boosting([boosted], outputs).placed(torch.arange(3, 9))
        raw = forest(torch.from_numpy(before)).numpy()
        shares = np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(shares, boosted.predict_proba(fresh), atol=1e-6)
    else:
        target = x[:, 0] + x[:, 1] ** 2
        forest = ExtraTreesRegressor(20, random_state=0).fit(x, target)
        found = Forest.of_extra_trees(forest, 1)(torch.from_numpy(fresh))[:, 0]
        np.testing.assert_allclose(found, forest.predict(fresh), rtol=1e-5, atol=1e-5)
        options = {"max_iter": 10, "max_features": 0.3}
        boosted = [
            HistGradientBoostingRegressor(**options, random_state=i).fit(x, target)
            for i in range(3)
        ]
        found = Forest.of_boosting(boosted, 1)(torch.from_numpy(fresh))[:, 0].numpy()
        mean = np.mean([model.predict(fresh) for model in boosted], axis=0)
        np.testing.assert_allclose(found, mean, rtol=1e-5, atol=1e-5)


def test_interval_quantiles_are_numpys():
    rng = np.random.default_rng(0)
    cells = rng.normal(size=(3, 2, 33))
    intervals = IntervalQuantiles(1, 33)
    found = intervals(torch.from_numpy(cells)).numpy()
    assert found.shape == (3, intervals.n_features)
    expected = np.quantile(cells[:, 0], np.linspace(0, 1, 8), axis=1).T
    expected[:, 1::2] -= cells[:, 0].mean(axis=1, keepdims=True)
    np.testing.assert_allclose(found[:, :8], expected, atol=1e-6)


@pytest.mark.parametrize(("channels", "n_cells"), [(1, 1), (1, 2), (3, 5), (64, 512), (1, 2049)])
def test_interval_quantiles_of_all_sizes(channels, n_cells):
    intervals = IntervalQuantiles(channels, n_cells)
    found = intervals(torch.ones(2, 2 * channels, n_cells, dtype=torch.float64))
    assert found.shape == (2, intervals.n_features)
    assert torch.isfinite(found).all()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_encoder_says_the_same_of_ragged_and_of_padded_series():
    from roughformer.signatures.points import pad
    from roughformer.signatures.torch_backend import observed

    batch, _ = irregular(*waves(7))
    static = np.random.default_rng(0).normal(size=(7, 2))
    static[0, 0] = np.nan
    batch = rf.SeriesBatch(
        batch.times, batch.values, batch.offsets, static=static, static_names=["u", "v"]
    )
    encoder = CellEncoder.fit(batch, ("u", "v"))
    one = encoder.encode(batch)
    two, _ = encoder.padded(observed(*pad(batch)), torch.from_numpy(static))
    assert one["summary"].shape[1] == len(encoder.summary_names)
    for name, x in one.items():
        torch.testing.assert_close(x, two[name], rtol=1e-5, atol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.encode(batch[:0])


def test_words_of_a_summary_are_those_of_numpy_and_scipy():
    from scipy import stats

    rng = np.random.default_rng(3)
    t = np.sort(rng.uniform(5, 9, 40))
    values = rng.normal(size=(40, 2)) * [1.0, 30.0] + [2.0, -100.0]
    values[rng.random((40, 2)) < 0.3] = np.nan
    batch = rf.SeriesBatch(t, values, np.array([0, 40]), channels=["a", "b"])
    encoder = CellEncoder.fit(batch)
    found = dict(
        zip(encoder.summary_names, encoder.encode(batch)["summary"][0].tolist(), strict=True)
    )
    seen = ~np.isnan(values[:, 1])
    x, when = values[seen, 1], (t[seen] - t[0]) / (t[-1] - t[0])
    scale, d = encoder.value_range.scale[1], (x - x.mean()) / x.std()
    line = np.polynomial.Polynomial.fit(when, x, 1)
    expected = {
        "skewness": stats.skew(x),
        "kurtosis": stats.kurtosis(x, fisher=False),
        "von Neumann ratio": np.mean(np.diff(x) ** 2) / x.var(),
        "autocorrelation": np.mean(d[1:] * d[:-1]),
        "crossings of the mean": np.mean(d[1:] * d[:-1] < 0),
        "time of min": when[x.argmin()],
        "time of max": when[x.argmax()],
        "mean |deviation| / sd": np.abs(d).mean(),
        "beyond one sd": np.mean(np.abs(d) > 1),
        "sd around the slope": (x - line(when)).std() / scale,
        "sd of steps": np.diff(x).std() / scale,
        "time since last": 1 - when[-1],
    }
    assert {word: found[f"{word} of b"] for word in expected} == pytest.approx(expected, rel=1e-5)
    for word, of in (("mean", np.nanmean), ("q50", np.nanmedian)):
        difference = (of(values[:, 0]) - of(values[:, 1])) / max(encoder.value_range.scale)
        assert found[f"{word} of a - b"] == pytest.approx(difference, rel=1e-5)


def test_a_series_that_is_constant_or_short_has_finite_words():
    offsets = np.array([0, 1, 3, 13])
    times = np.array([0.0, 0.0, 1.0, *range(10)])
    batch = rf.SeriesBatch(times, np.full((13, 1), 0.1), offsets)
    assert torch.isfinite(CellEncoder.fit(batch).encode(batch)["summary"]).all()


def test_uneven_samples_have_twice_as_many_cells():
    lengths = np.array([40, 50, 60])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    # Each series is even in itself: gaps from one series to the next do not count.
    times = np.concatenate([3.0 * i + (i + 1) * np.arange(n) for i, n in enumerate(lengths)])
    even = rf.SeriesBatch(times, np.sin(times)[:, None], offsets)
    assert CellEncoder.fit(even).n_cells == 50
    uneven = even.drop_points(0.4, 0)
    assert CellEncoder.fit(uneven).n_cells == 2 * int(np.median(uneven.lengths))
    assert CellEncoder.fit(even[:1]).n_cells == 40


def test_long_series_have_finer_cells_where_these_tell_something():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(6, 2100, 1))
    smooth = np.cumsum(noise, axis=1)
    assert CellEncoder.fit(rf.SeriesBatch.from_arrays(noise)).n_cells == 2100
    assert CellEncoder.fit(rf.SeriesBatch.from_arrays(noise[:, :600])).n_cells == 600
    assert CellEncoder.fit(rf.SeriesBatch.from_arrays(np.cumsum(smooth, axis=1))).n_cells == 512
    # One channel of two is enough, whatever its unit.
    both = rf.SeriesBatch.from_arrays(np.concatenate([1e6 * smooth, noise], axis=2))
    assert CellEncoder.fit(both).n_cells == 2100
    longer = rf.SeriesBatch.from_arrays(rng.normal(size=(2, 5000, 1)))
    assert CellEncoder.fit(longer).n_cells == 4096
    # Trees see means of neighbours, all of the same number of cells.
    assert CellEncoder.fit(rf.SeriesBatch.from_arrays(noise[:, :2051])).n_cells == 2049


def test_rhythm_finds_the_period_of_a_path():
    t = np.arange(200) / 200
    for cycles in (3.0, 7.5, 21.25):
        levels = torch.from_numpy(5 + np.sin(2 * np.pi * cycles * t + 1.0))[None, None]
        found = rhythm(levels, levels.diff(append=levels[..., :1]))[0, 0]
        words = dict(zip(RHYTHM, found.tolist(), strict=True))
        assert np.exp(words["log cycles of level"]) == pytest.approx(cycles, rel=0.03)
        assert np.exp(words["log peak frequency of level"]) == pytest.approx(cycles, rel=0.03)
        assert words["correlation of level"] > 0.9
        # A sine and its slope are both largest twice in a period.
        assert np.exp(words["log cycles of |increment|"]) == pytest.approx(2 * cycles, rel=0.05)


@pytest.mark.parametrize("n_cells", [1, 2, 3, 16])
def test_rhythm_of_all_sizes_is_finite_and_that_of_a_constant_is_zero(n_cells):
    levels = torch.full((1, 2, n_cells), 0.1, dtype=torch.float64)
    assert not rhythm(levels, torch.zeros_like(levels)).any()
    noise = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 2, n_cells)))
    found = rhythm(noise, noise)
    assert found.shape == (4, 2, len(RHYTHM))
    assert torch.isfinite(found).all()


def test_a_second_view_has_one_duration_for_all_series():
    lengths = np.array([20, 40, 60, 80, 100, 100])
    values = np.concatenate([np.sin(np.arange(n) / 3.0) for n in lengths])[:, None]
    times = np.concatenate([np.arange(n, dtype=float) for n in lengths])
    batch = rf.SeriesBatch(times, values, np.concatenate([[0], np.cumsum(lengths)]))
    encoder = CellEncoder.fit(batch)
    assert encoder.duration == pytest.approx(99.0)
    assert encoder.kinds[:2] == ("level", "level by duration")
    shape, tempo = encoder.encode(batch)["cells"][:, :2].unbind(dim=1)
    # By duration the short series is the beginning of the long one, then constant.
    together = slice(0, int(encoder.n_cells * 0.18))
    torch.testing.assert_close(tempo[0, together], tempo[5, together])
    assert float(tempo[0, -10:].std()) == pytest.approx(0.0, abs=1e-12)
    assert not torch.allclose(shape[0, together], shape[5, together])
    assert len(encoder.summary_names) == encoder.encode(batch)["summary"].shape[1]
    assert CellEncoder.fit(batch[4:]).duration is None


def test_a_series_has_one_vector_that_tells_classes_apart(fitted, tmp_path):
    x, y = waves(80, seed=3)
    vectors = fitted.embed(x)
    assert vectors.shape[0] == 80
    assert vectors.shape[1] <= 64
    np.testing.assert_allclose(vectors[5:6], fitted.embed(x[5:6]), atol=1e-5)
    near = np.linalg.norm(vectors[:, None] - vectors, axis=2) + 1e9 * np.eye(80)
    assert (y[near.argmin(axis=1)] == y).mean() > 0.9
    fitted.save(tmp_path / "model")
    again = rf.RFormerClassifier.load(tmp_path / "model")
    np.testing.assert_allclose(again.embed(x), vectors, atol=1e-6)


@pytest.mark.parametrize(
    "options", [{}, {"causal": True, "windows": 5}, {"training": {"n_estimators": 2}}]
)
def test_networks_have_vectors_of_series_too(options):
    x, y = waves(20)
    model = rf.RFormerClassifier(recipe="attention", epochs=1, **options).fit(x, y)
    vectors = model.embed(x)
    width = model.predictor_.outputs.d_model * (2 if "training" in options else 1)
    assert vectors.shape == (20, width)
    np.testing.assert_allclose(vectors[:1], model.embed(x[:1]), atol=1e-5)


def test_a_rate_is_learnt_from_new_waves():
    rng = np.random.default_rng(0)
    rate = rng.uniform(3, 12, 320)
    t = np.linspace(0, 1, 100)
    shape = rng.uniform(0.5, 3, (320, 1))  # of the wave, which says nothing of its rate
    x = np.sin(2 * np.pi * rate[:, None] * t + rng.uniform(0, 6, (320, 1))) * shape
    x += 0.1 * rng.normal(size=x.shape)
    model = rf.RFormerRegressor(random_state=0).fit(x[:240, :, None], rate[:240])
    assert "rhythm" in model.predictor_.model.config.parts
    error = model.predict(x[240:, :, None]) - rate[240:]
    assert np.sqrt((error**2).mean()) < 0.3
