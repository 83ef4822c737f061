"""Attention one window at a time: as ``stream/attention.py``, dense."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from roughformer.export.packing import Packing, State, per_stream
from roughformer.export.taking import Piece
from roughformer.model.blocks import Attention

__all__ = ["StepModel"]


class StepModel:
    """A causal RFormer on the open windows. Each block has a ring of keys and values
    ``(B, 2, heads, size, d')`` of the last ``size`` windows.
    """

    def __init__(self, model: Any, size: int, name: str, packing: Packing) -> None:
        """Its parts are added to ``packing``, under ``name``."""
        self.model, self.size = model, size
        config = model.config
        self.names = [f"{name}_block{i}" for i in range(config.n_layers)]
        for ring in self.names:
            packing.add(ring, 2, config.n_heads, size, config.d_model // config.n_heads)

    def __call__(
        self,
        tokens: Tensor,
        times: Tensor,
        static: Tensor | None,
        piece: Piece,
        old: State,
        new: State,
    ) -> Tensor:
        """``(B, n[, k])`` from ``tokens (B, F)`` and the ends ``times (B,)`` of the windows."""
        model, window = self.model, piece.window
        tokens = tokens.unsqueeze(1)
        x, known = model.embedded(tokens, times.unsqueeze(1), static)
        place = (window % self.size).unsqueeze(1)
        slot = torch.arange(self.size, device=x.device)
        # How long ago each entry of the ring was written; beyond the first window there is none.
        age = torch.remainder(place - slot, self.size)  # (B, size)
        there = age <= window.unsqueeze(1)
        own = (slot == place)[:, None, None, :, None]
        for name, block in zip(self.names, model.blocks, strict=True):
            attention: Attention = block.attention
            q, k, v = attention.split(block.norm_attention(x))
            past = old[name].float()
            ring = torch.where(own, torch.stack([k, v], dim=1), past)
            new[name] = per_stream(piece.ended, ring, past)
            added = torch.where(there, 0.0, -torch.inf).unsqueeze(1)
            if attention.age is not None:
                added = added + attention.age[:, age].transpose(0, 1)  # (B, heads, size)
            mixed = F.scaled_dot_product_attention(
                q, ring[:, 0], ring[:, 1], attn_mask=added.unsqueeze(2)
            )
            x = block.finish(x, attention.join(mixed))
        answer: Tensor = model.answer(x, model._last(tokens, None), known)[:, 0]
        return answer
