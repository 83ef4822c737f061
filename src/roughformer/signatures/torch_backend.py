"""Multi-view signature tokens of padded series, in torch: the one definition.

The native kernel computes the same faster on a CPU (``operators``); this serves everywhere else,
where gradients in the times or second derivatives are wanted, and in exported graphs. Series are
rows of ``values (B, L, C)``, ``times (B, L)`` with ``lengths (B,)``. No step looks at the data to
decide what to do and none loops over points, so that each becomes a plain node of a graph whatever
B and L are. Times and values are float64 throughout: differences come before any rounding.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from roughformer.errors import InputError
from roughformer.signatures.algebra import log_table
from roughformer.signatures.lifts import Clock, Layout, View, ViewLifts
from roughformer.signatures.paths import Cuts, Floats
from roughformer.signatures.words import lyndon_words, word_index


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
        after = torch.searchsorted(
            times.detach().contiguous(), query.detach().contiguous(), right=True
        )
        return (after - 1).clamp(min=0)
    size = times.shape[1]
    order = _sorted(torch.cat([times, query], dim=1)).indices
    before = (order < size).to(torch.int64).cumsum(dim=1)
    after = torch.zeros_like(order).scatter(1, order, before)
    return (after[:, size:] - 1).clamp(min=0)


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
        in_order = _sorted(both)
        return in_order.values, in_order.indices
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


def padded_series(values: Tensor, times: Any, lengths: Any) -> tuple[Tensor, Tensor, Tensor]:
    """``values (B, L, C)`` with ``times (B, L)`` and ``lengths (B,)``: filled in where they are not
    given, spread out where they are shared; ``InputError`` for other shapes.
    """
    if not isinstance(values, Tensor):
        raise InputError(
            "values must be a tensor of shape (batch, length, channels), got "
            f"{type(values).__name__}; torch.as_tensor(values) makes one, and "
            "rf.multiview_signature takes arrays as they are"
        )
    if values.dim() != 3 or not values.is_floating_point() or values.shape[1] == 0:
        raise InputError(
            "values must be floating-point numbers of shape (batch, length, channels), with a "
            f"length of at least 1, got {values.dtype} of shape {tuple(values.shape)}"
        )
    batch, size, _ = values.shape
    if times is None:
        times = torch.arange(size, dtype=torch.float64, device=values.device)
    if not isinstance(times, Tensor):
        times = torch.as_tensor(times, device=values.device)
    if times.shape == (size,):
        times = times.expand(batch, size)
    if times.shape != (batch, size):
        raise InputError(f"times must be ({batch}, {size}) or ({size},), got {tuple(times.shape)}")
    if lengths is None:
        lengths = torch.full((batch,), size, dtype=torch.int64, device=values.device)
    if not isinstance(lengths, Tensor):
        lengths = torch.as_tensor(lengths, device=values.device)
    if lengths.shape != (batch,) or lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise InputError(
            f"lengths must be {batch} whole numbers, got {lengths.dtype} {tuple(lengths.shape)}"
        )
    if times.device != values.device or lengths.device != values.device:
        raise InputError(
            f"values, times and lengths must be on one device, got {values.device}, "
            f"{times.device} and {lengths.device}"
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
    total = torch.zeros_like(grad).scatter_add(1, left, grad * (1 - weight).to(grad.dtype))
    total = total.scatter_add(1, right, grad * weight.to(grad.dtype))
    return torch.where(data.seen, total, 0.0)


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

    @classmethod
    def of(cls, cuts: Cuts, start: Floats, device: Any = None) -> Self:
        """Cuts of series that begin at ``start (B,)``."""
        mask = None
        if not cuts.equal:
            mask = torch.from_numpy(np.arange(cuts.most)[None, :] < cuts.n_windows[:, None])
            mask = mask.to(device)
        return cls(torch.from_numpy(cuts.since(start)).to(device), mask)

    def rows(self, part: slice) -> Self:
        """Those of some of the series."""
        return type(self)(self.edges[part], None if self.mask is None else self.mask[part])


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
    rank = torch.zeros_like(order).scatter(1, order, column)
    is_cut = (order >= size - n_cuts).to(torch.int64)
    window = (is_cut.cumsum(dim=1) - 1).clamp(min=0)[:, :-1]
    at = rank[:, size - n_cuts :]
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
    has_pieces = (knots.at[:, 1:] > knots.at[:, :-1]).unsqueeze(-1)
    return before, torch.where(has_pieces, at_rows(before, last) + at_rows(x, last), 0.0)


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


# Signatures as lists of levels, in torch: products, windows, sliding contexts, logarithms.
#
# A signature truncated at depth n is ``[S_1, ..., S_n]`` with S_k ``(..., d^k)``; level 0 is 1. Any
# device, differentiable, no loop over samples.


Levels = list[Tensor]


def as_levels(words: Tensor, dim: int, depth: int) -> Levels:
    """Signatures ``(..., words)`` -> levels ``(..., dim^k)``, k = 1 ... depth."""
    return list(torch.split(words, [dim**k for k in range(1, depth + 1)], dim=-1))


def as_words(levels: Levels) -> Tensor:
    """The way back."""
    return torch.cat(levels, dim=-1)


def _outer(a: Tensor, b: Tensor) -> Tensor:
    """(..., p) ⊗ (..., q) -> (..., p·q)."""
    # A size written out: a graph cannot infer it where there may be no rows.
    size = a.shape[-1] * b.shape[-1]
    return (a.unsqueeze(-1) * b.unsqueeze(-2)).reshape(*a.shape[:-1], size)


def multiply(a: Levels, b: Levels) -> Levels:
    """Chen's product of two signatures."""
    out = []
    for k in range(1, len(a) + 1):
        total = a[k - 1] + b[k - 1]
        for i in range(1, k):
            total = total + _outer(a[i - 1], b[k - i - 1])
        out.append(total)
    return out


def jump(values: Tensor, with_time: bool, depth: int) -> Levels:
    """The signature ``x^{⊗k} / k!`` of a line from the origin to ``values (..., C)``; time, if
    there is such a channel (the first one), stands still.
    """
    step = values
    if with_time:
        step = torch.cat([torch.zeros_like(values[..., :1]), values], dim=-1)
    levels = [step]
    for k in range(2, depth + 1):
        levels.append(_outer(levels[-1], step) / k)
    return levels


def window_levels(steps: Tensor, knots: Knots, depth: int, local: bool) -> Levels:
    """Increments ``steps (B, M - 1, d)`` -> levels ``(B, W, d^k)`` at the end of each window."""
    return _grown(steps, depth, lambda x, last: running_sums(x, knots, local))


def path_levels(steps: Tensor, depth: int) -> Levels:
    """Increments ``steps (B, N, d)`` -> levels ``(B, d^k)`` of the path through all of them."""
    return _grown(
        steps, depth, lambda x, last: (x if last else running_sum(x)[:, :-1], x.sum(dim=1))
    )


def _grown(
    steps: Tensor, depth: int, sums: Callable[[Tensor, bool], tuple[Tensor, Tensor]]
) -> Levels:
    """Levels at the ends that ``sums`` knows. A signature grows from knot i to i + 1 by

        S_k(i + 1) = S_k(i) + Σ_{m=1..k} S_{k-m}(i) ⊗ Δ_i^{⊗m} / m!,

    so level k is a running sum once the levels below are known at each knot. ``sums`` gives, of a
    row for each piece, the sums before each piece, which the last level does not need, and those
    at the ends.
    """
    levels: Levels = []
    below: Levels = []  # levels at the beginning of each piece
    for k in range(1, depth + 1):
        partial = None
        for m in range(1, k):
            fraction = steps / (k - m + 1)
            grown = fraction if partial is None else _outer(partial, fraction)
            partial = grown + below[m - 1]
        grown = steps if partial is None else _outer(partial, steps)
        here, ends = sums(grown, k == depth)
        levels.append(ends)
        below.append(here)
    return levels


# Sliding contexts: over windows k-m+1 ... k the signature is the product of the local ones. A
# product that slides cannot drop its oldest factor by dividing: inverses lose digits. Products of
# 1, 2, 4, ... neighbouring windows are built from each other instead, and m windows are a few of
# those side by side, as m is a sum of powers of two: about 2 log2 m products a window, all exact.


def blocks_of(size: int) -> list[int]:
    """Powers of two that add up to ``size``, the largest first."""
    return [1 << bit for bit in range(size.bit_length() - 1, -1, -1) if size >> bit & 1]


def _earlier(levels: Levels, back: int) -> Levels:
    """Levels ``(B, W, ...)`` of the window ``back`` before each; before the first 0, the signature
    of no path.
    """
    row = torch.arange(levels[0].shape[1], device=levels[0].device)
    there = (row >= back)[None, :, None]
    at = (row - back).clamp(min=0)
    return [torch.where(there, x.index_select(1, at), 0.0) for x in levels]


def sliding_products(local: Levels, size: int) -> Levels:
    """Levels ``(B, W, d^k)`` of windows -> those over the last ``size`` windows up to each."""
    wanted = blocks_of(size)
    product: Levels | None = None
    block, length, back = local, 1, 0
    # The smallest block stands last, at the newest windows.
    while True:
        if length in wanted:
            here = _earlier(block, back) if back else block
            product = here if product is None else multiply(here, product)
            back += length
        if length >= wanted[0]:
            assert product is not None
            return product
        block, length = multiply(_earlier(block, length), block), 2 * length


# Logarithms


@lru_cache(maxsize=32)
def _bracket_change(d: int, depth: int) -> Tensor:
    """(Lyndon, Lyndon) matrix from coefficients of Lyndon words to bracket coordinates."""
    table = log_table(d, depth, True)
    change = np.eye(table.size)
    for dst, src, c in zip(table.fix_dst, table.fix_src, table.fix_coef, strict=True):
        change[dst] += c * change[src]
    return torch.from_numpy(change)


def lyndon_logarithm(signature: Tensor, d: int, depth: int, brackets: bool) -> Tensor:
    """``(..., words)`` -> ``(..., Lyndon words)``: log(1 + s) = Σ (-1)^{k+1} s^k / k, projected."""
    s = as_levels(signature, d, depth)
    zero = [torch.zeros_like(level) for level in s]
    power, total = s, s
    for k in range(2, depth + 1):
        following = list(zero)
        for level in range(k, depth + 1):
            for i in range(k - 1, level):
                following[level - 1] = following[level - 1] + _outer(power[i - 1], s[level - i - 1])
        power = following
        total = [t + (-1.0) ** (k + 1) * p / k for t, p in zip(total, power, strict=True)]
    index = torch.tensor(
        [word_index(w, d) for w in lyndon_words(d, depth)], device=signature.device
    )
    projected = torch.cat(total, dim=-1)[..., index]
    if not brackets:
        return projected
    return projected @ _bracket_change(d, depth).to(projected).T


# Words of harmonic clocks with the path, in torch. On a linear piece of length h around the middle
# m, with increment Δ,
#
#     ∫ cos(ωu) dx = Δ · sinc(ωh/2) · cos(ωm),    ∫ sin(ωu) dx = Δ · sinc(ωh/2) · sin(ωm),
#
# sinc(z) = sin(z) / z, which needs no slope and takes ω = 0 and pieces without duration as they
# are. They are, up to the increment of x, the level-2 signature words (cos ω, x) and (sin ω, x) of
# the path lifted by the clock, exact for any sampling.


_AT_ONCE = 64  # frequencies whose waves at all points are held at a time


def sinc(z: Tensor) -> Tensor:
    """sin(z) / z."""
    still = z.abs() < 1e-9
    return torch.where(still, 1.0, z.sin() / torch.where(still, 1.0, z))


def waves(middle: Tensor, length: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine ``(B, N, J)`` of pieces ``middle, length (B, N)`` for ``omega (..., J)``."""
    damped = sinc(length.unsqueeze(-1) * (omega / 2))
    angle = middle.unsqueeze(-1) * omega
    return damped * angle.cos(), damped * angle.sin()


def window_clock_words(x: Tensor, knots: Knots, clock: Clock, view: str) -> Tensor:
    """``x (B, M, C)`` at the knots -> ``(B, W, C · count · 2)``: for each channel and frequency its
    cosine and sine word.

    The clock of the local view starts at each window, that of the global view at the first cut.
    """
    times, local = knots.times, view == "local"
    edges = times.gather(1, knots.at)
    length = times[:, 1:] - times[:, :-1]
    middle = 0.5 * (times[:, 1:] + times[:, :-1])
    middle = middle - (times.gather(1, knots.begin) if local else edges[:, :1])
    if clock.frequencies is not None:
        omega = torch.tensor(clock.frequencies, dtype=torch.float64, device=x.device)
    else:
        duration = edges[:, 1:] - edges[:, :-1] if local else edges[:, -1:] - edges[:, :1]
        alive = duration > 0
        base = torch.where(
            alive, number(2 * math.pi * clock.spacing, x) / torch.where(alive, duration, 1.0), 0
        )
        harmonic = torch.arange(1, clock.count + 1, dtype=torch.float64, device=x.device)
        if local:
            base = base.gather(1, knots.window.clamp(max=base.shape[1] - 1))
        omega = base.unsqueeze(-1) * harmonic
    cosine, sine = waves(middle, length, omega)
    wave = torch.stack([cosine, sine], dim=-1).unsqueeze(2)  # (B, N, 1, J, 2)
    step = (x[:, 1:] - x[:, :-1])[..., None, None]
    size = x.shape[-1] * clock.count * 2
    words = (step * wave).reshape(step.shape[0], step.shape[1], size)
    return running_sums(words, knots, local)[1]


def path_clock_words(points: Points, omega: Sequence[float]) -> Tensor:
    """``(B, C, J, 2)``: clock words of whole paths, the clock from their first points on."""
    # The first point twice: a series of one point has a piece too, on which nothing moves.
    times = torch.cat([points.times[:, :1], points.times], dim=1)
    x = torch.cat([points.x[:, :1], points.x], dim=1)
    return clock_words_through(Points(times, x), omega)


def clock_words_through(points: Points, omega: Sequence[float]) -> Tensor:
    """``(B, C, J, 2)``: clock words of paths of two points or more; the clock starts at time 0."""
    times, x = points
    length = times[:, 1:] - times[:, :-1]
    middle = 0.5 * (times[:, 1:] + times[:, :-1])
    step = (x[:, 1:] - x[:, :-1]).transpose(1, 2)  # (B, C, L)
    parts = []
    for i in range(0, len(omega), _AT_ONCE):
        chunk = torch.tensor(omega[i : i + _AT_ONCE], dtype=torch.float64, device=x.device)
        parts.append(torch.stack([step @ wave for wave in waves(middle, length, chunk)], dim=-1))
    return torch.cat(parts, dim=2) if len(parts) > 1 else parts[0]


def signature_tokens(
    data: Observed,
    placed: Placed,
    layout: Layout,
    *,
    hold: bool = False,
    context: int | None = None,
) -> Tensor:
    """``(B, W, F)`` float64: the (log-)signatures of the views, then their clock words.

    ``hold``: gaps are filled with the last value, which is held up to each window's end.
    ``context``: the global view is over the last ``context`` windows. Windows that a series does
    not have are 0.
    """
    points = held_points(data, placed.edges) if hold else linear_points(data)
    # Signatures know increments only: large levels must not cost digits.
    level = points.x[:, :1].detach()
    points = points._replace(x=points.x - level)
    n_channels = len(layout.channels)
    signatures: list[Tensor] = []
    clocks: list[Tensor] = []
    paths: list[tuple[Knots, Tensor]] = []
    for view, same in zip(layout.views, layout.paths, strict=True):
        lifts = layout.lifts[view]
        if same == len(paths):
            delays = tuple(lag.delay for lag in lifts.lags)
            knots = place_knots(points.times, placed.edges, delays)
            own = with_counts(points, data, lifts)
            paths.append((knots, lifted(own, knots, lifts, n_channels)))
        knots, x = paths[same]
        starts = None
        if lifts.basepoint:
            none = level.new_zeros(level.shape[0], 1, n_channels if lifts.counts else 0)
            levels = torch.cat([level] * (1 + len(lifts.lags)) + [none], dim=-1)
            values = x[..., int(lifts.time is not None) :]
            starts = at_rows(values, knots.at[:, :-1]) + levels
        # Over a context the global view is made of local signatures, too.
        local = view == "local" or context is not None
        steps = window_levels(x[:, 1:] - x[:, :-1], knots, layout.depth, local)
        signatures.append(finish_view(steps, starts, layout, view, context))
        if lifts.clock is not None:
            first = int(lifts.time is not None)  # channels come after time
            channels = x[..., first : first + n_channels]
            clocks.append(window_clock_words(channels, knots, lifts.clock, view))
    return real_only(torch.cat(signatures + clocks, dim=-1), placed.mask)


def real_only(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Tokens ``(B, W, F)`` with 0 where ``mask (B, W)`` says that there is no window."""
    return tokens if mask is None else torch.where(mask.unsqueeze(-1), tokens, 0.0)


def finish_view(
    levels: Levels, starts: Tensor | None, layout: Layout, view: View, context: int | None
) -> Tensor:
    """From the levels ``(B, W, d^k)`` of a view to its words as tokens have them.

    Of the global view over a ``context`` the levels are those of the windows. ``starts (B, W, C)``:
    values where each window begins, if the view starts from the origin; time does not jump.
    """
    local = view == "local"
    if not local and context is not None:
        levels = sliding_products(levels, context)
    if starts is not None:
        if not local:
            row = torch.arange(starts.shape[1], device=starts.device)
            back = row * 0 if context is None else (row - context + 1).clamp(min=0)
            starts = starts.index_select(1, back)
        with_time = layout.lifts[view].time is not None
        levels = multiply(jump(starts, with_time, layout.depth), levels)
    return in_transform(as_words(levels), layout, view)


def in_transform(words: Tensor, layout: Layout, view: View) -> Tensor:
    """Signatures ``(..., words)`` of a view as the tokens have them: as they are, or their
    logarithms.
    """
    if layout.transform == "signature":
        return words
    return lyndon_logarithm(words, layout.dim(view), layout.depth, layout.basis == "brackets")
