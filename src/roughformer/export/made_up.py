"""Series out of thin air that a model could have seen: to hold a graph against its model."""

from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from roughformer.inference import Predictor
from roughformer.model.committee import Committee
from roughformer.series import SeriesBatch
from roughformer.tokens import Tokenizer
from roughformer.tokens.cells import CellEncoder
from roughformer.tokens.tempo import TempoEncoder

__all__ = ["made_up_series"]

Floats = npt.NDArray[np.float64]
_MISSING = 0.2  # of the values


def made_up_series(predictor: Predictor, n: int, longest: int, seed: int) -> SeriesBatch:
    """``n`` series of up to ``longest`` points at irregular times, about a fifth of the values
    missing; about as long and as lively as the series that the model was trained on.
    """
    rng = np.random.default_rng(seed)
    encoder = predictor.encoder
    begin, span = _span(encoder)
    # Windows of a few points are straight lines, whose spectrum is rounding and nothing else.
    fewest = 48 if isinstance(encoder, TempoEncoder) else min(2, longest)
    longest = max(longest, fewest)
    lengths = rng.integers(fewest, longest + 1, n)
    lengths[-1] = longest
    times, values = [], []
    level, size = _sizes(predictor)
    for m in lengths:
        gaps = np.cumsum(rng.uniform(0.2, 1.0, m))
        t = begin + span * rng.uniform(0.6, 1.4) * (gaps - gaps[0]) / max(gaps[-1], 1e-12)
        x = rng.standard_normal((m, len(level))).cumsum(axis=0) / np.sqrt(m)
        if isinstance(encoder, TempoEncoder):
            rate = encoder.low * np.exp(encoder.step * encoder.n_rates * rng.uniform(0.3, 0.7))
            x = 0.3 * x + np.sin(2 * np.pi * rate * t[:, None] + rng.uniform(0, 6, len(level)))
        x = level + size * x
        x[rng.random(x.shape) < _MISSING] = np.nan
        times.append(t)
        values.append(x)
    columns = _static(predictor, n, rng)
    extras: dict[str, Any] = {"channels": list(encoder.channels)}
    if columns:
        extras |= {"static": np.stack([*columns.values()], axis=1), "static_names": [*columns]}
    return SeriesBatch.from_arrays(values, times, **extras)


def _span(encoder: Any) -> tuple[float, float]:
    """When series begin and how long they last, about."""
    if isinstance(encoder, TempoEncoder):
        return 1000.0, 16.0 / encoder.low  # turns of the slowest rate
    if isinstance(encoder, Tokenizer) and encoder.config.rule.rule == "explicit":
        cuts = encoder.config.rule.cuts[0].astype(np.float64)
        whole = max(float(cuts[-1] - cuts[0]), 1e-9)
        return float(cuts[0]) - 0.05 * whole, whole
    return 1000.0, float(encoder.time_unit)


def _first(model: nn.Module) -> nn.Module:
    return model.members[0] if isinstance(model, Committee) else model


def _sizes(predictor: Predictor) -> tuple[Floats, Floats]:
    """Level and size ``(C,)`` of the channels, as far as the model's scaling tells them."""
    encoder = predictor.encoder
    count = len(encoder.channels)
    level, size = np.zeros(count), np.ones(count)
    scale = getattr(getattr(_first(predictor.model), "standardize", None), "scale", None)
    known = list(getattr(encoder, "names", ()))
    for c, channel in enumerate(encoder.channels):
        # The word of one letter is the channel's increment; a sample is the value itself.
        words = [f"{view}:{word}" for view in ("global", "local") for word in
                 (channel, f"[{channel}]")]  # fmt: skip
        at = next((known.index(name) for name in [*words, channel] if name in known), None)
        if scale is not None and at is not None:
            size[c] = float(scale[at])
    value_range = getattr(encoder, "value_range", None)
    if value_range is not None:
        level, size = np.array(value_range.mean), np.array(value_range.scale)
    return (np.array(encoder.centre) if getattr(encoder, "centre", ()) else level), size


def _static(predictor: Predictor, n: int, rng: np.random.Generator) -> dict[str, Floats]:
    """Static covariates ``(n,)`` by name."""
    encoder = predictor.encoder
    found: dict[str, Floats] = {}
    if isinstance(encoder, Tokenizer | CellEncoder):
        for column in encoder.static_encoder.columns:
            if column.levels:
                found[column.name] = rng.choice(column.levels, n)
            else:
                found[column.name] = rng.uniform(column.low, column.high, n)
    else:
        scaling: Any = getattr(_first(predictor.model), "standardize_static", None)
        for i, name in enumerate(encoder.static):
            mean, spread = float(scaling.mean[i]), float(scaling.scale[i])
            found[name] = mean + spread * rng.standard_normal(n)
    for column_values in found.values():
        column_values[rng.random(n) < _MISSING] = np.nan
    return found
