"""Multi-view signature tokens of padded series, in torch: the definition.

The native kernel computes the same faster on a CPU (``operators``); this serves everywhere else,
where gradients in the times or second derivatives are wanted, and in exported graphs.
"""

import torch
from torch import Tensor

from roughformer.signatures.clocks import window_clock_words
from roughformer.signatures.features import Layout
from roughformer.signatures.levels import (
    Levels,
    as_words,
    jump,
    lyndon_logarithm,
    multiply,
    sliding_products,
    window_levels,
)
from roughformer.signatures.lifts import View
from roughformer.signatures.padded import (
    Knots,
    Observed,
    Placed,
    at_rows,
    held_points,
    lifted,
    linear_points,
    place_knots,
    with_counts,
)

__all__ = ["finish_view", "in_transform", "real_only", "signature_tokens"]


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
        signatures.append(_view_signature(x, knots, starts, layout, view, context))
        if lifts.clock is not None:
            first = int(lifts.time is not None)  # channels come after time
            channels = x[..., first : first + n_channels]
            clocks.append(window_clock_words(channels, knots, lifts.clock, view))
    return real_only(torch.cat(signatures + clocks, dim=-1), placed.mask)


def real_only(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Tokens ``(B, W, F)`` with 0 where ``mask (B, W)`` says that there is no window."""
    return tokens if mask is None else torch.where(mask.unsqueeze(-1), tokens, 0.0)


def _view_signature(
    x: Tensor,
    knots: Knots,
    starts: Tensor | None,
    layout: Layout,
    view: View,
    context: int | None,
) -> Tensor:
    """``x (B, M, d)`` at the knots -> ``(B, W, words)``; ``starts`` as in ``finish_view``."""
    local = view == "local"
    sliding = not local and context is not None
    levels = window_levels(x[:, 1:] - x[:, :-1], knots, layout.depth, local or sliding)
    return finish_view(levels, starts, layout, view, context)


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
