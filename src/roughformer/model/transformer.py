"""Networks on tokens: scaling of features, attention, ``TokenTransformer``, ``TempoFormer``."""

import math
from abc import abstractmethod
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from roughformer.model.outputs import Head, OutputConfig, Pooling, Wide, prior_logits

# Scaling of features with statistics of the training part, kept with the model. Levels of a
# signature differ by factorials: without scaling the attention sees level 1 only. A feature that is
# NaN is not known: it becomes 0, which after scaling is the mean.

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


# The Rough Transformer.

_NARROW = 4  # contexts that a series is long from which on only the band is looked at


class RFormerConfig(OutputConfig):
    """Shape of an RFormer; ``model_dump_json`` and ``model_validate_json`` write and read it."""

    n_features: int = Field(ge=1, description="Features of a token.")
    d_model: int = Field(64, ge=1, description="Width of the blocks.")
    n_heads: int = Field(4, ge=1, description="Attention heads; they divide the width.")
    n_layers: int = Field(1, ge=0, description="Attention blocks.")
    d_feedforward: int | None = Field(
        None, ge=1, description="Hidden width of a block; None: 2 d_model."
    )
    dropout: float = Field(
        0.1, ge=0, lt=1, description="Share of activations hidden while training."
    )
    attention_dropout: float | None = Field(
        None, ge=0, lt=1, description="Dropout of the attention weights; None: as dropout."
    )
    input_dropout: float = Field(
        0.0, ge=0, lt=1, description="Share of token features hidden while training."
    )
    wide: int = Field(
        0,
        ge=0,
        description="Width of small networks beside attention, from the last token (each token, "
        "if causal) and the static covariates to outputs of their own; 0 for none.",
    )
    n_wide: int = Field(8, ge=1, description="Number of these networks.")
    n_wide_features: int | None = Field(
        None, ge=1, description="Number of leading features of the token that they see; None: all."
    )
    wide_share: float = Field(
        0.8, ge=0, le=1, description="Weight of their mean beside the output of attention."
    )
    wide_dropout: float = Field(0.5, ge=0, lt=1, description="Dropout inside these networks.")
    scaling: Literal["standard", "rank", "none"] = Field(
        "standard", description="Scaling of token features: mean and deviation, ranks, or none."
    )
    pooling: Literal["mean", "attention", "last"] = Field(
        "mean", description="How windows become one vector; a causal model has no pooling."
    )
    context: int | None = Field(
        None,
        ge=1,
        description="For causal models: a window attends to the last ``context`` up to itself, and "
        "knows how long ago they were instead of how late it is; None: to all before it.",
    )
    n_time_waves: int = Field(8, ge=0, description="Octaves of the encoding of window times.")
    n_static: int = Field(0, ge=0, description="Covariates that do not change with time.")
    n_spectrum: int = Field(
        0, ge=0, description="Powers of the spectrum of a path, over channels and frequencies."
    )
    clip: float = Field(10.0, gt=0, description="Standardised features are clipped to ± this.")

    @model_validator(mode="after")
    def _model_fits(self) -> Self:
        if self.d_model % self.n_heads:
            raise ValueError(
                f"d_model must be a multiple of n_heads, got {self.d_model} and {self.n_heads}"
            )
        if self.context is not None and not self.causal:
            raise ValueError("a context of windows is for causal models; set causal=True")
        return self


# Pre-norm attention blocks, and the encoding of the times that tokens stand for.


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
        return seen.expand(-1, -1, length, -1) if torch.compiler.is_compiling() else seen
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


class TokenTransformer(nn.Module):
    """Attention on tokens ``(B, L, n_features)``: scaling, embedding, blocks, pooling, head.

    ``causal=False`` has one output per series, ``causal=True`` one per token that depends on that
    token and the ones before it.
    """

    def __init__(self, config: RFormerConfig) -> None:
        """Weights are drawn from torch's current random state."""
        super().__init__()
        self.config = config
        width = config.d_model
        self.standardize = scale_of(config.scaling, config.n_features, config.clip)
        self.embed = nn.Linear(config.n_features, width)
        self.time = None if config.context else TimeEncoding(width, config.n_time_waves)
        hidden = config.d_feedforward or 2 * width
        drop = config.dropout
        of_weights = drop if config.attention_dropout is None else config.attention_dropout
        self.blocks = nn.ModuleList(
            Block(width, config.n_heads, hidden, drop, of_weights, config.context)
            for _ in range(config.n_layers)
        )
        self.pool = None if config.causal else Pooling(width, config.pooling)
        self.standardize_static = Standardize(config.n_static, config.clip)
        self.embed_static = nn.Linear(config.n_static, width) if config.n_static else None
        self.standardize_spectrum = Standardize(config.n_spectrum, config.clip)
        self.embed_spectrum = (
            nn.Sequential(
                nn.Linear(config.n_spectrum, 2 * width),
                nn.GELU(),
                nn.Dropout(config.dropout),
                nn.Linear(2 * width, width),
            )
            if config.n_spectrum
            else None
        )
        self.input_drop = nn.Dropout(config.input_dropout)
        seen = config.n_wide_features or config.n_features
        self.wide = (
            Wide(
                seen + config.n_static,
                config.wide,
                config.n_wide,
                config.wide_dropout,
                config.input_dropout,
                config,
            )
            if config.wide
            else None
        )
        # Of last tokens only: what stands at the end of a series is spread otherwise.
        self.standardize_last = scale_of(config.scaling, seen, config.clip) if config.wide else None
        self.head = Head(width, config)

    def from_tokens(
        self,
        tokens: Tensor,
        times: Tensor,
        mask: Tensor | None = None,
        static: Tensor | None = None,
        spectrum: Tensor | None = None,
        separate: bool = False,
    ) -> Tensor:
        """Compute outputs from tokens.

        Parameters
        ----------
        tokens : Tensor (B, L, n_features)
            Features of each window.
        times : Tensor (B, L)
            Ends of the windows, in units of about the span.
        mask : Tensor (B, L), optional
            True where a window is real; by default all are.
        static : Tensor (B, n_static), optional
            Static covariates; NaN = not known.
        spectrum : Tensor (B, C, J), optional
            Of whole paths.
        separate : bool, default False
            Return the outputs of attention and of each network beside it, along a new first axis,
            instead of their weighted sum; without such networks it changes nothing.

        Returns
        -------
        Tensor (B, n_outputs[, k])
            Or ``(B, L, n_outputs[, k])`` if causal; see ``Head``.
        """
        x, known = self._read(tokens, times, mask, static, spectrum)
        return self._answer(x, self._last(tokens, mask), known, separate)

    def represent(self, **inputs: Any) -> Tensor:
        """Compute what the head sees.

        Parameters
        ----------
        **inputs : Tensor
            As for ``from_tokens``.

        Returns
        -------
        Tensor (B, d_model)
            Or ``(B, L, d_model)`` if causal.
        """
        return self._read(**inputs)[0]

    def _read(
        self,
        tokens: Tensor,
        times: Tensor,
        mask: Tensor | None = None,
        static: Tensor | None = None,
        spectrum: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """What the head sees, and the standardised covariates."""
        x, known = self._embedded(tokens, times, static)
        config = self.config
        allowed = attention_mask(mask, x.shape[1], config.causal, x.device, config.context)
        for block in self.blocks:
            x = block(x, allowed)
        if self.pool is not None:
            x = self.pool(x, mask)
        if self.embed_spectrum is not None:
            if spectrum is None:
                raise ValueError("this model takes the spectrum of the paths")
            powers = self.input_drop(self.standardize_spectrum(spectrum.flatten(-2)))
            x = x + self.embed_spectrum(powers)
        return x, known

    def forward(self, **inputs: Any) -> Tensor:
        """``from_tokens``."""
        return self.from_tokens(**inputs)

    def step_tokens(
        self,
        past: list[Tensor],
        tokens: Tensor,
        times: Tensor,
        static: Tensor | None,
        window: Tensor,
        ended: Tensor | None,
    ) -> tuple[list[Tensor], Tensor]:
        """Compute outputs for the newest tokens of each stream; see ``Attention.step``.

        Parameters
        ----------
        past : list of Tensor
            What each block remembers.
        tokens : Tensor (B, K, n_features)
            The newest tokens; several only if all of their windows have ended.
        times : Tensor (B, K)
            Ends of their windows.
        static : Tensor (B, n_static) or None
            Static covariates.
        window : Tensor (B,)
            Numbers of the first of these windows.
        ended : Tensor (B,) or None
            Whether they have ended: only those are remembered. None: all have, and
            ``past`` is overwritten.

        Returns
        -------
        past : list of Tensor
            What each block remembers now.
        output : Tensor (B, K, n_outputs[, k])
        """
        x, known = self._embedded(tokens, times, static)
        kept = []
        for block, ring in zip(self.blocks, past, strict=True):
            x, new = block.step(x, ring, window, ended)  # type: ignore[operator]
            kept.append(new)
        return kept, self._answer(x, self._last(tokens, None), known)

    def ring_shape(self, size: int) -> tuple[int, ...]:
        """Tell the shape of what one block remembers of a stream: keys and values.

        Parameters
        ----------
        size : int
            Number of windows.

        Returns
        -------
        tuple of int
        """
        config = self.config
        return (2, config.n_heads, size, config.d_model // config.n_heads)

    def _embedded(
        self, tokens: Tensor, times: Tensor, static: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """``(B, L, d_model)``: scaled and embedded tokens; and the standardised covariates."""
        kind = self.embed.weight.dtype
        x = self.embed(self.input_drop(self.standardize(tokens).to(kind)))
        if self.time is not None:
            x = x + self.time(times.to(kind))
        if self.embed_static is None:
            return x, None
        if static is None:
            raise ValueError(f"this model takes {self.config.n_static} static covariates")
        # Not known = the mean of the training part, which standardises to 0.
        known = self.standardize_static(static).to(kind)
        return x + self.embed_static(known).unsqueeze(1), known

    def _answer(
        self, x: Tensor, seen: Tensor, known: Tensor | None, separate: bool = False
    ) -> Tensor:
        """Outputs ``(B, [L,] n_outputs[, k])`` from ``x (B, [L,] d_model)``, which the blocks give,
        and the tokens ``seen`` and covariates ``known`` that the networks beside them see.
        """
        output: Tensor = self.head(x)
        if self.wide is None:
            return output
        assert self.standardize_last is not None
        last = self.standardize_last(seen)
        if known is not None:
            if self.config.causal:
                known = known.unsqueeze(1).expand(-1, last.shape[1], -1)
            last = torch.cat([last, known], dim=-1)
        direct: Tensor = self.wide(last)  # (n_wide, ...)
        if separate:
            return torch.cat([output.unsqueeze(0), direct])
        share = self.config.wide_share
        return share * direct.mean(dim=0) + (1 - share) * output

    @property
    def answers_apart(self) -> bool:
        """Whether ``forward(..., separate=True)`` gives several answers, to be trained each by
        itself: trained as a sum, they would learn to correct each other on the training part.
        """
        return self.wide is not None

    def _last(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """What ``wide`` sees of the last real token, or of each token if causal."""
        seen = tokens[..., : self.config.n_wide_features]
        if self.config.causal:
            return seen
        if mask is None:
            return seen[:, -1]
        at = (mask.sum(dim=1) - 1).clamp(min=0)
        return seen[torch.arange(seen.shape[0], device=seen.device), at]

    @torch.no_grad()
    def fit_scaling(self, inputs: dict[str, Tensor]) -> None:
        """Take the statistics of the training part: those of ``from_tokens``'s inputs."""
        least = inputs.get("least_scale")
        self.standardize.fit(inputs["tokens"], inputs.get("mask"), least)
        if self.standardize_last is not None:
            mask = inputs.get("mask") if self.config.causal else None
            last = self._last(inputs["tokens"], inputs.get("mask"))
            self.standardize_last.fit(
                last, mask, None if least is None else least[: last.shape[-1]]
            )
        if self.embed_spectrum is not None:
            powers = inputs["spectrum"].flatten(-2)
            # Logarithms of shares of power, in float32: what varies by less is mostly rounding.
            self.standardize_spectrum.fit(powers, least=powers.new_full(powers.shape[-1:], 1e-3))
        if self.embed_static is not None:
            self.standardize_static.fit(inputs["static"])

    @torch.no_grad()
    def fit_prior(self, frequency: Tensor) -> None:
        """Let answers begin at the frequencies of the classes in the training part.

        Parameters
        ----------
        frequency : Tensor (K,)
            Shares of the classes.
        """
        self.head.fit_prior(frequency)
        if self.wide is not None:
            self.wide.out.bias.copy_(prior_logits(frequency))


# Rates from the spectra of windows, by a network that commutes with tempo.


class TempoConfig(OutputConfig):
    """Shape of a TempoFormer; its output is a histogram over the logarithm of the rate."""

    n_channels: int = Field(ge=1, description="Channels of a spectrum.")
    n_spectra: int = Field(ge=1, description="Spectra of a series: K.")
    n_frequencies: int = Field(ge=2, description="Frequencies of a spectrum: J.")
    harmonics: int = Field(4, ge=1, description="Multiples of a rate that are looked at.")
    width: int = Field(24, ge=1, description="Channels of the convolutions.")
    n_layers: int = Field(3, ge=1, description="Convolutions over the axis.")
    kernel: int = Field(5, ge=1, description="Places of the axis that one of them sees.")
    dropout: float = Field(0.1, ge=0, lt=1)
    channel_dropout: float = Field(0.15, ge=0, lt=1, description="Chance to hide a channel.")
    window_dropout: float = Field(0.1, ge=0, lt=1, description="Chance to hide a window.")


class TempoFormer(nn.Module):
    """``spectra (B, K, C, J)`` -> logits over rates ``(B, 1, R)``.

    For each window, the spectrum at r, 2r, 3r, ... is stacked for every rate r of the axis, and a
    small convolution over the axis turns it into evidence e_k(r). Attention over the windows,
    a_k = softmax of a score of each window, weighs clean windows against disturbed ones:

        logit(r) = c √K Σ_k a_k e_k(r).

    All places of the axis are treated alike, so a series played faster has its answer moved by as
    much as its spectrum.
    """

    def __init__(self, config: TempoConfig) -> None:
        """Weights are drawn from torch's current random state."""
        super().__init__()
        self.config = config
        step = config.bin_step
        self.offsets = [round(math.log(h) / step) for h in range(1, config.harmonics + 1)]
        width, kernel = config.width, config.kernel
        layers: list[nn.Module] = []
        n_in = config.n_channels * config.harmonics
        for i in range(config.n_layers):
            if i:
                layers.append(nn.Dropout1d(config.dropout))
            layers += [nn.Conv1d(n_in if i == 0 else width, width, kernel, padding="same")]
            layers += [nn.GELU()]
        self.convolve = nn.Sequential(*layers)
        self.evidence = nn.Conv1d(width, 1, 1)
        self.score = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, 1))
        self.place = nn.Parameter(torch.zeros(config.n_spectra))
        self.sharpness = nn.Parameter(torch.ones(()))

    def forward(self, spectra: Tensor, times: Tensor | None = None) -> Tensor:
        """See the class; ``times`` are not needed."""
        return self.attend(spectra)[0]

    def attend(self, spectra: Tensor) -> tuple[Tensor, Tensor]:
        """The logits ``(B, 1, R)`` and the attention over windows ``(B, K)``."""
        config = self.config
        batch, k, c, j = spectra.shape
        # Neither gain nor the depth of the valleys of a spectrum matters.
        x = spectra - spectra.mean(dim=-1, keepdim=True)
        x = x / (x.std(dim=-1, keepdim=True, correction=0) + 0.3)
        if self.training and config.channel_dropout:
            shown = torch.rand(batch, 1, c, 1, device=x.device) >= config.channel_dropout
            x = x * shown
        x = x.reshape(batch * k, c, j)
        rates = config.n_bins
        x = F.pad(x, (0, max(self.offsets[-1] + rates - x.shape[-1], 0)))
        stack = torch.cat([x[..., o : o + rates] for o in self.offsets], dim=1)
        hidden = self.convolve(stack)  # (B K, width, R)
        evidence = self.evidence(hidden).reshape(batch, k, rates)
        summary = torch.cat([hidden.mean(dim=-1), hidden.amax(dim=-1)], dim=-1)
        score = self.score(summary).reshape(batch, k) + self.place
        if self.training and config.window_dropout:
            hide = torch.rand(batch, k, device=x.device) < config.window_dropout
            score = score.masked_fill(hide, -1e4)
        weight = score.softmax(dim=1)
        mixed = (weight.unsqueeze(-1) * evidence).sum(dim=1)
        logits: Tensor = self.sharpness * math.sqrt(k) * mixed
        return logits.unsqueeze(1), weight

    def fit_scaling(self, inputs: dict[str, Tensor]) -> None:
        """Spectra are scaled one by one: there is nothing to fit."""
