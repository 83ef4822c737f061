"""Tokens of padded tensors: what ``Tokenizer`` makes of ragged batches, in torch."""

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
from roughformer.signatures.torch_backend import Observed, number, real_only
from roughformer.tokens.fitted import USUAL, Ranges, StaticColumn, ValueRange, encoded_static
from roughformer.tokens.observations import observation_words

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
    alive = mean > 0
    share = power / torch.where(alive, mean, 1.0)
    level = torch.tensor(floor, dtype=words.dtype, device=words.device)
    return torch.where(alive, (share / level).log1p(), 0.0)


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
