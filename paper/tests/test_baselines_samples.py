"""The samples that baselines see, and the Transformer on them."""

import numpy as np
import pytest
import torch

import roughformer as rf
from recurrent_cases import NAN, double, fitted, series
from roughformer import SeriesBatch
from roughformer.errors import InputError
from roughformer.model import RFormer, RFormerConfig
from roughformer_paper.baselines import (
    ForwardEncoder,
    SampleEncoder,
    Transformer,
)
from small import make


def small():
    values = np.array([[NAN, 1.0], [2.0, NAN], [NAN, NAN], [4.0, 5.0]])
    return SeriesBatch.from_arrays([values, values[:2] + 10], [[0.0, 1.0, 3.0, 4.0], [5.0, 7.0]])


def test_values_not_observed_are_nan_or_carried_forward():
    for cls, wanted in (
        (SampleEncoder, [[NAN, 1], [2, NAN], [NAN, NAN], [4, 5]]),
        (ForwardEncoder, [[NAN, 1], [2, 1], [2, 1], [4, 5]]),
    ):
        encoder = cls.fit(small())
        tokens = encoder.encode(small())["tokens"][:, :, :2] + torch.tensor(encoder.centre)
        torch.testing.assert_close(tokens[0].float(), torch.tensor(wanted).float(), equal_nan=True)
        # What one series saw last is not carried into the next.
        assert tokens[1, 0, 0].isnan()


def test_ages_count_from_the_observation_before():
    encoder = ForwardEncoder.fit(small())
    unit = encoder.time_unit
    assert unit == 3.0  # the median of 4 and 2
    inputs = encoder.encode(small())
    token = dict(zip(encoder.names, inputs["tokens"][0].T * unit, strict=True))
    gap, first, second = token["gap"], token[encoder.names[-2]], token[encoder.names[-1]]
    # The recursion of Che et al.: δ_t = gap_t, plus δ_{t-1} where t-1 was not observed.
    seen = ~np.isnan(small().values[:4])
    for c, age in enumerate((first, second)):
        told = [0.0]
        for t in range(1, 4):
            told.append(float(gap[t]) + (0.0 if seen[t - 1, c] else told[-1]))
        np.testing.assert_allclose(age, told, rtol=1e-6)
    np.testing.assert_allclose(gap, [0, 1, 2, 1], rtol=1e-6)
    assert inputs["mask"].tolist() == [[True] * 4, [True, True, False, False]]


def test_there_are_no_ages_where_nothing_is_missing_or_carried():
    assert ForwardEncoder.fit(series()).n_features == 5
    assert ForwardEncoder.fit(small()).n_features == 7
    assert ForwardEncoder.fit(small(), fill="mean").n_features == 5
    assert SampleEncoder.fit(small(), fill="forward").n_features == 7
    for encoder in (ForwardEncoder.fit(series()), ForwardEncoder.fit(small())):
        assert len(encoder.names) == len(encoder.feature_channels()) == encoder.n_features


def test_a_large_mean_costs_no_accuracy():
    batch = series(missing=0.3)
    moved = SeriesBatch(batch.times, batch.values + 2.0**30, batch.offsets)
    tokens, other = (ForwardEncoder.fit(b).encode(b)["tokens"] for b in (batch, moved))
    torch.testing.assert_close(tokens, other, atol=1e-5, rtol=0, equal_nan=True)


def test_an_encoder_comes_back_from_plain_data():
    for cls in (SampleEncoder, ForwardEncoder):
        encoder = cls.fit(small())
        assert cls.model_validate_json(encoder.model_dump_json()) == encoder


def test_an_encoder_needs_a_series():
    with pytest.raises(InputError, match="at least one series"):
        ForwardEncoder.fit(series()[:0])


# The Transformer


def test_the_transformer_is_made_of_the_blocks_of_rformer():
    config = RFormerConfig(n_features=5, n_outputs=3, d_model=8, n_heads=2)
    torch.manual_seed(0)
    one = Transformer(config).state_dict()
    torch.manual_seed(0)
    other = RFormer(config).state_dict()
    assert one.keys() == other.keys() - {"_extra_state"}
    assert all(torch.equal(one[name], other[name]) for name in one)


def transformer(encoder, **options):
    torch.manual_seed(0)
    options = {"n_outputs": 3, "d_model": 8, "n_heads": 2, "dropout": 0.0} | options
    return Transformer(RFormerConfig(n_features=encoder.n_features, **options)).eval()


def test_the_transformer_takes_a_missing_value_as_the_mean_and_sees_that_it_is_missing():
    batch = series((8, 5), missing=0.4)
    model, inputs, encoder = fitted(transformer, SampleEncoder, batch)
    c = batch.n_channels
    observed = np.nanmean(batch.values, axis=0) - np.asarray(encoder.centre)
    np.testing.assert_allclose(model.standardize.mean[:c], observed, atol=1e-6)
    missing = inputs["tokens"][..., :c].isnan()
    assert missing.any()
    filled = torch.where(missing, model.standardize.mean[:c], inputs["tokens"][..., :c])
    tokens = torch.cat([filled, inputs["tokens"][..., c:]], dim=-1)
    torch.testing.assert_close(model(**(inputs | {"tokens": tokens})), model(**inputs))
    tokens[..., c : 2 * c] = 1
    assert (model(**(inputs | {"tokens": tokens})) - model(**inputs)).abs().max() > 1e-4


def test_the_transformer_sees_time_and_not_padding():
    batch = series((8, 5))
    model, inputs, encoder = fitted(transformer, SampleEncoder, batch)
    other = inputs | {"times": inputs["times"] * 1.1}
    assert (model(**other) - model(**inputs)).abs().max() > 1e-4
    alone = model(**double(encoder.encode(batch[1:])))
    torch.testing.assert_close(model(**inputs)[1:], alone)


@pytest.mark.parametrize("model", ["gru", "transformer", "state-space"])
def test_a_gap_twice_as_long_is_no_outlier_where_gaps_do_not_vary(model):
    rng = np.random.default_rng(0)
    x = SeriesBatch.from_tensor(rng.normal(size=(12, 50, 2)).astype(np.float32))
    y = np.arange(12) % 2
    options = {"epochs": 1, "validation": 0, "d_model": 8, "n_heads": 2, "random_state": 0}
    estimator = make(rf.RFormerClassifier, model, **options).fit(x, y)
    encoder, module = estimator.predictor_.encoder, estimator.predictor_.model
    at = encoder.names.index("gap")
    thin = encoder.encode(
        SeriesBatch.from_tensor(x.values.reshape(12, 50, 2)[:, ::2], t=np.arange(0, 50, 2.0))
    )
    with torch.no_grad():
        one, two = (
            module.standardize(t)[:, 1:, at] for t in (encoder.encode(x)["tokens"], thin["tokens"])
        )
    torch.testing.assert_close(one, torch.zeros_like(one), atol=0.05, rtol=0)
    torch.testing.assert_close(two, torch.ones_like(two), atol=0.05, rtol=0)
