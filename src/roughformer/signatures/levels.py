"""Signatures as lists of levels, in torch: products, windows, sliding contexts, logarithms.

A signature truncated at depth n is ``[S_1, ..., S_n]`` with S_k ``(..., d^k)``; level 0 is 1. Any
device, differentiable, no loop over samples.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from roughformer.signatures.log_table import log_table
from roughformer.signatures.padded import Knots, running_sum, running_sums
from roughformer.signatures.words import lyndon_words, word_index

__all__ = [
    "Levels",
    "as_levels",
    "as_words",
    "blocks_of",
    "jump",
    "lyndon_logarithm",
    "multiply",
    "path_levels",
    "sliding_products",
    "window_levels",
]

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
    found: Levels = []
    below: Levels = []  # levels at the beginning of each piece
    for k in range(1, depth + 1):
        partial = None
        for m in range(1, k):
            fraction = steps / (k - m + 1)
            grown = fraction if partial is None else _outer(partial, fraction)
            partial = grown + below[m - 1]
        grown = steps if partial is None else _outer(partial, steps)
        here, ends = sums(grown, k == depth)
        found.append(ends)
        below.append(here)
    return found


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
    found: Levels | None = None
    block, length, back = local, 1, 0
    # The smallest block stands last, at the newest windows.
    while True:
        if length in wanted:
            here = _earlier(block, back) if back else block
            found = here if found is None else multiply(here, found)
            back += length
        if length >= wanted[0]:
            assert found is not None
            return found
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
