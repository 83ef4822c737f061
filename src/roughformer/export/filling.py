"""Padded series without gaps: as ``series/_fill.py`` and ``tokens/holding.py``, dense."""

from typing import NamedTuple

import torch
from torch import Tensor

from roughformer.export.dense import at_rows, inside_of, last_at_or_before

__all__ = ["Observed", "Points", "held_points", "linear_points", "observation_order", "observed"]


class Observed(NamedTuple):
    """A padded batch as it came, its times counted from each series' first point.

    ``start (B,)``, ``since (B, L)`` (the last time repeated in the padding), ``values (B, L, C)``
    float64 with 0 where ``seen (B, L, C)`` is False, ``lengths (B,)``.
    """

    start: Tensor
    since: Tensor
    values: Tensor
    seen: Tensor
    lengths: Tensor

    @property
    def span(self) -> Tensor:
        """``(B,)``: from the first to the last point."""
        return self.since[:, -1]


class Points(NamedTuple):
    """Corners of piecewise-linear paths: ``times (B, M)`` that do not decrease, ``x (B, M, C)``.

    Corners may be repeated: nothing moves between them.
    """

    times: Tensor
    x: Tensor


def observed(values: Tensor, times: Tensor, lengths: Tensor) -> Observed:
    """``values (B, L, C)``, ``times (B, L)``, ``lengths (B,)``; padding is ignored."""
    size = values.shape[1]
    real = inside_of(lengths, size)
    start = times[:, 0].double()
    since = times.double() - start.unsqueeze(1)
    last = since.gather(1, (lengths - 1).clamp(min=0).unsqueeze(1))
    seen = ~values.isnan() & real.unsqueeze(-1)
    wide = torch.where(seen, values.double(), 0.0)
    return Observed(start, torch.where(real, since, last), wide, seen, lengths)


def observation_order(seen: Tensor) -> tuple[Tensor, Tensor]:
    """``seen (B, L, C)`` -> how many observations there were so far ``(B, L, C)``, and the row
    ``(B, L + 1, C)`` of the n-th of them, n = 1, 2, ...
    """
    batch, size, channels = seen.shape
    count = seen.to(torch.int64).cumsum(dim=1)
    row = torch.arange(size, device=seen.device)[None, :, None].expand(batch, size, channels)
    nothing = torch.zeros(batch, size + 1, channels, dtype=torch.int64, device=seen.device)
    # What was not observed goes to place 0, which nothing reads.
    return count, nothing.scatter(1, torch.where(seen, count, 0), row)


def linear_points(data: Observed) -> Points:
    """Each channel linear in time between its own observations, constant before and after; 0 where
    there are none.
    """
    count, place = observation_order(data.seen)
    total = count[:, -1:]
    most = total.clamp(min=1)
    left = place.gather(1, torch.minimum(count.clamp(min=1), most))
    right = place.gather(1, torch.minimum(count + 1, most))
    times = data.since.unsqueeze(-1).expand(data.values.shape)
    before, after = times.gather(1, left), times.gather(1, right)
    gap = after - before
    weight = torch.where(gap > 0, (times - before) / torch.where(gap > 0, gap, 1.0), 0.0)
    low, high = data.values.gather(1, left), data.values.gather(1, right)
    mixed = low * (1 - weight) + high * weight
    mixed = torch.minimum(torch.maximum(mixed, torch.minimum(low, high)), torch.maximum(low, high))
    filled = torch.where(data.seen, data.values, torch.where(count > 0, mixed, low))
    return Points(data.since, torch.where(total > 0, filled, 0.0))


def held_points(data: Observed, cuts: Tensor) -> Points:
    """The last value is held up to each of the ``cuts (B, W + 1)``, counted from the first point;
    0 before a channel's first observation.
    """
    count, place = observation_order(data.seen)
    known = data.values.gather(1, place.gather(1, count))
    x = torch.where(count > 0, known, 0.0)
    before = last_at_or_before(data.since, cuts)
    there = data.since.gather(1, before)
    # A cut on a point, or before the first one, is no corner of its own: the point comes twice.
    added = torch.where((cuts > 0) & (cuts > there), cuts, there)
    times, order = torch.sort(torch.cat([data.since, added], dim=1), dim=1, stable=True)
    return Points(times, at_rows(torch.cat([x, at_rows(x, before)], dim=1), order))
