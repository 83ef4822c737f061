"""The spectra of windows that a model of rates takes, dense: as ``tokens/tempo.py``.

Words of all windows are sums over half windows; their clock starts at the series' first point,
which changes the phase of a spectrum and not its power. A Hann window that begins at s is
h(u) = 1/2 - 1/4 (e^{iδ(u-s)} + e^{-iδ(u-s)}), δ = 2π/T.
"""

import math

import torch
from torch import Tensor

from roughformer.export.clocks import sinc, waves
from roughformer.export.dense import number
from roughformer.export.filling import Observed, linear_points
from roughformer.export.knots import path_at, place_knots
from roughformer.tokens.tempo import TempoEncoder

__all__ = ["tempo_inputs"]

_FLOOR = 1e-3  # of the mean power, as in tokens/tempo.py
_AT_ONCE = 64


def _pieces(data: Observed, halves: int) -> tuple[Tensor, Tensor, Tensor]:
    """``middle, length (B, N)`` of the pieces between knots, and the increments of channels and of
    their variations in each half window ``(B, halves · 2C, N)``.
    """
    points = linear_points(data)
    shares = torch.arange(halves + 1, dtype=torch.float64, device=data.since.device) / halves
    knots = place_knots(points.times, data.span.unsqueeze(1) * shares)
    x = path_at(points, knots.times)
    step = x[:, 1:] - x[:, :-1]
    both = torch.cat([step, step.abs()], dim=-1)  # on a linear piece the variation is |Δ|
    half = torch.arange(halves, device=x.device)
    mine = (knots.window.unsqueeze(-1) == half).to(both.dtype)  # (B, N, halves)
    parted = mine.unsqueeze(-1) * both.unsqueeze(-2)  # (B, N, halves, 2C)
    batch, n = parted.shape[:2]
    times = knots.times
    return (
        0.5 * (times[:, 1:] + times[:, :-1]),
        times[:, 1:] - times[:, :-1],
        parted.reshape(batch, n, halves * both.shape[-1]).transpose(1, 2),
    )


def _merge(halves: Tensor, n_windows: int) -> Tensor:
    """Sums over half windows ``(B, 2n, ...)`` -> over the n windows and the n - 1 between them."""
    if n_windows == 0:
        return halves
    pairs = halves[:, 1:] + halves[:, :-1]  # (B, 2n - 1, ...)
    return torch.cat([pairs[:, 0::2], pairs[:, 1::2]], dim=1)


def _power(encoder: TempoEncoder, data: Observed) -> Tensor:
    """|∫ h e^{iωu} d(x - chord)|² of all windows: ``(B, K, 2C, J)``."""
    n = encoder.n_windows
    halves = max(2 * n, 1)
    middle, length, parted = _pieces(data, halves)
    batch, device = middle.shape[0], middle.device
    width = 2 * len(encoder.channels)
    span = torch.where(data.span > 0, data.span, 1.0)
    # Of each window: its duration as a share of the span, its middle, and e^{iδs}, which is ±1.
    spots = [(1 / n, (k + 0.5) / n, 1.0) for k in range(n)]
    spots += [(1 / n, (k + 1) / n, -1.0) for k in range(n - 1)]
    spots += [(1.0, 0.5, 1.0)]
    share, centre, sign = (
        torch.tensor(column, dtype=torch.float64, device=device)
        for column in zip(*spots, strict=True)
    )
    lasting, around = span.unsqueeze(1) * share, span.unsqueeze(1) * centre  # (B, K)
    delta = number(2 * math.pi, span) / lasting

    def words(step: Tensor) -> Tensor:
        """Of half windows ``(B, halves · 2C, J)`` -> of windows and the whole ``(B, K, 2C, J)``."""
        parts = step.reshape(batch, halves, width, step.shape[-1])
        whole = parts.sum(dim=1, keepdim=True)
        return torch.cat([_merge(parts, n), whole], dim=1) if n else whole

    rise = words(parted.sum(dim=-1, keepdim=True))  # (B, K, 2C, 1)
    slope = rise / lasting[:, :, None, None]
    # One window or all: δ is the same for all windows but the last, which is the whole span.
    deltas = [delta[:, -1:]] if n <= 1 else [delta[:, :1], delta[:, -1:]]
    last = torch.arange(len(spots), device=device) == len(spots) - 1

    def transformed(omega: Tensor, shift: float) -> tuple[Tensor, Tensor]:
        """∫ e^{i(ω + shift·δ)u} d(x - chord), real and imaginary part ``(B, K, 2C, J)``."""
        real, imaginary = [], []
        for own in deltas if shift else deltas[:1]:
            used = omega + shift * own.unsqueeze(-1)  # (B, 1, J)
            cosine, sine = waves(middle, length, used)
            real.append(words(parted @ cosine))
            imaginary.append(words(parted @ sine))
        pick = last[None, :, None, None]
        re = real[0] if len(real) == 1 else torch.where(pick, real[1], real[0])
        im = imaginary[0] if len(real) == 1 else torch.where(pick, imaginary[1], imaginary[0])
        every = omega + shift * delta.unsqueeze(-1)  # (B, K, J)
        flat = lasting.unsqueeze(-1) * sinc(every * lasting.unsqueeze(-1) / 2)
        angle = every * around.unsqueeze(-1)
        re = re - slope * (flat * angle.cos()).unsqueeze(2)
        return re, im - slope * (flat * angle.sin()).unsqueeze(2)

    found = []
    turn = sign[None, :, None, None]
    for i in range(0, encoder.n_frequencies, _AT_ONCE):
        some = range(i, min(i + _AT_ONCE, encoder.n_frequencies))
        turns = [2 * math.pi * encoder.low * math.exp(encoder.step * j) for j in some]
        omega = torch.tensor(turns, dtype=torch.float64, device=device)
        re, im = transformed(omega, 0.0)
        up, down = transformed(omega, 1.0), transformed(omega, -1.0)
        re = 0.5 * re - 0.25 * turn * (up[0] + down[0])
        im = 0.5 * im - 0.25 * turn * (up[1] + down[1])
        found.append(re.square() + im.square())
    return torch.cat(found, dim=-1)


def tempo_inputs(encoder: TempoEncoder, data: Observed) -> dict[str, Tensor]:
    """``spectra (B, K, 2C, J)``: log power, relative to its mean over the axis; 0 for series
    without duration.
    """
    alive = (data.span > 0)[:, None, None, None]
    power = torch.where(alive, _power(encoder, data), 0.0)
    mean = power.mean(dim=-1, keepdim=True)
    moving = mean > 0
    share = power / torch.where(moving, mean, 1.0)
    return {"spectra": torch.where(moving, (share + number(_FLOOR, share)).log(), 0.0).float()}
