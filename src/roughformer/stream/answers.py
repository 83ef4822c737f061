"""What streams say: predictions, and the window ends at which they fell due."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from roughformer.predictor import Predictor
from roughformer.targets import ClassTargets, NumberTargets

__all__ = ["Answers", "Events", "answers_of", "no_events"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Answers:
    """Predictions, a row each: of classes ``labels (e,)`` and calibrated ``probabilities (e, K)``
    of ``classes (K,)``; of numbers ``point (e, m)`` and, if the model tells them, ``deviation
    (e, m)`` or ``quantiles (e, m, q)``.
    """

    classes: Array | None = None
    probabilities: Floats | None = None
    point: Floats | None = None
    deviation: Floats | None = None
    quantiles: Floats | None = None
    flat: bool = True

    @property
    def labels(self) -> Array:
        """``(e,)`` the most probable class."""
        assert self.classes is not None
        assert self.probabilities is not None
        found: Array = self.classes[self.probabilities.argmax(axis=1)]
        return found

    def __len__(self) -> int:
        """How many."""
        rows = self.probabilities if self.probabilities is not None else self.point
        assert rows is not None
        return len(rows)

    def __getitem__(self, which: Any) -> "Answers":
        """Some of them: a slice, a mask or numbers."""
        kept = {
            name: part[which]
            for name in ("probabilities", "point", "deviation", "quantiles")
            if (part := getattr(self, name)) is not None
        }
        return replace(self, **kept)

    def plain(self) -> list[dict[str, Any]]:
        """As JSON has it: ``{"label", "probabilities": {label: p}}`` or ``{"point", ...}``; one
        target is a number, several are a list.
        """
        if self.probabilities is not None:
            assert self.classes is not None
            names = [_word(c) for c in self.classes.tolist()]
            return [
                {
                    "label": label,
                    "probabilities": dict(zip(names, map(float, row), strict=True)),
                }
                for label, row in zip(self.labels.tolist(), self.probabilities, strict=True)
            ]
        found: list[dict[str, Any]] = []
        for i in range(len(self)):
            entry = {}
            for name in ("point", "deviation", "quantiles"):
                part = getattr(self, name)
                if part is not None:
                    entry[name] = part[i, 0].tolist() if self.flat else part[i].tolist()
            found.append(entry)
        return found


@dataclass(frozen=True)
class Events:
    """Windows that ended: of stream ``slot (e,)``, its window of number ``window (e,)``, at ``time
    (e,)``, with ``answers``; those of one stream in order. ``dropped``: rows that came too late.
    """

    slot: npt.NDArray[np.int64]
    time: Floats
    window: npt.NDArray[np.int64]
    answers: Answers
    dropped: int = 0

    def __len__(self) -> int:
        """How many windows."""
        return len(self.slot)


def _word(label: Any) -> str:
    return label if isinstance(label, str) else str(label)


def answers_of(predictor: Predictor, output: Tensor) -> Answers:
    """From outputs ``(e, n[, k])`` of the model."""
    targets = predictor.targets
    if isinstance(targets, ClassTargets):
        shares = (output.double() / predictor.calibration).softmax(dim=-1)
        return Answers(classes=targets.labels, probabilities=shares.numpy())
    assert isinstance(targets, NumberTargets)
    return Answers(**predictor.in_world(output), flat=targets.flat)


def no_events(predictor: Predictor, dropped: int = 0) -> Events:
    """None."""
    import torch

    outputs = predictor.outputs
    raw = outputs.shaped(torch.zeros(0, outputs.n_outputs * outputs.outputs_per_target))
    none = np.zeros(0, dtype=np.int64)
    return Events(none, np.zeros(0), none, answers_of(predictor, raw), dropped)
