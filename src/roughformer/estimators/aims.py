"""Which outputs of a model are held against which targets, and how many there are."""

import torch
from torch import Tensor

from roughformer.train import Inputs

__all__ = ["any_known", "at_targets", "class_counts", "is_known", "weights_at"]


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


def weights_at(
    weight: Tensor, aim: Tensor, inputs: Inputs, *, causal: bool, per_series: int
) -> Tensor:
    """Weights of the series ``(B,)`` as those of what ``at_targets`` gives."""
    if not causal or aim.dim() == per_series or "mask" not in inputs:
        repeat = aim.shape[1] if causal and aim.dim() > per_series else 1
        return weight.repeat_interleave(repeat)
    return weight.repeat_interleave(inputs["mask"].sum(dim=1))


def is_known(target: Tensor) -> Tensor:
    """Which targets (any shape) are known: class numbers from 0 on, numbers that are not NaN."""
    return ~target.isnan() if target.is_floating_point() else target >= 0


def any_known(aim: Tensor, inputs: Inputs, *, per_series: int) -> bool:
    """Whether some target is known: of a series, or of a window that is there."""
    known = is_known(aim)
    if aim.dim() > per_series and "mask" in inputs:
        length = inputs["mask"].shape[1]
        real = inputs["mask"].view(*inputs["mask"].shape, *[1] * (aim.dim() - 2))
        known = known[:, :length] & real
    return bool(known.any())


def class_counts(target: Tensor, n_classes: int, sample_weight: Tensor | None = None) -> Tensor:
    """How often each class is in ``target (B, ...)``, ``(K,)``; -1 = not known. With weights of the
    series ``(B,)``: their sums.
    """
    known = target >= 0
    weight = None
    if sample_weight is not None:
        weight = sample_weight.reshape(-1, *[1] * (target.dim() - 1)).expand(target.shape)[known]
    return torch.bincount(target[known], weights=weight, minlength=n_classes)
