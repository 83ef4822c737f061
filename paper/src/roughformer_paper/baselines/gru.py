"""GRU on the samples ("GRU-simple" of Che et al., Scientific Reports 2018).

Its input at a sample is the value of each channel, carried forward where missing, whether it was
observed, and the times since the sample before and since the observation of each channel before:
the tokens of ``ForwardEncoder``.
"""

from pydantic import Field
from torch import Tensor, nn

from roughformer_paper.baselines.gru_states import gru_states
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
        x = features.transpose(0, 1)
        if x.device.type != "cpu":
            states: Tensor = self.gru(x)[0]  # one kernel for all steps
            return states.transpose(0, 1)
        for layer, weights in enumerate(self.gru.all_weights):
            if layer:
                x = self.drop(x)
            w_ih, w_hh, b_ih, b_hh = weights
            x = gru_states(x, (w_ih, w_hh, b_ih, b_hh))
        return x.transpose(0, 1)
