"""Wide: small networks side by side, from the last token and static covariates to answers."""

import math

import torch
from torch import Tensor, nn

from roughformer.model.outputs import OutputConfig

__all__ = ["Wide"]


class _Maps(nn.Module):
    """k linear maps side by side: ``(k, B, i)`` -> ``(k, B, o)``."""

    def __init__(self, k: int, n_in: int, n_out: int) -> None:
        super().__init__()
        bound = n_in**-0.5
        self.weight = nn.Parameter(torch.empty(k, n_in, n_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(k, 1, n_out).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class Wide(nn.Module):
    """``(..., n_in)`` -> ``(k, ..., n_outputs[, m])``: answers of k small networks.

    They have weights and dropout of their own and are trained each by itself; their mean is
    steadier than any of them.
    """

    def __init__(
        self,
        n_in: int,
        width: int,
        k: int,
        dropout: float,
        input_dropout: float,
        outputs: OutputConfig,
    ) -> None:
        """Weights are drawn from torch's current random state."""
        super().__init__()
        self.k, self.outputs = k, outputs
        self.input_drop, self.drop = nn.Dropout(input_dropout), nn.Dropout(dropout)
        size = outputs.n_outputs * outputs.outputs_per_target
        self.one, self.two = _Maps(k, n_in, width), _Maps(k, width, width)
        self.out = _Maps(k, width, size)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        shape = x.shape[:-1]
        flat = x.reshape(math.prod(shape), x.shape[-1])
        hidden = self.input_drop(flat.expand(self.k, *flat.shape))
        for layer in (self.one, self.two):
            hidden = self.drop(layer(hidden).relu())
        raw = self.out(hidden)
        raw = raw.reshape(self.k, *shape, raw.shape[-1])
        return self.outputs.shaped(raw)
