"""Forecaster: the value of any channel at any time, from memories of both sides of a moment.

A moment is the end of the past (then queries lie ahead of it) or the time of a query itself (then
there are observations on both sides). Each channel is one token, made of its memories; attention
blocks mix the channels. A query (channel, time ahead) reads the token of its channel, attends to
all tokens, and weighs the nearest observations of its channel by learned functions of their
distance in time. Its answer is a mixture of levels that the series has had (nearest value, levels
at several time scales, weighed observations, mean, extremes) and of the channel's mean, whose
weights depend on the query, plus damped trends, plus a correction. So levels and trends continue,
and how fast a channel returns to its mean is learned.

Where series have levels and deviations of different orders of magnitude (sales of many goods), each
is read in a unit of its own.

Seasons are read from each series in closed form: a ridge regression of what is known around the
moment on a line and on waves of the periods, recent observations first. All of the above happens
to what is left of the values without their seasons, which come back in the answer.
"""

import math
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from roughformer.model.forecast_data import Array, Drawn, Moments, Queries, ScaledSeries
from roughformer.model.transformer import Block
from roughformer.series import SeriesBatch
from roughformer.util.groups import Group

QUANTILES = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
_MIDDLE = QUANTILES.index(0.5)
_HARMONICS = 2  # of each period
_RAW = 6  # nearest observations that are features themselves
_SHRINK = 0.05  # of slopes, in squared time scales: two observations at one time have none
_SEASONS = 5.0  # longest periods after which observations count 1/e for the seasons
_RIDGE = 0.3  # of a wave, in observations, times the number of its harmonic
_STEEP = 1e-3  # ridge of the line beside the waves
_TOLD = 30  # forecasts of a channel that a start is chosen by, at least
_SURE = 5.0  # logit of the level that training starts from
_OF_LEVEL = 0.05  # of the level of a series, that its own unit is more than its deviation
_LOCAL = 0.3  # how far corrections go by the spread of the series, beside the channel's own scale


class ForecasterConfig(Group):
    """Sizes of a ``Forecaster``."""

    n_channels: int = Field(ge=1, description="Number of channels.")
    n_static: int = Field(0, ge=0, description="Number of static covariates.")
    known: tuple[int, ...] = Field((), description="Channels whose future is known.")
    n_scales: int = Field(5, ge=1, description="Number of time scales of a memory.")
    n_periods: int = Field(0, ge=0, description="Number of periods, for seasons.")
    harmonics: tuple[int, ...] = Field((), description="Harmonics of the seasons of each period.")
    relative: tuple[int, ...] = Field(
        (), description="Channels that each series has in units of its own."
    )
    n_recent: int = Field(16, ge=2, description="Nearest observations that a query weighs.")
    d_model: int = Field(64, ge=4, description="Width of tokens.")
    n_heads: int = Field(4, ge=1, description="Heads of attention.")
    n_layers: int = Field(2, ge=0, description="Attention blocks across channels.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Share of activations dropped.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model must be a multiple of {self.n_heads}, got {self.d_model}")
        if len(set(self.known)) < len(self.known) or not all(
            0 <= c < self.n_channels for c in self.known
        ):
            raise ValueError(f"known must hold different channels, got {self.known}")
        if len(self.harmonics) not in (0, self.n_periods) or min(self.harmonics, default=0) < 0:
            raise ValueError(f"harmonics must be counts for each period, got {self.harmonics}")
        return self


# A fixed-size memory of each channel on one side of a moment, computed in one pass.
#
# The moment is the end of the past (a forecast) or the time asked for (an interpolation, where the
# other side has a memory of its own). With ages a_i ≥ 0 of the observations x_i of a channel and
# weights w_i = exp(-a_i / τ), a time scale τ remembers the level Σ w x / Σ w, the slope and the
# deviation of the weighted observations, and how much it has seen, Σ w. Besides the time scales a
# memory has the nearest observations themselves, the extremes, the mean and the count. All of it is
# sums, extremes and a few last values, so its size does not grow with the length of a series.


class Memory(NamedTuple):
    """What is kept of one side of a batch of R moments, C channels, K time scales.

    Values are in the units that came in; those among the features are squashed by asinh.

    Attributes
    ----------
    features : Tensor (R, C, F)
        Zero for a channel that was not observed.
    levels : Tensor (R, C, K + 4)
        Nearest value, levels at the time scales, mean, maximum and minimum.
    slopes : Tensor (R, C, K)
        Change of the level over one time scale, towards the moment.
    spread : Tensor (R, C)
        Size of the values: what changes of this series may be measured by.
    seen : Tensor (R, C)
        Whether the channel was observed at all.
    recent : Tensor (R, C, N)
        The nearest observations, nearest first.
    ages : Tensor (R, C, N)
        Their ages; infinite where there are fewer than N.
    """

    features: Tensor
    levels: Tensor
    slopes: Tensor
    spread: Tensor
    seen: Tensor
    recent: Tensor
    ages: Tensor


def memory_feature_count(n_scales: int) -> int:
    """Number of features of a channel."""
    return 9 + 2 * (_RAW - 1) + 4 * n_scales


def remember(values: Tensor, ages: Tensor, scales: Tensor, n_recent: int) -> Memory:
    """The memory of one side, from scaled ``values (R, L, C)`` (NaN = not observed), their ``ages
    (R, L)`` at the moment in the unit of ``scales (K,)`` (points with a negative or infinite age do
    not count), and the number of observations to keep.
    """
    seen = ~values.isnan() & ((ages >= 0) & ages.isfinite()).unsqueeze(-1)
    old = torch.where(seen, ages.unsqueeze(-1), torch.inf)  # (R, L, C)
    size = max(n_recent, _RAW)
    missing = max(size - values.shape[1], 0)
    if missing:
        values = F.pad(values, (0, 0, 0, missing), value=torch.nan)
        seen, old = F.pad(seen, (0, 0, 0, missing)), F.pad(old, (0, 0, 0, missing), value=torch.inf)
        ages = F.pad(ages, (0, missing), value=torch.inf)
    # Equal ages cannot occur within a channel, so that the order is unique.
    nearest = old.transpose(1, 2).topk(size, dim=2, largest=False)
    near_ages = nearest.values
    known = near_ages.isfinite()
    observed = torch.where(seen, values, 0.0)
    recent = torch.where(known, observed.transpose(1, 2).gather(2, nearest.indices), 0.0)
    any_seen = known[..., 0]
    last = recent[..., 0]
    # Relative to the last value, so that deviations of large levels keep their digits.
    moved = torch.where(seen, observed - last.unsqueeze(1), 0.0)
    count = seen.sum(dim=1).to(moved)
    divisor = count.clamp(min=1)
    mean = moved.sum(dim=1) / divisor
    deviation = ((moved**2).sum(dim=1) / divisor - mean**2).clamp(min=0).sqrt()
    high = torch.where(seen, moved, -torch.inf).amax(dim=1).clamp(min=0)
    low = torch.where(seen, moved, torch.inf).amin(dim=1).clamp(max=0)
    mass, level, slope, around = _at_scales(moved, seen.to(moved), ages, scales)
    age = torch.where(known, near_ages, 0.0)
    features = torch.cat(
        [
            torch.stack(
                [
                    last.asinh(), high.asinh(), low.asinh(), mean.asinh(), deviation.asinh(),
                    count.log1p(), age[..., 0].log1p(), any_seen.to(moved), known[..., 1].to(moved),
                ],
                dim=-1,
            ),
            torch.where(known, recent - last.unsqueeze(-1), 0.0)[..., 1:_RAW].asinh(),
            (age - age[..., :1]).clamp(min=0)[..., 1:_RAW].log1p(),
            level.asinh(), slope.asinh(), around.asinh(), (mass + 0.01).log() / 3,
        ],
        dim=-1,
    )  # fmt: skip
    there = any_seen.unsqueeze(-1)
    levels = torch.cat(
        [torch.zeros_like(level[..., :1]), level, torch.stack([mean, high, low], dim=-1)], dim=-1
    )
    return Memory(
        features=torch.where(there, features, 0.0),
        levels=torch.where(there, levels + last.unsqueeze(-1), 0.0),
        slopes=torch.where(there, slope, 0.0),
        spread=torch.where(any_seen, last.abs() + deviation, 0.0),
        seen=any_seen,
        recent=recent[..., :n_recent],
        ages=near_ages[..., :n_recent],
    )


def _at_scales(
    moved: Tensor, seen: Tensor, ages: Tensor, scales: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mass, level, slope and deviation at each time scale, each ``(R, C, K)``."""
    there = ((ages >= 0) & ages.isfinite()).unsqueeze(-1)
    s = torch.where(there, -ages.unsqueeze(-1) / scales, 0.0)  # (R, L, K)
    w = torch.where(there, s.exp(), 0.0)
    k = len(scales)
    by_time = torch.cat([w, w * s, w * s * s], dim=-1).transpose(1, 2)  # (R, 3K, L)
    m0, m1, m2 = (by_time @ seen).transpose(1, 2).chunk(3, dim=-1)
    x0, x1 = (by_time[:, : 2 * k] @ moved).transpose(1, 2).chunk(2, dim=-1)
    xx = (by_time[:, :k] @ moved**2).transpose(1, 2)
    mass = m0.clamp(min=1e-12)
    centre, level = m1 / mass, x0 / mass
    around = (xx / mass - level**2).clamp(min=0).sqrt()
    wide = (m2 / mass - centre**2).clamp(min=0)
    slope = (x1 / mass - centre * level) / (wide + _SHRINK)
    # What is so old that nothing of it is left at a scale has no level there: the last value.
    faded = m0 < 1e-9
    level, slope, around = (torch.where(faded, 0.0, x) for x in (level, slope, around))
    return m0, level, slope, around


def _moved(memory: Memory, offset: Tensor) -> Memory:
    """The memory of values that are less by ``offset (R, C)``."""
    before = memory.levels[..., 0]
    last = torch.where(memory.seen, before - offset, 0.0)
    below = offset.unsqueeze(-1)
    return memory._replace(
        features=torch.cat([last.asinh().unsqueeze(-1), memory.features[..., 1:]], dim=-1),
        levels=torch.where(memory.seen.unsqueeze(-1), memory.levels - below, 0.0),
        spread=memory.spread + last.abs() - before.abs(),
        recent=torch.where(memory.ages.isfinite(), memory.recent - below, 0.0),
    )


# The network


class Forecaster(nn.Module):
    """Moments and queries -> means ``(Q,)`` and quantiles ``(Q, 9)``, in scaled units.

    All times are in the same unit, in which ``scales (K,)`` and ``periods (P,)`` are given, too.
    """

    scales: Tensor
    periods: Tensor
    horizon: Tensor
    seasonal: Tensor
    centre: Tensor
    spread: Tensor
    mean: Tensor
    smallest: Tensor
    varies: Tensor
    lowest: Tensor
    highest: Tensor
    static_centre: Tensor
    static_spread: Tensor

    def __init__(self, config: ForecasterConfig) -> None:
        """Make a model with random weights; ``fit_scaling`` sets what depends on the data."""
        super().__init__()
        self.config = c = config
        d, n_features = c.d_model, memory_feature_count(c.n_scales)
        sizes: dict[str, int | tuple[int, int]]
        sizes = {"scales": c.n_scales, "periods": c.n_periods, "horizon": 1}
        sizes["seasonal"] = (c.n_channels, c.n_periods)  # 1: the channel has a season of the period
        of_channels = ("centre", "spread", "mean", "smallest", "varies", "lowest", "highest")
        sizes |= dict.fromkeys(of_channels, c.n_channels)
        sizes |= dict.fromkeys(("static_centre", "static_spread"), c.n_static)
        for name, size in sizes.items():
            self.register_buffer(name, torch.ones(size, dtype=torch.float64))
        self.past = nn.Linear(n_features, d)
        self.future = nn.Linear(n_features, d, bias=False)
        self.mix = nn.Linear(d, d)
        self.channel = nn.Parameter(torch.randn(c.n_channels, d) * 0.5)
        self.whole = nn.Sequential(
            nn.Linear(2 * c.n_static + 2, d), nn.GELU(), nn.Dropout(c.dropout), nn.Linear(d, d)
        )
        self.blocks = nn.ModuleList(
            Block(d, c.n_heads, 2 * d, c.dropout, 0.0) for _ in range(c.n_layers)
        )
        self.query = nn.Linear(c.n_scales + 4 + 2 * _HARMONICS * c.n_periods, d)
        self.asked = nn.Parameter(torch.randn(c.n_channels, d) * 0.2)
        self.near = nn.Linear(c.n_scales + 4 + 2 * _HARMONICS * c.n_periods, d // 2)
        self.near_query = nn.Linear(d, d // 2)
        self.near_weight = nn.Linear(d // 2, c.n_heads)
        self.from_near = nn.Linear(2 * c.n_heads, d)
        self.norm_query, self.norm_tokens = nn.LayerNorm(d), nn.LayerNorm(d)
        self.to_q, self.to_kv, self.out = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(
            nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.GELU(), nn.Dropout(c.dropout),
            nn.Linear(4 * d, d),
        )  # fmt: skip
        self.drop = nn.Dropout(c.dropout)
        self.n_levels = c.n_heads + 2 * (c.n_scales + 4) + 2
        self.head = nn.Linear(d, self.n_levels + c.n_scales + 4 + 2 * len(QUANTILES))
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.norm_head = nn.LayerNorm(d)
        self.prior = nn.Parameter(torch.zeros(c.n_channels, self.n_levels))
        self.trend = nn.Parameter(torch.zeros(c.n_channels, c.n_scales))
        self.log_unit = nn.Parameter(torch.zeros(c.n_channels, 2))
        if c.known:
            self.ahead = nn.Sequential(nn.Linear(4 * len(c.known), d), nn.GELU(), nn.Linear(d, d))

    def fit_scaling(self, **statistics: npt.ArrayLike) -> None:
        """Set time scales, periods, and what is known of the channels and covariates."""
        for name, value in statistics.items():
            buffer = getattr(self, name)
            buffer.copy_(torch.as_tensor(np.asarray(value, dtype=np.float64)))

    def scaled(self, batch: SeriesBatch, static: Array, context: int) -> ScaledSeries:
        """Scale a batch with its covariates ``(B, S)`` as the training series were."""
        centre, spread = self.centre.cpu().numpy(), self.spread.cpu().numpy()
        scaled = (static - self.static_centre.cpu().numpy()) / self.static_spread.cpu().numpy()
        return ScaledSeries(
            ((batch.values - centre) / spread).astype(np.float32),
            batch.times,
            batch.offsets,
            np.clip(scaled, -4, 4).astype(np.float32),
            _epoch(batch),
            context,
            self.config.n_recent,
            np.isin(np.arange(batch.n_channels), self.config.known),
        )

    def forward(self, moments: Moments, queries: Queries) -> tuple[Tensor, Tensor]:
        """See the class."""
        n_recent = self.config.n_recent
        level, size = self.own_units(moments)
        moments, queries, season, scales = self._deseasoned(moments, queries, level, size)
        past = remember(moments.values, -moments.times, scales, n_recent)
        future = None
        if moments.both_sides:
            after = torch.where(moments.times > 0, moments.times, -1.0)
            future = remember(moments.values, after, scales, n_recent)
        offset = self._offset(past, future)
        past = _moved(past, offset)
        future = None if future is None else _moved(future, offset)
        tokens = self._tokens(past, future, moments, scales)
        given = self.ahead(self._given(moments, queries)) if self.config.known else None
        mean, quantiles = self._answer(tokens, past, future, queries, scales, given)
        at = (queries.row, queries.channel)
        back = offset[at] + season
        both = torch.cat([mean.unsqueeze(1), quantiles], dim=1) + back.unsqueeze(1)
        both = both * size[at].unsqueeze(1) + level[at].unsqueeze(1)
        return both[:, 0], both[:, 1:]

    def own_units(self, moments: Moments) -> tuple[Tensor, Tensor]:
        """Level and size of each series ``(R, C)``: 0 and 1, but in ``relative`` channels.

        There it is the mean of what is known, and its deviation with a share of the mean, not less
        than of any training series; where nothing is known, the mean of all series.
        """
        values = moments.values
        level = torch.zeros_like(values[:, 0])
        if not self.config.relative:
            return level, torch.ones_like(level)
        seen = _known(moments)
        x, count = torch.where(seen, values, 0.0), seen.sum(dim=1).clamp(min=1)
        mean = x.sum(dim=1) / count
        off = torch.where(seen, x - mean.unsqueeze(1), 0.0)
        size = (off.square().sum(dim=1) / count).sqrt() + _OF_LEVEL * mean.abs()
        size = torch.maximum(size, self.smallest.to(size))
        any_seen, relative = seen.any(dim=1), self._is_relative.to(size.device)
        level = torch.where(relative, torch.where(any_seen, mean, self.mean.to(mean)), level)
        return level, torch.where(relative & any_seen, size, 1.0)

    @property
    def usual(self) -> Tensor:
        """Mean of each channel ``(C,)``, in units of the data."""
        return self.centre + self.mean * self.spread

    @property
    def _is_relative(self) -> Tensor:
        mask = torch.zeros(self.config.n_channels, dtype=torch.bool)
        mask[list(self.config.relative)] = True
        return mask

    @torch.no_grad()
    def start(self, drawn: Drawn) -> Array:
        """Start training from the level and the damped trend of each channel that forecast best.

        Returns the mean absolute errors of these forecasts of each channel ``(C,)``, NaN where
        there are too few to tell.
        """
        level, size = self.own_units(drawn.moments)
        moments, queries, season, scales = self._deseasoned(
            drawn.moments, drawn.queries, level, size
        )
        past = remember(moments.values, -moments.times, scales, self.config.n_recent)
        at, k = (queries.row, queries.channel), len(scales)
        seen = past.seen[at]
        target = ((drawn.target - level[at]) / size[at] - season)[seen]
        levels = past.levels[at][seen, : k + 2]  # the last value, at each scale, the mean
        trends = past.slopes[at][seen] * (1 - torch.exp(-queries.ahead[seen].unsqueeze(1) / scales))
        options = torch.cat([trends * x for x in (0.0, 0.5, 1.0)], dim=1)  # (Q, 3 K)
        guess = levels.unsqueeze(2) + options.unsqueeze(1)
        error = (guess - target.view(-1, 1, 1)).abs().flatten(1)
        weight = far_weight(queries.ahead[seen])
        best = np.full(self.config.n_channels, np.nan)
        for c in range(self.config.n_channels):
            mine = queries.channel[seen] == c
            if mine.sum() < _TOLD:
                continue
            share = weight[mine] / weight[mine].sum()
            least, number = (share @ error[mine]).min(dim=0)
            which, option = divmod(int(number), options.shape[1])
            best[c] = float(least)
            self.prior[c] = 0.0
            self.prior[c, self.config.n_heads + which] = _SURE
            self.trend[c] = 0.0
            self.trend[c, option % k] = 0.5 * (option // k)
            # Corrections of the size of the errors, and intervals of normal errors.
            self.log_unit[c] = (least.clamp(1e-3, 1.0) * torch.tensor([1.0, 2.2])).log()
        return best

    def _deseasoned(
        self, moments: Moments, queries: Queries, level: Tensor, size: Tensor
    ) -> tuple[Moments, Queries, Tensor, Tensor]:
        """Moments in units of their own and without seasons, queries, the seasons at these
        ``(Q,)``, and the scales.

        All times are in units of the shortest scale: features must not depend on the user's unit.
        """
        unit = self.scales[0].to(moments.values)
        scales = self.scales.to(moments.values) / unit
        moments = moments._replace(times=moments.times / unit, elapsed=moments.elapsed / unit)
        if self.config.relative:
            own = (moments.values - level.unsqueeze(1)) / size.unsqueeze(1)
            moments = moments._replace(values=own)
        season = torch.zeros_like(queries.ahead)
        if any(self.config.harmonics):
            found = self._seasons(moments, unit)
            known = self._season_waves(moments.times.nan_to_num(0.0), unit)  # (R, L, F)
            moments = moments._replace(values=moments.values - known @ found.transpose(1, 2))
            waves = self._season_waves(queries.ahead / unit, unit)
            season = (waves * found[queries.row, queries.channel]).sum(dim=1)
        # Beyond the horizon a forecast stays as it is there, but for the seasons.
        ahead = torch.minimum(queries.ahead, self.horizon.to(queries.ahead))
        return moments, queries._replace(ahead=ahead / unit), season, scales

    def _season_waves(self, times: Tensor, unit: Tensor) -> Tensor:
        """Waves of all seasons ``(..., F)`` at times ``(...)`` after the moment."""
        turns = [
            times * (k * unit / period.to(unit))
            for period, n in zip(self.periods, self.config.harmonics, strict=True)
            for k in range(1, n + 1)
        ]
        angles = 2 * math.pi * torch.stack(turns, dim=-1)
        return torch.cat([angles.sin(), angles.cos()], dim=-1)

    def _seasons(self, moments: Moments, unit: Tensor) -> Tensor:
        """Coefficients of the waves of each channel ``(R, C, F)``: weighted ridge regression."""
        harmonics = self.config.harmonics
        used = [p for p, n in zip(self.periods, harmonics, strict=True) if n]
        longest = torch.stack(used).amax(dim=0)
        u = moments.times.nan_to_num(0.0) * unit / (_SEASONS * longest).to(unit)
        design = torch.stack([torch.ones_like(u), u], dim=-1)
        design = torch.cat([design, self._season_waves(moments.times.nan_to_num(0.0), unit)], -1)
        seen = _known(moments)
        weight = torch.where(seen, (-u.abs()).exp().unsqueeze(-1), 0.0).transpose(1, 2)  # (R, C, L)
        weighed = weight.unsqueeze(2) * design.transpose(1, 2).unsqueeze(1)  # (R, C, 2 + F, L)
        observed = torch.where(seen, moments.values, 0.0).transpose(1, 2).unsqueeze(-1)
        # Less the mean, as a ridge must not depend on the level.
        total = weight.sum(dim=-1, keepdim=True).clamp(min=1e-12)
        mean = (weight.unsqueeze(2) @ observed).squeeze(-1) / total
        observed = torch.where(seen.transpose(1, 2).unsqueeze(-1), observed - mean.unsqueeze(-1), 0)
        numbers = [k for n in harmonics for k in range(1, n + 1)] * 2
        period = [i for i, n in enumerate(harmonics) for _ in range(n)] * 2
        ridge = _RIDGE * torch.tensor([_STEEP / _RIDGE] * 2 + numbers).to(u)
        on = self.seasonal[:, period].to(u)  # (C, F)
        on = torch.cat([torch.ones_like(on[:, :2]), on], dim=1)
        gram = on.unsqueeze(1) * (weighed @ design.unsqueeze(1)) * on.unsqueeze(2)
        gram = gram + torch.diag(ridge)
        return _solved(gram, on.unsqueeze(-1) * (weighed @ observed))[..., 2:]

    def _offset(self, past: Memory, future: Memory | None) -> Tensor:
        """What to take off each channel whose level lies beyond all training values ``(R, C)``.

        The level is the median of the nearest observations. One just beyond the range is answered
        as if it were at its end, one far beyond as if it were the mean, so that prices and counters
        may go on where they never were. Within the range nothing is taken off.
        """
        value, known = past.recent, past.ages.isfinite()
        if future is not None:
            other = ~past.seen.unsqueeze(-1)
            value = torch.where(other, future.recent, value)
            known = torch.where(other, future.ages.isfinite(), known)
        place = ((known.sum(dim=-1, keepdim=True) - 1) // 2).clamp(min=0)
        ordered = torch.where(known, value, torch.inf).sort(dim=-1).values
        level = ordered.gather(-1, place).squeeze(-1)
        level = torch.where(known[..., 0], level, 0.0)
        centre, spread = self.centre, self.spread
        low, high = ((x - centre) / spread for x in (self.lowest, self.highest))
        edge = level.clamp(low.to(level), high.to(level))
        width = (high - low).to(level).clamp(min=1e-6)
        beyond = level - edge * torch.exp(-(level - edge).abs() / width)
        if not self.config.relative:
            return beyond
        return torch.where(self._is_relative.to(beyond.device), 0.0, beyond)

    def _tokens(
        self, past: Memory, future: Memory | None, moments: Moments, scales: Tensor
    ) -> Tensor:
        """``(R, C + 1, d)``: the channels, and the series as a whole."""
        x = self.past(past.features)
        if future is not None:
            x = x + self.future(future.features)
        x = self.mix(F.gelu(x)) + self.channel
        unknown = moments.static.isnan()
        # Beyond a few times the longest scale a series is just long, whatever it has been before.
        elapsed = (moments.elapsed / scales[-1]).clamp(max=4).unsqueeze(1)
        static = moments.static.nan_to_num(0.0)
        about = torch.cat([static, unknown.to(x), elapsed.log1p(), elapsed], dim=1)
        x = torch.cat([x, self.whole(about).unsqueeze(1)], dim=1)
        for block in self.blocks:
            x = block(x, None)
        tokens: Tensor = x
        return tokens

    def _answer(
        self,
        tokens: Tensor,
        past: Memory,
        future: Memory | None,
        queries: Queries,
        scales: Tensor,
        given: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        row, channel, ahead, phase, even = queries
        at = (row, channel)
        decay = torch.exp(-ahead.unsqueeze(1) / scales)  # (Q, K)
        q = tokens[at] + tokens[row, -1] + self.asked[channel]
        q = q + self.query(
            torch.cat(
                [
                    ahead.log1p().unsqueeze(1),
                    (ahead / scales[-1]).clamp(max=4).unsqueeze(1),
                    torch.full_like(ahead, float(future is not None)).unsqueeze(1),
                    (ahead / scales[-1]).sqrt().clamp(max=2).unsqueeze(1),
                    decay,
                    *_waves(phase),
                ],
                dim=1,
            )
        )
        if given is not None:
            q = q + given
        near, there = self._near(q, past, future, queries, scales)
        last = past.levels[at][:, :1]
        if future is not None:
            last = torch.where(past.seen[at].unsqueeze(1), last, future.levels[at][:, :1])
        q = q + self.from_near(torch.cat([(near - last).asinh(), near.asinh()], 1) * there)
        q = q + self.drop(self.out(self._attend(q, tokens, row, even)))
        q = q + self.drop(self.mlp(q))
        levels, known, spread = self._levels(near, there, past, future, at)
        head = self.head(self.norm_head(q))
        weight = head[:, : self.n_levels] + self.prior[channel]
        mixed = (weight.masked_fill(~known, -30.0).softmax(dim=1) * levels).sum(dim=1)
        head = head[:, self.n_levels :]
        trend = head[:, : len(scales)] + self.trend[channel]
        trend = (trend * past.slopes[at] * (1 - decay)).sum(dim=1)
        head = head[:, len(scales) :]
        unit, own = self.log_unit[channel].exp(), _LOCAL * spread
        mean = mixed + trend + head[:, 0] * unit[:, 0] + head[:, 1] * own
        middle = mixed + trend + head[:, 2] * unit[:, 0] + head[:, 3] * own
        gaps_unit, gaps_own = head[:, 4:].split(len(QUANTILES), dim=1)
        gaps = unit[:, 1:] * F.softplus(gaps_unit - 1) + own.unsqueeze(1) * F.softplus(gaps_own - 3)
        above = gaps[:, _MIDDLE + 1 :].cumsum(dim=1)
        below = gaps[:, :_MIDDLE].flip(1).cumsum(dim=1).flip(1)
        middle = middle.unsqueeze(1)
        return mean, torch.cat([middle - below, middle, middle + above], dim=1)

    def _given(self, moments: Moments, queries: Queries) -> Tensor:
        """What channels with a known future say at the queries ``(Q, 4 n)``.

        For each of them the value at the time asked for (linear between its observations), its
        change since the moment, its mean over the observations between, and whether there is one
        at that time or later.
        """
        x = moments.values[..., list(self.config.known)][queries.row]  # (Q, L, n)
        seen, time = ~x.isnan(), moments.times[queries.row].unsqueeze(-1)
        asked = queries.ahead.view(-1, 1, 1)
        x = torch.where(seen, x, 0.0)

        def nearest(side: Tensor) -> tuple[Tensor, Tensor]:
            """Distance and value of the observation of a side that is nearest to ``asked``."""
            apart = torch.where(seen & side, (time - asked).abs(), torch.inf)
            distance, place = apart.min(dim=1)
            return distance, x.gather(1, place.unsqueeze(1)).squeeze(1)

        left, before = nearest(time <= asked)
        right, after = nearest(time > asked)
        here = left == 0
        both = left.isfinite() & right.isfinite()
        share = torch.where(both, left / torch.where(both, left + right, 1.0), 0.0)
        value = torch.where(left.isfinite(), before + share * (after - before), after)
        past = torch.where(seen & (time <= 0), time, -torch.inf)
        last = x.gather(1, past.argmax(dim=1, keepdim=True)).squeeze(1)
        change = torch.where(past.amax(dim=1).isfinite(), value - last, 0.0)
        between = seen & (time > 0) & (time <= asked)
        mean = torch.where(between, x, 0.0).sum(dim=1) / between.sum(dim=1).clamp(min=1)
        told = here | right.isfinite()
        known = torch.stack([value.asinh(), change.asinh(), mean.asinh(), told.to(x)], dim=-1)
        return torch.where(told.unsqueeze(-1), known, 0.0).flatten(1)

    def _near(
        self,
        q: Tensor,
        past: Memory,
        future: Memory | None,
        queries: Queries,
        scales: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Weighed means of the nearest observations ``(Q, heads)``, and whether there are any."""
        at = (queries.row, queries.channel)
        value, age = past.recent[at], past.ages[at] + queries.ahead.unsqueeze(1)
        if future is not None:
            value = torch.cat([value, future.recent[at]], dim=1)
            age = torch.cat([age, -future.ages[at]], dim=1)
        known = age.isfinite()
        age = torch.where(known, age, 0.0)
        apart = age.abs()
        n = self.config.n_recent
        # The nearest of a side is told from the others by its place, too.
        place = torch.arange(value.shape[1], device=value.device) % n
        first = (place == 0).to(value).expand_as(value)
        periods = (self.periods / self.scales[0]).to(age)
        waves = _waves(age.unsqueeze(-1) / periods) if len(periods) else []
        seen = torch.stack([apart.log1p(), (age < 0).to(age), first, value.asinh()], dim=-1)
        decay = torch.exp(-apart.unsqueeze(-1) / scales)
        hidden = self.near(torch.cat([seen, decay, *waves], dim=-1))
        hidden = F.gelu(hidden + self.near_query(q).unsqueeze(1))
        score = self.near_weight(hidden).masked_fill(~known.unsqueeze(-1), -1e4)
        near = (score.softmax(dim=1) * value.unsqueeze(-1)).sum(dim=1)
        return near, known.any(dim=1, keepdim=True)

    def _attend(self, q: Tensor, tokens: Tensor, row: Tensor, even: bool) -> Tensor:
        """Queries ``(Q, d)`` attend to the tokens of their moments ``(R, C + 1, d)``."""
        (n, length, d), heads = tokens.shape, self.config.n_heads
        padded, place = self.to_q(self.norm_query(q)), row
        if even:
            padded = padded.view(n, -1, heads, d // heads)
        else:
            count = torch.bincount(row, minlength=n)
            place = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row]
            most = int(count.max()) if len(row) else 0
            padded = q.new_zeros(n, most, d).index_put((row, place), padded)
            padded = padded.view(n, most, heads, d // heads)
        k, v = (
            self.to_kv(self.norm_tokens(tokens))
            .view(n, length, 2, heads, d // heads)
            .permute(2, 0, 3, 1, 4)
        )
        mixed = F.scaled_dot_product_attention(padded.transpose(1, 2), k, v)
        mixed = mixed.transpose(1, 2).flatten(-2)
        return mixed.flatten(0, 1) if even else mixed[row, place]

    def _levels(
        self,
        near: Tensor,
        there: Tensor,
        past: Memory,
        future: Memory | None,
        at: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Levels that may be mixed ``(Q, n)``, which of them are known, and the spread ``(Q,)``."""
        before, seen, spread = past.levels[at], past.seen[at].unsqueeze(1), past.spread[at]
        zero = torch.zeros_like(before[:, :1])
        always = torch.ones_like(there)
        after, line, seen_after = torch.zeros_like(before), zero, torch.zeros_like(there)
        if future is not None:
            after, seen_after = future.levels[at], future.seen[at].unsqueeze(1)
            left, right = past.ages[at][:, :1], future.ages[at][:, :1]
            share = (left / (left + right)).nan_to_num(0.0)  # of the way to the next observation
            line = before[:, :1] + share * (after[:, :1] - before[:, :1])
            spread = torch.maximum(spread, future.spread[at])
        return (
            torch.cat([near, before, after, line, zero], dim=1),
            torch.cat(
                [
                    there.expand_as(near), seen.expand_as(before), seen_after.expand_as(after),
                    seen & seen_after, always,
                ],
                dim=1,
            ),
            spread,
        )  # fmt: skip


def _known(moments: Moments) -> Tensor:
    """Which values ``(R, L, C)`` may be looked at, besides a known future."""
    seen = ~moments.values.isnan() & moments.times.isfinite().unsqueeze(-1)
    return seen if moments.both_sides else seen & (moments.times <= 0).unsqueeze(-1)


def _waves(turns: Tensor) -> list[Tensor]:
    """``(..., P)`` -> sines and cosines of each period and its harmonics."""
    angles = [2 * math.pi * k * turns for k in range(1, _HARMONICS + 1)]
    return [wave for angle in angles for wave in (angle.sin(), angle.cos())]


def _solved(gram: Tensor, right: Tensor) -> Tensor:
    """Solve ``gram (..., n, n) x = right (..., n, 1)``, gram positive definite; ``(..., n)``.

    By elimination, in operations that every backend and graph has.
    """
    rows = torch.cat([gram, right], dim=-1)
    for i in range(gram.shape[-1]):
        pivot = rows[..., i : i + 1, :] / rows[..., i : i + 1, i : i + 1]
        rows = torch.cat(
            [
                rows[..., :i, :] - rows[..., :i, i : i + 1] * pivot,
                pivot,
                rows[..., i + 1 :, :] - rows[..., i + 1 :, i : i + 1] * pivot,
            ],
            dim=-2,
        )
    return rows[..., -1]


def far_weight(ahead: Tensor) -> Tensor:
    """Weights of errors ``(Q,)`` at times ahead, in usual gaps: far values, whose errors are large,
    must not alone decide.
    """
    return (1 + ahead).rsqrt()


def _epoch(batch: SeriesBatch) -> float:
    """Seconds from 1970 to the origin of dates; 0 if there are none."""
    if batch.time_origin is None:
        return 0.0
    return float(batch.time_origin.astype("datetime64[ns]").astype(np.int64)) / 1e9
