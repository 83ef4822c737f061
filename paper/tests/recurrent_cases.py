"""Small series, and models on them in float64."""

import numpy as np
import pytest
import torch

from roughformer import SeriesBatch
from roughformer_paper.baselines import (
    GRU,
    ODERNN,
    ForwardEncoder,
    GRUConfig,
    ODERNNConfig,
    SampleEncoder,
)

NAN = np.nan


def series(lengths=(7, 4, 1), channels=2, missing=0.0, seed=0):
    """Random walks at random times."""
    rng = np.random.default_rng(seed)
    values = [rng.normal(size=(n, channels)).cumsum(axis=0) for n in lengths]
    for v in values:
        v[rng.random(v.shape) < missing] = NAN
    times = [np.cumsum(rng.exponential(size=n)) for n in lengths]
    return SeriesBatch.from_arrays(values, times)


def gru(encoder, **options):
    torch.manual_seed(0)
    options = {"n_outputs": 3, "d_model": 5, "dropout": 0.0} | options
    return GRU(GRUConfig(n_features=encoder.n_features, **options)).eval()


def ode_rnn(encoder, **options):
    torch.manual_seed(0)
    options = {"n_outputs": 3, "d_model": 5, "dropout": 0.0} | options
    return ODERNN(ODERNNConfig(n_features=encoder.n_features, **options)).eval()


def double(inputs):
    return {k: v if v.dtype == torch.bool else v.double() for k, v in inputs.items()}


def fitted(make, encoder_class, batch, **options):
    """A model in float64 with scaling, and the inputs of the batch."""
    encoder = encoder_class.fit(batch)
    inputs = double(encoder.encode(batch))
    model = make(encoder, **options).double()
    model.fit_scaling(inputs)
    return model, inputs, encoder


MODELS = [(gru, ForwardEncoder), (ode_rnn, SampleEncoder)]
both_models = pytest.mark.parametrize(("make", "encoder_class"), MODELS, ids=["gru", "ode-rnn"])
