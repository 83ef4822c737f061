"""The paper's synthetic task: which frequency has a noisy sine with a growing amplitude?"""

import numpy as np

from roughformer import InputError, SeriesBatch

__all__ = ["make_sine"]

_BLOCK = 256  # series drawn at once: bounds the float64 work arrays


def make_sine(
    n_samples: int = 1000,
    n_classes: int = 100,
    length: int = 2000,
    t_max: float = 6.0,
    low: float = 10.0,
    high: float = 500.0,
    seed: int = 0,
    *,
    phase_noise: float = 0.5,
    noise: float = 0.2,
) -> SeriesBatch:
    """Make noisy sines, X(t) = g(t) sin(omega t + nu) + eta(t), g(t) = 1 + (t / t_max)^2.

    omega is one of ``n_classes`` evenly spaced frequencies, nu ~ N(0, phase_noise^2) is drawn once
    per series, eta ~ N(0, noise^2) at each point. The paper names these parts but gives neither g
    nor the sizes of the noises: these are ours. Classes are as even as ``n_samples`` allows and
    come in random order. The same arguments give the same data.

    Parameters
    ----------
    n_samples : int, default 1000
        Number of series.
    n_classes : int, default 100
        Number of frequencies.
    length : int, default 2000
        Points of each series, on one shared grid over [0, t_max].
    t_max : float, default 6.0
        Time of the last point.
    low : float, default 10.0
        Lowest frequency, in radians per unit of time.
    high : float, default 500.0
        Highest frequency.
    seed : int, default 0
        Of the random numbers.
    phase_noise : float, default 0.5
        Standard deviation of nu.
    noise : float, default 0.2
        Standard deviation of eta.

    Returns
    -------
    SeriesBatch
        One float32 channel "x"; labels: the class, 0 ... n_classes - 1 (int64); static covariate
        "omega": its frequency, which is the answer and no input.
    """
    for name, count, least in (
        ("n_samples", n_samples, 1),
        ("n_classes", n_classes, 1),
        ("length", length, 2),
    ):
        if count < least:
            raise InputError(f"{name} must be at least {least}, got {count}")
    if not (np.isfinite(t_max) and t_max > 0):
        raise InputError(f"t_max must be positive and finite, got {t_max}")
    for name, size in (("phase_noise", phase_noise), ("noise", noise)):
        if not (np.isfinite(size) and size >= 0):
            raise InputError(f"{name} must be finite and not negative, got {size}")
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n_samples) % n_classes)
    omega = np.linspace(low, high, n_classes)[labels]
    nu = phase_noise * rng.standard_normal(n_samples)
    t = np.linspace(0.0, t_max, length)
    g = 1.0 + (t / t_max) ** 2
    x = np.empty((n_samples, length, 1), dtype=np.float32)
    for i in range(0, n_samples, _BLOCK):
        part = slice(i, min(i + _BLOCK, n_samples))
        eta = noise * rng.standard_normal((part.stop - i, length))
        x[part, :, 0] = g * np.sin(omega[part, None] * t + nu[part, None]) + eta
    return SeriesBatch.from_tensor(
        x, t=t, channels=["x"], labels=labels, static=omega[:, None], static_names=["omega"]
    )
