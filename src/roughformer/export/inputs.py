"""From a padded batch to what a model takes, as the encoder of the model would make it."""

from typing import Any

import torch
from torch import Tensor

from roughformer.baselines import SampleEncoder
from roughformer.export.clocks import log_power, window_clock_words
from roughformer.export.cuts import Placed, place
from roughformer.export.dense import number
from roughformer.export.filling import Observed, Points, held_points, linear_points
from roughformer.export.knots import Knots, lifted, place_knots
from roughformer.export.observations import observation_words
from roughformer.export.samples import sample_inputs
from roughformer.export.tempo import tempo_inputs
from roughformer.export.views import view_signature
from roughformer.lifts import ViewLifts
from roughformer.tokens import Tokenizer
from roughformer.tokens.spectrum import frequencies
from roughformer.tokens.static import StaticEncoder
from roughformer.tokens.tempo import TempoEncoder

__all__ = ["encoded_static", "model_inputs"]


def model_inputs(
    encoder: Any, data: Observed, static: Tensor | None
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Inputs of the model, and the ends ``(B, W)`` of its windows from each series' first point on
    (None if it has no windows); ``static (B, S)`` as the world gives them.
    """
    if isinstance(encoder, TempoEncoder):
        return tempo_inputs(encoder, data), None
    if isinstance(encoder, SampleEncoder):
        inputs = sample_inputs(encoder, data)
        if static is not None:
            inputs["static"] = static.float()
        return inputs, data.since
    assert isinstance(encoder, Tokenizer)
    config = encoder.config
    placed = place(config.rule, data)
    parts = _signatures(encoder, data, placed) if config.depth else []
    if encoder.value_range is not None:
        unit, recent = encoder.time_unit, encoder.recent
        parts.append(
            observation_words(data, placed, config.views, encoder.value_range, recent, unit)
        )
    tokens = torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
    inputs = {"times": (placed.since_first / number(encoder.time_unit, tokens)).float()}
    if placed.mask is not None:
        tokens = torch.where(placed.mask.unsqueeze(-1), tokens, 0.0)
        inputs["mask"] = placed.mask
    inputs["tokens"] = tokens.float()
    if config.spectrum is not None:
        omega = frequencies(config.spectrum).tolist()
        inputs["spectrum"] = log_power(linear_points(data), omega, config.spectrum.floor).float()
    if static is not None:
        inputs["static"] = encoded_static(encoder.static_encoder, static.double())
    return inputs, placed.edges[:, 1:]


def _signatures(encoder: Tokenizer, data: Observed, placed: Placed) -> list[Tensor]:
    """(Log-)signatures of the views, then their clock words: each ``(B, W, words)``."""
    config = encoder.config
    layout = encoder.layout
    points = held_points(data, placed.edges) if config.hold else linear_points(data)
    n_channels = len(encoder.channels)
    signatures: list[Tensor] = []
    clocks: list[Tensor] = []
    paths: dict[ViewLifts, tuple[Knots, Tensor]] = {}  # views mostly share one
    for view in layout.views:
        lifts = layout.lifts[view]
        if lifts.path not in paths:
            delays = tuple(lag.delay for lag in lifts.lags)
            knots = place_knots(points.times, placed.edges, delays)
            own = _with_counts(points, data, lifts)
            paths[lifts.path] = knots, lifted(own, knots, lifts, n_channels)
        knots, x = paths[lifts.path]
        signatures.append(view_signature(x, knots, layout, view, config.context))
        if lifts.clock is not None:
            first = int(lifts.time is not None)  # channels come after time
            channels = x[..., first : first + n_channels]
            clocks.append(window_clock_words(channels, knots, lifts.clock, view))
    return signatures + clocks


def _with_counts(points: Points, data: Observed, lifts: ViewLifts) -> Points:
    """The points with the numbers of observations after the first point as further channels."""
    if lifts.counts is None:
        return points
    counts = data.seen.double().cumsum(dim=1)
    counts = (counts - counts[:, :1]) * number(lifts.counts.scale, counts)
    return Points(points.times, torch.cat([points.x, counts], dim=-1))


def encoded_static(encoder: StaticEncoder, static: Tensor) -> Tensor:
    """``StaticEncoder.encode`` for columns in its order."""
    parts = []
    for i, column in enumerate(encoder.columns):
        x = static[:, i : i + 1]
        if column.levels:
            levels = torch.tensor(column.levels, dtype=torch.float64, device=x.device)
            parts.append((x == levels).double())
        else:
            # Comparisons with NaN differ between runtimes: what is not known is put back after.
            cut = torch.minimum(torch.maximum(x, number(column.low, x)), number(column.high, x))
            parts.append(torch.where(x.isnan(), torch.nan, cut))
            if column.unknown:
                parts.append(x.isnan().double())
    return torch.cat(parts, dim=-1).float()
