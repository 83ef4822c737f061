"""Which series are trained on and which are held out."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.errors import InputError
from roughformer.estimators.inputs import aligned, as_series
from roughformer.series import SeriesBatch
from roughformer.store import StoredSeries
from roughformer.train import fold_validation, split_validation
from roughformer.util.checks import real_number

__all__ = ["Part", "Series", "held_series", "parts_of"]

Series = SeriesBatch | StoredSeries
Part = tuple[Series, Tensor, Tensor | None]  # series, their targets and their weights
_MOST_HELD = 4096  # series of a store that validate: they are in memory


def held_series(
    validation_data: Any, n_estimators: int, known: dict[str, Any]
) -> tuple[Series, Any]:
    """The series of ``validation_data`` and their targets as given; ``known``: the columns of the
    training table, or the layout of the training arrays.
    """
    if not isinstance(validation_data, tuple | list) or not 2 <= len(validation_data) <= 3:
        raise InputError("validation_data must be (X, y), (X, y, times) or None")
    if n_estimators != 1:
        raise InputError("several estimators hold out a part each: leave validation_data out")
    held_x, held_y, *rest = validation_data
    held = held_x if isinstance(held_x, StoredSeries) else as_series(held_x, *rest, known=known)
    held_y = held.labels if held_y is None else aligned(held_y, held)
    if held_y is None:
        raise InputError("validation_data needs targets: (X, y), or series with labels")
    return held, held_y


def parts_of(
    batch: Series,
    target: Tensor,
    weight: Tensor | None,
    *,
    count: int,
    fraction: Any,
    seed: int,
    classes: npt.NDArray[Any] | None,
    groups: Any,
) -> tuple[list[tuple[Part, Part]], npt.NDArray[np.int64]]:
    """Split the series for ``count`` models into pairs of a training and a validation part; also
    return the numbers of all series that one of them holds out.

    One model holds out ``fraction`` of the series, several hold out a fold each.
    """
    stored = isinstance(batch, StoredSeries)
    if stored and count > 1:
        raise InputError(
            "several estimators hold out a part each, which must fit into memory: n_estimators of "
            "a store is 1"
        )
    if stored and real_number(fraction, "validation", "a number in [0, 1)") > 0:
        # What does not fit is better trained on than left out.
        fraction = min(fraction, _MOST_HELD / len(batch))
    if count > 1:
        splits = fold_validation(len(batch), count, seed, classes=classes, groups=groups)
    else:
        splits = [split_validation(len(batch), fraction, seed, classes=classes, groups=groups)]

    def part(which: npt.NDArray[np.int64]) -> Part:
        some = batch.part(which) if isinstance(batch, StoredSeries) else batch[which]
        places = torch.from_numpy(which)
        return some, target[places], None if weight is None else weight[places]

    held = np.concatenate([outside for _, outside in splits])
    return [(part(inside), part(outside)) for inside, outside in splits], held
