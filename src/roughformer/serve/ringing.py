"""The alarms of all streams, and events as clients get them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.inference.alarms import Alarm, AlarmState
from roughformer.stream import Events

__all__ = ["Alarms"]

Floats = npt.NDArray[np.float64]


class Alarms:
    """A state for each alarm, each over ``n`` slots."""

    def __init__(
        self, alarms: Sequence[Alarm], n: int, classes: list[Any] | None, targets: list[str]
    ) -> None:
        """``InputError`` if an alarm watches what the model does not say."""
        self._columns = [alarm.column(classes, targets) for alarm in alarms]
        self._states = [AlarmState(alarm, n) for alarm in alarms]

    def reset(self, slot: int) -> None:
        """No alarm there."""
        for state in self._states:
            state.reset(slot)

    def resize(self, n: int) -> None:
        """More slots."""
        for state in self._states:
            state.resize(n)

    def state(self, slot: int) -> list[dict[str, Any]]:
        """Of one stream, as clients get it."""
        return [
            {
                "name": str(state.alarm),
                "active": bool(state.active[slot]),
                "since": _or_none(float(state.since[slot])),
            }
            for state in self._states
        ]

    def save(self, slot: int) -> list[dict[str, Any]]:
        """Of one stream, for a snapshot."""
        return [state.save(slot) for state in self._states]

    def load(self, slot: int, saved: list[dict[str, Any]]) -> None:
        """What ``save`` gave; alarms that were not there then begin anew."""
        self.reset(slot)
        for state in self._states:
            for kept in saved:
                if kept.get("alarm") == str(state.alarm):
                    state.load(slot, kept)

    def told(self, events: Events, names: Sequence[str]) -> list[dict[str, Any]]:
        """Events with the alarms after each: ``id, time, window, prediction, alarms``."""
        if not len(events):
            return []
        answers = events.answers
        numbers = answers.point if answers.probabilities is None else answers.probabilities
        assert numbers is not None
        told: list[dict[str, Any]] = [
            {"id": names[slot], "time": t, "window": k, "prediction": said, "alarms": []}
            for slot, t, k, said in zip(
                events.slot.tolist(),
                events.time.tolist(),
                events.window.tolist(),
                answers.plain(),
                strict=True,
            )
        ]
        for column, state in zip(self._columns, self._states, strict=True):
            values = np.asarray(numbers[:, column], dtype=np.float64)
            for entry, alarm in zip(told, _history(state, events, values), strict=True):
                entry["alarms"].append(alarm)
        return told


def _history(state: AlarmState, events: Events, values: Floats) -> list[dict[str, Any]]:
    """The alarm after each of the events."""
    name, slots, times = str(state.alarm), events.slot.tolist(), events.time.tolist()
    now = {slot: (bool(state.active[slot]), float(state.since[slot])) for slot in set(slots)}
    changes = state.update(events.slot, events.time, values).tolist()
    found = []
    for slot, t, value, change in zip(slots, times, values.tolist(), changes, strict=True):
        if change:
            now[slot] = (change > 0, t if change > 0 else math.nan)
        active, since = now[slot]
        found.append(
            {
                "name": name,
                "active": active,
                "changed": change != 0,
                "since": _or_none(since),
                "value": _or_none(value),
            }
        )
    return found


def _or_none(x: float) -> float | None:
    return x if math.isfinite(x) else None
