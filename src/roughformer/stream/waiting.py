"""Rows that wait: those of open windows are taken in together, not one by one.

A call of the engine costs as much for one point as for fifty. Rows that end no window are put
aside, up to a fixed number for each stream, until a window ends, a prediction is asked for, or
there is no more room.
"""

import numpy as np
import numpy.typing as npt

from roughformer.stream.arrivals import Arrivals
from roughformer.stream.state import State

__all__ = ["Waiting"]

Ints = npt.NDArray[np.int64]
_ROOM = 64


class Waiting:
    """Up to 64 rows of each of ``state.n`` streams."""

    def __init__(self, n_channels: int, state: State) -> None:
        """Its arrays are added to ``state``."""
        self.count = state.add("waiting", (), np.int64)
        self._times = state.add("waiting_times", (_ROOM,), np.float64)
        self._values = state.add("waiting_values", (_ROOM, n_channels), np.float64)

    def has_room(self, rows: Arrivals) -> npt.NDArray[np.bool_]:
        """``(g,)`` whether the new rows of each stream fit."""
        return np.asarray(self.count[rows.slots] + rows.lengths <= _ROOM)

    def put(self, rows: Arrivals) -> None:
        """Put rows aside."""
        if len(rows.slots) == 0:
            return
        begin = self.count[rows.slots] - rows.offsets[:-1]
        place = np.arange(len(rows.times)) + np.repeat(begin, rows.lengths)
        slot = rows.row_slots
        self._times[slot, place] = rows.times
        self._values[slot, place] = rows.values
        self.count[rows.slots] += rows.lengths

    def take(self, slots: Ints) -> Arrivals:
        """What waits for these streams (each once); nothing waits afterwards."""
        size = self.count[slots]
        owner = np.repeat(np.arange(len(slots)), size)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(size) - size, size)
        slot = slots[owner]
        found = Arrivals(
            slots,
            np.concatenate([[0], np.cumsum(size)]),
            self._times[slot, place],
            self._values[slot, place],
            0,
        )
        self.count[slots] = 0
        return found
