"""Scaling of features with statistics of the training part, kept with the model.

Levels of a signature differ by factorials: without scaling the attention sees level 1 only. A
feature that is NaN is not known: it becomes 0, which after scaling is the mean.
"""

import math
from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

_KNOTS = 65
_ROUNDING = 1e-6  # of a feature's size: values that are nearer to each other are one
_BLOCK = 1 << 14  # tokens whose sums are taken together


class Scale(nn.Module):
    """Features ``(..., d)`` -> ``(..., d)``; what becomes 0 is ``mean (d,)``."""

    mean: Tensor

    @abstractmethod
    def fit(self, x: Tensor, mask: Tensor | None = None, least: Tensor | None = None) -> None:
        """Take statistics of ``x (..., d)`` where ``mask (...)`` is True and x is known.

        ``least (d,)``: what differs by less is alike, however little the training part varies.
        """


class Standardize(Scale):
    """x -> clip((x - mean) / scale, ±clip), per feature."""

    scale: Tensor

    def __init__(self, n_features: int, clip: float = 10.0) -> None:
        """Identity until ``fit``."""
        super().__init__()
        self.clip = clip
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))

    @torch.no_grad()
    def fit(self, x: Tensor, mask: Tensor | None = None, least: Tensor | None = None) -> None:
        """Mean and standard deviation, but no scale below ``least``; a feature that does not vary
        keeps scale 1, so it becomes 0. Sums are in float64.
        """
        rows = _rows(x, mask)
        if len(rows) == 0:
            return
        # Block by block: a copy of all tokens in float64 may be larger than all else together.
        blocks = torch.split(rows, _BLOCK)
        known = [(~b.isnan()).sum(dim=0) for b in blocks]
        count = torch.stack(known).sum(dim=0).clamp(min=1)
        mean = torch.stack([b.double().nan_to_num(0.0).sum(dim=0) for b in blocks]).sum(0) / count
        squares = [(b.double() - mean).nan_to_num(0.0).square().sum(dim=0) for b in blocks]
        deviation = (torch.stack(squares).sum(dim=0) / count).sqrt()
        largest = torch.stack([b.nan_to_num(0.0).abs().amax(dim=0) for b in blocks]).amax(dim=0)
        still = deviation <= 1e-7 * largest
        self.mean.copy_(mean)
        if least is not None:
            still &= (largest > 2 * least) | (least == 0)
            deviation = torch.maximum(deviation, least.to(deviation))
        self.scale.copy_(torch.where(still, 1.0, deviation))

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., d)."""
        scaled = ((x - self.mean) / self.scale).clamp(-self.clip, self.clip)
        return torch.where(x.isnan(), 0.0, scaled)  # runtimes differ in how they clip NaN


class RankScale(Scale):
    """x -> Φ⁻¹(F(x)), centred, per feature; F its distribution in the training part.

    Features of any shape become about normal: skew and recording errors lose their weight. F is
    kept at 65 values of each feature, by mid-ranks, and linear between them.
    """

    values: Tensor
    scores: Tensor

    def __init__(self, n_features: int) -> None:
        """Everything is 0 until ``fit``."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_features))
        places = torch.arange(_KNOTS) / (_KNOTS - 1)
        self.register_buffer("values", places.expand(n_features, _KNOTS).clone())
        self.register_buffer("scores", torch.zeros(n_features, _KNOTS))

    @torch.no_grad()
    def fit(self, x: Tensor, mask: Tensor | None = None, least: Tensor | None = None) -> None:
        """Mid-ranks of what is known; a feature that does not vary becomes 0.

        Values that differ by rounding only, 1e-6 of the feature's size or ``least``, have one rank:
        ranks would blow rounding up to the size of what is told. A feature whose range is below
        ``least`` does not vary.
        """
        rows = _rows(x, mask)
        for j in range(rows.shape[1] if len(rows) else 0):
            alike = 0.0 if least is None else float(least[j])
            column = _without_rounding(rows[:, j][~rows[:, j].isnan()].double(), alike)
            value, count = torch.unique(column, return_counts=True)
            if len(value) < 2:
                self.mean[j] = value[0] if len(value) else 0.0
                continue
            rank = (count.cumsum(0) - count / 2) / count.sum()
            score = torch.special.ndtri(rank.clamp(0.002, 0.998))
            centre = (score * count).sum() / count.sum()
            spread = ((score - centre).square() * count).sum().div(count.sum()).sqrt()
            score = (score - centre) / spread
            if len(value) > _KNOTS:
                even = torch.linspace(float(rank[0]), float(rank[-1]), _KNOTS, dtype=rank.dtype)
                at = torch.searchsorted(rank, even).clamp(max=len(value) - 1)
                value, score = value[at], score[at]
            missing = _KNOTS - len(value)
            # Fewer values than knots: the last one is repeated, beyond which all is constant.
            self.values[j] = torch.cat([value, value[-1:].expand(missing)])
            self.scores[j] = torch.cat([score, score[-1:].expand(missing)])
            self.mean[j] = _root(value, score)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., d)."""
        known = ~x.isnan()
        flat = torch.where(known, x, 0.0).reshape(-1, x.shape[-1]).T.contiguous()  # (d, N)
        right = _count_below(self.values, flat).clamp(1, _KNOTS - 1)
        low, high = self.values.gather(1, right - 1), self.values.gather(1, right)
        below, above = self.scores.gather(1, right - 1), self.scores.gather(1, right)
        gap = high - low
        share = ((flat - low) / torch.where(gap > 0, gap, 1.0)).clamp(0, 1)
        between = (below + share * (above - below)).T.reshape(x.shape)
        return torch.where(known, between, 0.0)


class Unscaled(Scale):
    """x -> x; what is not known is 0. To see what scaling is worth."""

    def __init__(self, n_features: int) -> None:
        """Nothing is learned."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_features))

    def fit(self, x: Tensor, mask: Tensor | None = None, least: Tensor | None = None) -> None:
        """Takes no statistics."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., d)."""
        return x.nan_to_num(0.0)


def _count_below(knots: Tensor, x: Tensor) -> Tensor:
    """How many of each row's ``knots (d, K)``, which do not decrease, are below ``x (d, N)``."""
    if not torch.compiler.is_exporting():
        return torch.searchsorted(knots, x)
    # ONNX has no search: go as far as one may go and still be below.
    count = knots.shape[1]
    below = torch.zeros_like(x, dtype=torch.int64)
    for power in reversed(range(count.bit_length())):
        further = below + 2**power
        there = knots.gather(1, further.clamp(max=count) - 1)
        below = torch.where((further <= count) & (there < x), further, below)
    return below


def _without_rounding(column: Tensor, least: float) -> Tensor:
    """``(N,)`` with values moved to a grid of 1e-6 of their size or of ``least``, or to their mean
    if their range is less.

    The size is what a tenth of them surpasses, so that outliers do not hide all else.
    """
    if len(column) == 0:
        return column
    sizes = column.abs()
    if column.max() - column.min() <= max(_ROUNDING * float(sizes.max()), least):
        return column.mean().expand(len(column))
    size = sizes.sort().values[int(0.9 * (len(sizes) - 1))]
    step = max(_ROUNDING * float(size if size > 0 else sizes.max()), least)
    return (column / step).round() * step


def _root(value: Tensor, score: Tensor) -> Tensor:
    """Where the score is 0: scores increase from below to above it."""
    right = int(torch.searchsorted(score, torch.zeros((), dtype=score.dtype)))
    right = min(max(right, 1), len(score) - 1)
    low, high = score[right - 1], score[right]
    return value[right - 1] - low / (high - low) * (value[right] - value[right - 1])


def _rows(x: Tensor, mask: Tensor | None) -> Tensor:
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1]) if mask is None else x[mask]


def scale_of(kind: Literal["standard", "rank", "none"], n_features: int, clip: float) -> Scale:
    """The scaling of that name."""
    if kind == "none":
        return Unscaled(n_features)
    return RankScale(n_features) if kind == "rank" else Standardize(n_features, clip)
