"""Pre-norm attention blocks, and the encoding of the times that tokens stand for."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Attention", "Block", "TimeEncoding", "attention_mask"]


class TimeEncoding(nn.Module):
    """Times ``(B, L)`` -> ``(B, L, d)``: a linear map of t and of sin and cos of 2^j π t.

    Continuous, so a window end may fall anywhere and windows may differ between series.
    """

    waves: Tensor

    def __init__(self, d_model: int, n_waves: int) -> None:
        """``n_waves`` octaves, from half a turn over the unit of time on."""
        super().__init__()
        self.register_buffer("waves", math.pi * 2.0 ** torch.arange(n_waves), persistent=False)
        self.map = nn.Linear(1 + 2 * n_waves, d_model)

    def forward(self, times: Tensor) -> Tensor:
        """(B, L) -> (B, L, d_model)."""
        angle = times.unsqueeze(-1) * self.waves  # (B, L, waves)
        parts = torch.cat([times.unsqueeze(-1), angle.sin(), angle.cos()], dim=-1)
        encoded: Tensor = self.map(parts)
        return encoded


def attention_mask(
    mask: Tensor | None, length: int, causal: bool, device: torch.device
) -> Tensor | None:
    """What may be attended to: ``(B or 1, 1, L, L)``, True = yes; None if everything may.

    A padded token attends to itself, so that its softmax is not empty; nothing reads it.
    """
    if mask is None and not causal:
        return None
    allowed = torch.ones(1, length, length, dtype=torch.bool, device=device)
    if causal:
        allowed = allowed.tril()
    if mask is not None:
        itself = torch.eye(length, dtype=torch.bool, device=device)
        allowed = (allowed & mask.unsqueeze(1)) | itself
    return allowed.unsqueeze(1)


class Attention(nn.Module):
    """Multi-head softmax attention: softmax(Q Kᵀ / √d') V for each head."""

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        """One linear map to queries, keys and values together; ``dropout`` of the weights."""
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.to_qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, allowed: Tensor | None) -> Tensor:
        """(B, L, d), (B, 1, L, L) -> (B, L, d)."""
        batch, length, width = x.shape
        qkv = self.to_qkv(x).view(batch, length, 3, self.n_heads, width // self.n_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, heads, L, d')
        rate = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=rate)
        joined: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return joined


class Block(nn.Module):
    """x + Attention(norm x), then x + MLP(norm x)."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_feedforward: int,
        dropout: float,
        attention_dropout: float,
    ) -> None:
        """Norms come before what they feed, which trains without warm-up tricks."""
        super().__init__()
        self.norm_attention = nn.LayerNorm(d_model)
        self.attention = Attention(d_model, n_heads, attention_dropout)
        self.norm_mlp = nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(
            nn.Linear(d_model, d_feedforward),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(d_feedforward, d_model),
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, allowed: Tensor | None) -> Tensor:
        """(B, L, d), (B, 1, L, L) -> (B, L, d)."""
        x = x + self.drop(self.attention(self.norm_attention(x), allowed))
        moved: Tensor = x + self.drop(self.mlp(self.norm_mlp(x)))
        return moved
