"""What streams say: predictions, and the window ends at which they fell due."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from roughformer.inference import ClassTargets, NumberTargets, Predictor

__all__ = ["Answers", "Events", "answers_of", "no_events"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Answers:
    """Predictions, one row for each: of classes or of numbers.

    Attributes
    ----------
    classes : ndarray (K,) or None
        Class labels.
    probabilities : ndarray (e, K) or None
        Calibrated probabilities of the classes.
    point : ndarray (e, m) or None
        Predicted numbers.
    deviation : ndarray (e, m) or None
        Their standard deviations, if the model has them.
    quantiles : ndarray (e, m, q) or None
        Their quantiles, if the model has them.
    flat : bool
        Whether ``plain`` writes the only target as a number instead of a list.
    """

    classes: Array | None = None
    probabilities: Floats | None = None
    point: Floats | None = None
    deviation: Floats | None = None
    quantiles: Floats | None = None
    flat: bool = True

    @property
    def labels(self) -> Array:
        """Most probable classes ``(e,)``."""
        assert self.classes is not None
        assert self.probabilities is not None
        found: Array = self.classes[self.probabilities.argmax(axis=1)]
        return found

    def __len__(self) -> int:
        """Number of predictions."""
        rows = self.probabilities if self.probabilities is not None else self.point
        assert rows is not None
        return len(rows)

    def __getitem__(self, which: Any) -> "Answers":
        """Select rows by a slice, a mask or numbers."""
        kept = {
            name: part[which]
            for name in ("probabilities", "point", "deviation", "quantiles")
            if (part := getattr(self, name)) is not None
        }
        return replace(self, **kept)

    def plain(self) -> list[dict[str, Any]]:
        """Convert to JSON, a dict for each: ``{"label", "probabilities"}`` or ``{"point", ...}``.

        Probabilities are by label. One target is a number, several are a list.
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
    """Windows that ended; those of one stream are in order.

    Attributes
    ----------
    slot : ndarray (e,)
        Streams that they belong to.
    time : ndarray (e,)
        When they ended.
    window : ndarray (e,)
        Their numbers within their stream, from 0.
    answers : Answers
        Predictions at their ends.
    dropped : int
        Number of rows that came too late.
    """

    slot: npt.NDArray[np.int64]
    time: Floats
    window: npt.NDArray[np.int64]
    answers: Answers
    dropped: int = 0

    def __len__(self) -> int:
        """Number of windows."""
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
    return Answers(**predictor.to_target_units(output), flat=targets.flat)


def no_events(predictor: Predictor, dropped: int = 0) -> Events:
    """None."""
    import torch

    outputs = predictor.outputs
    raw = outputs.shaped(torch.zeros(0, outputs.n_outputs * outputs.outputs_per_target))
    none = np.zeros(0, dtype=np.int64)
    return Events(none, np.zeros(0), none, answers_of(predictor, raw), dropped)
