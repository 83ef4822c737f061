"""A sliding context: the global view and attention over the last windows."""

import numpy as np
import pytest
import torch

import roughformer as rf
from roughformer import algebra
from roughformer.model.transformer import Attention, attention_mask
from roughformer.signatures.torch_backend import as_levels, as_words, blocks_of, sliding_products
from small import make
from stream_cases import series


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 40])
def test_sliding_products_are_products_of_the_last_windows(size):
    torch.manual_seed(0)
    levels = [torch.randn(2, 11, 3**k, dtype=torch.float64) for k in (1, 2, 3)]
    found = as_words(sliding_products(levels, size)).numpy()
    words = as_words(levels).numpy()
    for k in range(11):
        product = None
        for j in range(max(k - size + 1, 0), k + 1):
            one = words[:, j]
            product = one if product is None else algebra.multiply(product, one, 3, 3)
        np.testing.assert_allclose(found[:, k], product, rtol=1e-10, atol=1e-8)


def test_no_windows_have_no_products():
    empty = [torch.zeros(3, 0, 2**k) for k in (1, 2)]
    assert [x.shape for x in sliding_products(empty, 3)] == [x.shape for x in empty]
    assert blocks_of(13) == [8, 4, 1]


def test_levels_and_words_are_one():
    words = torch.arange(2 * 14.0).reshape(2, 14)
    levels = as_levels(words, 2, 3)
    assert [x.shape[-1] for x in levels] == [2, 4, 8]
    assert torch.equal(as_words(levels), words)


@pytest.mark.parametrize("basepoint", [False, True])
@pytest.mark.parametrize("transform", ["signature", "logsignature"])
def test_the_global_view_is_that_of_a_series_that_begins_with_the_context(basepoint, transform):
    """Series without points are cut where a context begins: the two must say the same."""
    t = np.arange(0.0, 4.01, 0.25)
    x = np.random.default_rng(0).normal(size=(len(t), 2))
    batch = rf.SeriesBatch(t, x, [0, len(t)])
    options = {
        "windows": {"duration": 0.5}, "hold": True, "basepoint": basepoint, "depth": 3,
        "transform": transform, "views": ("global",),
    }  # fmt: skip
    sliding = rf.Tokenizer.fit(rf.TokenConfig(**options, context=3), batch)
    whole = rf.Tokenizer.fit(rf.TokenConfig(**options), batch)
    tokens = sliding.encode(batch)["tokens"][0]
    np.testing.assert_allclose(tokens[:3], whole.encode(batch)["tokens"][0, :3], atol=1e-6)
    for k in range(3, 8):
        begin = 2 * (k - 2)  # windows have two points
        part = rf.SeriesBatch(t[begin:], x[begin:], [0, len(t) - begin])
        np.testing.assert_allclose(tokens[k], whole.encode(part)["tokens"][0, 2], atol=1e-6)


def test_what_a_window_says_does_not_depend_on_what_follows():
    batch = series()
    config = rf.TokenConfig(
        windows={"duration": 0.5}, hold=True, context=3, clock=2, basepoint=True
    )
    tokenizer = rf.Tokenizer.fit(config, batch)
    t, x = batch.series(0)
    whole = tokenizer.encode(batch[:1])["tokens"][0]
    for size in range(2, len(t)):
        part = rf.SeriesBatch(
            t[:size], x[:size], [0, size], static=batch.static[:1],
            static_names=list(batch.static_names),
        )  # fmt: skip
        tokens = tokenizer.encode(part)["tokens"][0]
        np.testing.assert_allclose(tokens[:-1], whole[: len(tokens) - 1], atol=1e-6)


@pytest.mark.parametrize("length", [1, 7, 13, 30])
def test_a_narrow_band_is_masked_attention(length):
    torch.manual_seed(length)
    attention = Attention(8, 2, 0.0, context=3)
    torch.nn.init.normal_(attention.age)
    x = torch.randn(4, length, 8, requires_grad=True)
    real = torch.rand(4, length) < 0.8
    for mask in (None, real):
        full = attention_mask(mask, length, True, x.device)
        assert full is not None
        band = torch.ones(length, length, dtype=torch.bool).triu(-2)
        itself = torch.eye(length, dtype=torch.bool)
        slow = attention(x, (full & band) | itself)
        flat = torch.ones(1, length, dtype=torch.bool) if mask is None else mask
        fast = attention(x, flat)
        usual = attention(x, attention_mask(mask, length, True, x.device, 3))
        torch.testing.assert_close(fast, slow)
        torch.testing.assert_close(usual, slow)
        for found in (fast, slow):
            (gradient,) = torch.autograd.grad(found.square().sum(), x)
            found.gradient = gradient
        torch.testing.assert_close(fast.gradient, slow.gradient)


def test_options_of_the_context():
    batch = series(n=8, missing=0.0)
    y = np.arange(8) % 2
    quick = {"epochs": 1, "d_model": 8, "validation": 0, "random_state": 0}
    usual = make(rf.RFormerClassifier, causal=True, **quick).fit(batch, y).predictor_
    assert usual.outputs.context == usual.encoder.config.context
    counts = usual.encoder.config.rule.place(batch).n_windows
    assert usual.outputs.context == round(np.median(counts))
    free = make(rf.RFormerClassifier, causal=True, context=None, **quick).fit(batch, y).predictor_
    assert free.outputs.context is None
    counted = make(rf.RFormerClassifier, causal=True, windows=5, **quick).fit(batch, y).predictor_
    assert counted.outputs.context is None
    for wish, words in (
        (0, "context: .* 1"),
        ("all", "context: .* integer"),
        (2.5, "context: .* integer"),
    ):
        with pytest.raises(rf.InputError, match=words):
            make(rf.RFormerClassifier, causal=True, context=wish, **quick).fit(batch, y)
    with pytest.raises(rf.InputError, match="causal=True"):
        make(rf.RFormerClassifier, context=3, **quick).fit(batch, y)


def test_windows_that_are_exact_are_those_of_a_series_that_goes_on():
    t = np.array([0.0, 0.1, 0.2, 0.3, 0.1 + 0.2 + 1e-12])
    for size in range(1, 6):
        batch = rf.SeriesBatch(t[np.sort(np.argsort(t)[:size])], np.zeros((size, 1)), [0, size])
        cuts = rf.Windows.by_duration(0.1, exact=True).place(batch).of(0)
        inner = np.arange(1, len(cuts) - 1) * 0.1
        np.testing.assert_array_equal(cuts[1:-1], inner)
        assert cuts[-1] == batch.times[-1] or size == 1
        assert len(cuts) == 2 or cuts[-2] < batch.times[-1]
