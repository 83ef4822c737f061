"""Made-up processes at random times whose best forecast is known."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import expm

__all__ = ["PROCESSES", "Process"]

Series = tuple[list[np.ndarray], list[np.ndarray]]


class Process(NamedTuple):
    """``draw(n, length, span, rng)``: values (L, 1) and times of n series. ``best(values, times,
    ahead)``: the expectation given the past, with the process known.
    """

    draw: Callable[[int, int, float, np.random.Generator], Series]
    best: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


class Linear:
    """dz = A z dt + noise, of which the first coordinate is observed with an error.

    Transitions over any gap are exact (stationary covariance P: Q(t) = P - e^{At} P e^{At}ᵀ), and
    the best forecast is Kalman's.
    """

    def __init__(self, drift: np.ndarray, stationary: np.ndarray, error: float) -> None:
        self.drift, self.stationary, self.error = drift, stationary, error

    def move(self, gap: float) -> tuple[np.ndarray, np.ndarray]:
        step = expm(self.drift * gap)
        return step, self.stationary - step @ self.stationary @ step.T

    def draw(self, n: int, length: int, span: float, rng: np.random.Generator) -> Series:
        values, times = [], []
        root = np.linalg.cholesky(self.stationary)
        for _ in range(n):
            t = np.sort(rng.uniform(0, span, length))
            z = root @ rng.normal(size=len(root))
            x = [z[0]]
            for gap in np.diff(t):
                step, noise = self.move(gap)
                jitter = 1e-12 * np.eye(len(noise))
                z = step @ z + np.linalg.cholesky(noise + jitter) @ rng.normal(size=len(z))
                x.append(z[0])
            seen = np.array(x) + np.sqrt(self.error) * rng.normal(size=length)
            values.append(seen[:, None])
            times.append(t)
        return values, times

    def best(self, values: np.ndarray, times: np.ndarray, ahead: np.ndarray) -> np.ndarray:
        mean, cov = np.zeros(len(self.drift)), self.stationary
        for k, x in enumerate(values[:, 0]):
            if k:
                step, noise = self.move(times[k] - times[k - 1])
                mean, cov = step @ mean, step @ cov @ step.T + noise
            gain = cov[:, 0] / (cov[0, 0] + self.error)
            mean = mean + gain * (x - mean[0])
            cov = cov - np.outer(gain, cov[0])
        return np.array([(expm(self.drift * h) @ mean)[0] for h in ahead])


def _jumps(n: int, length: int, span: float, rng: np.random.Generator) -> Series:
    """dx = -x/2 dt + jumps of size N(0, 1), one each two units of time on average."""
    values, times = [], []
    for _ in range(n):
        t = np.sort(rng.uniform(0, span, length))
        when = np.sort(rng.uniform(-20, span, rng.poisson((span + 20) / 2)))
        size = rng.normal(size=len(when))
        since = t[:, None] - when
        x = (np.where(since >= 0, np.exp(-0.5 * np.maximum(since, 0)), 0) * size).sum(axis=1)
        values.append(x[:, None])
        times.append(t)
    return values, times


def _jumps_best(values: np.ndarray, times: np.ndarray, ahead: np.ndarray) -> np.ndarray:
    return np.asarray(values[-1, 0] * np.exp(-0.5 * ahead))


_return = Linear(np.array([[-0.5]]), np.array([[1.0]]), 0.0)
# x'' = -ω² x - γ x' + noise has the stationary covariance diag(1, ω²) if x has variance 1.
_swing = Linear(np.array([[0.0, 1.0], [-1.0, -0.2]]), np.diag([1.0, 1.0]), 0.05)

PROCESSES = {
    "Ornstein–Uhlenbeck": Process(_return.draw, _return.best),
    "noisy oscillator": Process(_swing.draw, _swing.best),
    "jumps": Process(_jumps, _jumps_best),
}
