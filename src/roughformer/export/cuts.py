"""Where windows begin and end, dense: as ``Windows.place``."""

from typing import NamedTuple

import torch
from torch import Tensor

from roughformer.export.dense import inside_of, number
from roughformer.export.filling import Observed
from roughformer.windows import Windows

__all__ = ["Placed", "place"]


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
    """The windows of each series; their number W is that of the series that may have most."""
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
        count = ((data.lengths + (step - 2)) // step).clamp(min=1)
        column = torch.arange(_most(count) + 1, device=device).unsqueeze(0)
        at = torch.minimum(column * step, (data.lengths - 1).unsqueeze(1))
        edges = data.since.gather(1, at)
    else:
        count = _how_many(rule, data.span).to(torch.int64)
        column = torch.arange(_most(count) + 1, device=device).unsqueeze(0)
        ends = column.double() * number(rule.amount, span)
        edges = torch.where(column >= count.unsqueeze(1), span, ends)
    return Placed(edges, inside_of(count, edges.shape[1] - 1))


def _how_many(rule: Windows, span: Tensor) -> Tensor:
    """Windows by duration of series of these spans, as ``Windows.place`` counts them."""
    amount = number(rule.amount, span)
    if not rule.exact:
        # Allow for rounding: 0.3 / 0.1 is three windows, not three and a sliver.
        share = span / amount * number(1 - 1e-12, span)
        return (share - number(1e-9, span)).ceil().clamp(min=1)
    count = (span / amount).ceil()
    # The quotient is rounded; whether a cut lies before the end is not.
    count = count - ((count - 1) * amount >= span).double()
    count = count + (count * amount < span).double()
    return count.clamp(min=1)


def _most(count: Tensor) -> int:
    """The largest of ``(B,)``: a size that a graph takes from the data."""
    most: int = count.max().item()  # type: ignore[assignment]  # int() would fix it for ever
    torch._check(most >= 1)  # type: ignore[no-untyped-call]
    return most
