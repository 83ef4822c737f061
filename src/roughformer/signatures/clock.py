"""Words of harmonic clocks with the path, in closed form on its linear pieces.

Over an interval [s, e], with u measured from s, for each channel x and frequency ω:

    ∫ cos ω(u-s) dx(u) = Σ_pieces x' · [sin ω(u-s)] / ω,
    ∫ sin ω(u-s) dx(u) = Σ_pieces x' · [-cos ω(u-s)] / ω,

x' being the slope of the piece. They are, up to the increment of x, the level-2 signature words
(cos ω, x) and (sin ω, x) of the path lifted by the clock, exact for any sampling.
"""

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.lifts import Clock
from roughformer.path import Path
from roughformer.signatures import library
from roughformer.signatures.cutting import window_spans
from roughformer.windows import Cuts

__all__ = ["clock_words", "clock_words_torch"]

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


def clock_words(
    path: Path,
    cuts: Cuts,
    clock: Clock,
    view: str,
    out: npt.NDArray[Any],
    threads: int | None,
    compute: Any,
) -> None:
    """Write the clock words of a path without gradients into ``out (B, windows, C·count·2)``."""
    spans = window_spans(path, cuts)
    n_series, n_windows = spans.first.shape
    if n_series == 0 or n_windows == 0:
        return
    c = cuts.since(path.first_times)
    tokens = n_series * n_windows
    series = np.repeat(np.arange(n_series), n_windows)
    begin, finish = c[:, :-1].ravel(), c[:, 1:].ravel()
    origin = begin if view == "local" else c[series, 0]
    duration = finish - begin if view == "local" else (c[:, -1] - c[:, 0])[series]
    scale = np.ones(tokens)
    if clock.frequencies is not None:
        turns: npt.NDArray[np.floating[Any]] = np.asarray(clock.frequencies) / (2 * np.pi)
    else:
        turns = np.arange(1.0, clock.count + 1) * clock.spacing
        scale = np.where(duration > 0, 1.0 / np.where(duration > 0, duration, 1.0), 0.0)
    values = np.ascontiguousarray(path.values)
    item = out.itemsize
    where = np.arange(n_series)[:, None] * (out.strides[0] // item) + np.arange(n_windows)[
        None, :
    ] * (out.strides[1] // item)
    held: dict[str, npt.NDArray[Any]] = {
        "times": path.times,
        "row": path.starts[series] + spans.first.ravel(),
        "time_at": path.time_starts[series] + spans.first.ravel(),
        "end": spans.end.ravel(),
        "zero": path.first_times[series],
        "begin": begin,
        "finish": finish,
        "origin": origin,
        "scale": scale,
        "turns": np.concatenate([turns, np.zeros(16)]),
        "out_at": where.ravel(),
    }
    held = {name: np.ascontiguousarray(array) for name, array in held.items()}
    job = library.Clock(
        values=values.ctypes.data,
        **{name: array.ctypes.data for name, array in held.items()},
        out=out.ctypes.data,
        n_intervals=tokens,
        n_frequencies=clock.count,
        fastest=float(np.abs(turns).max()),
        value_dtype=int(values.dtype == np.float64),
        compute_dtype=int(np.dtype(compute) == np.float64),
        out_dtype=int(out.dtype == np.float64),
        channels=values.shape[1],
        threads=threads or library.default_threads(),
    )
    native = library.load()
    assert native is not None
    if native.rf_clock(ctypes.byref(job)):
        raise MemoryError("the native kernel could not allocate its scratch memory")
    if view == "global":
        out[...] = np.cumsum(out, axis=1, dtype=np.float64)
    if not cuts.equal:
        out[np.arange(n_windows)[None, :] >= cuts.n_windows[:, None]] = 0
