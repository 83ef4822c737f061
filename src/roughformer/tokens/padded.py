"""Tokens of padded tensors: what ``Tokenizer`` makes of ragged batches, in torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from roughformer.signatures import (
    Layout,
    View,
    Windows,
    all_words,
    lyndon_words,
    padded_tokens,
    place,
    spectrum_of,
)
from roughformer.signatures.torch_backend import (
    Observed,
    Placed,
    at_rows,
    last_at_or_before,
    number,
    real_only,
    running_sum,
)
from roughformer.tokens.fitted import (
    USUAL,
    WORDS,
    Ranges,
    StaticColumn,
    ValueRange,
    encoded_static,
)

_WORDS_AT_ONCE = 1 << 22  # words of tokens that are looked at together

# Inputs of the model by name, and the ends (B, W) of its windows, counted from each series' first
# point (None if it has no windows).
PaddedInputs = tuple[dict[str, Tensor], Tensor | None]


@dataclass(frozen=True)
class PaddedTokens:
    """A tokenizer resolved to plain values, which ``torch.compile`` can look through."""

    n_channels: int
    rule: Windows
    layout: Layout | None
    hold: bool
    context: int | None
    views: tuple[View, ...]
    values: ValueRange | None
    recent: int
    unit: float
    turns: list[float]
    floor: float
    static: tuple[StaticColumn, ...]

    def __call__(self, data: Observed, static: Tensor | None) -> PaddedInputs:
        """``static (B, S)``: covariates as the user gives them, NaN = not known."""
        placed = place(self.rule, data)
        values = torch.where(data.seen, data.values, torch.nan)
        parts = []
        if self.layout is not None:
            parts.append(
                padded_tokens(
                    values,
                    data.since,
                    data.lengths,
                    placed,
                    self.layout,
                    hold=self.hold,
                    context=self.context,
                )
            )
        if self.values is not None:
            words = observation_words(data, placed, self.views, self.values, self.recent, self.unit)
            parts.append(real_only(words, placed.mask))
        tokens = torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
        inputs = {
            "tokens": tokens.float(),
            "times": (placed.since_first / number(self.unit, tokens)).float(),
        }
        if placed.mask is not None:
            inputs["mask"] = placed.mask
        if self.turns:
            words = spectrum_of(values, data.since, data.lengths, self.turns)
            inputs["spectrum"] = log_power(words, self.floor).float()
        if static is not None:
            inputs["static"] = encoded_static(self.static, static.double())
        return inputs, placed.edges[:, 1:]


def log_power(words: Tensor, floor: float) -> Tensor:
    """``(B, C, J)``: log(1 + |w|² / (floor · mean |w|²)) of clock words ``w (B, C, J, 2)``.

    The mean is over the frequencies of a channel, so that gain does not matter; a channel that
    does not move, or is never observed, has no spectrum: all 0.
    """
    cosine, sine = words.unbind(dim=-1)
    power = torch.addcmul(cosine.square(), sine, sine)  # 4x as fast as a sum over the last axis
    mean = power.mean(dim=-1, keepdim=True)
    # Not clamped at the least number of float64: ONNX has bounds in float32, where that is 0.
    mean = torch.where(mean > 0, mean, 1.0)
    return (power / mean / floor).log1p()


def least_scale(rows: Tensor, layout: Layout, rounding: float, ranges: Ranges) -> Tensor:
    """``(layout.size,)``: for each feature of ``rows (N, F)``, what differs by less is alike.

    What is computed for the word i₁ ... i_k is exact up to rounding in proportion to Π r_{i_j},
    where r_i is how far the path moves along letter i: its own first word, or the channel's usual
    range if that is larger. A coordinate that is at most ``rounding`` times this product in every
    token is rounding only, and is measured by the largest of these products; others have the
    rounding of the usual product.

    Rounding only are the higher words of straight pieces in log-signatures, all words of a channel
    that returns to where it was in every window, areas between channels that move as one, and clock
    words of frequencies that a channel does not have.
    """
    scale = torch.zeros(layout.size, dtype=torch.float64, device=rows.device)
    n_channels = len(layout.channels)
    for view in layout.views if len(rows) else ():
        lifts, dim, at = layout.lifts[view], layout.dim(view), layout.at(view)
        first = int(lifts.time is not None)  # time is the first letter
        # Channels, then their lags; time and counts are measured by their words alone.
        known = torch.tensor(ranges.get(view, (0.0,) * n_channels), dtype=torch.float64)
        letters = torch.zeros(dim, dtype=torch.float64, device=rows.device)
        copies = 1 + len(lifts.lags)
        letters[first : first + copies * n_channels] = known.repeat(copies).to(rows.device)
        _of_words(rows[:, at:], layout, view, rounding, letters, scale[at:])
        if lifts.clock is not None:
            here = slice(layout.clock_at(view), layout.clock_at(view) + layout.clock_size(view))
            moved = torch.maximum(rows[:, at : at + dim].abs().amax(dim=0).double(), letters)
            size = moved[first : first + n_channels].repeat_interleave(2 * lifts.clock.count)
            signal = rows[:, here].abs().amax(dim=0) > rounding * size
            scale[here] = torch.where(signal, rounding * size, size)
    return scale


def _of_words(
    rows: Tensor, layout: Layout, view: View, rounding: float, letters: Tensor, out: Tensor
) -> None:
    """The same of a view's words, with which ``rows`` and ``out`` begin, level by level."""
    dim, logarithm = layout.dim(view), layout.transform == "logsignature"
    first = rows[:, :dim].double().abs()
    usual = torch.maximum(first.kthvalue(1 + int(USUAL * (len(rows) - 1)), dim=0).values, letters)
    # Words of signatures hold products of first words, and are rounding only if one of those is.
    doubtful = logarithm or bool((first.amax(dim=0) < rounding * letters).any())
    listed = lyndon_words if logarithm else all_words
    begin = 0
    for k, words in groupby(listed(dim, layout.depth), key=len):
        level = torch.tensor(list(words), device=rows.device)
        here = slice(begin, begin + len(level))
        begin += len(level)
        out[here] = rounding * usual[level].prod(dim=1)
        if not doubtful:
            continue
        size = torch.zeros_like(out[here])
        signal = size > 0
        for block in torch.split(rows, max(1, _WORDS_AT_ONCE // len(level))):
            moved = torch.maximum(block[:, :dim].double().abs(), letters)
            products = moved[:, level[:, 0]]
            for j in range(1, k):
                products = products * moved[:, level[:, j]]
            signal |= (block[:, here].abs() > rounding * products).any(dim=0)
            size = torch.maximum(size, products.amax(dim=0))
        out[here] = torch.where(signal, out[here], size)


# Words of each channel on the clock of its own observations, for series that are mostly missing.
#
# A channel c of a series is observed at t_1 < ... < t_n in an interval, with values x_1 ... x_n.
# Its path is (N, x): N counts the observations, x jumps to x_i at the i-th. Words of that path, of
# its running extremes and of time,
#
#     log(1 + n),   mean = (x, N) / (N),   min x_i,   max x_i,   first x_1,   last x_n,
#     sd of x_i,   slope of x_i over t_i,   rise x_n - x_1,   since = time from t_n to the end,
#
# and some of them over the last windows up to now (recent) and the last half of those (latest),
# say what was seen, and how often, without inventing values between observations. What nothing
# tells is NaN. Each can be updated by one observation at a time.


Counted = dict[str, Tensor]
Words = dict[str, dict[str, Tensor]]
_MOST_WINDOWS = 1 << 20  # that a running extreme reaches over
_ROUNDING = 2e-11  # of squared times, in float64: a variance above it is right to five digits


def observation_words(
    data: Observed,
    placed: Placed,
    views: Sequence[str],
    values: ValueRange,
    recent: int,
    unit: float,
) -> Tensor:
    """``(B, W, Σ_views C · words)``: for each view, channel by channel, its ``WORDS``."""
    return stacked_words(_words(data, placed, values, recent, unit), views)


def stacked_words(words: Words, views: Sequence[str]) -> Tensor:
    """Words ``(..., C)`` of each view -> ``(..., Σ_views C · words)``."""
    parts = [torch.stack([words[view][word] for word in WORDS[view]], dim=-1) for view in views]
    return torch.cat([part.flatten(-2) for part in parts], dim=-1)


def scaled(x: Tensor, values: ValueRange) -> Tensor:
    """Values ``(..., C)`` cut to their range and scaled; float64."""
    low, high, mean, scale = (
        torch.tensor(part, dtype=torch.float64, device=x.device)
        for part in (values.low, values.high, values.mean, values.scale)
    )
    return (torch.minimum(torch.maximum(x, low), high) - mean) / scale


def _extremes(z: Tensor, seen: Tensor, window: Tensor, n_windows: int) -> tuple[Tensor, Tensor]:
    """Lowest and highest ``(B, W, C)`` of ``z (B, L, C)`` in each window; ±inf if nothing is."""
    at = window.unsqueeze(-1).expand(z.shape)
    shape = (z.shape[0], n_windows, z.shape[2])
    high = z.new_full(shape, -torch.inf)
    high = high.scatter_reduce(1, at, torch.where(seen, z, -torch.inf), "amax")
    low = z.new_full(shape, torch.inf)
    low = low.scatter_reduce(1, at, torch.where(seen, z, torch.inf), "amin")
    return low, high


def _words(data: Observed, placed: Placed, values: ValueRange, half: int, unit: float) -> Words:
    """Words ``(B, W, C)`` of each view."""
    edges = placed.edges
    n_windows = edges.shape[1] - 1
    within = (data.since >= edges[:, :1]) & (data.since <= edges[:, -1:])
    seen = data.seen & within.unsqueeze(-1)
    z = torch.where(seen, scaled(data.values, values), 0.0)
    when = torch.where(seen, (data.since - edges[:, :1]).unsqueeze(-1), 0.0)
    # Points at or before each cut; those before the first one are not seen.
    reached = last_at_or_before(data.since, edges)
    reached = torch.where(data.since[:, :1] <= edges, reached + 1, 0)
    # Without duration all cuts are at one time, and what is there is of the last window.
    still = (edges[:, -1:] <= edges[:, :1]) & ~_from_last_window_on(placed)
    reached = torch.where(still, 0, reached)
    # An observation at a cut is of the window that ends there: the window is that of the first cut
    # which reaches the point.
    point = torch.arange(data.since.shape[1], device=z.device).unsqueeze(0).expand(data.since.shape)
    window = last_at_or_before(reached[:, 1:], point) + (reached[:, 1:2] <= point)
    low, high = _extremes(z, seen, window.clamp(max=n_windows - 1), n_windows)

    def up_to(what: Tensor) -> Tensor:
        """Sums ``(B, W, C)`` up to the end of each window."""
        return at_rows(running_sum(what), reached[:, 1:])

    known_so_far = running_sum(seen.to(torch.int64))
    counted = at_rows(known_so_far, reached[:, 1:])
    # Observations in order; what was not seen goes to place 0.
    place = torch.where(seen, known_so_far[:, 1:], 0)
    nothing = z.new_zeros(z.shape[0], z.shape[1] + 1, z.shape[2])
    listed, listed_times = nothing.scatter(1, place, z), nothing.scatter(1, place, when)
    first, last, newest = listed[:, 1:2], listed.gather(1, counted), listed_times.gather(1, counted)
    # Sums count from the first observation: those of large numbers would lose their digits.
    z = torch.where(seen, z - first, 0.0)
    when = torch.where(seen, when - listed_times[:, 1:2], 0.0)
    n_all, x_all = counted.double(), up_to(z)
    now = {"n": _last(n_all, 1), "x": _last(x_all, 1), "low": low, "high": high}
    whole = {
        "n": n_all, "x": x_all, "xx": up_to(z * z), "t": up_to(when), "tt": up_to(when * when),
        "tx": up_to(when * z), "low": _trailing_extreme(low, _MOST_WINDOWS, False),
        "high": _trailing_extreme(high, _MOST_WINDOWS, True), "first": first.expand(last.shape),
        "last": last, "when": newest,
    }  # fmt: skip
    recent = {
        "n": _last(n_all, half), "x": _last(x_all, half),
        "low": _trailing_extreme(low, half, False), "high": _trailing_extreme(high, half, True),
    }  # fmt: skip
    quarter = max(half // 2, 1)
    latest = {"n": _last(n_all, quarter), "x": _last(x_all, quarter)}
    return words_of(now, whole, recent, latest, placed.since_first.unsqueeze(-1), unit)


def words_of(
    now: Counted, whole: Counted, recent: Counted, latest: Counted, end: Tensor, unit: float
) -> Words:
    """Words ``(..., C)`` of each view, from what was seen in the window, since the start, and in
    the last windows up to its ``end (..., 1)``.

    Entries ``(..., C)``: ``n`` observations, sums of ``x``, ``xx``, ``t``, ``tt`` and ``tx``, all
    counted from the first observation since the start, the ``low``est and ``high``est, the
    ``first`` and ``last``, and ``when`` the last one was.
    """
    n, divisor = whole["n"], whole["n"].clamp(min=1)
    ever, first = n > 0, whole["first"]
    mean, when = whole["x"] / divisor, whole["t"] / divisor
    variance = (whole["xx"] / divisor - mean.square()).clamp(min=0)
    square = whole["tt"] / divisor
    time_variance = square - when.square()
    covariance = whole["tx"] / divisor - when * mean
    # A slope over less than a hundredth of the unit says nothing but noise.
    apart = (time_variance > number((0.01 * unit) ** 2, n)) & (time_variance > _ROUNDING * square)
    per = number(unit, n)
    local = {
        "log n": now["n"].log1p(),
        "mean": _mean(now, first),
        "min": _known(now["low"], now["n"] > 0),
        "max": _known(now["high"], now["n"] > 0),
    }
    global_ = {
        "log n": n.log1p(),
        "mean": _known(first + mean, ever),
        "min": _known(whole["low"], ever),
        "max": _known(whole["high"], ever),
        "first": _known(first, ever),
        "last": _known(whole["last"], ever),
        "sd": _known(_root(variance), n > 1),
        "slope": _known(covariance / torch.where(apart, time_variance, 1.0) * per, apart),
        "rise": _known(whole["last"] - first, n > 1),
        "since": _known((end - whole["when"]) / per, ever),
        "recent log n": recent["n"].log1p(),
        "recent mean": _mean(recent, first),
        "recent min": _known(recent["low"], recent["n"] > 0),
        "recent max": _known(recent["high"], recent["n"] > 0),
        "latest mean": _mean(latest, first),
    }
    return {"local": local, "global": global_}


def _root(x: Tensor) -> Tensor:
    """√x with a gradient of 0, not infinity, where x is 0."""
    still = x <= 0
    return torch.where(still, 0.0, torch.where(still, 1.0, x).sqrt())


def _mean(counted: Counted, first: Tensor) -> Tensor:
    return _known(first + counted["x"] / counted["n"].clamp(min=1), counted["n"] > 0)


def _from_last_window_on(placed: Placed) -> Tensor:
    """``(B or 1, W + 1)``: True for the cut that ends a series' last window, and those after it."""
    place = torch.arange(placed.edges.shape[1], device=placed.edges.device).unsqueeze(0)
    if placed.mask is None:
        return place >= placed.edges.shape[1] - 1
    return place >= placed.mask.to(torch.int64).sum(dim=1, keepdim=True)


def _known(x: Tensor, known: Tensor) -> Tensor:
    return torch.where(known, x, torch.nan)


def _last(total: Tensor, size: int) -> Tensor:
    """Sums ``(B, W, C)`` up to each window -> over the last ``size`` windows up to it."""
    row = torch.arange(total.shape[1], device=total.device)
    before = total.index_select(1, (row - size).clamp(min=0))
    return total - torch.where((row >= size)[None, :, None], before, 0.0)


def _trailing_extreme(x: Tensor, size: int, highest: bool) -> Tensor:
    """``(B, W, C)``: the lowest or highest of the last ``size`` rows up to each, fewer at the
    beginning.
    """
    how = torch.maximum if highest else torch.minimum
    row = torch.arange(x.shape[1], device=x.device)

    def back(y: Tensor, by: int) -> Tensor:
        # Rows before the first are the first: it is in every stretch that reaches so far.
        return y.index_select(1, (row - by).clamp(min=0))

    reach = 1
    while 2 * reach <= size:
        x = how(x, back(x, reach))
        reach *= 2
    return how(x, back(x, size - reach)) if size > reach else x
