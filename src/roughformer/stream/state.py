"""The state of many streams: named arrays with one row for each stream."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["State"]

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


class State:
    """Arrays ``(n, ...)`` by name. A stream that begins anew gets the entries it began with.

    Everything that a stream remembers is here, so that a snapshot is some rows of it.
    """

    def __init__(self, n: int) -> None:
        """Of ``n`` streams, without arrays yet."""
        self.n = n
        self.arrays: dict[str, Array] = {}
        self._fresh: dict[str, float] = {}

    def add(self, name: str, shape: tuple[int, ...], dtype: Any, fresh: float = 0) -> Array:
        """An array ``(n, *shape)``, filled with ``fresh``."""
        assert name not in self.arrays
        array = np.full((self.n, *shape), fresh, dtype=dtype)
        self.arrays[name], self._fresh[name] = array, fresh
        return array

    def reset(self, slots: Ints) -> None:
        """These streams begin anew."""
        for name, array in self.arrays.items():
            array[slots] = self._fresh[name]

    def rows(self, slots: Ints) -> dict[str, Array]:
        """A copy of what these streams remember."""
        return {name: array[slots] for name, array in self.arrays.items()}

    def check(
        self, slots: Ints, rows: dict[str, Array], refuse: Callable[[str], Exception]
    ) -> None:
        """Raise ``refuse(why)`` if ``rows`` are those of other streams."""
        if set(rows) != set(self.arrays):
            raise refuse("it holds other arrays")
        for name, array in self.arrays.items():
            if rows[name].shape != (len(slots), *array.shape[1:]):
                raise refuse(f"{name} has shape {rows[name].shape}")
            if rows[name].dtype != array.dtype:
                raise refuse(f"{name} has type {rows[name].dtype}")

    def put(self, slots: Ints, rows: dict[str, Array]) -> None:
        """Write rows back."""
        for name, array in self.arrays.items():
            array[slots] = rows[name]

    @property
    def bytes_each(self) -> int:
        """Memory of one stream."""
        return sum(array[:1].nbytes for array in self.arrays.values()) if self.n else 0
