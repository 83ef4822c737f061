"""Explanations point to what decides, add up, and leave the model as it was."""

import numpy as np
import pytest
import torch

import roughformer as rf
from roughformer.errors import InputError
from roughformer.estimators import RFormerClassifier, RFormerRegressor
from roughformer.explain import explain
from roughformer.tokens import TokenConfig, Tokenizer
from roughformer.tokens.tokenizer import SpectrumConfig
from small import make

TINY = {
    "windows": 4, "d_model": 16, "n_heads": 2, "spectrum": None, "clock": 0, "depth": 2,
    "epochs": 2, "random_state": 0, "n_jobs": 1,
}  # fmt: skip
NAMES = ("a*b", "time", "cos1*a")  # names that cannot be told from words by their text


def bumps(n, seed):
    """Three random walks of 64 points; a bump of channel 1 in the third quarter, up or down, is
    the class.
    """
    rng = np.random.default_rng(seed)
    values = 0.1 * rng.normal(size=(n, 3, 64)).cumsum(axis=2)
    label = np.arange(n) % 2
    bump = np.sin(np.linspace(0, np.pi, 16))
    values[:, 1, 32:48] += np.where(label == 1, 1.0, -1.0)[:, None] * bump
    times = np.arange(64) * 0.5 + 100.0
    return rf.SeriesBatch.from_numpy3d(values, times, channels=NAMES), label


@pytest.fixture(scope="module", params=[("local",), ("global", "local")], ids=["local", "both"])
def trained(request):
    options = TINY | {"epochs": 20, "views": request.param}
    return make(RFormerClassifier, **options).fit(*bumps(160, 1))


@pytest.fixture(scope="module")
def causal_ragged():
    """A causal classifier of series with 1 to 5 windows."""
    rng = np.random.default_rng(0)
    series = [rng.normal(size=(n, 2)).cumsum(axis=0) for n in rng.integers(4, 20, 24)]
    options = TINY | {"windows": rf.Windows.by_points(4), "causal": True}
    model = make(RFormerClassifier, **options).fit(series, np.arange(24) % 3)
    return model, series


def numbers(n=30, m=2, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 2, 20)).cumsum(axis=2).transpose(0, 2, 1)
    return values, values[:, -1] @ rng.normal(size=(2, m)) * 10 + 50


def total(explanation):
    return sum(explanation.words.values())


def test_it_points_to_the_channel_and_the_window_that_decide(trained):
    batch, label = bumps(20, 2)
    right = trained.predict(batch) == label
    assert right.mean() >= 0.9
    found = trained.explain(batch[np.flatnonzero(right)])
    windows = np.array([e.windows for e in found])
    channels = np.array([list(e.channels.values()) for e in found])
    assert (windows.mean(axis=0).argmax(), channels.mean(axis=0).argmax()) == (2, 1)
    assert (windows.argmax(axis=1) == 2).mean() >= 0.9
    assert (channels.argmax(axis=1) == 1).mean() >= 0.9
    encoder = trained.predictor_.encoder
    of = dict(zip(encoder.names, encoder.feature_channels(), strict=True))
    assert np.mean([1 in of[next(iter(e.words))] for e in found]) >= 0.9


def test_all_words_add_up_to_the_difference_from_the_baseline(trained):
    for e in trained.explain(bumps(10, 3)[0], n_words=None):
        assert len(e.words) == trained.predictor_.encoder.n_features
        assert total(e) == pytest.approx(e.value - e.baseline, rel=0.005, abs=0.005)


def test_the_value_is_the_log_odds_of_the_predicted_class(trained):
    batch = bumps(6, 4)[0]
    shares = trained.predict_proba(batch)
    for e, share, label in zip(
        trained.explain(batch), shares.max(axis=1), trained.predict(batch), strict=True
    ):
        assert e.target == label
        assert e.prediction == f"{label} (probability {share:.2f})"
        assert e.value == pytest.approx(np.log(share / (1 - share)), rel=1e-3, abs=1e-4)


def test_with_two_classes_the_other_class_is_explained_by_the_opposite(trained):
    batch = bumps(4, 5)[0]
    up, down = trained.explain(batch, target=1), trained.explain(batch, target=0)
    for one, other in zip(up, down, strict=True):
        assert (one.target, other.target) == (1, 0)
        np.testing.assert_allclose(one.windows, -other.windows, atol=1e-4)
        assert one.channels == pytest.approx({k: -v for k, v in other.channels.items()}, abs=1e-4)


def test_occlusion_is_the_difference_that_hiding_by_hand_makes(trained):
    batch = bumps(2, 6)[0]
    predictor, encoder = trained.predictor_, trained.predictor_.encoder
    (e,) = explain(predictor, batch[:1])
    inputs = encoder.encode(batch[:1])
    standardize = predictor.model.standardize

    def value(tokens):
        with torch.no_grad():
            z = predictor.model(**(inputs | {"tokens": tokens}))[0].double()
        k = trained.classes_.tolist().index(e.target)
        return float((z[k] - z[1 - k]) / predictor.calibration)

    for k in range(4):
        tokens = inputs["tokens"].clone()
        tokens[:, k] = standardize.mean
        assert e.windows[k] == pytest.approx(e.value - value(tokens), abs=1e-4)
    for c, name in enumerate(NAMES):
        hidden = [i for i, uses in enumerate(encoder.feature_channels()) if c in uses]
        tokens = inputs["tokens"].clone()
        tokens[..., hidden] = standardize.mean[hidden]
        assert e.channels[name] == pytest.approx(e.value - value(tokens), abs=1e-4)


def test_edges_are_the_cuts_in_the_unit_of_the_times(trained):
    for e in trained.explain(bumps(2, 0)[0]):
        np.testing.assert_allclose(e.window_edges, 100 + 31.5 * np.linspace(0, 1, 5))


def test_a_causal_ragged_model_is_explained_at_its_last_window(causal_ragged):
    model, series = causal_ragged
    found = model.explain(series, n_words=None)
    last = model.predict_windows(series)
    for e, values, (ends, shares) in zip(found, series, last, strict=True):
        assert len(e.windows) == max(-(-(len(values) - 1) // 4), 1) == len(ends)
        np.testing.assert_array_equal(e.window_edges[1:], ends)
        share = shares[-1][model.classes_.tolist().index(e.target)]
        assert e.value == pytest.approx(np.log(share / (1 - share)), abs=1e-4)
        assert total(e) == pytest.approx(e.value - e.baseline, rel=0.005, abs=0.005)


def test_a_series_is_explained_alone_as_in_company(causal_ragged):
    model, series = causal_ragged
    for i, e in enumerate(model.explain(series)[:4]):
        (alone,) = model.explain([series[i]])
        np.testing.assert_allclose(e.windows, alone.windows, atol=1e-4)
        assert e.channels == pytest.approx(alone.channels, abs=1e-4)
        assert e.value == pytest.approx(alone.value, abs=1e-4)


def test_cutting_the_work_into_small_calls_changes_nothing(causal_ragged, monkeypatch):
    model, series = causal_ragged
    at_once = model.explain(series)
    monkeypatch.setattr("roughformer.explain._NUMBERS_AT_ONCE", 1)
    monkeypatch.setattr("roughformer.explain._SERIES_AT_ONCE", 5)
    for one, other in zip(at_once[:6], model.explain(series[:6]), strict=True):
        np.testing.assert_allclose(one.windows, other.windows, atol=1e-4)
        assert one.words == pytest.approx(other.words, abs=1e-4)


def test_the_spectrum_of_a_channel_is_hidden_with_it():
    values, y = numbers(m=1)
    model = make(RFormerRegressor, **(TINY | {"spectrum": "linear"})).fit(values, y[:, 0])
    before = model.explain(values[:3])
    with torch.no_grad():  # a model that does not see its tokens
        model.predictor_.model.embed.weight.zero_()
    after = model.explain(values[:3])
    for e, unseen in zip(before, after, strict=True):
        assert e.value == pytest.approx(model_point(e.prediction), rel=1e-3)
        np.testing.assert_allclose(unseen.windows, 0, atol=1e-4)
        assert all(name.startswith("spectrum:") for name, w in unseen.words.items() if w)
        assert all(abs(v) > 1e-3 for v in unseen.channels.values())


def model_point(text):
    return float(text.split()[0])


def test_each_target_of_a_regression_is_explained_in_its_own_unit():
    values, y = numbers(m=2)
    model = make(RFormerRegressor, **(TINY | {"uncertainty": "quantile"})).fit(values, y)
    point = model.predict(values[:4])
    for target in (0, 1):
        for b, e in enumerate(model.explain(values[:4], target=target, n_words=None)):
            assert e.target == target
            assert e.value == pytest.approx(point[b, target], rel=1e-4)
            assert total(e) == pytest.approx(e.value - e.baseline, rel=0.005, abs=0.005)
            assert e.prediction.startswith(f"target {target}: ")
    with pytest.raises(InputError, match=r"give target=0 \.\.\. 1"):
        model.explain(values[:4])


def test_deviations_are_explained_in_units_of_the_world():
    values, y = numbers(m=1)
    options = TINY | {"uncertainty": "gaussian", "model": "transformer"}
    model = make(RFormerRegressor, **options).fit(values, np.abs(y[:, 0]) + 1)
    point, deviation = model.predict(values[:3], return_std=True)
    for b, e in enumerate(model.explain(values[:3], n_words=None)):
        assert e.value == pytest.approx(point[b], rel=1e-4)
        assert e.prediction == f"{point[b]:.4g} ± {deviation[b]:.2g}"
        assert total(e) == pytest.approx(e.value - e.baseline, rel=0.005, abs=0.005)


@pytest.fixture(scope="module")
def rates():
    """Sines in channel "wave", whose rate is the target, beside a channel of noise."""
    rng = np.random.default_rng(0)
    rate, times = rng.uniform(1.0, 2.0, 48), np.linspace(50, 62, 96)
    wave = np.sin(2 * np.pi * rate[:, None] * times + rng.uniform(0, 6, (48, 1)))
    values = np.stack([rng.normal(size=wave.shape), wave], axis=1)
    batch = rf.SeriesBatch.from_numpy3d(values, times, channels=("noise", "wave"))
    options = TINY | {"model": "tempo", "epochs": 15, "learning_rate": 0.02}
    return make(RFormerRegressor, **options).fit(batch, rate), batch, rate


def test_a_model_of_rates_names_the_channel_that_has_the_rhythm(rates):
    model, batch, _ = rates
    batch = batch[:16]
    found = model.explain(batch, n_words=None)
    size = np.abs([list(e.channels.values()) for e in found]).mean(axis=0)
    assert list(found[0].channels) == ["noise", "wave"]
    assert size[1] > 3 * size[0]
    for e, point in zip(found, model.predict(batch), strict=True):
        assert e.value == pytest.approx(point, rel=1e-4)
        assert total(e) == pytest.approx(e.value - e.baseline, rel=0.005, abs=0.005)
        np.testing.assert_allclose(e.window_edges, np.linspace(50, 62, 5))
        assert e.windows.shape == (4,)
        assert next(iter(e.words)).endswith(" turns")


def test_a_window_hides_the_spectra_that_lie_in_it_by_half(rates):
    model, batch, _ = rates
    predictor = model.predictor_
    (e,) = explain(predictor, batch[:1])
    inputs = predictor.encoder.encode(batch[:1])
    # Four windows, then the three that lie half a window later, then the whole span.
    for window, hidden in enumerate(([0, 4], [1, 4, 5], [2, 5, 6], [3, 6])):
        spectra = inputs["spectra"].clone()
        spectra[:, hidden] = 0
        with torch.no_grad():
            output = predictor.model(**(inputs | {"spectra": spectra}))
        after = float(predictor.answers(output)["point"][0, 0])
        assert e.windows[window] == pytest.approx(e.value - after, abs=1e-5)


def test_static_covariates_are_explained_where_the_model_takes_them():
    values, _ = numbers(60)
    static = np.random.default_rng(1).normal(size=(60, 2))
    batch = rf.SeriesBatch.from_tensor(values, static=static, static_names=("age", "noise"))
    model = make(RFormerRegressor, **(TINY | {"static": ("age",), "epochs": 10}))
    model.fit(batch, 30 * static[:, 0])
    found = model.explain(batch)
    change = np.array([e.static["age"] for e in found])
    assert all(list(e.static) == ["age"] for e in found)
    assert np.corrcoef(change, static[:, 0])[0, 1] > 0.9


def test_the_baseline_transformer_is_explained_sample_by_sample():
    values, y = numbers(m=1)
    model = make(RFormerRegressor, **(TINY | {"model": "transformer"})).fit(values, y[:, 0])
    (e,) = model.explain(values[:1], n_words=None)
    np.testing.assert_array_equal(e.window_edges, [0, *range(20)])
    assert (e.windows.shape, list(e.channels), len(e.words)) == ((20,), ["x0", "x1"], 5)
    assert total(e) == pytest.approx(e.value - e.baseline, rel=0.005, abs=0.005)


@pytest.mark.parametrize("kind", [RFormerClassifier, RFormerRegressor])
@pytest.mark.parametrize(
    "options",
    [{"n_estimators": 2}, {"scaling": "rank"}, {"observations": True, "depth": 0}, {"wide": 16}],
    ids=["committee", "ranks", "observations", "wide"],
)
def test_words_add_up_for_every_kind_of_model(kind, options):
    values, _ = numbers()
    values[:, 1:-1][np.random.default_rng(0).random((30, 18, 2)) < 0.6] = np.nan
    model = make(kind, **(TINY | options)).fit(values, np.arange(30) % 2)
    found = model.explain(values[:4], n_words=None)
    for e, said in zip(found, model.predict(values[:4]), strict=True):
        if kind is RFormerClassifier:
            assert e.target == said
        else:
            assert e.value == pytest.approx(said, rel=1e-4)
        assert total(e) == pytest.approx(e.value - e.baseline, rel=0.005, abs=0.005)
        assert np.isfinite(e.windows).all()
        assert all(abs(v) > 0 for v in e.channels.values())


def test_no_series_and_no_words(trained):
    batch = bumps(2, 0)[0]
    assert trained.explain(batch[:0]) == []
    assert trained.explain(batch[0], n_words=0)[0].words == {}
    sizes = [abs(v) for v in trained.explain(batch[0], n_words=5)[0].words.values()]
    assert len(sizes) == 5
    assert sizes == sorted(sizes, reverse=True)


def test_one_class_has_a_logit_only():
    values, _ = numbers()
    (e,) = make(RFormerClassifier, **TINY).fit(values, np.zeros(30)).explain(values[:1])
    assert np.isfinite([e.value, e.baseline, *e.windows, *e.channels.values()]).all()
    assert e.prediction == "0.0 (probability 1.00)"


def test_the_model_is_left_as_it_was_and_twice_is_the_same(trained):
    batch, model = bumps(3, 7)[0], trained.predictor_.model
    model.zero_grad(set_to_none=True)
    model.train()
    model.head.eval()
    try:
        first, second = trained.explain(batch), trained.explain(batch)
        assert model.training
        assert not model.head.training
        assert all(p.grad is None and p.requires_grad for p in model.parameters())
    finally:
        model.eval()
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.windows, other.windows)
        assert (one.words, one.channels) == (other.words, other.channels)
    with torch.no_grad():
        assert trained.explain(batch)[0].words == first[0].words


def test_wrong_wishes_are_refused_with_words(trained):
    batch = bumps(2, 0)[0]
    with pytest.raises(InputError, match="target must be one of the classes"):
        trained.explain(batch, target="up")
    with pytest.raises(InputError, match="n_words must be a whole number >= 0"):
        trained.explain(batch, n_words=-1)
    with pytest.raises(InputError, match="fitted to the channels"):
        trained.explain(np.zeros((1, 9, 2)))
    values, y = numbers(m=1)
    model = make(RFormerRegressor, **TINY).fit(values, y[:, 0])
    for wrong in (1, -1, True, "x0"):
        with pytest.raises(InputError, match="the number of an output"):
            model.explain(values, target=wrong)


@pytest.mark.parametrize("transform", ["signature", "logsignature"])
@pytest.mark.parametrize("time", ["unit", "none"])
@pytest.mark.parametrize("views", [("global", "local"), ("local",)])
def test_feature_channels_are_those_that_change_a_feature(transform, time, views):
    """Oracle: a feature has a letter of a channel if and only if its values depend on it."""
    config = TokenConfig(
        windows=3, depth=3 if transform == "logsignature" else 2, views=views, transform=transform,
        time=time, lags=(2.0,), counts=True, clock=2, spectrum=SpectrumConfig(count=4),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 3, 24))
    values[:, :, 1:-1][rng.random((3, 3, 22)) < 0.2] = np.nan
    batch = rf.SeriesBatch.from_numpy3d(values, channels=NAMES)
    encoder = Tokenizer.fit(config, batch)
    uses = encoder.feature_channels()
    assert len(uses) == len(encoder.names) == encoder.n_features
    tokens = encoder.encode(batch)["tokens"]
    for c in range(3):
        other = values.copy()
        other[:, c] = rng.normal(size=(3, 24))  # other values, and observed at other times
        changed = encoder.encode(rf.SeriesBatch.from_numpy3d(other, channels=NAMES))["tokens"]
        differs = (changed - tokens).abs().amax(dim=(0, 1)) > 1e-6
        assert differs.tolist() == [c in channels for channels in uses]


@pytest.mark.parametrize("causal", [False, True])
def test_words_of_the_wide_networks_and_of_the_spectrum_add_up(causal):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((24, 40, 3)).cumsum(axis=1)
    sparse = np.where(rng.random(values.shape) < 0.7, np.nan, values)
    y = (values[:, :, 0].mean(axis=1) > 0).astype(int)
    options = {"windows": 4, "d_model": 16, "n_heads": 2, "epochs": 3, "random_state": 0}
    for x, more in ((sparse, {"causal": causal}), (values, {"spectrum": "linear"})):
        model = make(RFormerClassifier, **options, **more).fit(x, y)
        assert bool(model.predictor_.model.wide) == (x is sparse)
        for found in model.explain(x[:4], n_words=None):
            total = sum(found.words.values())
            assert total == pytest.approx(found.value - found.baseline, abs=0.02)
        names = list(found.words)
        assert any(name.startswith("spectrum:x1 at ") for name in names) == (x is values)
