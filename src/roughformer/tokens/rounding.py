"""Features of straight pieces that hold nothing but rounding."""

import torch
from torch import Tensor

from roughformer.signatures.features import Layout
from roughformer.signatures.lifts import View
from roughformer.signatures.words import lyndon_words

__all__ = ["rounding_scale"]

_ROWS_AT_ONCE = 1 << 12  # tokens, whose words of one level are looked at together


def rounding_scale(rows: Tensor, layout: Layout, rounding: float) -> Tensor:
    """``(layout.size,)``: the size of each feature that is rounding only in all ``rows (N, F)``.

    The log-signature of a straight piece ends at its first level, s. What is computed for the word
    w = i₁ ... i_k, k > 1, is rounding in proportion to Π |s_{i_j}|. A coordinate that is at most
    ``rounding`` times this product in every token is taken for such; its size is the largest of
    these products. Clock words of straight pieces are 0, too, where the clock turns with the
    window; their size is that of the channel's own letter. Other features have 0.
    """
    found = torch.zeros(layout.size, dtype=torch.float64, device=rows.device)
    if len(rows):
        for view in layout.views:
            if layout.transform == "logsignature":
                _of_logarithm(rows, layout, view, rounding, found)
            if layout.lifts[view].clock is not None:
                _of_clocks(rows, layout, view, rounding, found)
    return found


def _of_logarithm(rows: Tensor, layout: Layout, view: View, rounding: float, found: Tensor) -> None:
    dim, at = layout.dim(view), layout.at(view)
    words = lyndon_words(dim, layout.depth)
    for k in range(2, layout.depth + 1):
        places = [i for i, word in enumerate(words) if len(word) == k]
        if not places:  # one letter has no brackets
            continue
        here = slice(at + places[0], at + places[-1] + 1)  # words are ordered by length
        letters = torch.tensor([words[i] for i in places], device=rows.device)
        size = torch.zeros_like(found[here])
        told = size > 0
        for block in torch.split(rows, _ROWS_AT_ONCE):
            first = block[:, at : at + dim].double().abs()
            products = first[:, letters[:, 0]]
            for j in range(1, k):
                products = products * first[:, letters[:, j]]
            told |= (block[:, here].abs() > rounding * products).any(dim=0)
            size = torch.maximum(size, products.amax(dim=0))
        found[here] = torch.where(told, 0.0, size)


def _of_clocks(rows: Tensor, layout: Layout, view: View, rounding: float, found: Tensor) -> None:
    n_channels = len(layout.channels)
    first = layout.at(view) + int(layout.lifts[view].time is not None)  # time is the first letter
    here = slice(layout.clock_at(view), layout.clock_at(view) + layout.clock_size(view))
    letters = rows[:, first : first + n_channels].abs().amax(dim=0).double()
    size = letters.repeat_interleave(layout.clock_size(view) // n_channels)
    told = rows[:, here].abs().amax(dim=0) > rounding * size
    found[here] = torch.where(told, 0.0, size)
