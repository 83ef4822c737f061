"""Which outputs of a model are held against which targets, and how many there are."""

import torch
from torch import Tensor

from roughformer.train.source import Inputs

__all__ = ["at_targets", "class_counts"]


def at_targets(
    output: Tensor, aim: Tensor, inputs: Inputs, *, causal: bool, per_series: int
) -> tuple[Tensor, Tensor]:
    """Outputs ``(N, ...)`` and their targets: of the last real window where a causal model has one
    target for a series (``aim`` then has ``per_series`` axes), of all where each has its own.
    """
    if not causal:
        return output, aim
    real = inputs.get("mask", torch.ones(output.shape[:2], dtype=torch.bool))
    if aim.dim() > per_series:
        return output[real], aim[:, : output.shape[1]][real]
    at = (real.sum(dim=1) - 1).clamp(min=0)
    return output[torch.arange(len(output)), at], aim


def class_counts(target: Tensor, n_classes: int) -> Tensor:
    """How often each class is in ``target`` (any shape), ``(K,)``; -1 = not known."""
    return torch.bincount(target[target >= 0], minlength=n_classes)
