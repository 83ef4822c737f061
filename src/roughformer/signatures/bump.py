"""The bump that fast Fourier integrals smooth a path with: Kaiser and Bessel's, of unit area.

    φ(x) = I_0(β √(1 - (2x/w)²)) / Z  for |x| ≤ w/2,  0 elsewhere,
    φ^(θ) = ∫ φ(x) e^{iθx} dx = (β / sinh β) · sinh(s) / s,  s = √(β² - (wθ/2)²).

x counts the steps of an even grid. Its transform is large for |θ| ≤ π/2, the half of the grid's
band that is used, and less than ``error`` times that for all θ that fold onto it (|θ| ≥ 3π/2).
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from numpy.polynomial import chebyshev

__all__ = ["PAD", "Bump", "bump_of"]

Floats = npt.NDArray[np.float64]
PAD = 8  # the longest vector of doubles; native/spectrum.h has it too
# Width -> degree of the polynomials that stand for the bump between the nodes.
_DEGREE = {8: 10, 16: 16}


@dataclass(frozen=True)
class Bump:
    """φ of one ``width``, and for each of the ``width`` nodes that a point at a distance z in
    [0, 1) before the first of them touches: polynomials in 2z - 1 of the smoothed ``step`` ∫ φ and
    of the ``bump`` φ, ``(degree + 1, 8 + width + 8)`` with 8 nodes before and behind.
    """

    width: int
    beta: float
    step: Floats
    bump: Floats

    @property
    def degree(self) -> int:
        """Degree of the polynomials."""
        return len(self.step) - 1

    def __call__(self, x: Floats) -> Floats:
        """φ(x)."""
        inside = np.clip(1 - (2 * x / self.width) ** 2, 0, None)
        area = self.width * np.sinh(self.beta) / self.beta
        value = np.i0(self.beta * np.sqrt(inside)) / area
        return np.where(np.abs(x) <= self.width / 2, value, 0.0)

    def transform(self, theta: Floats) -> Floats:
        """φ^(θ), for |θ| < 2β/w."""
        s = np.sqrt(self.beta**2 - (self.width * theta / 2) ** 2)
        return np.asarray(self.beta / np.sinh(self.beta) * np.sinh(s) / s)


@cache
def bump_of(width: int) -> Bump:
    """The bump of ``width`` 8 (error 2e-7) or 16 (1e-14)."""
    degree = _DEGREE[width]
    beta = 0.98 * np.pi * width * 0.75
    bare = Bump(width, beta, np.zeros((1, 1)), np.zeros((1, 1)))
    y = chebyshev.chebpts1(degree + 1)
    bump, step = np.zeros((2, degree + 1, width + 2 * PAD))
    step[0, PAD + width :] = 1.0
    passed = 0.0
    for k in range(width):
        cell = chebyshev.chebfit(y, bare((y + 1) / 2 + k - width / 2), degree)
        # One degree more than the cell's own is cut off: it is below the error.
        area = chebyshev.chebint(cell, scl=0.5, lbnd=-1)
        area[0] += passed
        passed = float(chebyshev.chebval(1.0, area))
        bump[:, PAD + k] = chebyshev.cheb2poly(cell)
        step[:, PAD + k] = chebyshev.cheb2poly(area[: degree + 1])
    return Bump(width, beta, step, bump)
