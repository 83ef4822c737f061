"""Scaling of features: what differs by rounding only is the same."""

import numpy as np
import pytest
import torch

import roughformer as rf
from roughformer.model.transformer import RankScale
from roughformer.tokens.padded import least_scale
from small import make
from stream_cases import series


def fitted(column):
    scale = RankScale(1)
    scale.fit(torch.as_tensor(column)[:, None].float())
    return scale


def scaled(scale, values):
    return scale(torch.tensor(values, dtype=torch.float32)[:, None])[:, 0]


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e9])
@pytest.mark.parametrize("outliers", [False, True])
def test_ranks_do_not_blow_rounding_up(size, outliers):
    rng = np.random.default_rng(0)
    noise = 1e-10 * rng.normal(size=60)
    told = rng.normal(size=600)
    if outliers:
        told[:20] *= 1e8
    scale = fitted(size * np.concatenate([np.zeros(200), noise, told]))
    near = scaled(scale, [0.0, size * 3e-14, -size * 2e-10])
    assert float((near - near[0]).abs().max()) < 1e-3
    low, high = scaled(scale, [-size, size])
    assert float(high - low) > 0.5  # what is told stays


@pytest.mark.parametrize("value", [0.0, 5.0, -3e4, 1e-9])
def test_a_feature_that_varies_by_rounding_does_not_vary(value):
    scale = fitted(value * (1 + 1e-7 * np.random.default_rng(0).normal(size=50)))
    assert scaled(scale, [value, 2 * value + 1.0]).tolist() == [0.0, 0.0]
    assert float(scale.mean[0]) == pytest.approx(value, rel=1e-5)


def test_ranks_of_ordinary_values_are_normal_scores():
    x = np.random.default_rng(0).lognormal(size=2000)
    z = scaled(fitted(x), x).numpy()
    assert abs(z.mean()) < 0.02
    assert z.std() == pytest.approx(1, abs=0.02)
    assert (np.diff(z[np.argsort(x)]) >= 0).all()


def test_a_causal_model_with_ranks_does_not_see_later_values():
    rng = np.random.default_rng(0)
    times = [np.sort(rng.uniform(0, 10, n)) for n in rng.integers(30, 60, size=24)]
    series = [
        np.stack([np.sin(t) + 0.1 * rng.normal(size=len(t)), rng.normal(size=len(t)).cumsum()], 1)
        for t in times
    ]
    for x in series:
        x[rng.random(x.shape) < 0.2] = np.nan
    later = [np.where((t > 5)[:, None], x + 100, x) for x, t in zip(series, times, strict=True)]
    options = {"causal": True, "scaling": "rank", "depth": 2, "epochs": 2, "random_state": 0}
    model = make(rf.RFormerClassifier, **options).fit(series, np.arange(24) % 2, times=times)
    pairs = zip(
        model.predict_windows(series, times), model.predict_windows(later, times), strict=True
    )
    for (ends, p), (_, q) in pairs:
        np.testing.assert_allclose(p[ends <= 5], q[ends <= 5], atol=2e-6)


def steps(scaling: str, dtype=np.float64, hold: bool = True):
    """A model on log-signatures of single steps, and the scaled tokens of other series."""
    batch = [series(n=8, seed=s, missing=0.0) for s in (0, 1)]
    train, test = (rf.SeriesBatch(b.times, b.values.astype(dtype), b.offsets) for b in batch)
    tokens = rf.TokenConfig(
        windows={"points": 1}, views=("local",), depth=5, transform="logsignature", hold=hold,
        clock=0 if hold else 3,
    )  # fmt: skip
    model = rf.RFormer(n_channels=2, n_outputs=2, tokens=tokens, scaling=scaling, causal=hold)
    model.fit_scaling(train)
    inputs = model.tokenizer.encode(test)
    return model.tokenizer.names, model.standardize(inputs["tokens"])[inputs["mask"]]


@pytest.mark.parametrize("scaling", ["standard", "rank"])
@pytest.mark.parametrize(("dtype", "hold"), [("f8", True), ("f8", False), ("f4", False)])
def test_rounding_of_straight_pieces_is_not_scaled_up(scaling, dtype, hold):
    names, scaled_tokens = steps(scaling, dtype, hold)
    higher = torch.tensor(["*" in name for name in names])
    assert float(scaled_tokens[:, higher].abs().max()) < 1e-5
    assert float(scaled_tokens[:, ~higher].std(dim=0).min()) > 0.5


def test_small_words_that_are_told_keep_their_scale():
    layout = rf.Tokenizer.fit(
        rf.TokenConfig(windows=4, views=("local",), depth=3, transform="logsignature"), series()
    ).layout
    rng = np.random.default_rng(0)
    tokens = torch.from_numpy(rng.uniform(1, 2, size=(100, layout.size)))
    d = layout.dim("local")
    tokens[:, d:] *= 1e-17
    least = least_scale(tokens, layout, 1e-12, {})
    assert (least[:d] < 1e-11).all()
    assert (least[d:] > 1).all()
    # One token above rounding is enough, and outliers of the first level do not hide it.
    tokens[3, d:], tokens[5] = 1e-9, 0.0
    tokens[5, :d] = 1e6
    assert (least_scale(tokens, layout, 1e-12, {}) < 1e-10).all()
