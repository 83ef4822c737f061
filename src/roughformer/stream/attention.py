"""Attention one window at a time: keys and values of the windows before are kept in rings."""

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from roughformer.model import RFormer
from roughformer.model.blocks import Attention
from roughformer.stream.state import State

__all__ = ["CachedModel"]

Ints = npt.NDArray[np.int64]


class CachedModel:
    """A causal RFormer on the newest windows of ``state.n`` streams.

    Each block has a ring of keys and values ``(n, 2, heads, size, d')`` of the last ``size``
    windows: the model's context, or as many as may ever come.
    """

    def __init__(self, model: RFormer, state: State, size: int, name: str) -> None:
        """Its arrays are added to ``state``, under ``name``."""
        self.model, self.size = model, size
        config = model.config
        shape = (2, config.n_heads, size, config.d_model // config.n_heads)
        self.rings = [
            torch.from_numpy(state.add(f"{name}_block{i}", shape, np.float32))
            for i in range(config.n_layers)
        ]

    def step(
        self,
        slots: Tensor,
        window: Tensor,
        tokens: Tensor,
        times: Tensor,
        static: Tensor | None,
        commit: bool,
    ) -> Tensor:
        """Outputs ``(s, n[, k])`` at windows ``window (s,)`` of streams ``slots (s,)``, from their
        ``tokens (s, F)`` and ends ``times (s,)``. ``commit``: the windows are over.
        """
        model = self.model
        tokens = tokens.unsqueeze(1)
        x, known = model.embedded(tokens, times.unsqueeze(1), static)
        place = window % self.size
        # How long ago each entry of the ring was written; beyond the first window there is none.
        age = (place.unsqueeze(1) - torch.arange(self.size)) % self.size
        there = age <= window.unsqueeze(1)
        row = torch.arange(len(slots))
        everyone = len(slots) == len(self.rings[0]) if self.rings else False
        everyone = everyone and torch.equal(slots, row)
        for block, ring in zip(model.blocks, self.rings, strict=True):
            attention: Attention = block.attention  # type: ignore[assignment]
            q, k, v = attention.split(block.norm_attention(x))  # type: ignore[operator]
            new = torch.stack([k, v], dim=1)[:, :, :, 0]  # (s, 2, heads, d')
            if commit:
                ring[slots, :, :, place] = new
            # All streams at once need no copy of what they remember.
            past = ring if commit and everyone else ring.index_select(0, slots)
            if not commit:
                past[row, :, :, place] = new
            added = torch.zeros(there.shape).masked_fill(~there, -math.inf).unsqueeze(1)
            if attention.age is not None:
                added = added + attention.age[:, age].transpose(0, 1)  # (s, heads, size)
            mixed = F.scaled_dot_product_attention(
                q, past[:, 0], past[:, 1], attn_mask=added.unsqueeze(2)
            )
            x = block.finish(x, attention.join(mixed))  # type: ignore[operator]
        seen = model._last(tokens, None)
        return model.answer(x, seen, known)[:, 0]
