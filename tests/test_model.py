"""RFormer as a module: shapes, masks, causality, losses."""

import math

import pytest
import torch
from pydantic import ValidationError

from roughformer.model import RFormer, RFormerConfig, loss_of, point_of, run_model
from roughformer.model.transformer import (
    Attention,
    RankScale,
    Standardize,
    attention_mask,
    scale_of,
)

SMALL = {"n_features": 5, "n_outputs": 3, "d_model": 16, "n_heads": 2, "dropout": 0.0}


def made(**options):
    torch.manual_seed(0)
    return RFormer(RFormerConfig(**(SMALL | options))).eval()


def inputs(batch=4, length=7, features=5):
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randn(batch, length, features, generator=generator)
    return tokens, torch.linspace(0, 1, length).expand(batch, length)


@pytest.mark.parametrize("batch", [0, 1, 4])
@pytest.mark.parametrize("length", [1, 7])
@pytest.mark.parametrize("pooling", ["mean", "attention", "last"])
def test_one_output_per_series(batch, length, pooling):
    assert made(pooling=pooling).from_tokens(*inputs(batch, length)).shape == (batch, 3)


def test_causal_has_one_output_per_window():
    assert made(causal=True).from_tokens(*inputs()).shape == (4, 7, 3)


@pytest.mark.parametrize(("uncertainty", "k"), [("gaussian", 2), ("quantile", 3)])
def test_uncertainty_adds_an_axis(uncertainty, k):
    model = made(task="regression", uncertainty=uncertainty)
    assert model.from_tokens(*inputs()).shape == (4, 3, k)
    assert point_of(model.from_tokens(*inputs()), model.config).shape == (4, 3)


def test_the_past_does_not_depend_on_the_future_if_causal():
    model = made(causal=True)
    tokens, times = inputs()
    changed = tokens.clone()
    changed[:, 4:] += 1
    before, after = model.from_tokens(tokens, times), model.from_tokens(changed, times)
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])


def test_without_causal_everything_depends_on_everything():
    model = made()
    tokens, times = inputs()
    changed = tokens.clone()
    changed[:, -1] += 1
    assert not torch.allclose(model.from_tokens(tokens, times), model.from_tokens(changed, times))


@pytest.mark.parametrize(
    "options", [{"pooling": "mean"}, {"pooling": "attention"}, {"pooling": "last"}]
)
def test_padding_changes_nothing(options):
    model = made(**options)
    tokens, times = inputs(2, 5)
    padded = torch.cat([tokens, torch.full((2, 3, 5), 1e3)], dim=1)
    late = torch.cat([times, torch.ones(2, 3)], dim=1)
    mask = torch.arange(8).expand(2, 8) < 5
    torch.testing.assert_close(
        model.from_tokens(padded, late, mask), model.from_tokens(tokens, times)
    )


def test_a_mask_of_padding_takes_no_square_of_the_length():
    torch.manual_seed(0)
    attention, x = Attention(16, 2, 0.0), torch.randn(4, 9, 16)
    mask = torch.arange(9) < torch.tensor([[9], [5], [1], [0]])
    allowed = attention_mask(mask, 9, False, x.device)
    assert allowed.shape == (4, 1, 1, 9)
    found = attention(x, allowed)
    square = (mask.unsqueeze(1) | torch.eye(9, dtype=torch.bool)).unsqueeze(1)
    torch.testing.assert_close(found[mask], attention(x, square)[mask])
    assert found.isfinite().all()  # that of a series without a token, too


@pytest.mark.parametrize(("length", "sizes"), [(7, [5]), (1 << 17, [2, 2, 1]), (1 << 19, [1] * 5)])
def test_batches_of_long_series_are_smaller(length, sizes):
    seen = []

    class Counts(torch.nn.Module):
        def forward(self, tokens, static):
            seen.append(len(tokens))
            return tokens[:, 0] + static

    tokens = torch.arange(5.0).reshape(5, 1, 1).expand(5, length, 1)
    given = {"tokens": tokens, "static": torch.ones(5, 1)}
    output = run_model(Counts(), given, "cpu")
    assert output.flatten().tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert seen == sizes
    weight = torch.ones((), requires_grad=True)
    (output * weight).sum().backward()  # what calibration does with outputs
    assert weight.grad == 15


def test_padding_changes_nothing_if_causal():
    model = made(causal=True)
    tokens, times = inputs(2, 5)
    padded = torch.cat([tokens, torch.full((2, 3, 5), 1e3)], dim=1)
    late = torch.cat([times, torch.ones(2, 3)], dim=1)
    mask = torch.arange(8).expand(2, 8) < 5
    torch.testing.assert_close(
        model.from_tokens(padded, late, mask)[:, :5], model.from_tokens(tokens, times)
    )


@pytest.mark.parametrize("pooling", ["mean", "attention"])
def test_a_series_without_a_real_token_gives_finite_numbers_and_gradients(pooling):
    model = made(pooling=pooling).train()
    tokens, times = inputs(2, 4)
    mask = torch.tensor([[True] * 4, [False] * 4])
    found = model.from_tokens(tokens, times, mask)
    found.sum().backward()
    assert found.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_batch_is_each_series_alone():
    model = made(n_layers=3)
    tokens, times = inputs()
    alone = torch.cat([model.from_tokens(tokens[i : i + 1], times[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(model.from_tokens(tokens, times), alone)


def test_static_covariates_count_and_unknown_ones_are_the_mean():
    model = made(n_static=2)
    tokens, times = inputs()
    static = torch.randn(100, 2, generator=torch.Generator().manual_seed(3)) * 5 + 7
    model.fit_scaling({"tokens": tokens, "static": static})
    unknown = torch.full((4, 2), math.nan)
    mean = model.standardize_static.mean.expand(4, 2)
    torch.testing.assert_close(
        model.from_tokens(tokens, times, static=unknown),
        model.from_tokens(tokens, times, static=mean),
    )
    assert not torch.allclose(
        model.from_tokens(tokens, times, static=mean + 9),
        model.from_tokens(tokens, times, static=mean),
    )
    with pytest.raises(ValueError, match="takes 2 static covariates"):
        model.from_tokens(tokens, times)


def test_standardised_features_have_mean_0_and_deviation_1_and_are_clipped():
    x = torch.randn(50, 9, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor(
        [1e-6, 1.0, 1e6]
    )
    x[..., 1] = 4.0
    mask = torch.rand(50, 9, generator=torch.Generator().manual_seed(1)) < 0.7
    layer = Standardize(3, clip=2.5)
    layer.fit(x, mask)
    y = layer(x)[mask]
    assert y.abs().max() <= 2.5
    assert (y[:, 1] == 0).all()
    layer.clip = 1e9
    y = layer(x)[mask][:, [0, 2]]
    torch.testing.assert_close(y.mean(dim=0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(y.square().mean(dim=0), torch.ones(2), atol=1e-4, rtol=0)


def test_the_scaling_is_saved_with_the_weights():
    assert {"standardize.mean", "standardize.scale"} <= set(made().state_dict())


def test_quantiles_never_cross():
    model = made(task="regression", uncertainty="quantile", quantiles=(0.05, 0.5, 0.6, 0.9))
    assert (
        model.from_tokens(*inputs(64))[..., 1:] >= model.from_tokens(*inputs(64))[..., :-1]
    ).all()


def test_losses_are_lowest_at_the_truth():
    config = RFormerConfig(n_features=1, n_outputs=1, task="regression", uncertainty="gaussian")
    target = torch.tensor([[2.0]])
    grid = torch.linspace(0, 4, 41)
    values = [loss_of(torch.tensor([[[m, 0.0]]]), target, config) for m in grid]
    assert grid[int(torch.stack(values).argmin())] == 2.0
    pinball = RFormerConfig(
        n_features=1, n_outputs=1, task="regression", uncertainty="quantile", quantiles=(0.9,)
    )
    sample = torch.arange(100.0).reshape(100, 1)
    values = [loss_of(torch.full((100, 1, 1), float(q)), sample, pinball) for q in range(100)]
    assert abs(int(torch.stack(values).argmin()) - 90) <= 1


def test_unknown_targets_are_left_out():
    config = RFormerConfig(n_features=1, n_outputs=2, task="regression")
    output = torch.tensor([[1.0, 5.0], [2.0, 3.0]], requires_grad=True)
    target = torch.tensor([[0.0, math.nan], [math.nan, math.nan]])
    loss = loss_of(output, target, config)
    loss.backward()
    assert loss.item() == 1.0
    assert output.grad.tolist() == [[2.0, 0.0], [0.0, 0.0]]


def test_class_weights_count():
    config = RFormerConfig(n_features=1, n_outputs=2)
    output, target = torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1])
    plain = loss_of(output, target, config)
    weighted = loss_of(output, target, config, torch.tensor([1.0, 3.0]))
    assert weighted > plain


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"d_model": 10, "n_heads": 4}, "multiple of n_heads"),
        ({"uncertainty": "gaussian"}, "uncertainty is for regression"),
        ({"quantiles": (0.5, 0.1)}, "quantiles must increase"),
        ({"n_outputs": 0}, "greater than or equal to 1"),
        ({"width": 3}, "Extra inputs"),
    ],
)
def test_configurations_that_fit_nothing_are_refused(options, words):
    with pytest.raises(ValidationError, match=words):
        RFormerConfig(**(SMALL | options))


def test_a_configuration_survives_json():
    config = RFormerConfig(**SMALL, causal=True, quantiles=(0.2, 0.8))
    assert RFormerConfig.model_validate_json(config.model_dump_json()) == config


def test_it_can_learn_to_tell_which_window_is_high():
    torch.manual_seed(0)
    x = torch.randn(256, 6, 2)
    y = x[..., 0].argmax(dim=1)
    model = RFormer(RFormerConfig(n_features=2, n_outputs=6, d_model=32, n_layers=1, dropout=0.0))
    times = torch.linspace(0, 1, 6).expand(256, 6)
    model.fit_scaling({"tokens": x})
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(150):
        optimiser.zero_grad()
        loss_of(model.from_tokens(x, times), y, model.config).backward()
        optimiser.step()
    accuracy = (model.eval().from_tokens(x, times).argmax(dim=1) == y).float().mean()
    assert accuracy > 0.9


# Scaling


def test_ranks_make_any_distribution_about_normal_and_keep_the_order():
    x = torch.randn(2000, 1, generator=torch.Generator().manual_seed(0)).exp().pow(3)
    scale = RankScale(1)
    scale.fit(x)
    z = scale(x)[:, 0]
    assert abs(float(z.mean())) < 0.02
    assert abs(float(z.std()) - 1) < 0.03
    order = x[:, 0].argsort()
    assert (z[order].diff() >= 0).all()
    assert float(scale(torch.tensor([[1e12]]))) == float(z.max())
    assert abs(float(scale(scale.mean.unsqueeze(0)))) < 1e-5


def test_no_scaling_leaves_features_as_they_are():
    model = made(scaling="none")
    tokens, times = inputs()
    large = 1e3 * tokens
    model.fit_scaling({"tokens": large})
    assert torch.equal(model.standardize(large), large)
    hidden = torch.full_like(tokens, math.nan)
    assert torch.equal(
        model.from_tokens(hidden, times), model.from_tokens(torch.zeros_like(tokens), times)
    )


@pytest.mark.parametrize("kind", ["standard", "rank"])
def test_what_is_not_known_becomes_zero_and_does_not_count(kind):
    x = torch.tensor([[1.0, math.nan, 5.0], [3.0, math.nan, 5.0], [math.nan, math.nan, 5.0]])
    scale = scale_of(kind, 3, 10.0)
    scale.fit(x)
    z = scale(x)
    assert z[2, 0] == 0
    assert (z[:, 1:] == 0).all()
    assert z[0, 0] == -z[1, 0] != 0
    assert scale(x[:0]).shape == (0, 3)
    empty = scale_of(kind, 3, 10.0)
    empty.fit(x[:0])
    assert empty(torch.zeros(2, 4, 3)).shape == (2, 4, 3)


def test_few_values_have_exact_ranks():
    x = torch.tensor([[0.0], [0.0], [1.0], [2.0]])
    scale = RankScale(1)
    scale.fit(x)
    raw = torch.special.ndtri(torch.tensor([0.25, 0.625, 0.875], dtype=torch.float64))
    weight = torch.tensor([2.0, 1.0, 1.0], dtype=torch.float64)
    mean = (raw * weight).sum() / 4
    spread = ((raw - mean).square() * weight).sum().div(4).sqrt()
    expected = ((raw - mean) / spread).float()
    assert torch.allclose(scale(x)[[0, 2, 3], 0], expected, atol=1e-6)


def test_wide_sees_the_last_real_token_and_static_covariates():
    model = made(wide=8, n_layers=0, n_static=2, pooling="mean")
    tokens, times = inputs()
    mask = torch.arange(7).expand(4, 7) < torch.tensor([7, 5, 3, 1]).unsqueeze(1)
    static = torch.ones(4, 2)
    before = model.from_tokens(tokens, times, mask, static)
    changed = tokens.clone()
    changed[~mask] += 5
    torch.testing.assert_close(model.from_tokens(changed, times, mask, static), before)


def test_several_answers_are_mixed_by_their_share():
    model = made(wide=8, wide_share=0.7, n_wide=3, n_wide_features=2)
    both = model.from_tokens(*inputs(), separate=True)
    assert both.shape == (4, 4, 3)
    expected = 0.3 * both[0] + 0.7 * both[1:].mean(dim=0)
    torch.testing.assert_close(model.from_tokens(*inputs()), expected)
    assert not made().answers_apart
    changed = inputs()[0].clone()
    changed[..., 2:] += 1
    later = model.from_tokens(changed, inputs()[1], separate=True)
    torch.testing.assert_close(later[1:], both[1:])  # they see the first two features only


@pytest.mark.parametrize("uncertainty", ["none", "gaussian", "quantile"])
@pytest.mark.parametrize("causal", [False, True])
def test_wide_answers_have_the_shape_of_the_others(uncertainty, causal):
    options = {"task": "regression", "uncertainty": uncertainty, "causal": causal}
    expected = made(**options).from_tokens(*inputs()).shape
    assert made(**options, wide=8).from_tokens(*inputs()).shape == expected


@pytest.mark.parametrize("wide", [0, 8])
def test_a_new_model_knows_how_frequent_classes_are(wide):
    model = made(wide=wide)
    model.head.map.weight.data.zero_()
    if wide:
        model.wide.out.weight.data.zero_()
    frequency = torch.tensor([0.7, 0.2, 0.1])
    model.fit_prior(frequency)
    torch.testing.assert_close(model.from_tokens(*inputs()).softmax(dim=-1), frequency.expand(4, 3))
