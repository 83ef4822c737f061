"""Windows for libraries that have none: a block ``(B, windows, P, d)``, short ones padded by
repeating their last point, which adds nothing to a signature.
"""

import numpy as np
import torch
from _tasks import WINDOWS, Problem

__all__ = ["Padder", "regular_windows"]


def regular_windows(problem: Problem, out: np.ndarray | None = None) -> np.ndarray:
    """Windows that end on observations, ``(B, windows, step + 1, d)``: one strided copy."""
    x, w = problem.x, problem.task.step
    n, _, d = x.shape
    if out is None:
        out = np.empty((n, WINDOWS, w + 1, d), x.dtype)
    row = x.strides
    view = np.lib.stride_tricks.as_strided(
        x, (n, WINDOWS - 1, w + 1, d), (row[0], w * row[1], row[1], row[2]), writeable=False
    )
    np.copyto(out[:, :-1], view)
    last = x[:, (WINDOWS - 1) * w :]
    out[:, -1, : last.shape[1]] = last
    out[:, -1, last.shape[1] :] = last[:, -1:]
    return out


class Padder:
    """Windows of thinned series, cut between observations.

    Row 0 of a window is the path at its left cut, then come the observations inside, then the path
    at its right cut, repeated. One gather from a table of observations followed by cut points.
    Everything is vectorised and in place where torch can; the observations are already compacted
    and in the table when the clock starts.
    """

    def __init__(self, problem: Problem) -> None:
        """Outside of the measured time: the table without its cut points."""
        thin = problem.thinned
        self.n, self.d = problem.task.series, problem.task.channels
        self.rows = len(thin.values)
        length = self.rows // self.n  # the same number of points is dropped from each series
        self.times = torch.tensor(thin.times).reshape(self.n, length)
        self.cuts = torch.from_numpy(np.broadcast_to(problem.cuts, (self.n, WINDOWS + 1)).copy())
        self.base = torch.arange(self.n)[:, None] * length
        self.table = torch.empty(self.rows + self.n * (WINDOWS + 1), self.d)
        self.table[: self.rows] = torch.tensor(thin.values)
        self.cut_row = self.rows + torch.arange(self.n * (WINDOWS + 1)).reshape(self.n, -1)

    def locate(self) -> None:
        """Interpolate at the cuts; find each window's first observation and how many it has."""
        length = self.times.shape[1]
        after = torch.searchsorted(self.times, self.cuts, right=True).clamp_(max=length - 1)
        left, right = self.times.gather(1, after - 1), self.times.gather(1, after)
        alpha = ((self.cuts - left) / (right - left)).float().unsqueeze(-1)
        low, high = self.table[self.base + after - 1], self.table[self.base + after]
        self.table[self.rows :] = torch.lerp(low, high, alpha).reshape(-1, self.d)
        self.first = self.base + after[:, :-1]
        # An observation exactly on the right cut belongs inside: it equals the cut point.
        self.inside = after[:, 1:] - after[:, :-1]

    def gather(self, first: torch.Tensor, inside: torch.Tensor, left: torch.Tensor) -> np.ndarray:
        """Padded windows ``(..., P, d)``, P as the largest of them needs."""
        j = torch.arange(-1, int(inside.max()) + 1)
        index = first.unsqueeze(-1) + j
        index = torch.where(j < inside.unsqueeze(-1), index, left.unsqueeze(-1) + 1)
        index[..., 0] = left
        # pySigLib copies arrays that do not own their memory, so this one does.
        block = np.empty((*index.shape, self.d), np.float32)
        flat = torch.from_numpy(block).view(-1, self.d)
        torch.index_select(self.table, 0, index.view(-1), out=flat)
        return block

    def all_windows(self) -> np.ndarray:
        """``(B, windows, P, d)``."""
        return self.gather(self.first, self.inside, self.cut_row[:, :-1])

    def window(self, k: int) -> np.ndarray:
        """``(B, P_k, d)``: no longer than window k needs."""
        return self.gather(self.first[:, k], self.inside[:, k], self.cut_row[:, k])

    def buckets(self, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """``(window numbers, (m, P, d))``: windows of similar length together need less padding."""
        inside, first = self.inside.reshape(-1), self.first.reshape(-1)
        left = self.cut_row[:, :-1].reshape(-1)
        order = torch.argsort(inside)
        return [
            (rows.numpy(), self.gather(first[rows], inside[rows], left[rows]))
            for rows in torch.tensor_split(order, count)
            if len(rows)
        ]
