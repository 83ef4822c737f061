"""Large arrays that are filled again and again."""

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Rooms"]

_MOST = 2  # one is filled while the batch before is still known to whoever takes it
Array = npt.NDArray[Any]


class Rooms:
    """Arrays of times and values that are used again when nobody has them any more: new ones
    would cost the system as much time to clear as it takes to fill them.

    For one thread. A copy in another process has its own.
    """

    def __init__(self) -> None:
        """None yet."""
        self._held: list[tuple[Array, Array]] = []

    def __reduce__(self) -> Any:
        """Without the arrays."""
        return Rooms, ()

    def room(self, rows: int, channels: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        """``times (n,)`` and ``values (n, C)`` with n >= ``rows``, for the caller alone."""
        unknown = _known((np.empty(0), np.empty((0, 1))))
        for number, pair in enumerate(self._held):
            if _known(pair) == unknown:
                times, values = pair
                if len(times) >= rows and values.shape[1] == channels and values.dtype == dtype:
                    return times, values
                del self._held[number]
                break
        del self._held[: len(self._held) - _MOST + 1]
        times, values = np.empty(rows), np.empty((rows, channels), dtype)
        self._held.append((times, values))
        return times, values  # not the tuple that is held: who has that has no arrays


def _known(pair: tuple[Array, Array]) -> tuple[int, int]:
    """How many know each array. How often a count itself adds to it depends on the version of
    Python, so it is compared with that of arrays which nobody else can know. A view knows the array
    that it is of, so whoever has a batch counts.
    """
    times, values = pair
    return sys.getrefcount(times), sys.getrefcount(values)
