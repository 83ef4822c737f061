"""The data of the experiments: parts of the sine task and of heart rate, in sizes of a preset."""

from functools import lru_cache
from typing import Any

import numpy as np

from roughformer.series import SeriesBatch
from roughformer_paper.datasets import heart_rate_split, load_heart_rate, make_sine

__all__ = ["Parts", "heart_rate_parts", "pulse_like", "sine_parts"]

Parts = dict[str, SeriesBatch]  # "train", "validation" and "test", with labels
_TEST_SEED = 10_000  # of the sine task: series that no training seed draws


@lru_cache(maxsize=2)
def _sine(n_samples: int, n_classes: int, length: int, n_test: int) -> Parts:
    size = {"n_classes": n_classes, "length": length}
    every = make_sine(n_samples, seed=0, **size)
    held = n_samples // 5
    # Classes come in random order, so the last fifth has its share of each.
    return {
        "train": every[: n_samples - held],
        "validation": every[n_samples - held :],
        "test": make_sine(n_test, seed=_TEST_SEED, **size),
    }


def sine_parts(size: dict[str, int]) -> Parts:
    """The paper's 1000 series (a fifth of them for validation) and test series of another seed."""
    return _sine(**size)


def pulse_like(n: int, length: int, seed: int, recordings: int = 8) -> SeriesBatch:
    """Series shaped like the heart-rate task, made up: two channels that beat at one rate.

    ``recordings`` patients, each with a pulse of its own shape and rates of its own; labels in
    beats per minute, static covariate "recording".
    """
    rng = np.random.default_rng(seed)
    t = np.arange(length) / 125.0
    owner = np.sort(rng.integers(0, recordings, n))
    centre = rng.uniform(60, 110, recordings)
    sharp = rng.uniform(3, 9, recordings)
    rate = centre[owner] + rng.uniform(-6, 6, n)
    angle = 2 * np.pi * rate[:, None] / 60 * t + rng.uniform(0, 2 * np.pi, (n, 1))
    beat = np.exp(sharp[owner, None] * (np.cos(angle) - 1))
    wave = np.exp(2 * (np.cos(angle - 1) - 1))
    x = np.stack([wave, beat], axis=-1) + 0.1 * rng.standard_normal((n, length, 2))
    return SeriesBatch.from_tensor(
        x.astype(np.float32), t=t, channels=["PPG", "ECG"], labels=rate,
        static=owner[:, None].astype(float), static_names=["recording"],
    )  # fmt: skip


@lru_cache(maxsize=1)
def _recordings() -> SeriesBatch:
    return load_heart_rate()


def heart_rate_parts(protocol: Any, made_up: dict[str, int] | None, every: int = 1) -> Parts:
    """BIDMC (in $ROUGHFORMER_DATA) by ``protocol``, "random" or "patient", or made-up series if
    sizes are given; of each part every ``every``-th series.
    """
    parts = _heart_rate(protocol, made_up)
    return parts if every == 1 else {name: part[::every] for name, part in parts.items()}


def _heart_rate(protocol: Any, made_up: dict[str, int] | None) -> Parts:
    if made_up is not None:
        every = pulse_like(made_up["n"], made_up["length"], seed=0)
        assert every.static is not None
        owner = every.static[:, 0]
        names = ("train", "validation", "test")
        if protocol == "patient":
            chosen = [np.isin(owner, group) for group in ([0, 1, 2, 3, 4], [5], [6, 7])]
            return {
                name: every[np.flatnonzero(which)]
                for name, which in zip(names, chosen, strict=True)
            }
        order = np.random.default_rng(1).permutation(len(every))
        cuts = np.split(order, [len(order) * 7 // 10, len(order) * 85 // 100])
        return {name: every[np.sort(part)] for name, part in zip(names, cuts, strict=True)}
    windows, split = _recordings(), heart_rate_split(protocol)
    return {name: windows[which] for name, which in split.items()}
