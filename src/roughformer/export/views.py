"""Local and global signatures of all windows at once, by running sums over the knots.

A window's signature grows from knot i to i + 1 by

    S_k(i + 1) = S_k(i) + Σ_{m=1..k} S_{k-m}(i) ⊗ Δ_i^{⊗m} / m!,

so level k is a running sum once the levels below are known at each knot. Sums run over the whole
series in float64; of the local view the sum at the beginning of the window is taken off.
"""

import torch
from torch import Tensor

from roughformer.export.dense import at_rows, running_sum
from roughformer.export.knots import Knots
from roughformer.lifts import View
from roughformer.signatures.features import Layout
from roughformer.signatures.twin import lyndon_logarithm, multiply
from roughformer.tokens.context import blocks_of, jump

__all__ = ["view_signature", "window_levels"]

Levels = list[Tensor]


def _outer(a: Tensor, b: Tensor) -> Tensor:
    """(B, N, p) ⊗ (B, N, q) -> (B, N, p·q)."""
    size = a.shape[-1] * b.shape[-1]
    return (a.unsqueeze(-1) * b.unsqueeze(-2)).reshape(a.shape[0], a.shape[1], size)


def window_levels(steps: Tensor, knots: Knots, depth: int, local: bool) -> Levels:
    """Increments ``steps (B, M - 1, d)`` -> levels ``(B, W, d^k)`` at the end of each window."""
    found: Levels = []
    below: Levels = []  # levels at the beginning of each piece
    for k in range(1, depth + 1):
        partial = None
        for m in range(1, k):
            fraction = steps / (k - m + 1)
            grown = fraction if partial is None else _outer(partial, fraction)
            partial = grown + below[m - 1]
        total = running_sum(steps if partial is None else _outer(partial, steps))
        ends = at_rows(total, knots.at)
        # Nothing moves before the first cut: there the sum is still 0.
        found.append(ends[:, 1:] - ends[:, :-1] if local else ends[:, 1:])
        if k < depth:
            here = total[:, :-1]
            below.append(here - at_rows(total, knots.begin) if local else here)
    return found


def _earlier(levels: Levels, back: int) -> Levels:
    """Levels ``(B, W, ...)`` of the window ``back`` before each; 0 before the first."""
    row = torch.arange(levels[0].shape[1], device=levels[0].device)
    there = (row >= back)[None, :, None]
    at = (row - back).clamp(min=0)
    return [torch.where(there, x.index_select(1, at), 0.0) for x in levels]


def _over_context(local: Levels, context: int) -> Levels:
    """Local levels -> those over the last ``context`` windows; see ``tokens/context.py``."""
    wanted = blocks_of(context)
    found: Levels | None = None
    block, length, back = local, 1, 0
    while True:
        if length in wanted:
            here = _earlier(block, back) if back else block
            found = here if found is None else multiply(here, found)
            back += length
        if length >= wanted[0]:
            assert found is not None
            return found
        block, length = multiply(_earlier(block, length), block), 2 * length


def view_signature(
    x: Tensor, knots: Knots, layout: Layout, view: View, context: int | None = None
) -> Tensor:
    """``x (B, M, d)`` at the knots -> ``(B, W, words)``, the (log-)signature of a view; the global
    one over the last ``context`` windows if it is not None.
    """
    lifts = layout.lifts[view]
    local = view == "local"
    sliding = not local and context is not None
    levels = window_levels(x[:, 1:] - x[:, :-1], knots, layout.depth, local or sliding)
    if sliding:
        assert context is not None
        levels = _over_context(levels, context)
    if lifts.basepoint:
        first = int(lifts.time is not None)  # time does not jump
        starts = at_rows(x[..., first:], knots.at[:, :-1])
        if not local:
            row = torch.arange(starts.shape[1], device=x.device)
            back = row * 0 if context is None else (row - context + 1).clamp(min=0)
            starts = starts.index_select(1, back)
        levels = multiply(jump(starts, bool(first), layout.depth), levels)
    joint = torch.cat(levels, dim=-1)
    if layout.transform == "signature":
        return joint
    return lyndon_logarithm(joint, x.shape[-1], layout.depth, layout.basis == "brackets")
