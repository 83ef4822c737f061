"""From the vectors of tokens to predictions."""

import math

import torch
from torch import Tensor, nn

from roughformer.model.outputs import OutputConfig


class Pooling(nn.Module):
    """Tokens ``(B, L, d)`` -> ``(B, d)`` over those that are real."""

    def __init__(self, d_model: int, kind: str) -> None:
        """``mean``, ``attention`` (a learned score for each token) or ``last``."""
        super().__init__()
        self.kind = kind
        self.score = nn.Linear(d_model, 1) if kind == "attention" else None

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(B, L, d), (B, L) -> (B, d)."""
        batch, length, _ = x.shape
        real = x.new_ones(batch, length) if mask is None else mask.to(x.dtype)
        if self.kind == "last":
            at = (real.sum(dim=1).long() - 1).clamp(min=0)
            last: Tensor = x[torch.arange(batch, device=x.device), at]
            return last
        if self.score is not None:
            score = self.score(x).squeeze(-1).masked_fill(real == 0, -math.inf)
            weight = score.softmax(dim=1).nan_to_num()
        else:
            weight = real / real.sum(dim=1, keepdim=True).clamp(min=1)
        pooled: Tensor = (weight.unsqueeze(-1) * x).sum(dim=1)
        return pooled


class Head(nn.Module):
    """``(..., d)`` -> ``(..., n_outputs)`` logits or points, or ``(..., n_outputs, k)`` with
    uncertainty: (mean, log variance) or increasing quantiles.
    """

    def __init__(self, d_in: int, config: OutputConfig) -> None:
        """A norm and one linear map."""
        super().__init__()
        self.config = config
        self.norm = nn.LayerNorm(d_in)
        self.map = nn.Linear(d_in, config.n_outputs * config.outputs_per_target)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return self.config.shaped(self.map(self.norm(x)))

    @torch.no_grad()
    def fit_prior(self, frequency: Tensor) -> None:
        """Answers begin at the frequencies ``(K,)`` of the classes in the training part.

        Learning that one class is rare would cost the first of few epochs.
        """
        self.map.bias.copy_(prior_logits(frequency))


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


def prior_logits(frequency: Tensor) -> Tensor:
    """Logits ``(K,)`` with mean 0 whose softmax are the frequencies of the classes."""
    logits = frequency.clamp(min=1e-6).log()
    return logits - logits.mean()
