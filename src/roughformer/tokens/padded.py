"""Inputs of a model from padded series, in torch: what ``Tokenizer.encode`` makes of ragged ones.

On a CPU the native kernel does the signatures (``signatures.operators``); everything is
differentiable, on the device of its inputs, and becomes a graph.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from roughformer.signatures.definition import real_only
from roughformer.signatures.operators import padded_tokens, spectrum_of
from roughformer.signatures.padded import Observed, number, place
from roughformer.tokens.observations import observation_words
from roughformer.tokens.spectrum import frequencies, log_power
from roughformer.tokens.static import StaticEncoder

if TYPE_CHECKING:
    from roughformer.tokens.tokenizer import Tokenizer

__all__ = ["PaddedInputs", "encoded_static", "padded_inputs"]

# Inputs of the model by name, and the ends (B, W) of its windows, counted from each series' first
# point (None if it has no windows).
PaddedInputs = tuple[dict[str, Tensor], Tensor | None]


def padded_inputs(tokenizer: "Tokenizer", data: Observed, static: Tensor | None) -> PaddedInputs:
    """``static (B, S)``: covariates as the user gives them, NaN = not known."""
    config = tokenizer.config
    placed = place(config.rule, data)
    values = torch.where(data.seen, data.values, torch.nan)
    parts = []
    if config.depth:
        words = padded_tokens(
            values,
            data.since,
            data.lengths,
            placed,
            tokenizer.layout,
            hold=config.hold,
            context=config.context,
        )
        parts.append(words)
    if tokenizer.value_range is not None:
        unit, recent = tokenizer.time_unit, tokenizer.recent
        words = observation_words(data, placed, config.views, tokenizer.value_range, recent, unit)
        parts.append(real_only(words, placed.mask))
    tokens = torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
    inputs = {
        "tokens": tokens.float(),
        "times": (placed.since_first / number(tokenizer.time_unit, tokens)).float(),
    }
    if placed.mask is not None:
        inputs["mask"] = placed.mask
    if config.spectrum is not None:
        turns = frequencies(config.spectrum).tolist()
        words = spectrum_of(values, data.since, data.lengths, turns)
        inputs["spectrum"] = log_power(words, config.spectrum).float()
    if static is not None:
        inputs["static"] = encoded_static(tokenizer.static_encoder, static.double())
    return inputs, placed.edges[:, 1:]


def encoded_static(encoder: StaticEncoder, static: Tensor) -> Tensor:
    """``StaticEncoder.encode`` for columns in its order."""
    parts = []
    for i, column in enumerate(encoder.columns):
        x = static[:, i : i + 1]
        if column.levels:
            levels = torch.tensor(column.levels, dtype=torch.float64, device=x.device)
            parts.append((x == levels).double())
        else:
            low, high = (
                torch.tensor(bound, dtype=torch.float64, device=x.device)
                for bound in (column.low, column.high)
            )
            # Comparisons with NaN differ between runtimes: what is not known is put back after.
            cut = torch.minimum(torch.maximum(x, low), high)
            parts.append(torch.where(x.isnan(), torch.nan, cut))
            if column.unknown:
                parts.append(x.isnan().double())
    return torch.cat(parts, dim=-1).float()
