"""Moments and queries: series as a ``Forecaster`` sees them, and questions with known answers.

A moment is drawn in each series: for forecasts the points up to it are the past and observations
after it the targets; for interpolation some observations are hidden, and those at the moment are
the targets, with both sides given. Training and calibration draw in this way.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]

_PER_CHANNEL = 2  # targets of a channel of a series in one step
_MOST_HIDDEN = 0.8  # largest share of observations hidden in a step of interpolation


class Moments(NamedTuple):
    """Series around R moments: what is known.

    Attributes
    ----------
    values : Tensor (R, L, C)
        Scaled values; NaN = not observed.
    times : Tensor (R, L)
        Times of the points after the moment (negative: before it); NaN in the padding.
    elapsed : Tensor (R,)
        Time between the start of the series and the moment.
    static : Tensor (R, S)
        Scaled static covariates; NaN = unknown.
    both_sides : bool
        Whether points after the moment count for all channels; else they count for channels whose
        future is known, and have NaN in the others. Points at the moment count as past.
    """

    values: Tensor
    times: Tensor
    elapsed: Tensor
    static: Tensor
    both_sides: bool

    def to(self, device: torch.device) -> "Moments":
        """Move to a device."""
        moved = {name: getattr(self, name).to(device) for name in self._fields[:4]}
        return self._replace(**moved)


class Queries(NamedTuple):
    """Q values that are asked for, in the order of their moments.

    Attributes
    ----------
    row : Tensor (Q,)
        Number of the moment.
    channel : Tensor (Q,)
        Number of the channel.
    ahead : Tensor (Q,)
        Time after the moment, at least 0.
    phase : Tensor (Q, P)
        Time of day, of week, ...: absolute time in periods, modulo 1.
    even : bool, default False
        Whether all moments have the same number of queries, which a graph can rely on.
    """

    row: Tensor
    channel: Tensor
    ahead: Tensor
    phase: Tensor
    even: bool = False

    def to(self, device: torch.device) -> "Queries":
        """Move to a device."""
        moved = {name: getattr(self, name).to(device) for name in self._fields[:4]}
        return self._replace(**moved)


@dataclass(frozen=True)
class ScaledSeries:
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
    n_recent : int
        Number of nearest observations of each channel that are looked at wherever they are, so that
        a slow channel is not forgotten beside a fast one.
    known : ndarray of bool (C,)
        Channels whose future is known.
    """

    values: Array
    times: Array
    offsets: Array
    static: Array
    epoch: float
    context: int
    n_recent: int
    known: Array

    @cached_property
    def _observed(self) -> list[Array]:
        """Numbers of the points where each channel was observed."""
        return [np.flatnonzero(~np.isnan(column)) for column in self.values.T]

    def _others(self, place: Array, start: Array, stop: Array, near: Array) -> Array:
        """Numbers (R, n), -1 = none, of the points in ``start:stop (R,)`` where a channel has an
        observation that is one of its nearest: ``near`` of them counted from ``place (R,)``.
        """
        none = np.full((len(place), 0), -1)
        if not (start < stop).any():
            return none
        numbers = [none]
        for seen in self._observed:
            rank = np.searchsorted(seen, place)[:, None] + near
            number = np.append(seen, -1)[np.where((rank >= 0) & (rank < len(seen)), rank, -1)]
            numbers.append(
                np.where((number >= start[:, None]) & (number < stop[:, None]), number, -1)
            )
        number = np.sort(np.concatenate(numbers, axis=1), axis=1)
        number[:, 1:][number[:, 1:] == number[:, :-1]] = -1  # of several channels
        return number[:, (number >= 0).any(axis=0)]

    def moments(self, series: Array, at: Array, *, both_sides: bool) -> tuple[Moments, Array]:
        """Series around the times ``at (R,)``, and the numbers of their points (R, L), -1 = none.

        These are ``context`` points on each side, and farther ones that hold one of the nearest
        ``n_recent`` observations of a channel. Unless both sides are asked for, only channels with
        a known future have values after it.
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
        near = np.arange(self.n_recent)
        numbers = [number, self._others(place, begin, first, near - self.n_recent)]
        if both_sides:
            numbers.append(self._others(place, last, end, near))
        number = np.concatenate(numbers, axis=1)
        inside = number >= 0
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
    given: float = 1.0,
    since: Array | None = None,
) -> Drawn:
    """Draw an origin in each series, and observations up to ``horizon`` after it.

    ``since``: the number of the first point ``(R,)`` that may be the origin. ``given``: share of
    the series whose known future is given. Channels that have one are asked for in the other
    series only.
    """
    begin, end = data.offsets[series], data.offsets[series + 1]
    begin = begin if since is None else since
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
    keep = _at_most(_PER_CHANNEL, row * data.values.shape[1] + channel, rng)
    row, column, channel = row[keep], column[keep], channel[keep]
    point = number[row, column]
    queries = data.queries(row, channel, data.times[point], at, periods)
    return Drawn(moments, queries, torch.from_numpy(data.values[point, channel]))


def draw_interpolations(
    data: ScaledSeries,
    series: Array,
    periods: Array,
    rng: np.random.Generator,
    since: Array | None = None,
) -> Drawn:
    """Draw a point in each series, hide its observations and a share of the others. ``since``: the
    number of the first point ``(R,)`` that may be drawn.
    """
    begin, end = data.offsets[series], data.offsets[series + 1]
    begin = begin if since is None else since
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


def _at_most(n: int, key: Array, rng: np.random.Generator) -> Array:
    """Numbers of at most ``n`` entries of each key, drawn at random, in order."""
    order = np.lexsort((rng.random(len(key)), key))
    ordered = key[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]] if len(key) else np.zeros(0, bool)
    place = np.arange(len(key))
    rank = place - np.maximum.accumulate(np.where(first, place, 0)) if len(key) else place
    kept: Array = np.sort(order[rank < n])
    return kept
