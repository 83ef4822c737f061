"""How Fourier integrals ∫ e^{iωu} dx(u) at given frequencies come from FFTs of an even grid.

The path, smoothed by a bump φ and sampled at n nodes of step h, is g_m; then

    ∫ e^{iωu} dx(u) = Σ_m g_m e^{iωhm} / φ^(ωh),  up to the bump's error for |ω| ≤ π/(2h).

*Even* frequencies j·δ: the grid has the period 2π/δ, times wrap around it, and one FFT gives all
sums. *Any* frequencies: the grid is at least twice as long as the path; its FFT is read between
its frequencies k by the bump again, which the nodes are divided by beforehand:

    Σ_m g_m e^{iκθ_m} = Σ_k φ(κ - k) Σ_m (g_m / φ^(θ_m)) e^{ikθ_m},  θ_m = 2πm/n, |θ_m| ≤ π/2.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from roughformer.signatures.bump import PAD, Bump, bump_of

__all__ = ["Plan", "plan_for"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_MOST_NODES = 1 << 26  # of a grid; beyond, the plain sum over points is always cheaper


@dataclass(frozen=True)
class Plan:
    """A grid and how to read its FFT; without ``between`` frequency j is number ``number[j]``."""

    bump: Bump
    n_grid: int
    n_nodes: int  # of the longest path before it wraps
    per_time: float  # nodes per unit of time
    first: int  # where on the grid node 0 goes
    number: Ints  # (J,) of the frequency, or of the first one that is read
    factor: Floats  # (J,), or (J, 2) real and imaginary if between
    weight: Floats | None = None  # (n_nodes,)
    between: Floats | None = None  # (J, width) weights of the frequencies read


def _fft_size(least: float) -> int:
    """The smallest even 2^a 3^b 5^c that is not below."""
    best = 1 << max(1, int(np.ceil(np.log2(max(least, 2)))))
    five = 2
    while five < best:
        three = five
        while three < best:
            size = three << max(0, int(np.ceil(np.log2(max(least / three, 1)))))
            best = min(best, size) if size >= least else best
            three *= 3
        five *= 5
    return best


def _common_step(omega: Floats, duration: float, tolerance: float) -> tuple[float, Ints] | None:
    """δ and whole j with ω = j·δ but for phases of ``tolerance`` at the end of the path."""
    levels = np.unique(np.concatenate([[0.0], omega]))
    gaps = np.diff(levels)
    top = float(levels[-1])
    # Rounding leaves gaps of nearly nothing between frequencies that are meant to be one.
    gaps = gaps[gaps * duration > tolerance]
    if not len(gaps):
        return None
    for part in range(1, 5):
        steps = round(top / float(gaps.min()) * part)
        if steps > _MOST_NODES:
            return None
        delta = top / steps
        number = np.rint(omega / delta)
        if (np.abs(omega - number * delta) * duration).max() <= tolerance:
            return delta, number.astype(np.int64)
    return None


def _even_plan(omega: Floats, duration: float, bump: Bump, tolerance: float) -> Plan | None:
    found = _common_step(omega, duration, tolerance)
    if found is None:
        return None
    delta, number = found
    n_grid = _fft_size(max(4 * int(number.max()), 2 * bump.width))
    per_time = n_grid * delta / (2 * np.pi)
    nodes = duration * per_time + bump.width + PAD + 3
    if max(nodes, n_grid) > _MOST_NODES:
        return None
    factor = 1 / bump.transform(2 * np.pi * number / n_grid)
    return Plan(bump, n_grid, int(nodes), per_time, bump.width // 2, number, factor)


def _any_plan(omega: Floats, duration: float, bump: Bump) -> Plan | None:
    per_time = 2 * float(omega.max()) / np.pi
    size = duration * per_time + bump.width + PAD + 3
    if size > _MOST_NODES // 2:
        return None
    nodes, half = int(size), bump.width // 2
    n_grid = _fft_size(max(2 * (nodes + 1), 8 * bump.width))
    # Nodes from the middle of the longest path, so that |θ_m| ≤ π/2.
    middle = nodes // 2
    weight = 1 / bump.transform(2 * np.pi * (np.arange(nodes) - middle) / n_grid)
    kappa = omega * n_grid / (2 * np.pi * per_time)
    number = np.ceil(kappa - half).astype(np.int64)
    between = bump(kappa[:, None] - number[:, None] - np.arange(bump.width)[None, :])
    theta = omega / per_time
    turned = np.exp(1j * theta * (middle - half)) / bump.transform(theta)
    factor = np.stack([turned.real, turned.imag], axis=-1)
    return Plan(bump, n_grid, nodes, per_time, middle, number, factor, weight, between)


def plan_for(omega: Floats, duration: float, wide: bool) -> Plan | None:
    """The smaller of the two grids for ``omega (J,)`` ≥ 0, not all 0, and paths of at most this
    duration > 0; None if both would be huge. ``wide``: to 1e-13 instead of 1e-6.
    """
    return _plan_for(np.ascontiguousarray(omega, np.float64).tobytes(), duration, wide)


@lru_cache(maxsize=64)  # training asks for the same grid with every batch
def _plan_for(frequencies: bytes, duration: float, wide: bool) -> Plan | None:
    omega = np.frombuffer(frequencies)
    bump = bump_of(16 if wide else 8)
    even = _even_plan(omega, duration, bump, 1e-11 if wide else 1e-7)
    free = _any_plan(omega, duration, bump)
    if even is None or free is None:
        return even or free
    return even if max(even.n_grid, even.n_nodes) <= 1.5 * free.n_grid else free
