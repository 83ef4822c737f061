"""Helpers that several modules share: checks of options, and series in blocks."""

import math
import numbers
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer import InputError

__all__ = ["real_number", "series_blocks", "whole_number"]

_AT_ONCE = 1 << 18  # samples worked on together: temporaries of some MB


def whole_number(value: Any, name: str, least: int, most: float = math.inf) -> int:
    """``value`` as an int in [least, most], or ``InputError``. 3.0 counts, True does not."""
    good = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not good or not float(value).is_integer() or not least <= value <= most:
        span = f">= {least}" if most == math.inf else f"from {least} to {most}"
        raise InputError(f"{name} must be a whole number {span}, got {value!r}")
    return int(value)


def real_number(value: Any, name: str, what: str) -> float:
    """``value`` as a positive finite float, or ``InputError`` ("must be <what>")."""
    good = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not good or not 0 < float(value) < math.inf:
        raise InputError(f"{name} must be {what}, got {value!r}")
    return float(value)


def series_blocks(lengths: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Runs ``[b0, b1)`` of series of ``lengths (B,)`` with about ``_AT_ONCE`` samples, padding
    included.
    """
    n, size = len(lengths), max(1, _AT_ONCE // int(lengths.max(initial=1)))
    return [(b, min(b + size, n)) for b in range(0, n, size)]
