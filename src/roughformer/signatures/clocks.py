"""Words of harmonic clocks with the path, in torch. On a linear piece of length h around the middle
m, with increment Δ,

    ∫ cos(ωu) dx = Δ · sinc(ωh/2) · cos(ωm),    ∫ sin(ωu) dx = Δ · sinc(ωh/2) · sin(ωm),

sinc(z) = sin(z) / z, which needs no slope and takes ω = 0 and pieces without duration as they are.
They are, up to the increment of x, the level-2 signature words (cos ω, x) and (sin ω, x) of the
path lifted by the clock, exact for any sampling.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from roughformer.signatures.lifts import Clock
from roughformer.signatures.padded import Knots, Points, number, running_sums

__all__ = ["clock_words_through", "path_clock_words", "sinc", "waves", "window_clock_words"]

_AT_ONCE = 64  # frequencies whose waves at all points are held at a time


def sinc(z: Tensor) -> Tensor:
    """sin(z) / z."""
    still = z.abs() < 1e-9
    return torch.where(still, 1.0, z.sin() / torch.where(still, 1.0, z))


def waves(middle: Tensor, length: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine ``(B, N, J)`` of pieces ``middle, length (B, N)`` for ``omega (..., J)``."""
    damped = sinc(length.unsqueeze(-1) * (omega / 2))
    angle = middle.unsqueeze(-1) * omega
    return damped * angle.cos(), damped * angle.sin()


def window_clock_words(x: Tensor, knots: Knots, clock: Clock, view: str) -> Tensor:
    """``x (B, M, C)`` at the knots -> ``(B, W, C · count · 2)``: for each channel and frequency its
    cosine and sine word.

    The clock of the local view starts at each window, that of the global view at the first cut.
    """
    times, local = knots.times, view == "local"
    edges = times.gather(1, knots.at)
    length = times[:, 1:] - times[:, :-1]
    middle = 0.5 * (times[:, 1:] + times[:, :-1])
    middle = middle - (times.gather(1, knots.begin) if local else edges[:, :1])
    if clock.frequencies is not None:
        omega = torch.tensor(clock.frequencies, dtype=torch.float64, device=x.device)
    else:
        duration = edges[:, 1:] - edges[:, :-1] if local else edges[:, -1:] - edges[:, :1]
        alive = duration > 0
        base = torch.where(
            alive, number(2 * math.pi * clock.spacing, x) / torch.where(alive, duration, 1.0), 0
        )
        harmonic = torch.arange(1, clock.count + 1, dtype=torch.float64, device=x.device)
        if local:
            base = base.gather(1, knots.window.clamp(max=base.shape[1] - 1))
        omega = base.unsqueeze(-1) * harmonic
    cosine, sine = waves(middle, length, omega)
    wave = torch.stack([cosine, sine], dim=-1).unsqueeze(2)  # (B, N, 1, J, 2)
    step = (x[:, 1:] - x[:, :-1])[..., None, None]
    size = x.shape[-1] * clock.count * 2
    words = (step * wave).reshape(step.shape[0], step.shape[1], size)
    return running_sums(words, knots, local)[1]


def path_clock_words(points: Points, omega: Sequence[float]) -> Tensor:
    """``(B, C, J, 2)``: clock words of whole paths, the clock from their first points on."""
    # The first point twice: a series of one point has a piece too, on which nothing moves.
    times = torch.cat([points.times[:, :1], points.times], dim=1)
    x = torch.cat([points.x[:, :1], points.x], dim=1)
    return clock_words_through(Points(times, x), omega)


def clock_words_through(points: Points, omega: Sequence[float]) -> Tensor:
    """``(B, C, J, 2)``: clock words of paths of two points or more; the clock starts at time 0."""
    times, x = points
    length = times[:, 1:] - times[:, :-1]
    middle = 0.5 * (times[:, 1:] + times[:, :-1])
    step = (x[:, 1:] - x[:, :-1]).transpose(1, 2)  # (B, C, L)
    found = []
    for i in range(0, len(omega), _AT_ONCE):
        some = torch.tensor(omega[i : i + _AT_ONCE], dtype=torch.float64, device=x.device)
        found.append(torch.stack([step @ wave for wave in waves(middle, length, some)], dim=-1))
    return torch.cat(found, dim=2) if len(found) > 1 else found[0]
