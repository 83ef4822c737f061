"""Standardisation of token features with statistics of the training part, kept with the model."""

import torch
from torch import Tensor, nn

__all__ = ["Standardize"]


class Standardize(nn.Module):
    """x -> clip((x - mean) / scale, ±clip), per feature.

    Levels of a signature differ by factorials: without this the attention sees level 1 only.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, n_features: int, clip: float = 10.0) -> None:
        """Identity until ``fit``."""
        super().__init__()
        self.clip = clip
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))

    @torch.no_grad()
    def fit(self, x: Tensor, mask: Tensor | None = None) -> None:
        """Take mean and standard deviation of ``x (..., d)`` where ``mask (...)`` is True.

        A feature that does not vary keeps scale 1, so it becomes 0. Sums are in float64.
        """
        rows = x.reshape(-1, x.shape[-1]) if mask is None else x[mask]
        if len(rows) == 0:
            return
        wide = rows.double()
        mean = wide.mean(dim=0)
        deviation = (wide - mean).square().mean(dim=0).sqrt()
        still = deviation <= 1e-7 * wide.abs().amax(dim=0)
        self.mean.copy_(mean)
        self.scale.copy_(torch.where(still, torch.ones_like(deviation), deviation))

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., d)."""
        return ((x - self.mean) / self.scale).clamp(-self.clip, self.clip)
