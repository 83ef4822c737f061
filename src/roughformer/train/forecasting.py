"""Learn to forecast and to interpolate from the series themselves.

Each step takes some series and draws a moment in each: for forecasts the points up to it are the
past and observations after it the targets; for interpolation some observations are hidden, and
those at the moment are the targets, with both sides given.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from roughformer.model import QUANTILES, Forecaster, Moments, Queries
from roughformer.series import SeriesBatch

__all__ = ["Drawn", "ScaledSeries", "draw_forecasts", "draw_interpolations", "train_forecaster"]

Array = npt.NDArray[Any]

_PER_CHANNEL = 2  # targets of a channel of a series in one step
_HUBER = 5.0  # standard deviations beyond which errors of the mean count linearly
_ROWS = 2  # moments of a series in one step of interpolation
_MOST_HIDDEN = 0.8  # largest share of observations hidden in a step of interpolation
_AVERAGED = 0.998  # decay of the running mean of the weights
_GIVEN = 0.8  # share of forecasts in training that see the future of channels that have a known one
_BALANCE = 0.5  # power of a channel's rarity that its targets are weighted by


class ScaledSeries(NamedTuple):
    """Series as the model meets them, flat: values scaled, times in units of the model.

    Attributes
    ----------
    values : ndarray (N, C)
        float32; NaN = not observed.
    times : ndarray (N,)
        float64.
    offsets : ndarray (B + 1,)
        Series b has the points ``offsets[b]:offsets[b + 1]``.
    static : ndarray (B, S)
        float32; NaN = unknown.
    epoch : float
        What to add to times to get absolute ones, for the periods.
    context : int
        Number of points on each side of a moment that are looked at.
    known : ndarray of bool (C,)
        Channels whose future is known.
    """

    values: Array
    times: Array
    offsets: Array
    static: Array
    epoch: float
    context: int
    known: Array

    @classmethod
    def of(
        cls, batch: SeriesBatch, static: Array, model: Forecaster, context: int
    ) -> "ScaledSeries":
        """Scale a batch as the model's training series were."""
        centre, spread = model.centre.cpu().numpy(), model.spread.cpu().numpy()
        scaled = (static - model.static_centre.cpu().numpy()) / model.static_spread.cpu().numpy()
        return cls(
            ((batch.values - centre) / spread).astype(np.float32),
            batch.times,
            batch.offsets,
            np.clip(scaled, -4, 4).astype(np.float32),
            _epoch(batch),
            context,
            np.isin(np.arange(batch.n_channels), model.config.known),
        )

    def moments(self, series: Array, at: Array, *, both_sides: bool) -> tuple[Moments, Array]:
        """Series around the times ``at (R,)``, and the numbers of their points (R, L), -1 = none.

        Unless both sides are asked for, only channels with a known future have values after it.
        """
        begin, end = self.offsets[series], self.offsets[series + 1]
        place = np.array(
            [
                b + np.searchsorted(self.times[b:e], t, side="right")
                for b, e, t in zip(begin, end, at, strict=True)
            ],
            dtype=np.int64,
        )
        first = np.maximum(begin, place - self.context)
        ahead = both_sides or self.known.any()
        last = np.minimum(end, place + self.context) if ahead else place
        number = first[:, None] + np.arange(max(int((last - first).max(initial=0)), 1))
        inside = number < last[:, None]
        number = np.where(inside, number, -1)
        times = np.where(inside, self.times[number] - at[:, None], np.nan)
        inside = inside[..., None]
        if not both_sides:
            inside = inside & (self.known | (number < place[:, None])[..., None])
        values = np.where(inside, self.values[number], np.float32(np.nan))
        return (
            Moments(
                torch.from_numpy(values),
                torch.from_numpy(times.astype(np.float32)),
                torch.from_numpy((at - self.times[begin]).astype(np.float32)).clamp(min=0),
                torch.from_numpy(self.static[series]),
                both_sides,
            ),
            number,
        )

    def queries(
        self, row: Array, channel: Array, times: Array, at: Array, periods: Array
    ) -> Queries:
        """Ask for channels at ``times (Q,)`` of the moments ``at (R,)``."""
        phase = np.mod((times[:, None] + self.epoch) / periods, 1.0) if len(periods) else None
        return Queries(
            torch.from_numpy(row),
            torch.from_numpy(channel),
            torch.from_numpy((times - at[row]).astype(np.float32)).clamp(min=0),
            torch.zeros(len(row), 0)
            if phase is None
            else torch.from_numpy(phase.astype(np.float32)),
        )


class Drawn(NamedTuple):
    """Moments, queries, and the scaled values that were there ``(Q,)``."""

    moments: Moments
    queries: Queries
    target: Tensor


def draw_forecasts(
    data: ScaledSeries,
    series: Array,
    horizon: float,
    periods: Array,
    rng: np.random.Generator,
    per_channel: int = _PER_CHANNEL,
    given: float = 1.0,
) -> Drawn:
    """Draw an origin in each series, and observations up to ``horizon`` after it.

    ``given``: share of the series whose known future is given. Channels that have one are asked for
    in the other series only.
    """
    begin, end = data.offsets[series], data.offsets[series + 1]
    # Any point but the last may be the origin; a series of one point has nothing to forecast.
    origin = begin + np.floor(rng.random(len(series)) * np.maximum(end - begin - 1, 1)).astype(int)
    at = data.times[origin]
    moments, _ = data.moments(series, at, both_sides=False)
    queried = np.ones((len(series), 1, data.values.shape[1]), dtype=bool)
    if data.known.any():
        revealed = rng.random(len(series)) < given
        hidden = torch.from_numpy(~revealed)[:, None, None] & (moments.times > 0).unsqueeze(-1)
        moments = moments._replace(values=moments.values.masked_fill(hidden, torch.nan))
        queried = ~(revealed[:, None, None] & data.known)
    stop = np.array(
        [
            o + np.searchsorted(data.times[o:e], t + horizon, side="right")
            for o, e, t in zip(origin, end, at, strict=True)
        ],
        dtype=np.int64,
    )
    number = origin[:, None] + 1 + np.arange(max(int((stop - origin).max(initial=1)) - 1, 0))
    inside = number < stop[:, None]
    number = np.where(inside, number, 0)
    row, column, channel = np.nonzero(inside[..., None] & queried & ~np.isnan(data.values[number]))
    keep = _at_most(per_channel, row * data.values.shape[1] + channel, rng)
    row, column, channel = row[keep], column[keep], channel[keep]
    point = number[row, column]
    queries = data.queries(row, channel, data.times[point], at, periods)
    return Drawn(moments, queries, torch.from_numpy(data.values[point, channel]))


def draw_interpolations(
    data: ScaledSeries, series: Array, periods: Array, rng: np.random.Generator
) -> Drawn:
    """Draw a point in each series, hide its observations and a share of the others."""
    begin, end = data.offsets[series], data.offsets[series + 1]
    point = begin + np.floor(rng.random(len(series)) * (end - begin)).astype(int)
    at = data.times[point]
    moments, number = data.moments(series, at, both_sides=True)
    share = rng.random((len(series), 1, 1)) * _MOST_HIDDEN
    hidden = rng.random((*number.shape, data.values.shape[1])) < share
    here = number == point[:, None]
    # All channels of the point, or each by itself: others may be known at the same time.
    whole = rng.random((len(series), 1, 1)) < 0.5
    chosen = rng.random((len(series), 1, data.values.shape[1])) < 0.5
    hidden = np.where(here[..., None], whole | chosen, hidden)
    row, column, channel = np.nonzero(here[..., None] & hidden & ~moments.values.isnan().numpy())
    target = moments.values[row, column, channel]
    values = moments.values.masked_fill(torch.from_numpy(hidden), torch.nan)
    queries = data.queries(row, channel, at[row], at, periods)
    return Drawn(moments._replace(values=values), queries, target)


def train_forecaster(
    model: Forecaster,
    data: ScaledSeries,
    *,
    horizon: float,
    steps: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    interpolation: bool,
    seed: int,
    device: torch.device,
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> list[dict[str, Any]]:
    """Train in place, and leave the running mean of the weights; the losses on the way."""
    rng = np.random.default_rng(seed)
    periods = model.periods.cpu().numpy()
    weight = _channel_weights(data.values).to(device)
    model.to(device).train()
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0}],
        lr=learning_rate,
    )
    averaged = [p.detach().clone() for p in model.parameters()]
    history: list[dict[str, Any]] = []
    order, n = np.zeros(0, dtype=np.int64), len(data.offsets) - 1
    total, counted = 0.0, 0
    for step in range(steps):
        while len(order) < min(batch_size, n):
            order = np.concatenate([order, rng.permutation(n)])
        series, order = order[:batch_size], order[batch_size:]
        drawn = [draw_forecasts(data, series, horizon, periods, rng, given=_GIVEN)]
        if interpolation and step % 2:
            drawn.append(draw_interpolations(data, np.repeat(series, _ROWS), periods, rng))
        losses = [_loss(model, d, weight, device) for d in drawn if len(d.target)]
        rate = learning_rate * min(1.0, (step + 1) / min(100, max(steps // 10, 1)))
        rate *= 0.51 + 0.49 * math.cos(math.pi * step / steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        if not losses:
            continue
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        decay = min(_AVERAGED, (step + 1) / (step + 20))
        with torch.no_grad():
            for mean, now in zip(averaged, model.parameters(), strict=True):
                mean.lerp_(now, 1 - decay)
        total, counted = total + float(loss.detach()), counted + 1
        if counted == 100 or step == steps - 1:
            history.append({"step": step + 1, "loss": total / counted, "learning_rate": rate})
            total, counted = 0.0, 0
            if callback is not None:
                callback(history[-1])
    with torch.no_grad():
        for mean, now in zip(averaged, model.parameters(), strict=True):
            now.copy_(mean)
    model.eval()
    return history


def _epoch(batch: SeriesBatch) -> float:
    """Seconds from 1970 to the origin of dates; 0 if there are none."""
    if batch.time_origin is None:
        return 0.0
    return float(batch.time_origin.astype("datetime64[ns]").astype(np.int64)) / 1e9


def _loss(model: Forecaster, drawn: Drawn, weight: Tensor, device: torch.device) -> Tensor:
    """Huber's loss of the mean and pinball losses of the quantiles, by channel."""
    moments = drawn.moments.to(device)
    queries = drawn.queries.to(device)
    target = drawn.target.to(device)
    mean, quantiles = model(moments, queries)
    level = torch.tensor(QUANTILES, device=device)
    error = target.unsqueeze(1) - quantiles
    pinball = torch.maximum(level * error, (level - 1) * error).clamp(max=20).mean(dim=1)
    loss = F.huber_loss(mean, target, reduction="none", delta=_HUBER) + 2 * pinball
    each = weight[queries.channel]
    return (loss * each).sum() / each.sum()


def _channel_weights(values: Array) -> Tensor:
    """Weights of targets by channel: rare ones count more, though not as much as they are rare."""
    count = np.maximum((~np.isnan(values)).sum(axis=0), 1)
    rare: Array = (count.sum() / count) ** _BALANCE
    return torch.from_numpy((rare / rare.mean()).astype(np.float32))


def _at_most(n: int, key: Array, rng: np.random.Generator) -> Array:
    """Numbers of at most ``n`` entries of each key, drawn at random, in order."""
    order = np.lexsort((rng.random(len(key)), key))
    ordered = key[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]] if len(key) else np.zeros(0, bool)
    place = np.arange(len(key))
    rank = place - np.maximum.accumulate(np.where(first, place, 0)) if len(key) else place
    kept: Array = np.sort(order[rank < n])
    return kept
