"""The spectrum of whole paths: log power of their clock words on an ordered frequency axis."""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from roughformer.series import SeriesBatch
from roughformer.tokens.config import SpectrumConfig

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["frequencies", "log_power", "spectrum_range"]


def spectrum_range(config: SpectrumConfig, batch: SeriesBatch) -> SpectrumConfig:
    """Fill in the lowest and highest frequency from the median span T and step of the series.

    Linear axis: spacing 1 / 2T, finer than a peak is wide, up to half a turn a step. Log axis:
    from two turns over T to a quarter turn a step.
    """
    start, end = batch.span
    span = float(np.median(end - start)) or 1.0
    step = span / max(float(np.median(batch.lengths)) - 1.0, 1.0)
    count = config.count
    if config.axis == "linear":
        low = config.low or 0.5 / span
        limit = max(0.5 / step, 2 * low)
        if config.high is None:
            count = max(min(count, int(np.floor(limit / low + 1e-9))), 2)
        high = config.high or low * count
    else:
        low = config.low or 2.0 / span
        high = config.high or max(0.25 / step, 2 * low)
    return config.model_copy(update={"count": count, "low": low, "high": max(high, low * 1.001)})


def frequencies(config: SpectrumConfig) -> npt.NDArray[np.float64]:
    """The angular frequencies ``(J,)`` of a fitted configuration."""
    assert config.low is not None
    assert config.high is not None
    if config.axis == "linear":
        turns = np.linspace(config.low, config.high, config.count)
    else:
        turns = np.geomspace(config.low, config.high, config.count)
    return np.asarray(2 * np.pi * turns)


def log_power(words: "Tensor", floor: float) -> "Tensor":
    """``(B, C, J)``: log(1 + |w|² / (floor · mean |w|²)) of clock words ``w (B, C, J, 2)``.

    The mean is over the frequencies of a channel, so that gain does not matter; a channel that
    does not move, or is never observed, has no spectrum: all 0.
    """
    import torch

    cosine, sine = words.unbind(dim=-1)
    power = torch.addcmul(cosine.square(), sine, sine)  # 4x as fast as a sum over the last axis
    mean = power.mean(dim=-1, keepdim=True)
    alive = mean > 0
    share = power / torch.where(alive, mean, 1.0)
    level = torch.tensor(floor, dtype=words.dtype, device=words.device)
    return torch.where(alive, (share / level).log1p(), 0.0)
