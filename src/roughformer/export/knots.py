"""Lifted paths at all times that matter: points, delayed points and cuts, in one sorted row."""

from typing import NamedTuple

import torch
from torch import Tensor

from roughformer.export.dense import at_rows, last_at_or_before, number
from roughformer.export.filling import Points
from roughformer.lifts import ViewLifts

__all__ = ["Knots", "lifted", "path_at", "place_knots"]


class Knots(NamedTuple):
    """Times ``(B, M)``, sorted, within the first and last cut, where any channel has a corner.

    ``at (B, W + 1)`` are the places of the cuts among them, ``begin (B, M - 1)`` that of the cut
    which begins the window of each piece between neighbours, ``window (B, M - 1)`` its number.
    """

    times: Tensor
    at: Tensor
    begin: Tensor
    window: Tensor


def place_knots(times: Tensor, edges: Tensor, delays: tuple[float, ...] = ()) -> Knots:
    """``times (B, M)`` of the corners, cuts ``edges (B, W + 1)``, delays of lagged channels.

    Knots outside of the cuts are moved onto the first or last one, so that nothing moves there.
    Neighbours may be equal: nothing moves between them.
    """
    every = torch.cat([times, *(times + number(delay, times) for delay in delays), edges], dim=1)
    every = torch.minimum(torch.maximum(every, edges[:, :1]), edges[:, -1:])
    sorted_, order = torch.sort(every, dim=1, stable=True)
    size, n_cuts = every.shape[1], edges.shape[1]
    column = torch.arange(size, device=every.device).unsqueeze(0).expand(order.shape)
    where = torch.zeros_like(order).scatter(1, order, column)
    is_cut = (order >= size - n_cuts).to(torch.int64)
    window = (is_cut.cumsum(dim=1) - 1).clamp(min=0)[:, :-1]
    at = where[:, size - n_cuts :]
    return Knots(sorted_, at, at.gather(1, window), window)


def path_at(points: Points, when: Tensor) -> Tensor:
    """The path ``(B, N, C)`` at times ``when (B, N)``, constant before and after its points."""
    low = last_at_or_before(points.times, when)
    high = (low + 1).clamp(max=points.times.shape[1] - 1)
    left, right = points.times.gather(1, low), points.times.gather(1, high)
    gap = right - left
    share = torch.where(gap > 0, (when - left) / torch.where(gap > 0, gap, 1.0), 0.0)
    a, b = at_rows(points.x, low), at_rows(points.x, high)
    return a + share.clamp(0, 1).unsqueeze(-1) * (b - a)


def lifted(points: Points, knots: Knots, lifts: ViewLifts, n_channels: int) -> Tensor:
    """``(B, M, d)``: time, channels, their lags, and what else the points have (counts), at the
    knots. The first ``n_channels`` of the points are channels.
    """
    last = points.times[:, -1:]
    when = torch.minimum(
        knots.times.clamp(min=0), last
    )  # outside of its points a path stands still
    here = path_at(points, when)
    parts = [here[..., :n_channels]]
    own = Points(points.times, points.x[..., :n_channels])
    parts += [path_at(own, when - number(lag.delay, when)) for lag in lifts.lags]
    if lifts.counts:
        parts.append(here[..., n_channels:])
    if lifts.time is not None:
        unit = lifts.time.unit
        if unit is None:
            moving = last > 0
            clock = torch.where(moving, when / torch.where(moving, last, 1.0), 0.0)
        else:
            clock = when * number(1.0 / unit, when)
        parts.insert(0, clock.unsqueeze(-1))
    return torch.cat(parts, dim=-1)
