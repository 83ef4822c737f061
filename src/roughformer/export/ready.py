"""Models whose steps all have a counterpart in ONNX."""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from roughformer.model import RFormer
from roughformer.model.blocks import Attention, TimeEncoding
from roughformer.model.committee import Committee
from roughformer.model.scaling import RankScale, Standardize

__all__ = ["ready_member", "ready_model"]


class _Ranks(nn.Module):
    """``RankScale`` with a binary search of its own: ONNX has none."""

    mean: Tensor
    values: Tensor
    scores: Tensor

    def __init__(self, fitted: RankScale) -> None:
        super().__init__()
        for name in ("mean", "values", "scores"):
            self.register_buffer(name, getattr(fitted, name))

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., d)."""
        known = ~x.isnan()
        flat = torch.where(known, x, 0.0).reshape(-1, x.shape[-1]).T  # (d, N)
        last = self.values.shape[1] - 1
        # The number of knots below x: as far as one may go and still be below.
        below = torch.zeros_like(flat, dtype=torch.int64)
        for power in reversed(range(last.bit_length())):
            next_ = below + 2**power
            there = self.values.gather(1, next_.clamp(max=last + 1) - 1)
            below = torch.where((next_ <= last + 1) & (there < flat), next_, below)
        right = below.clamp(1, last)
        low, high = self.values.gather(1, right - 1), self.values.gather(1, right)
        start, end = self.scores.gather(1, right - 1), self.scores.gather(1, right)
        gap = high - low
        share = ((flat - low) / torch.where(gap > 0, gap, 1.0)).clamp(0, 1)
        found = (start + share * (end - start)).T.reshape(x.shape)
        return torch.where(known, found, 0.0)


class _Standard(nn.Module):
    """``Standardize`` that takes NaN out first: runtimes differ in how they clip it."""

    mean: Tensor
    scale: Tensor

    def __init__(self, fitted: Standardize) -> None:
        super().__init__()
        self.clip = fitted.clip
        for name in ("mean", "scale"):
            self.register_buffer(name, getattr(fitted, name))

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., d)."""
        scaled = ((x - self.mean) / self.scale).clamp(-self.clip, self.clip)
        return torch.where(x.isnan(), 0.0, scaled)


class _Times(nn.Module):
    """``TimeEncoding`` with sines and cosines in float64: angles reach hundreds of turns, and some
    runtimes lose digits there in float32.
    """

    waves: Tensor

    def __init__(self, fitted: TimeEncoding) -> None:
        super().__init__()
        self.register_buffer("waves", fitted.waves)
        self.map = fitted.map

    def forward(self, times: Tensor) -> Tensor:
        """(B, L) -> (B, L, d_model)."""
        angle = (times.unsqueeze(-1) * self.waves).double()
        parts = [times.unsqueeze(-1), angle.sin().float(), angle.cos().float()]
        encoded: Tensor = self.map(torch.cat(parts, dim=-1))
        return encoded


class _Blocks(nn.Module):
    """``RFormer`` that asks nothing of the number of its windows, which a graph does not know."""

    def __init__(self, model: RFormer) -> None:
        super().__init__()
        self.model, self.config = model, model.config

    def forward(
        self,
        tokens: Tensor,
        times: Tensor,
        mask: Tensor | None = None,
        static: Tensor | None = None,
        spectrum: Tensor | None = None,
    ) -> Tensor:
        """As ``RFormer.forward``."""
        model = self.model
        x, known = model.embedded(tokens, times, static)
        place = torch.arange(x.shape[1], device=x.device)
        age = place.unsqueeze(1) - place  # (L, L)
        allowed = self._allowed(age, mask)
        for block in model.blocks:
            attention: Attention = block.attention  # type: ignore[assignment]
            q, k, v = attention.split(block.norm_attention(x))  # type: ignore[operator]
            added = allowed
            if attention.age is not None and allowed is not None:
                most = attention.age.shape[1] - 1
                old = attention.age[:, age.clamp(0, most)]  # (heads, L, L)
                added = torch.where(allowed, old, -torch.inf)
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=added)
            x = block.finish(x, attention.join(mixed))  # type: ignore[operator]
        if model.pool is not None:
            x = model.pool(x, mask)
        if model.embed_spectrum is not None:
            assert spectrum is not None
            x = x + model.embed_spectrum(model.standardize_spectrum(spectrum.flatten(-2)))
        return model.answer(x, model._last(tokens, mask), known)

    def _allowed(self, age: Tensor, mask: Tensor | None) -> Tensor | None:
        """What may be attended to, ``(B or 1, 1, L, L)``: as ``attention_mask``."""
        config = self.config
        if mask is None and not config.causal:
            return None
        allowed = (age >= 0 if config.causal else age == age).unsqueeze(0)
        if config.context is not None:
            allowed = allowed & (age < config.context)
        if mask is not None:
            allowed = (allowed & mask.unsqueeze(1)) | (age == 0)
        return allowed.unsqueeze(1)


def ready_member(model: nn.Module) -> nn.Module:
    """A copy of one model in evaluation mode with scalings and times that export; the model itself
    stays as it is.
    """
    copied = copy.deepcopy(model).eval().cpu()
    for parent in list(copied.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, RankScale):
                setattr(parent, name, _Ranks(child))
            elif isinstance(child, Standardize):
                setattr(parent, name, _Standard(child))
            elif isinstance(child, TimeEncoding):
                setattr(parent, name, _Times(child))
    for parameter in copied.parameters():
        parameter.requires_grad_(False)
    return copied


def ready_model(model: nn.Module) -> nn.Module:
    """The same of a model or a committee as a whole, which is called as the model is."""
    copied = ready_member(model)
    if isinstance(copied, RFormer):
        return _Blocks(copied)
    if isinstance(copied, Committee) and isinstance(copied.members[0], RFormer):
        copied.members = nn.ModuleList(_Blocks(m) for m in copied.members)  # type: ignore[arg-type]
    return copied
