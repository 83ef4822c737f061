"""Inputs of models: what makes them, and how those of several series are put together."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.series import SeriesBatch

__all__ = ["SAMPLE_WEIGHT", "Encoder", "Index", "Inputs", "Stopwatch", "join", "take"]

Inputs = dict[str, Tensor]
SAMPLE_WEIGHT = "sample_weight"  # name of the series' weights (B,) beside the inputs of the model
Index = npt.NDArray[np.int64]


class Encoder(Protocol):
    """What turns series into the inputs of a model, each with the series as its first axis."""

    def encode(
        self,
        batch: SeriesBatch,
        *,
        drop: float = 0.0,
        seed: int = 0,
        series: Any = None,
        threads: int | None = None,
    ) -> Inputs:
        """Inputs of all series of a batch."""


@dataclass
class Stopwatch:
    """Seconds of work in making inputs, and seconds that the model had to wait for them.

    Work is time of the processor: beside a busy model the clock would count the model's time too.
    """

    encoding: float = 0.0
    waiting: float = 0.0


def take(inputs: Inputs, which: Tensor | slice) -> Inputs:
    """The inputs of some series."""
    return {name: tensor[which] for name, tensor in inputs.items()}


def join(parts: list[Inputs]) -> Inputs:
    """Inputs of several batches as one; token axes of other lengths are padded and masked."""
    length = [part["times"].shape[1] for part in parts]
    ragged = len(set(length)) > 1
    if ragged or any("mask" in part for part in parts):
        parts = [
            {"mask": torch.ones(part["times"].shape, dtype=torch.bool)} | part for part in parts
        ]
    joined = {}
    for name in parts[0]:
        tensors = [part[name] for part in parts]
        if ragged and name in ("tokens", "times", "mask"):
            most = max(length)
            tensors = [
                torch.cat([t, t.new_zeros(len(t), most - t.shape[1], *t.shape[2:])], dim=1)
                for t in tensors
            ]
        joined[name] = torch.cat(tensors)
    return joined
