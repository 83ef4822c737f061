"""Pre-norm attention blocks, and the encoding of the times that tokens stand for."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_NARROW = 4  # contexts that a series is long from which on only the band is looked at


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
        # In float64: angles reach hundreds of turns, where some runtimes lose digits in float32.
        angle = (times.unsqueeze(-1) * self.waves).double()  # (B, L, waves)
        parts = [times.unsqueeze(-1), angle.sin().to(times), angle.cos().to(times)]
        encoded: Tensor = self.map(torch.cat(parts, dim=-1))
        return encoded


def attention_mask(
    mask: Tensor | None,
    length: int,
    causal: bool,
    device: torch.device,
    context: int | None = None,
) -> Tensor | None:
    """What may be attended to: ``(B or 1, 1, L or 1, L)``, True = yes; None if everything may.

    Without ``causal`` it depends on the token looked at alone, ``(B, 1, 1, L)``: L² numbers for
    each series would be gigabytes where tokens are samples. With a ``context``, only the last so
    many tokens up to each; where that is a narrow band, which ``Attention`` cuts out itself,
    ``(B, L)``, the tokens that may. A padded token attends to itself, or those of a series that
    has no others to each other, so that no softmax is empty; nothing reads them.
    """
    if mask is None and not causal:
        return None
    if mask is not None and not causal and context is None:
        seen = (mask | ~mask.any(dim=1, keepdim=True))[:, None, None]
        # A graph cannot tell whether L is 1, and so whether one row is to be spread out.
        return seen.expand(-1, -1, length, -1) if torch.compiler.is_exporting() else seen
    if context is not None and not torch.compiler.is_exporting() and length > _NARROW * context:
        return torch.ones(1, length, dtype=torch.bool, device=device) if mask is None else mask
    allowed = torch.ones(1, length, length, dtype=torch.bool, device=device)
    if causal:
        allowed = allowed.tril()
    if context is not None:
        allowed = allowed.triu(1 - context)
    if mask is not None:
        itself = torch.eye(length, dtype=torch.bool, device=device)
        allowed = (allowed & mask.unsqueeze(1)) | itself
    return allowed.unsqueeze(1)


class Attention(nn.Module):
    """Multi-head softmax attention: softmax(Q Kᵀ / √d' + b) V for each head.

    b is 0, or with a ``context`` of m tokens a learned number for each age 0 ... m-1 of a token:
    who slides along an endless series knows how long ago a token was, not how late it is.
    """

    def __init__(
        self, d_model: int, n_heads: int, dropout: float, context: int | None = None
    ) -> None:
        """One linear map to queries, keys and values together; ``dropout`` of the weights."""
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.to_qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.age = None if context is None else nn.Parameter(torch.zeros(n_heads, context))

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, L, d) -> queries, keys and values, each (B, heads, L, d')."""
        batch, length, width = x.shape
        qkv = self.to_qkv(x).view(batch, length, 3, self.n_heads, width // self.n_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        return q, k, v

    def join(self, mixed: Tensor) -> Tensor:
        """(B, heads, L, d') -> (B, L, d)."""
        joined: Tensor = self.out(mixed.transpose(1, 2).flatten(-2))
        return joined

    def forward(self, x: Tensor, allowed: Tensor | None) -> Tensor:
        """(B, L, d), ``attention_mask`` -> (B, L, d)."""
        q, k, v = self.split(x)
        rate = self.dropout if self.training else 0.0
        if allowed is not None and allowed.dim() == 2:
            return self.join(self._banded(q, k, v, allowed, rate))
        weight = allowed if self.age is None else self._by_age(allowed, x.shape[1])
        return self.join(F.scaled_dot_product_attention(q, k, v, attn_mask=weight, dropout_p=rate))

    def step(
        self, x: Tensor, past: Tensor, window: Tensor, ended: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The newest windows of streams, ``x (B, K, d)`` -> ``(B, K, d)``, and what is remembered.

        ``past (B, 2, heads, size, d')`` is a ring of the keys and values of the last ``size``
        windows, ``window (B,)`` the number of the first of the new ones. Of one window, it is kept
        where it ``ended``; None: all have, and ``past`` itself is written to.
        """
        q, k, v = self.split(x)
        if x.shape[1] > 1:
            return self.join(self._several(q, k, v, past, window)), past
        size = past.shape[3]
        place = (window % size).unsqueeze(1)
        slot = torch.arange(size, device=x.device)
        # How long ago each entry of the ring was written; beyond the first window there is none.
        age = torch.remainder(place - slot, size)  # (B, size)
        added = torch.where(age <= window.unsqueeze(1), 0.0, -math.inf).to(x).unsqueeze(1)
        if self.age is not None:
            added = added + self.age[:, age].transpose(0, 1)  # (B, heads, size)
        both = torch.stack([k, v], dim=1)  # (B, 2, heads, 1, d')
        if ended is None:
            ring = past
            ring[torch.arange(len(past), device=x.device), :, :, place[:, 0]] = both[:, :, :, 0]
        else:
            ring = torch.where((slot == place)[:, None, None, :, None], both, past)
        mixed = F.scaled_dot_product_attention(
            q, ring[:, 0], ring[:, 1], attn_mask=added.unsqueeze(2)
        )
        if ended is not None:
            ring = torch.where(ended[:, None, None, None, None], ring, past)
        return self.join(mixed), ring

    def _several(self, q: Tensor, k: Tensor, v: Tensor, past: Tensor, window: Tensor) -> Tensor:
        """Several new windows, each of which sees those before it; all are kept."""
        size, count = past.shape[3], q.shape[2]
        number = torch.arange(count, device=q.device)
        slot = torch.arange(size, device=q.device)
        # How long before each new window the entries of the ring were written, and the new ones.
        old = torch.remainder(window.unsqueeze(1) - 1 - slot, size) + 1  # (B, size)
        new = (-number).expand(len(window), count)
        age = torch.cat([old, new], dim=1).unsqueeze(1) + number.unsqueeze(1)
        first = (window.unsqueeze(1) + number).unsqueeze(-1)
        seen = (age >= 0) & (age < size) & (age <= first)  # (B, K, size + K)
        added = torch.where(seen, 0.0, -math.inf).to(q).unsqueeze(1)
        if self.age is not None:
            added = added + self.age[:, age.clamp(0, size - 1)].transpose(0, 1)
        keys, values = (torch.cat([past[:, i], x], dim=2) for i, x in enumerate((k, v)))
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=added)
        kept = number[-size:]
        place = (window.unsqueeze(1) + kept) % size  # (B, at most size)
        row = torch.arange(len(past), device=q.device).unsqueeze(1)
        past[row, :, :, place] = torch.stack([k, v], dim=1)[:, :, :, kept].permute(0, 3, 1, 2, 4)
        return mixed

    def _banded(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor, rate: float) -> Tensor:
        """The same in memory that grows with L · context, not L²: ``real (B or 1, L)``."""
        assert self.age is not None
        size = self.age.shape[1]
        # The band of token i is i-m+1 ... i, the oldest first: (B, heads, L, d', m).
        k, v = (F.pad(x, (0, 0, size - 1, 0)).unfold(2, size, 1) for x in (k, v))
        there = F.pad(real, (size - 1, 0)).unfold(1, size, 1).clone()  # (B, L, m)
        there[..., -1] = True
        score = (q.unsqueeze(-2) @ k).squeeze(-2) * q.shape[-1] ** -0.5
        score = (score + self.age.flip(1).unsqueeze(1)).masked_fill(~there.unsqueeze(1), -math.inf)
        weight = F.dropout(score.softmax(dim=-1), rate)
        return (v @ weight.unsqueeze(-1)).squeeze(-1)

    def _by_age(self, allowed: Tensor | None, length: int) -> Tensor:
        """What is added to scores, ``(B or 1, heads, L, L)``; -inf where nothing may be seen."""
        assert self.age is not None
        assert allowed is not None
        place = torch.arange(length, device=allowed.device)
        old = (place.unsqueeze(1) - place).clamp(0, self.age.shape[1] - 1)
        added: Tensor = self.age[:, old].unsqueeze(0)
        return added.masked_fill(~allowed, -math.inf)


class Block(nn.Module):
    """x + Attention(norm x), then x + MLP(norm x)."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_feedforward: int,
        dropout: float,
        attention_dropout: float,
        context: int | None = None,
    ) -> None:
        """Norms come before what they feed, which trains without warm-up tricks."""
        super().__init__()
        self.norm_attention = nn.LayerNorm(d_model)
        self.attention = Attention(d_model, n_heads, attention_dropout, context)
        self.norm_mlp = nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(
            nn.Linear(d_model, d_feedforward),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(d_feedforward, d_model),
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, allowed: Tensor | None) -> Tensor:
        """(B, L, d), ``attention_mask`` -> (B, L, d)."""
        return self.finish(x, self.attention(self.norm_attention(x), allowed))

    def step(
        self, x: Tensor, past: Tensor, window: Tensor, ended: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """See ``Attention.step``."""
        attended, kept = self.attention.step(self.norm_attention(x), past, window, ended)
        return self.finish(x, attended), kept

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """What follows attention."""
        x = x + self.drop(attended)
        moved: Tensor = x + self.drop(self.mlp(self.norm_mlp(x)))
        return moved
