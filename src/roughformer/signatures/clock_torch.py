"""The twin of ``clock``: the same words in torch, differentiable in the values."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.lifts import Clock
from roughformer.path import Path
from roughformer.signatures.cutting import window_spans
from roughformer.windows import Cuts

__all__ = ["clock_words_torch"]

_CHUNK = 1 << 22


def _frequencies(clock: Clock, duration: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Angular frequencies ``(..., count)`` for intervals of the given duration."""
    if clock.frequencies is not None:
        return np.broadcast_to(np.asarray(clock.frequencies), (*duration.shape, clock.count))
    base = np.divide(
        2 * np.pi * clock.spacing, duration, out=np.zeros_like(duration), where=duration > 0
    )
    return np.asarray(base[..., None] * np.arange(1, clock.count + 1))


def clock_words_torch(path: Path, cuts: Cuts, clock: Clock, view: str, dtype: Any) -> Tensor:
    """``(B, windows, C · count · 2)``: for each channel and frequency its cosine and sine word.

    Differentiable in the values. The clock of the local view starts at each window, that of the
    global view at the first cut, where its words are running sums over the windows.
    """
    values = (
        torch.tensor(path.values, dtype=dtype)
        if isinstance(path.values, np.ndarray)
        else path.values.to(dtype)
    )
    spans = window_spans(path, cuts)
    n_series, n_windows = spans.first.shape
    c = cuts.since(path.first_times)  # all times count from the first point of their series
    if view == "local":
        origin, duration = c[:, :-1], np.diff(c, axis=1)
        omega = _frequencies(clock, duration)
    else:
        origin = np.broadcast_to(c[:, :1], (n_series, n_windows))
        total = c[:, -1] - c[:, 0]
        omega = np.broadcast_to(
            _frequencies(clock, total)[:, None], (n_series, n_windows, clock.count)
        )
    tokens = n_series * n_windows
    steps = int(spans.end.max(initial=0))
    channels = values.shape[1]
    out = values.new_zeros(tokens, channels, clock.count, 2)
    if tokens and steps:
        size = max(1, _CHUNK // (steps * max(clock.count, channels)))
        flat = (c[:, :-1], c[:, 1:], origin)
        begin, finish, zero = (np.ascontiguousarray(a).reshape(-1) for a in flat)
        parts = [
            _part(path, values, spans, omega.reshape(tokens, -1), begin, finish, zero, i, size)
            for i in range(0, tokens, size)
        ]
        out = torch.cat(parts)
    out = out.reshape(n_series, n_windows, channels * clock.count * 2)
    if view == "global":
        out = out.cumsum(dim=1)
    if not cuts.equal:
        real = np.arange(n_windows)[None, :] < cuts.n_windows[:, None]
        out = torch.where(
            torch.as_tensor(real, device=out.device).unsqueeze(-1), out, torch.zeros_like(out)
        )
    return out


def _part(
    path: Path,
    values: Tensor,
    spans: Any,
    omega: npt.NDArray[np.float64],
    begin: npt.NDArray[np.float64],
    finish: npt.NDArray[np.float64],
    zero: npt.NDArray[np.float64],
    i: int,
    size: int,
) -> Tensor:
    """Clock words of the windows i ... i + size: ``(tokens, C, count, 2)``."""
    part = slice(i, i + size)
    first, end = spans.first.ravel()[part], spans.end.ravel()[part]
    series = np.repeat(np.arange(path.n_series), spans.first.shape[1])[part]
    steps = max(int(end.max(initial=0)), 1)
    point = first[:, None] + np.minimum(np.arange(steps + 1)[None, :], end[:, None])
    t = path.times[path.time_starts[series][:, None] + point] - path.first_times[series][:, None]
    gap = np.diff(t, axis=1)
    # Each piece is cut to the window; a piece of no duration (padding) has no slope.
    clipped = np.clip(t, begin[part][:, None], finish[part][:, None]) - zero[part][:, None]
    angle = clipped[:, :, None] * omega[part][:, None, :]
    moving = omega[part][:, None, :] != 0  # a clock that stands still: cos = 1, sin = 0
    safe = np.where(moving, omega[part][:, None, :], 1.0)
    still = np.diff(clipped, axis=1)[:, :, None]
    sine = np.where(moving, np.diff(np.sin(angle), axis=1) / safe, still)
    cosine = np.where(moving, -np.diff(np.cos(angle), axis=1) / safe, 0.0)
    inverse = np.divide(1.0, gap, out=np.zeros_like(gap), where=gap > 0)
    device = values.device
    rows = values[torch.as_tensor(path.starts[series][:, None] + point, device=device)]
    slope = (rows[:, 1:] - rows[:, :-1]) * torch.as_tensor(inverse, device=device).to(
        values.dtype
    ).unsqueeze(-1)
    waves = torch.as_tensor(np.stack([sine, cosine], axis=-1), device=device).to(values.dtype)
    return torch.einsum("tsc,tsjw->tcjw", slope, waves)
