"""Points to leave out of a batch, as the engines take it: a mask, or a fraction and a seed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch, check_fraction, keep_mask, series_keys
from roughformer.signatures import library, native_call

__all__ = ["Dropping", "check_series"]


def check_series(series: npt.ArrayLike | None, n_series: int) -> npt.NDArray[np.int64] | None:
    """``series`` as whole numbers ``(B,)`` from 0 to 2^32 - 1, or None, or raise ``InputError``."""
    if series is None:
        return None
    numbers = np.asarray(series)
    whole = np.issubdtype(numbers.dtype, np.integer) or numbers.size == 0
    if not whole or numbers.shape != (n_series,):
        raise InputError(
            f"series must be {n_series} whole numbers, one for each series of the batch, got "
            f"{numbers.dtype} of shape {numbers.shape}"
        )
    if numbers.size and not (int(numbers.min()) >= 0 and int(numbers.max()) < 2**32):
        raise InputError(
            f"series must be numbers from 0 to 2**32 - 1, got {numbers.min()} ... {numbers.max()}"
        )
    return numbers.astype(np.int64)


@dataclass(frozen=True)
class Dropping:
    """Points to leave out: a mask (True = keep), or a fraction of each series and a seed.

    ``series (B,)`` are the numbers that the random words are drawn for (default 0 ... B-1).
    """

    keep: npt.NDArray[np.bool_] | None = None
    fraction: float = 0.0
    seed: int = 0
    series: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        """Refuse what is no fraction."""
        check_fraction(self.fraction)

    def __bool__(self) -> bool:
        """Whether anything is dropped."""
        return self.keep is not None or self.fraction > 0

    def mask(self, batch: SeriesBatch) -> npt.NDArray[np.bool_] | None:
        """The mask ``(N,)``, or None if all points stay."""
        if self.keep is not None or not self.fraction > 0:
            return self.keep
        if library.load() is None:
            return keep_mask(batch.lengths, self.fraction, self.seed, self.series)
        return native_call.thin(batch.lengths, self.fraction, self.keys(len(batch)))

    def keys(self, n_series: int) -> npt.NDArray[np.uint32]:
        """``(B,)`` keys of the random thinning."""
        default = np.arange(n_series)
        numbers: npt.NDArray[np.integer[Any]] = default if self.series is None else self.series
        return series_keys(self.seed, numbers)
