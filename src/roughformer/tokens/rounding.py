"""Features that hold nothing but rounding, and the ranges of values that tell them apart."""

from itertools import groupby

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.series import SeriesBatch
from roughformer.signatures.lifts import Layout, View
from roughformer.signatures.windows import Cuts, locate
from roughformer.signatures.words import all_words, lyndon_words

__all__ = ["Ranges", "least_scale", "usual_ranges"]

Ranges = dict[View, tuple[float, ...]]
_NUMBERS_AT_ONCE = 1 << 22  # words of tokens that are looked at together
_USUAL = 0.9  # quantile: the range of a few outliers is not usual


def usual_ranges(batch: SeriesBatch, cuts: Cuts) -> Ranges:
    """For each channel, how far apart its values usually are in a series and in a window.

    Quantiles of 90 %, over the series and windows in which the channel moves; 0 if there is none.
    """
    since = cuts.since(batch.span[0])
    series = np.repeat(np.arange(len(batch)), batch.lengths)
    edges, size = since.ravel(), since.shape[1]
    first = series * size
    window = locate(
        edges, first, np.full(len(series), size),
        batch.times - batch.span[0][series] - since[series, 0],
    )  # fmt: skip
    begins = np.flatnonzero(np.diff(first + window, prepend=-1))
    return {
        "global": _usual_range(batch.values, batch.offsets[:-1]),
        "local": _usual_range(batch.values, begins),
    }


def _usual_range(
    values: npt.NDArray[np.floating], begins: npt.NDArray[np.int64]
) -> tuple[float, ...]:
    spans = np.fmax.reduceat(values, begins) - np.fmin.reduceat(values, begins)
    columns = (column[column > 0] for column in spans.T.astype(np.float64))
    return tuple(float(np.quantile(x, _USUAL)) if len(x) else 0.0 for x in columns)


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
    usual = torch.maximum(first.kthvalue(1 + int(_USUAL * (len(rows) - 1)), dim=0).values, letters)
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
        for block in torch.split(rows, max(1, _NUMBERS_AT_ONCE // len(level))):
            moved = torch.maximum(block[:, :dim].double().abs(), letters)
            products = moved[:, level[:, 0]]
            for j in range(1, k):
                products = products * moved[:, level[:, j]]
            signal |= (block[:, here].abs() > rounding * products).any(dim=0)
            size = torch.maximum(size, products.amax(dim=0))
        out[here] = torch.where(signal, out[here], size)
