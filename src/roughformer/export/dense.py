"""Steps on padded series ``(B, L, ...)`` that become plain nodes of a graph, whatever B and L are.

No step looks at the data to decide what to do, and none loops over points.
"""

import torch
from torch import Tensor

__all__ = [
    "at_rows",
    "inside_of",
    "last_at_or_before",
    "number",
    "running_sum",
    "trailing_extreme",
]


def number(x: float, like: Tensor) -> Tensor:
    """``x`` as a tensor in float64: exporters round plain numbers to float32, also where all around
    them is float64.
    """
    return torch.tensor(x, dtype=torch.float64, device=like.device)


def at_rows(x: Tensor, at: Tensor) -> Tensor:
    """``x (B, M, ...)``, ``at (B, N)`` -> ``(B, N, ...)``: row ``at[b, n]`` of ``x[b]``."""
    row = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    return x[row, at]


def last_at_or_before(times: Tensor, query: Tensor) -> Tensor:
    """``times (B, M)`` that do not decrease, ``query (B, N)`` -> ``(B, N)``: the number of the last
    time at or before each query, 0 if there is none.

    Times and queries are sorted together, equal ones times first: a search with few nodes.
    """
    size = times.shape[1]
    order = torch.sort(torch.cat([times, query], dim=1), dim=1, stable=True).indices
    before = (order < size).to(torch.int64).cumsum(dim=1)
    found = torch.zeros_like(order).scatter(1, order, before)
    return (found[:, size:] - 1).clamp(min=0)


def running_sum(x: Tensor) -> Tensor:
    """``(B, N, ...)`` -> ``(B, N + 1, ...)``: the sum of what comes before each place."""
    return torch.cat([torch.zeros_like(x[:, :1]), x], dim=1).cumsum(dim=1)


def trailing_extreme(x: Tensor, size: int, highest: bool) -> Tensor:
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


def inside_of(lengths: Tensor, size: int) -> Tensor:
    """``(B,)`` -> ``(B, size)``: True for the first ``lengths[b]`` places."""
    return torch.arange(size, device=lengths.device).unsqueeze(0) < lengths.unsqueeze(1)
