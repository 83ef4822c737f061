"""Inputs of a model from padded series, in torch: what ``Tokenizer.encode`` makes of ragged ones.

On a CPU the native kernel does the signatures (``signatures.operators``); everything is
differentiable, on the device of its inputs, and becomes a graph.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from roughformer.signatures.lifts import Layout, View
from roughformer.signatures.operators import padded_tokens, spectrum_of
from roughformer.signatures.torch_backend import Observed, number, place, real_only
from roughformer.signatures.windows import Windows
from roughformer.tokens.observations import observation_words
from roughformer.tokens.spectrum import frequencies, log_power
from roughformer.tokens.static import StaticColumn
from roughformer.tokens.value_range import ValueRange

if TYPE_CHECKING:
    from roughformer.tokens.tokenizer import Tokenizer

__all__ = ["PaddedInputs", "PaddedTokens", "encoded_static"]

# Inputs of the model by name, and the ends (B, W) of its windows, counted from each series' first
# point (None if it has no windows).
PaddedInputs = tuple[dict[str, Tensor], Tensor | None]


@dataclass(frozen=True)
class PaddedTokens:
    """A tokenizer resolved to plain values, which ``torch.compile`` can look through."""

    n_channels: int
    rule: Windows
    layout: Layout | None
    hold: bool
    context: int | None
    views: tuple[View, ...]
    values: ValueRange | None
    recent: int
    unit: float
    turns: list[float]
    floor: float
    static: tuple[StaticColumn, ...]

    @classmethod
    def of(cls, tokenizer: "Tokenizer") -> Self:
        """What ``tokenizer`` says."""
        config, spectrum = tokenizer.config, tokenizer.config.spectrum
        return cls(
            n_channels=len(tokenizer.channels),
            rule=config.rule,
            layout=tokenizer.layout if config.depth else None,
            hold=config.hold,
            context=config.context,
            views=config.views,
            values=tokenizer.value_range,
            recent=tokenizer.recent,
            unit=tokenizer.time_unit,
            turns=[] if spectrum is None else frequencies(spectrum).tolist(),
            floor=1.0 if spectrum is None else spectrum.floor,
            static=tokenizer.static_encoder.columns,
        )

    def __call__(self, data: Observed, static: Tensor | None) -> PaddedInputs:
        """``static (B, S)``: covariates as the user gives them, NaN = not known."""
        placed = place(self.rule, data)
        values = torch.where(data.seen, data.values, torch.nan)
        parts = []
        if self.layout is not None:
            parts.append(
                padded_tokens(
                    values,
                    data.since,
                    data.lengths,
                    placed,
                    self.layout,
                    hold=self.hold,
                    context=self.context,
                )
            )
        if self.values is not None:
            words = observation_words(data, placed, self.views, self.values, self.recent, self.unit)
            parts.append(real_only(words, placed.mask))
        tokens = torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
        inputs = {
            "tokens": tokens.float(),
            "times": (placed.since_first / number(self.unit, tokens)).float(),
        }
        if placed.mask is not None:
            inputs["mask"] = placed.mask
        if self.turns:
            words = spectrum_of(values, data.since, data.lengths, self.turns)
            inputs["spectrum"] = log_power(words, self.floor).float()
        if static is not None:
            inputs["static"] = encoded_static(self.static, static.double())
        return inputs, placed.edges[:, 1:]


def encoded_static(columns: tuple[StaticColumn, ...], static: Tensor) -> Tensor:
    """``StaticEncoder.encode`` for columns in its order."""
    parts = []
    for i, column in enumerate(columns):
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
