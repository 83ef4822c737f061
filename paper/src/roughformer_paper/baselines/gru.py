"""GRU on the samples ("GRU-simple" of Che et al., Scientific Reports 2018).

Its input at a sample is the value of each channel, carried forward where missing, whether it was
observed, and the times since the sample before and since the observation of each channel before:
the tokens of ``ForwardEncoder``.
"""

import torch
from pydantic import Field
from torch import Tensor, nn

from roughformer_paper.baselines.recurrent import Recurrent, RecurrentConfig

__all__ = ["GRU", "GRUConfig"]


class GRUConfig(RecurrentConfig):
    """Shape of a GRU."""

    n_layers: int = Field(1, ge=1, description="Layers, each on the states of the one before.")


class GRU(Recurrent):
    """A gated recurrent unit over the samples, at a cost of L steps one after the other."""

    config: GRUConfig

    def __init__(self, config: GRUConfig) -> None:
        """Weights are drawn from torch's current random state."""
        super().__init__(config)
        between = config.dropout if config.n_layers > 1 else 0.0
        self.gru = nn.GRU(config.n_features, config.d_model, config.n_layers, dropout=between)

    def states(
        self, features: Tensor, tokens: Tensor, times: Tensor, mask: Tensor | None
    ) -> Tensor:
        """(B, L, F) -> (B, L, d); padding comes after all real samples, which it cannot touch."""
        # Under mixed precision too: hundreds of steps would add up what rounding loses.
        with torch.autocast(features.device.type, enabled=False):
            kind = next(self.gru.parameters()).dtype
            states: Tensor = self.gru(features.transpose(0, 1).to(kind))[0]
        return states.transpose(0, 1)
