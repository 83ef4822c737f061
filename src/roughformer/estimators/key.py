"""A hash that tells whether a training may go on where another one stopped."""

import hashlib
from typing import Any

import numpy as np
from torch import Tensor

from roughformer.series import SeriesBatch
from roughformer.store import StoredSeries

__all__ = ["training_key"]

# Raised when series come in another order, or are changed by other draws: a training that goes on
# in the middle of an epoch would see some of them twice.
_ORDER = 2
# Options that change nothing in the state of a training.
_NO_MATTER = {"save_seconds", "readers", "tensorboard", "calibrate", "metric"}


def training_key(*parts: Any) -> str:
    """A hash of data (series, tensors) and configuration (models of pydantic, texts): a training
    resumes only with the same ones.
    """
    digest = hashlib.blake2b(bytes([_ORDER]), digest_size=16)
    for part in parts:
        if isinstance(part, SeriesBatch):
            for array in (part.times, part.values, part.offsets, part.static):
                if array is not None:
                    digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        elif isinstance(part, StoredSeries):
            digest.update(part.key.encode())
        elif isinstance(part, str):
            digest.update(part.encode())
        elif isinstance(part, Tensor):
            digest.update(part.contiguous().numpy().tobytes())
        else:
            digest.update(part.model_dump_json(exclude=_NO_MATTER).encode())
    return digest.hexdigest()
