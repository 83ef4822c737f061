"""Where the windows of padded series are, in torch: as ``Windows.place`` has it for batches."""

import torch
from torch import Tensor

from roughformer.errors import InputError
from roughformer.signatures.torch_backend import Observed, Placed, inside_of, number
from roughformer.signatures.windows import Windows


def place(rule: Windows, data: Observed) -> Placed:
    """The windows of each series, as ``Windows.place``; their number W is that of the series that
    may have most.
    """
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
        count = window_count(rule, data.span, data.lengths)
        column = torch.arange(_most(count) + 1, device=device).unsqueeze(0)
        at = torch.minimum(column * step, (data.lengths - 1).unsqueeze(1))
        edges = data.since.gather(1, at)
    else:
        count = window_count(rule, data.span, data.lengths)
        column = torch.arange(_most(count) + 1, device=device).unsqueeze(0)
        ends = column.double() * number(rule.amount, span)
        edges = torch.where(column >= count.unsqueeze(1), span, ends)
    return Placed(edges, inside_of(count, edges.shape[1] - 1))


def window_count(rule: Windows, span: Tensor, lengths: Tensor) -> Tensor:
    """How many windows by duration or points series of these spans and lengths ``(B,)`` have, as
    ``Windows.place`` counts them.
    """
    if rule.rule == "points":
        step = int(rule.amount)
        return ((lengths + (step - 2)) // step).clamp(min=1)
    amount = number(rule.amount, span)
    if not rule.exact:
        # Allow for rounding: 0.3 / 0.1 is three windows, not three and a sliver.
        share = span / amount * number(1 - 1e-12, span)
        return _whole((share - number(1e-9, span)).ceil())
    count = (span / amount).ceil()
    # The quotient is rounded; whether a cut lies before the end is not.
    count = count - ((count - 1) * amount >= span).double()
    count = count + (count * amount < span).double()
    return _whole(count)


def _whole(count: Tensor) -> Tensor:
    """At least 1, and still a number where the quotient is beyond all whole ones."""
    return count.clamp(1, 2.0**62).to(torch.int64)


def _most(count: Tensor) -> int:
    """The largest of ``(B,)``: a size that a graph takes from the data."""
    if count.shape[0] == 0:
        return 1
    if count.is_meta:
        raise InputError(
            "times and lengths decide how many windows by duration or points there are, and "
            "tensors on the meta device have no numbers; take windows by count, or cut times"
        )
    most: int = count.max().item()  # type: ignore[assignment]  # int() would fix it for ever
    torch._check(most >= 1)  # type: ignore[no-untyped-call]
    return most
