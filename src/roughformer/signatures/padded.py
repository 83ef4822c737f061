"""Padded series as paths, in torch: filling, holding, cutting and lifting.

The one definition of these steps; on a CPU the native kernel does some of them faster. Series are
rows of ``values (B, L, C)``, ``times (B, L)`` with ``lengths (B,)``. No step looks at the data to
decide what to do and none loops over points, so that each becomes a plain node of a graph whatever
B and L are. Times and values are float64 throughout: differences come before any rounding.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from roughformer.errors import InputError
from roughformer.signatures.lifts import ViewLifts
from roughformer.signatures.windows import Windows

__all__ = [
    "Knots",
    "Observed",
    "Placed",
    "Points",
    "at_rows",
    "held_points",
    "inside_of",
    "last_at_or_before",
    "lifted",
    "linear_points",
    "linear_points_backward",
    "number",
    "observation_order",
    "observed",
    "padded_series",
    "path_at",
    "place",
    "place_knots",
    "running_sum",
    "running_sums",
    "window_count",
    "with_counts",
]


def number(x: float, like: Tensor) -> Any:
    """``x`` for arithmetic with tensors in float64; a tensor itself in a graph, because exporters
    round plain numbers to float32, also where all around them is float64.
    """
    if not torch.compiler.is_exporting():
        return x
    return torch.tensor(x, dtype=torch.float64, device=like.device)


def at_rows(x: Tensor, at: Tensor) -> Tensor:
    """``x (B, M, ...)``, ``at (B, N)`` -> ``(B, N, ...)``: row ``at[b, n]`` of ``x[b]``."""
    row = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    if torch.compiler.is_exporting():
        return x[row, at]
    rows = (row * x.shape[1] + at).flatten()  # several times as fast on a CPU
    return x.flatten(0, 1).index_select(0, rows).reshape(*at.shape, *x.shape[2:])


def last_at_or_before(times: Tensor, query: Tensor) -> Tensor:
    """``times (B, M)`` that do not decrease, ``query (B, N)`` -> ``(B, N)``: the number of the last
    time at or before each query, 0 if there is none.

    ONNX has no search: there times and queries are sorted together, equal ones times first.
    """
    if not torch.compiler.is_exporting():
        found = torch.searchsorted(
            times.detach().contiguous(), query.detach().contiguous(), right=True
        )
        return (found - 1).clamp(min=0)
    size = times.shape[1]
    order = _sorted(torch.cat([times, query], dim=1)).indices
    before = (order < size).to(torch.int64).cumsum(dim=1)
    found = torch.zeros_like(order).scatter(1, order, before)
    return (found[:, size:] - 1).clamp(min=0)


def _sorted(x: Tensor) -> Any:
    """Rows in order, equal entries as they were: torch's exporter to ONNX has no stable sort, but
    what it makes of the other one keeps their order.
    """
    return (
        torch.sort(x, dim=1)
        if torch.onnx.is_in_onnx_export()
        else torch.sort(x, dim=1, stable=True)
    )


def _merged(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Two rows of times that do not decrease, ``(B, M)`` and ``(B, N)``, as one ``(B, M + N)``, and
    where each entry comes from; of equal times those of the first row come first.
    """
    both = torch.cat([first, second], dim=1)
    if torch.compiler.is_exporting():
        found = _sorted(both)
        return found.values, found.indices
    a, b = (x.detach().contiguous() for x in (first, second))
    place_a = torch.searchsorted(b, a) + torch.arange(a.shape[1], device=a.device)
    place_b = torch.searchsorted(a, b, right=True) + torch.arange(b.shape[1], device=b.device)
    place = torch.cat([place_a, place_b], dim=1)
    source = torch.arange(both.shape[1], device=both.device).expand(place.shape)
    order = torch.zeros_like(place).scatter(1, place, source)
    return both.gather(1, order), order


def running_sum(x: Tensor) -> Tensor:
    """``(B, N, ...)`` -> ``(B, N + 1, ...)``: the sum of what comes before each place."""
    return torch.cat([torch.zeros_like(x[:, :1]), x], dim=1).cumsum(dim=1)


def inside_of(lengths: Tensor, size: int) -> Tensor:
    """``(B,)`` -> ``(B, size)``: True for the first ``lengths[b]`` places."""
    return torch.arange(size, device=lengths.device).unsqueeze(0) < lengths.unsqueeze(1)


# Observations and paths


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


def padded_series(
    values: Tensor, times: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """``values (B, L, C)`` with ``times (B, L)`` and ``lengths (B,)``: filled in where they are not
    given, spread out where they are shared; ``InputError`` for other shapes.
    """
    if values.dim() != 3 or not values.is_floating_point() or values.shape[1] == 0:
        raise InputError(
            "values must be floating-point numbers of shape (batch, length, channels), with a "
            f"length of at least 1, got {values.dtype} of shape {tuple(values.shape)}"
        )
    batch, size, _ = values.shape
    if times is None:
        times = torch.arange(size, dtype=torch.float64, device=values.device)
    if times.dim() == 1:
        times = times.expand(batch, size)
    if times.shape != (batch, size):
        raise InputError(f"times must be ({batch}, {size}) or ({size},), got {tuple(times.shape)}")
    if lengths is None:
        lengths = torch.full((batch,), size, dtype=torch.int64, device=values.device)
    if lengths.shape != (batch,) or lengths.is_floating_point():
        raise InputError(
            f"lengths must be {batch} whole numbers, got {lengths.dtype} {tuple(lengths.shape)}"
        )
    if values.device.type == "cpu" and not _in_a_transform():
        _check_series(values.detach(), times.detach(), lengths)
    return values, times, lengths.to(torch.int64)


def _in_a_transform() -> bool:
    """Whether a graph is in the making, or ``torch.func`` at work: then there are no numbers."""
    if torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return True
    return torch._C._are_functorch_transforms_active()


def _check_series(values: Tensor, times: Tensor, lengths: Tensor) -> None:
    """``InputError`` for what would give wrong numbers in silence; on other devices nothing looks,
    because that would wait for them.
    """
    size = values.shape[1]
    wrong = (lengths < 1) | (lengths > size)
    if wrong.any():
        b = int(wrong.int().argmax())
        raise InputError(f"lengths must be from 1 to {size}, got {lengths[b]} for series {b}")
    inside = inside_of(lengths, size)
    bad = ~times.isfinite()
    bad[:, 1:] |= ~(times[:, 1:] > times[:, :-1])  # not "<=": NaN must not pass
    bad &= inside
    if bad.any():
        b, i = (int(k) for k in bad.nonzero()[0])
        raise InputError(
            f"times must be finite and increase within each series, got {times[b, max(i - 1, 0)]} "
            f"then {times[b, i]} at point {i} of series {b}; sort each series by time and merge "
            "points of the same time"
        )
    infinite = values.isinf().any(dim=2) & inside
    if infinite.any():
        b, i = (int(k) for k in infinite.nonzero()[0])
        raise InputError(
            f"values must be finite, or NaN where not observed; point {i} of series {b} is not"
        )


def observed(values: Tensor, times: Tensor, lengths: Tensor) -> Observed:
    """``values (B, L, C)``, ``times (B, L)``, ``lengths (B,)``; padding is ignored."""
    real = inside_of(lengths, values.shape[1])
    start = times[:, 0].double()
    since = times.double() - start.unsqueeze(1)
    last = since.gather(1, (lengths - 1).clamp(min=0).unsqueeze(1))
    seen = ~values.isnan() & real.unsqueeze(-1)
    clean = torch.where(seen, values, 0.0).double()
    return Observed(start, torch.where(real, since, last), clean, seen, lengths)


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


def _neighbours(data: Observed) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of the observations before (or at) and after each point, and the weight of the latter,
    each ``(B, L, C)``; outside of a channel's observations both are the nearest one.
    """
    count, place = observation_order(data.seen)
    most = count[:, -1:].clamp(min=1)
    left = place.gather(1, torch.minimum(count.clamp(min=1), most))
    right = place.gather(1, torch.minimum(count + 1, most))
    times = data.since.unsqueeze(-1).expand(data.values.shape)
    before, after = times.gather(1, left), times.gather(1, right)
    gap = after - before
    return left, right, torch.where(gap > 0, (times - before) / torch.where(gap > 0, gap, 1.0), 0.0)


def linear_points(data: Observed) -> Points:
    """Each channel linear in time between its own observations, constant before and after; 0 where
    there are none.
    """
    left, right, weight = _neighbours(data)
    low, high = data.values.gather(1, left), data.values.gather(1, right)
    mixed = low * (1 - weight) + high * weight
    # Rounding must not leave the range of the two observations; gradients are those of `mixed`.
    inside = torch.minimum(torch.maximum(mixed, torch.minimum(low, high)), torch.maximum(low, high))
    mixed = mixed + (inside - mixed).detach()
    return Points(data.since, torch.where(data.seen.any(dim=1, keepdim=True), mixed, 0.0))


def linear_points_backward(data: Observed, grad: Tensor) -> Tensor:
    """Gradient in the observations from ``grad (B, L, C)``, that in ``linear_points(data).x``."""
    left, right, weight = _neighbours(data)
    found = torch.zeros_like(grad).scatter_add(1, left, grad * (1 - weight).to(grad.dtype))
    found = found.scatter_add(1, right, grad * weight.to(grad.dtype))
    return torch.where(data.seen, found, 0.0)


def held_points(data: Observed, cuts: Tensor, complete: bool = False) -> Points:
    """The last value is held up to each of the ``cuts (B, W + 1)``, counted from the first point;
    0 before a channel's first observation. ``complete``: nothing is missing.
    """
    if complete:
        column = torch.arange(data.since.shape[1], device=cuts.device)
        x = at_rows(data.values, torch.minimum(column, (data.lengths - 1).unsqueeze(1)))
    else:
        count, place = observation_order(data.seen)
        known = data.values.gather(1, place.gather(1, count))
        x = torch.where(count > 0, known, 0.0)
    before = last_at_or_before(data.since, cuts)
    there = data.since.gather(1, before)
    # A cut on a point, or before the first one, is no corner of its own: the point comes twice.
    added = torch.where((cuts > 0) & (cuts > there), cuts, there)
    times, order = _merged(data.since, added)
    return Points(times, at_rows(torch.cat([x, at_rows(x, before)], dim=1), order))


def with_counts(points: Points, data: Observed, lifts: ViewLifts) -> Points:
    """The points with the numbers of observations after the first point as further channels, if
    the lifts ask for them.
    """
    if lifts.counts is None:
        return points
    counts = data.seen.double().cumsum(dim=1)
    counts = (counts - counts[:, :1]) * number(lifts.counts.scale, counts)
    return Points(points.times, torch.cat([points.x, counts], dim=-1))


# Windows


class Placed(NamedTuple):
    """``edges (B, W + 1)``: cut times counted from each series' first point, the last one repeated
    where a series has fewer windows; ``mask (B, W)`` True = real, None if all are.
    """

    edges: Tensor
    mask: Tensor | None

    @property
    def since_first(self) -> Tensor:
        """``(B, W)``: ends of the windows, counted from the first cut."""
        return self.edges[:, 1:] - self.edges[:, :1]


def place(rule: Windows, data: Observed) -> Placed:
    """The windows of each series, as ``Windows.place``; their number W is that of the series that
    may have most.
    """
    span = data.span.unsqueeze(1)
    device = span.device
    if rule.rule == "count":
        n = int(rule.amount)
        shares = torch.arange(n + 1, dtype=torch.float64, device=device) / n
        return Placed(span * shares, None)
    if rule.rule == "explicit":
        cuts = torch.tensor(rule.cuts[0].tolist(), dtype=torch.float64, device=device)
        return Placed(cuts - data.start.unsqueeze(1), None)
    if rule.rule == "points":
        step = int(rule.amount)
        count = window_count(rule, data.span, data.lengths)
        column = torch.arange(_most(count) + 1, device=device).unsqueeze(0)
        at = torch.minimum(column * step, (data.lengths - 1).unsqueeze(1))
        edges = data.since.gather(1, at)
    else:
        count = window_count(rule, data.span, data.lengths)
        column = torch.arange(_most(count) + 1, device=device).unsqueeze(0)
        ends = column.double() * number(rule.amount, span)
        edges = torch.where(column >= count.unsqueeze(1), span, ends)
    return Placed(edges, inside_of(count, edges.shape[1] - 1))


def window_count(rule: Windows, span: Tensor, lengths: Tensor) -> Tensor:
    """How many windows by duration or points series of these spans and lengths ``(B,)`` have, as
    ``Windows.place`` counts them.
    """
    if rule.rule == "points":
        step = int(rule.amount)
        return ((lengths + (step - 2)) // step).clamp(min=1)
    amount = number(rule.amount, span)
    if not rule.exact:
        # Allow for rounding: 0.3 / 0.1 is three windows, not three and a sliver.
        share = span / amount * number(1 - 1e-12, span)
        return _whole((share - number(1e-9, span)).ceil())
    count = (span / amount).ceil()
    # The quotient is rounded; whether a cut lies before the end is not.
    count = count - ((count - 1) * amount >= span).double()
    count = count + (count * amount < span).double()
    return _whole(count)


def _whole(count: Tensor) -> Tensor:
    """At least 1, and still a number where the quotient is beyond all whole ones."""
    return count.clamp(1, 2.0**62).to(torch.int64)


def _most(count: Tensor) -> int:
    """The largest of ``(B,)``: a size that a graph takes from the data."""
    if count.shape[0] == 0:
        return 1
    most: int = count.max().item()  # type: ignore[assignment]  # int() would fix it for ever
    torch._check(most >= 1)  # type: ignore[no-untyped-call]
    return most


# Lifted paths


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
    first, last = edges[:, :1], edges[:, -1:]
    sorted_ = torch.minimum(torch.maximum(times, first), last)
    for delay in delays:
        later = times + number(delay, times)
        sorted_ = _merged(sorted_, torch.minimum(torch.maximum(later, first), last))[0]
    sorted_, order = _merged(sorted_, edges)
    size, n_cuts = sorted_.shape[1], edges.shape[1]
    column = torch.arange(size, device=order.device).unsqueeze(0).expand(order.shape)
    where = torch.zeros_like(order).scatter(1, order, column)
    is_cut = (order >= size - n_cuts).to(torch.int64)
    window = (is_cut.cumsum(dim=1) - 1).clamp(min=0)[:, :-1]
    at = where[:, size - n_cuts :]
    return Knots(sorted_, at, at.gather(1, window), window)


def running_sums(x: Tensor, knots: Knots, local: bool) -> tuple[Tensor, Tensor]:
    """Of ``x (B, M - 1, F)``, one row for each piece: the sum of the rows before each, since the
    first cut or, if ``local``, since its window began, and the sums ``(B, W, F)`` at window ends.

    Sums of windows must not be differences of sums over the series, where a large window would take
    the digits of a small one: rows are added up in doubling steps that stop where a window begins.
    A graph, whose number of steps cannot depend on its input, does take differences.
    """
    if not local or torch.compiler.is_exporting():
        total = running_sum(x)
        ends = at_rows(total, knots.at)
        # Nothing moves before the first cut: there the sum is still 0.
        if not local:
            return total[:, :-1], ends[:, 1:]
        return total[:, :-1] - at_rows(total, knots.begin), ends[:, 1:] - ends[:, :-1]
    row = torch.arange(x.shape[1], device=x.device)
    since = (row - knots.begin).unsqueeze(-1)  # pieces of the same window before each
    before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)
    before = torch.where(since > 0, before, 0.0)
    reach = 1
    while reach < x.shape[1]:
        earlier = torch.cat([torch.zeros_like(before[:, :reach]), before[:, :-reach]], dim=1)
        before = before + torch.where(since > reach, earlier, 0.0)
        reach *= 2
    last = (knots.at[:, 1:] - 1).clamp(min=0)
    some = (knots.at[:, 1:] > knots.at[:, :-1]).unsqueeze(-1)
    return before, torch.where(some, at_rows(before, last) + at_rows(x, last), 0.0)


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
    # Outside of its points a path stands still.
    when = torch.minimum(knots.times.clamp(min=0), last)
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
