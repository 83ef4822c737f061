"""A few dozen numbers that people would write down of a series, exact for what was observed."""

import torch
from torch import Tensor

from roughformer.signatures.torch_backend import Observed, number, observation_order

SUMMARY = (
    "log n", "mean", "sd", "min", "max", "first", "last", "q05", "q25", "q50", "q75", "q95",
    "skewness", "slope", "mean |step|", "median |rate|", "max |rate|", "kurtosis",
    "von Neumann ratio", "autocorrelation", "crossings of the mean", "time of min", "time of max",
    "mean |deviation| / sd", "beyond one sd", "sd around the slope", "sd of steps",
    "time since last",
)  # fmt: skip
# What boosting sees where most values are missing: the others are noise of a few observations.
PLAIN = ("log n", "mean", "sd", "min", "max", "first", "last", "slope", "time since last")
CONTRASTS = ("mean", "q50")  # compared between channels
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_ROUNDING = 1e-6  # of a standard deviation


def summaries(data: Observed, centre: Tensor, scale: Tensor, unit: float) -> Tensor:
    """``(B, C, words)``, float64, NaN where nothing tells: for each channel the ``SUMMARY`` of its
    observations, scaled by ``centre`` and ``scale (C,)``; steps are from one to the next, and
    rates are steps per ``unit`` of time. The times of the extremes are shares of the span; the time
    since the last observation is in units.

    The von Neumann ratio is the mean squared step over the variance: near 2 for noise, near 0 for
    a smooth path.
    """
    count, place = observation_order(data.seen)
    n = count[:, -1].double()  # (B, C)
    x = ((data.values - centre) / scale).gather(1, place[:, 1:])
    t = data.since.unsqueeze(-1).expand(x.shape).gather(1, place[:, 1:]) / number(unit, x)
    rank = torch.arange(x.shape[1], device=x.device).reshape(1, -1, 1)
    real, size = rank < n.unsqueeze(1), n.clamp(min=1)
    mean = _sum(x, real) / size
    off = torch.where(real, x - mean.unsqueeze(1), 0.0)
    variance = off.square().sum(dim=1) / size
    sd = variance.sqrt()
    when = torch.where(real, t - (_sum(t, real) / size).unsqueeze(1), 0.0)
    spread = when.square().sum(dim=1)
    slope = (when * off).sum(dim=1) / torch.where(spread > 0, spread, 1.0)
    after = (rank + 1).clamp(max=x.shape[1] - 1).expand(x.shape)
    between = rank + 1 < n.unsqueeze(1)
    move = torch.where(between, x.gather(1, after) - x, 0.0)
    step = move.abs()
    gap = torch.where(between, t.gather(1, after) - t, 1.0)
    rate = step / gap
    steps = (n - 1).clamp(min=0)
    size_of_steps = steps.clamp(min=1)
    varies = sd > 1e-9
    divisor = torch.where(varies, sd, 1.0)
    d = off / divisor.unsqueeze(1)  # 0 behind the last observation
    above = d > _ROUNDING  # what is at the mean is not, whatever the rounding
    crossings = ((above.gather(1, after) != above) & between).sum(dim=1) / size_of_steps
    spread_moves = move.square().sum(dim=1) / size_of_steps
    drift = move.sum(dim=1) / size_of_steps
    duration = data.span.unsqueeze(1) / number(unit, x)
    span = torch.where(duration > 0, duration, 1.0)
    extremes = [
        torch.where(real, sign * x, torch.inf).argmin(dim=1, keepdim=True) for sign in (1, -1)
    ]
    shape = [
        d.pow(4).sum(dim=1) / size,
        spread_moves / divisor.square(),
        (torch.where(between, d.gather(1, after), 0.0) * d).sum(dim=1) / size_of_steps,
        crossings,
        *(t.gather(1, extreme)[:, 0] / span for extreme in extremes),
        d.abs().sum(dim=1) / size,
        (d.abs() > 1 + _ROUNDING).sum(dim=1) / size,
        ((off - slope.unsqueeze(1) * when).square().sum(dim=1) / size).sqrt(),
        (spread_moves - drift.square()).clamp(min=0).sqrt(),
    ]
    last = (n.long() - 1).clamp(min=0).unsqueeze(1)
    ordered = torch.where(real, x, torch.inf).sort(dim=1).values
    shares = torch.tensor(_QUANTILES, dtype=x.dtype, device=x.device)
    quantiles = _at(ordered, shares.unsqueeze(1) * (size - 1).unsqueeze(1)).unbind(dim=1)
    fast = torch.where(between, rate, torch.inf).sort(dim=1).values
    median = _at(fast, 0.5 * (steps - 1).clamp(min=0).unsqueeze(1))[:, 0]
    words = [
        n.log1p(), mean, sd, ordered[:, 0], ordered.gather(1, last)[:, 0], x[:, 0],
        x.gather(1, last)[:, 0], *quantiles, d.pow(3).sum(dim=1) / size, slope,
        step.sum(dim=1) / size_of_steps, torch.where(steps > 0, median, 0.0),
        torch.where(between, rate, 0.0).amax(dim=1),
        *(torch.where(varies, word, 0.0) for word in shape),
        (duration - t.gather(1, last)[:, 0]).clamp(min=0),
    ]  # fmt: skip
    table = torch.stack(words, dim=-1)
    known = (n > 0).unsqueeze(-1) | (torch.arange(len(words), device=x.device) == 0)
    return torch.where(known, table, torch.nan)


def contrasts(words: Tensor, centre: Tensor, scale: Tensor, pairs: Tensor) -> Tensor:
    """``(B, P · words)``: differences of ``CONTRASTS`` between ``pairs (P, 2)`` of channels, in
    their own units over the larger ``scale``, from the words of ``summaries``.
    """
    which = [SUMMARY.index(word) for word in CONTRASTS]
    own = words[..., which] * scale.unsqueeze(1) + centre.unsqueeze(1)  # (B, C, words)
    first, second = pairs.unbind(dim=1)
    larger = torch.maximum(scale[first], scale[second]).unsqueeze(1)
    return ((own[:, first] - own[:, second]) / larger).flatten(1)


def _sum(x: Tensor, real: Tensor) -> Tensor:
    return torch.where(real, x, 0.0).sum(dim=1)


def _at(ordered: Tensor, rank: Tensor) -> Tensor:
    """``ordered (B, L, C)`` at ranks ``(B, Q, C)``, between its rows."""
    low = rank.floor()
    share = rank - low
    at = low.long()
    below = ordered.gather(1, at)
    above = ordered.gather(1, (at + 1).clamp(max=ordered.shape[1] - 1))
    return torch.where(share > 0, below * (1 - share) + above * share, below)
