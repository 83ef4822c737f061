"""From the vectors of tokens to predictions."""

import math

import torch
from torch import Tensor, nn

from roughformer.model.outputs import OutputConfig

__all__ = ["Head", "Pooling", "prior_logits"]


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


def prior_logits(frequency: Tensor) -> Tensor:
    """Logits ``(K,)`` with mean 0 whose softmax are the frequencies of the classes."""
    logits = frequency.clamp(min=1e-6).log()
    return logits - logits.mean()
