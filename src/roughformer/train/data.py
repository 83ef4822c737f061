"""What a model learns from."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from roughformer.model.outputs import OutputConfig
from roughformer.train.feed import BatchSource
from roughformer.train.inputs import Inputs

__all__ = ["TrainingData"]

Scores = Callable[[Tensor, Tensor], dict[str, float]]


@dataclass(frozen=True)
class TrainingData:
    """What a model learns from.

    ``valid``: inputs and targets (as the loss takes them) of the validation part, or None;
    ``scores(outputs, targets)`` in units of the world, of which ``metric`` decides. ``key``: a
    hash of data and configuration, which a training that goes on must share. ``valid_weight``: of
    the series of the validation part.
    """

    source: BatchSource
    outputs: OutputConfig
    valid: tuple[Inputs, Tensor] | None = None
    scores: Scores | None = None
    metric: str = ""
    class_weight: Tensor | None = None
    key: str = ""
    valid_weight: Tensor | None = None
