"""Small untrained models of every kind that can be exported, and padded series for them."""

from unittest import mock

import numpy as np
import torch

import roughformer as rf
from roughformer.inference.predictor import Predictor
from roughformer.inference.targets import ClassTargets, NumberTargets
from roughformer.model import Ensemble, RFormer, RFormerConfig, TempoConfig, TempoFormer
from roughformer.tokens import TokenConfig, Tokenizer
from roughformer.tokens.tempo import TempoEncoder

CHANNELS = ["a", "b"]
STATIC = ["age", "kind"]


def series(n=6, longest=24, seed=0, missing=0.25, start=100.0, channels=2, shortest=1):
    """Random walks at irregular times with gaps; static covariates, one of them a category."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(shortest, longest + 1, n)
    lengths[rng.integers(n)] = longest
    times = [start + rng.uniform(0, 5) + np.cumsum(rng.uniform(0.1, 1.0, m)) for m in lengths]
    values = [3.0 + rng.standard_normal((m, channels)).cumsum(axis=0) for m in lengths]
    for v in values:
        v[rng.random(v.shape) < missing] = np.nan
    static = np.stack([rng.normal(60, 9, n), rng.integers(0, 4, n)], axis=1)
    static[rng.random(static.shape) < 0.2] = np.nan
    return rf.SeriesBatch.from_arrays(
        values, times, channels=CHANNELS[:channels], static=static, static_names=STATIC
    )


def predictor(
    task="classification", uncertainty="none", members=1, seed=0, model=None, batch=None, **tokens
):
    """A model with random weights, scaled to random series or those of ``batch``."""
    batch = batch or series(40, seed=seed + 100, shortest=8)
    config = TokenConfig(**({"windows": 5, "depth": 2} | tokens))
    tokenizer = Tokenizer.fit(config, batch)
    n = 3 if task == "classification" else 2
    options = {
        "n_features": tokenizer.n_features, "n_static": len(tokenizer.static),
        "n_spectrum": tokenizer.n_spectrum, "n_wide_features": tokenizer.n_summary,
        "n_outputs": n, "task": task, "uncertainty": uncertainty, "d_model": 16, "n_heads": 2,
    } | (model or {})  # fmt: skip
    torch.manual_seed(seed)
    made = [RFormer(RFormerConfig(**options)).eval() for _ in range(members)]
    inputs = tokenizer.encode(batch)
    for one in made:
        one.attach(tokenizer).fit_scaling(inputs)
    joined = made[0] if members == 1 else Ensemble(made, [0.8, 1.3][:members])
    targets = ClassTargets(classes=("x", "y", "z"), dtype="<U1")
    if task == "regression":
        targets = NumberTargets(mean=(70.0, -2.0), scale=(12.0, 0.1), flat=False)
    return Predictor(tokenizer, joined, targets, calibration=1.7)


def streamed_predictor(context=None, model=None, **tokens):
    """A causal model that can be run as a stream."""
    tokens = {"windows": {"duration": 1.7}, "hold": True, "context": context} | tokens
    return predictor(model={"causal": True, "context": context} | (model or {}), **tokens)


def run_module(graph):
    """The graph itself, from arrays to arrays by name, by the steps that an export takes."""

    def run(inputs):
        tensors = {name: torch.from_numpy(x) for name, x in inputs.items()}
        exporting = mock.patch.object(torch.compiler, "is_exporting", return_value=True)
        with torch.no_grad(), exporting:
            return dict(zip(graph.outputs, (x.numpy() for x in graph(**tensors)), strict=True))

    return run


def padded(batch, extra=0, junk=np.nan):
    """Inputs of a graph as numpy arrays; ``junk`` stands in the padding."""
    n, longest = len(batch), int(batch.lengths.max()) + extra
    values = np.full((n, longest, batch.n_channels), junk)
    times = np.full((n, longest), junk)
    for b in range(n):
        t, x = batch.series(b)
        values[b, : len(t)], times[b, : len(t)] = x, t
    return {"values": values, "times": times, "lengths": batch.lengths.astype(np.int64)}


def rates_predictor(n_windows=4, seed=0, step=0.02):
    """A model of rates with random weights, and its training series."""
    batch = beats(20, seed=seed + 50)
    encoder = TempoEncoder.fit(batch, np.linspace(0.8, 1.6, 20), n_windows=n_windows, step=step)
    config = TempoConfig(
        n_outputs=1, task="regression", uncertainty="histogram", n_bins=encoder.n_rates,
        bin_low=float(np.log(encoder.low * 60)), bin_step=encoder.step, n_channels=4,
        n_spectra=encoder.n_spectra, n_frequencies=encoder.n_frequencies, width=6,
        harmonics=encoder.harmonics,
    )  # fmt: skip
    torch.manual_seed(seed)
    targets = NumberTargets(mean=(0.0,), scale=(1.0,), log=True)
    return Predictor(encoder, TempoFormer(config).eval(), targets, calibration=1.2)


def beats(n=4, seed=0, longest=120):
    """Two noisy waves a series at irregular times, with gaps."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(longest // 2, longest + 1, n)
    times = [50.0 + np.cumsum(rng.uniform(0.02, 0.2, m)) for m in lengths]
    values = [
        np.sin(2 * np.pi * rng.uniform(0.8, 1.6) * t[:, None] + [0.0, 1.0])
        + 0.1 * rng.standard_normal((len(t), 2))
        for t in times
    ]
    for v in values:
        v[rng.random(v.shape) < 0.1] = np.nan
    return rf.SeriesBatch.from_arrays(values, times, channels=CHANNELS)
