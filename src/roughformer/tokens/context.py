"""The global view over a sliding context: signatures of the last so many windows.

Over windows k-m+1 ... k the signature is the product S_{k-m+1} ⊗ ... ⊗ S_k of the local ones.
A product that slides cannot drop its oldest factor by dividing: inverses lose digits. Products of
1, 2, 4, ... neighbouring windows are built from each other instead, and m windows are a few of
those side by side, as m is a sum of powers of two: about 2 log2 m products a window, all exact.
"""

import torch
from torch import Tensor

from roughformer.signatures.twin import multiply
from roughformer.words import word_count

__all__ = ["as_levels", "as_words", "blocks_of", "jump", "sliding_products"]

Levels = list[Tensor]


def as_levels(words: Tensor, dim: int, depth: int) -> Levels:
    """Signatures ``(..., words)`` -> levels ``(..., dim^k)``, k = 1 ... depth."""
    ends = [word_count(dim, k) for k in range(depth + 1)]
    return [words[..., ends[k] : ends[k + 1]] for k in range(depth)]


def as_words(levels: Levels) -> Tensor:
    """The way back."""
    return torch.cat(levels, dim=-1)


def blocks_of(size: int) -> list[int]:
    """Powers of two that add up to ``size``, the largest first."""
    return [1 << bit for bit in range(size.bit_length() - 1, -1, -1) if size >> bit & 1]


def jump(values: Tensor, with_time: bool, depth: int) -> Levels:
    """The signature ``x^{⊗k} / k!`` of a line from the origin to ``values (..., C)``; time, if
    there is such a channel (the first one), stands still.
    """
    step = values
    if with_time:
        step = torch.cat([torch.zeros_like(values[..., :1]), values], dim=-1)
    levels = [step]
    for k in range(2, depth + 1):
        grown = (levels[-1].unsqueeze(-1) * step.unsqueeze(-2)).flatten(-2)
        levels.append(grown / k)
    return levels


def _earlier(levels: Levels, back: int) -> Levels:
    """Levels ``(B, L, ...)`` of the window ``back`` before each; before the first 0, the signature
    of no path.
    """
    if back == 0:
        return levels
    return [
        torch.cat([torch.zeros_like(x[:, :back]), x[:, : max(x.shape[1] - back, 0)]], dim=1)
        for x in levels
    ]


def sliding_products(local: Levels, size: int) -> Levels:
    """Levels ``(B, L, dim^k)`` of windows -> those over the last ``size`` windows up to each."""
    wanted = blocks_of(size)
    found: Levels | None = None
    block, length, back = local, 1, 0
    # The smallest block stands last, at the newest windows.
    while True:
        if length in wanted:
            here = _earlier(block, back)
            found = here if found is None else multiply(here, found)
            back += length
        if length >= wanted[0]:
            assert found is not None
            return found
        block, length = multiply(_earlier(block, length), block), 2 * length
