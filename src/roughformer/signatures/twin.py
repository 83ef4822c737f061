"""The pure-torch twin of the native kernel: same results, any device, differentiable.

Slower, but it needs no compiler, and every step is a torch operation.
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from roughformer.path import Path
from roughformer.signatures.cutting import Spans, window_spans
from roughformer.signatures.log_table import log_table
from roughformer.windows import Cuts
from roughformer.words import lyndon_words, word_count, word_index

__all__ = ["lyndon_logarithm", "multiply", "signature_of_increments", "twin_views"]

Levels = list[Tensor]
_CHUNK = 1 << 22  # numbers of the gathered rows worked on in one go


def _outer(a: Tensor, b: Tensor) -> Tensor:
    """(..., p) ⊗ (..., q) -> (..., p·q)."""
    return (a.unsqueeze(-1) * b.unsqueeze(-2)).flatten(-2)


def signature_of_increments(x: Tensor, depth: int) -> Levels:
    """Increments ``x (..., steps, d)`` -> levels ``(..., d^k)``, by Horner's scheme per step."""
    d = x.shape[-1]
    # Level 1 is written as a sum so that the result hangs on x even if there is no step.
    first = x[..., :0, :].sum(dim=-2)
    state = [first, *(x.new_zeros(*x.shape[:-2], d**k) for k in range(2, depth + 1))]
    for step in x.unbind(-2):
        new = list(state)
        for k in range(depth, 0, -1):
            partial = None
            for m in range(1, k):
                fraction = step / (k - m + 1)
                grown = fraction if partial is None else _outer(partial, fraction)
                partial = grown + state[m - 1]
            new[k - 1] = state[k - 1] + (step if partial is None else _outer(partial, step))
        state = new
    return state


def multiply(a: Levels, b: Levels) -> Levels:
    """Chen's product of two signatures."""
    out = []
    for k in range(1, len(a) + 1):
        total = a[k - 1] + b[k - 1]
        for i in range(1, k):
            total = total + _outer(a[i - 1], b[k - i - 1])
        out.append(total)
    return out


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
    ends = [word_count(d, k) for k in range(depth + 1)]
    s = [signature[..., ends[k] : ends[k + 1]] for k in range(depth)]
    zero = [torch.zeros_like(level) for level in s]
    power, total = s, s
    for k in range(2, depth + 1):
        nxt = list(zero)
        for level in range(k, depth + 1):
            for i in range(k - 1, level):
                nxt[level - 1] = nxt[level - 1] + _outer(power[i - 1], s[level - i - 1])
        power = nxt
        total = [t + (-1.0) ** (k + 1) * p / k for t, p in zip(total, power, strict=True)]
    index = torch.tensor(
        [word_index(w, d) for w in lyndon_words(d, depth)], device=signature.device
    )
    projected = torch.cat(total, dim=-1)[..., index]
    if not brackets:
        return projected
    return projected @ _bracket_change(d, depth).to(projected).T


def _window_increments(
    path: Path, values: Tensor, spans: Spans, part: slice, basepoint: bool
) -> Tensor:
    """Increments ``(tokens, steps, d)`` of the windows ``part`` of ``Spans`` (flattened)."""
    first, end = spans.first.ravel()[part], spans.end.ravel()[part]
    series = np.repeat(np.arange(path.n_series), spans.first.shape[1])[part]
    steps = int(end.max(initial=0))
    position = first[:, None] + np.minimum(np.arange(steps + 1)[None, :], end[:, None])
    device, dtype = values.device, values.dtype

    def put(array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, device=device)

    rows = values[put(path.starts[series][:, None] + position)]  # (tokens, steps + 1, C)
    origin = rows[:, :1]
    rows = rows - origin  # relative to the window's first point: large offsets must not cost digits
    if path.time_scale is not None:
        t = path.times[path.time_starts[series][:, None] + position]
        clock = (t - t[:, :1]) * path.time_scale[series][:, None]
        rows = torch.cat([put(clock).to(dtype).unsqueeze(-1), rows], dim=-1)
    if steps:
        s = put(np.arange(steps + 1)[None, :, None])
        last = put(end)[:, None, None]
        alpha_end = put(spans.alpha_end.ravel()[part]).to(dtype)[:, None, None]
        alpha_start = put(spans.alpha_start.ravel()[part]).to(dtype)[:, None]
        column = torch.clamp(last, min=1).expand(-1, 1, rows.shape[-1])
        at_end, before = rows.gather(1, column), rows.gather(1, column - 1)
        ended = before + alpha_end * (at_end - before)
        start = alpha_start * rows[:, 1]
        rows = torch.where((s >= last) & (last > 0), ended, rows)
        # A window that does not move keeps its one row, which is zero.
        rows = torch.cat(
            [torch.where(last[:, 0] > 0, start, rows[:, 0]).unsqueeze(1), rows[:, 1:]], 1
        )
    increments = rows[:, 1:] - rows[:, :-1]
    if basepoint:
        jump = origin[:, 0] + rows[:, 0, rows.shape[-1] - origin.shape[-1] :]
        if path.time_scale is not None:
            jump = torch.cat([jump.new_zeros(len(jump), 1), jump], dim=-1)
        increments = torch.cat([jump.unsqueeze(1), increments], dim=1)
    return increments


def _local(path: Path, values: Tensor, spans: Spans, depth: int, basepoint: bool) -> Levels:
    """Levels ``(B, windows, d^k)`` of the signature over each window."""
    n_tokens = spans.first.size
    width = (int(spans.end.max(initial=0)) + 1) * path.dim
    size = max(1, _CHUNK // max(width, word_count(path.dim, depth)))
    parts = [
        signature_of_increments(
            _window_increments(path, values, spans, slice(i, min(i + size, n_tokens)), basepoint),
            depth,
        )
        for i in range(0, max(n_tokens, 1), size)
    ]
    return [
        torch.cat(level).reshape(*spans.first.shape, path.dim ** (k + 1))
        for k, level in enumerate(zip(*parts, strict=True))
    ]


def twin_views(
    path: Path, cuts: Cuts, depth: int, values: Tensor, views: tuple[str, ...], basepoint: bool
) -> dict[str, Tensor]:
    """Signatures ``(B, windows, words)`` of the asked views."""
    spans = window_spans(path, cuts)
    n_windows = spans.first.shape[1]
    found = {}
    if "local" in views or not basepoint:
        local = _local(path, values, spans, depth, basepoint and "local" in views)
    if "local" in views:
        found["local"] = torch.cat(local, dim=-1)
    if "global" in views:
        if basepoint:
            # Only the first window starts from the origin: the others follow on.
            plain = _local(path, values, spans, depth, False)
            first = _local(path, values, spans.windows(slice(0, 1)), depth, True)
            local = [torch.cat([f, p[:, 1:]], 1) for f, p in zip(first, plain, strict=True)]
        running: list[Levels] = []
        for k in range(n_windows):
            here = [level[:, k] for level in local]
            running.append(multiply(running[-1], here) if running else here)
        if running:
            found["global"] = torch.stack([torch.cat(r, dim=-1) for r in running], dim=1)
        else:
            found["global"] = torch.cat(local, dim=-1)
    # Tokens beyond a series' own windows are padding: zero, as in the native kernel.
    if not cuts.equal:
        real = np.arange(n_windows)[None, :] < cuts.n_windows[:, None]
        mask = torch.as_tensor(real, device=values.device).unsqueeze(-1)
        found = {view: torch.where(mask, t, torch.zeros_like(t)) for view, t in found.items()}
    return found
