"""A few dozen numbers that people would write down of a series, exact for what was observed."""

import torch
from torch import Tensor

from roughformer.signatures.padded import Observed, number, observation_order

__all__ = ["SUMMARY", "summaries"]

SUMMARY = (
    "log n", "mean", "sd", "min", "max", "first", "last", "q05", "q25", "q50", "q75", "q95",
    "skewness", "slope", "mean |step|", "median |rate|", "max |rate|",
)  # fmt: skip
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def summaries(data: Observed, centre: Tensor, scale: Tensor, unit: float) -> Tensor:
    """``(B, C, words)``, float64, NaN where nothing tells: for each channel the ``SUMMARY`` of its
    observations, scaled by ``centre`` and ``scale (C,)``; steps are from one to the next, and
    rates are steps per ``unit`` of time.
    """
    count, place = observation_order(data.seen)
    n = count[:, -1].double()  # (B, C)
    x = ((data.values - centre) / scale).gather(1, place[:, 1:])
    t = data.since.unsqueeze(-1).expand(x.shape).gather(1, place[:, 1:]) / number(unit, x)
    rank = torch.arange(x.shape[1], device=x.device).reshape(1, -1, 1)
    real, some = rank < n.unsqueeze(1), n.clamp(min=1)
    mean = _sum(x, real) / some
    off = torch.where(real, x - mean.unsqueeze(1), 0.0)
    variance = off.square().sum(dim=1) / some
    sd = variance.sqrt()
    when = torch.where(real, t - (_sum(t, real) / some).unsqueeze(1), 0.0)
    spread = when.square().sum(dim=1)
    slope = (when * off).sum(dim=1) / torch.where(spread > 0, spread, 1.0)
    cubed = off.pow(3).sum(dim=1) / some
    skewness = torch.where(sd > 1e-9, cubed / torch.where(sd > 1e-9, sd, 1.0).pow(3), 0.0)
    after = (rank + 1).clamp(max=x.shape[1] - 1).expand(x.shape)
    between = rank + 1 < n.unsqueeze(1)
    step = torch.where(between, (x.gather(1, after) - x).abs(), 0.0)
    gap = torch.where(between, t.gather(1, after) - t, 1.0)
    rate = step / gap
    steps = (n - 1).clamp(min=0)
    last = (n.long() - 1).clamp(min=0).unsqueeze(1)
    ordered = torch.where(real, x, torch.inf).sort(dim=1).values
    quantiles = [_at(ordered, number(q, x) * (some - 1)) for q in _QUANTILES]
    fast = torch.where(between, rate, torch.inf).sort(dim=1).values
    median = _at(fast, number(0.5, x) * (steps - 1).clamp(min=0))
    words = [
        n.log1p(), mean, sd, ordered[:, 0], ordered.gather(1, last)[:, 0], x[:, 0],
        x.gather(1, last)[:, 0], *quantiles, skewness, slope, step.sum(dim=1) / steps.clamp(min=1),
        torch.where(steps > 0, median, 0.0), torch.where(between, rate, 0.0).amax(dim=1),
    ]  # fmt: skip
    found = torch.stack(words, dim=-1)
    known = (n > 0).unsqueeze(-1) | (torch.arange(len(words), device=x.device) == 0)
    return torch.where(known, found, torch.nan)


def _sum(x: Tensor, real: Tensor) -> Tensor:
    return torch.where(real, x, 0.0).sum(dim=1)


def _at(ordered: Tensor, rank: Tensor) -> Tensor:
    """``ordered (B, L, C)`` at ranks ``(B, C)``, between its rows."""
    low = rank.floor()
    share = rank - low
    at = low.long().unsqueeze(1)
    below = ordered.gather(1, at)[:, 0]
    above = ordered.gather(1, (at + 1).clamp(max=ordered.shape[1] - 1))[:, 0]
    return torch.where(share > 0, below * (1 - share) + above * share, below)
