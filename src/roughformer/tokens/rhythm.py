"""How fast a path repeats itself: words of its spectrum and of its autocorrelation."""

import math
from functools import cache

import torch
from torch import Tensor

_OF_EACH = (
    "log cycles", "correlation", "log peak frequency", "peak share", "log mean frequency",
    "flatness",
)  # fmt: skip
RHYTHM = tuple(f"{word} of {of}" for of in ("level", "|increment|") for word in _OF_EACH)
FREQUENCIES = [i for i, word in enumerate(RHYTHM) if word.startswith(("log cycles", "log peak"))]
_NEAR = 0.85  # of the largest correlation: the shortest period with as much is the period
_TINY = 1e-300


@cache
def _waves(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cosines and sines ``(N, N + 1)`` of frequencies 0, 1/2, 1, ..., N / 2 cycles a span, and
    cosines ``(N + 1, N)`` that turn powers into autocorrelations.
    """
    angles = math.pi / n * torch.outer(torch.arange(n), torch.arange(n + 1)).double()
    twice = torch.full((n + 1, 1), 2.0, dtype=torch.float64)
    twice[0] = twice[-1] = 1.0
    return angles.cos(), angles.sin(), twice * angles.cos().T / (2 * n)


def rhythm(levels: Tensor, increments: Tensor) -> Tensor:
    """``(B, C, words)``: the ``RHYTHM`` of cells ``(B, C, N)``; frequencies are in cycles a span.

    *Cycles* are those of the first peak of the autocorrelation, after its first zero, that is
    nearly as high as the highest; *correlation* is that height. Flatness is the entropy of the
    spectrum, 1 for white noise. A path that does not vary has no rhythm: all words are 0.
    """
    both = _words(torch.cat([levels, increments.abs()], dim=1))
    return torch.cat(both.chunk(2, dim=1), dim=-1)


def _words(x: Tensor) -> Tensor:
    n = x.shape[-1]
    cosines, sines, to_lags = (wave.to(x.device) for wave in _waves(n))
    place = torch.arange(n, dtype=x.dtype, device=x.device)
    largest = x.abs().amax(dim=-1, keepdim=True)
    x = x - x.mean(dim=-1, keepdim=True)
    varies = x.abs().amax(dim=-1, keepdim=True) > 1e-9 * largest
    x = torch.where(varies, x, 0.0)
    power = (x @ cosines).square() + (x @ sines).square()
    lagged = (power @ to_lags) * (n / (n - place))
    half = max(n // 2, 1)
    r = (lagged / lagged[..., :1].clamp(min=_TINY))[..., :half]
    after_zero = (r < 0).to(x.dtype).cumsum(dim=-1) > 0
    heights = torch.where(after_zero, r, -1.0)
    best = heights.amax(dim=-1, keepdim=True)
    peak = (heights >= _shifted(heights, -1)) & (heights >= _shifted(heights, 1))
    lag = (peak & (heights >= _NEAR * best.clamp(min=0))).to(torch.int64).argmax(dim=-1)
    period = lag.clamp(min=1) + _top(r, lag)
    cycles = torch.where(after_zero.any(dim=-1) & (best[..., 0] > 0), n / period, 0.5)
    tapered = x * torch.sin(math.pi * (place + 0.5) / n)
    spectrum = ((tapered @ cosines).square() + (tapered @ sines).square())[..., 1:]
    share = spectrum / spectrum.sum(dim=-1, keepdim=True).clamp(min=_TINY)
    frequency = torch.arange(1, n + 1, dtype=x.dtype, device=x.device) / 2
    highest = share.argmax(dim=-1)
    at = (highest + 1 + _top(share.clamp(min=1e-30).log(), highest)) / 2
    mean = (share * frequency).sum(dim=-1)
    entropy = -(share * share.clamp(min=1e-30).log()).sum(dim=-1) / math.log(n + 1)
    words = [cycles.log(), best[..., 0], at.log(), share.amax(dim=-1), mean.clamp(min=0.5).log()]
    return torch.where(varies, torch.stack([*words, entropy], dim=-1), 0.0)


def _shifted(x: Tensor, by: int) -> Tensor:
    """``x (..., N)`` at the place before or after, that at the ends repeated."""
    place = torch.arange(x.shape[-1], device=x.device) + by
    return x[..., place.clamp(0, x.shape[-1] - 1)]


def _top(x: Tensor, at: Tensor) -> Tensor:
    """How far from ``at (...)`` the parabola through three values has its top, -1/2 to 1/2."""
    most = x.shape[-1] - 1
    low, own, high = (x.gather(-1, (at + d).clamp(0, most).unsqueeze(-1)) for d in (-1, 0, 1))
    bend = low - 2 * own + high
    off = 0.5 * (low - high) / torch.where(bend < -1e-12, bend, -torch.inf)
    return off.clamp(-0.5, 0.5)[..., 0]
