"""Who is told of the windows and the observations of a stream."""

from typing import Any

import numpy as np

from roughformer.serve.outbox import Outbox
from roughformer.serve.series import Rows

__all__ = ["Hub"]

_MOST_SHOWN = 20_000  # observations of one push; of more only the last are shown


class Hub:
    """Which sockets are told of which streams; and all sockets, to close them at the end."""

    def __init__(self) -> None:
        """Nobody listens."""
        self._listeners: dict[str, set[Outbox]] = {}
        self._onlookers: dict[str, set[Outbox]] = {}  # those who want observations too
        self.outboxes: set[Outbox] = set()

    def join(self, name: str, outbox: Outbox, *, observations: bool = False) -> None:
        """Tell it of the windows of the stream, and of its ``observations``."""
        self._listeners.setdefault(name, set()).add(outbox)
        if observations:
            self._onlookers.setdefault(name, set()).add(outbox)

    def leave(self, name: str, outbox: Outbox) -> None:
        """No longer."""
        for told in (self._listeners, self._onlookers):
            who = told.get(name, set())
            who.discard(outbox)
            if not who:
                told.pop(name, None)

    @property
    def names(self) -> list[str]:
        """Streams that somebody listens to."""
        return list(self._listeners)

    def publish(self, events: list[dict[str, Any]], but: Outbox | None = None) -> None:
        """Windows of any streams, to all who listen ``but`` one."""
        for event in events if self._listeners else ():
            for outbox in self._listeners.get(event["id"], ()):
                if outbox is not but:
                    outbox.offer({"type": "window", **event})

    def show(self, rows: Rows, but: Outbox | None = None) -> None:
        """Observations that were pushed, to all onlookers ``but`` one."""
        for k, name in enumerate(rows.names if self._onlookers else ()):
            who = self._onlookers.get(name, set()) - {but}
            if not who:
                continue
            own = slice(None) if rows.codes is None else np.flatnonzero(rows.codes == k)
            message = {
                "type": "observations",
                "id": name,
                "times": rows.times[own][-_MOST_SHOWN:].tolist(),
                "values": rows.values[own][-_MOST_SHOWN:].tolist(),  # JSON's null for NaN
            }
            for outbox in who:
                outbox.offer(message)

    def end(self, name: str, code: int, reason: str) -> None:
        """Close all who listen to a stream that is no more."""
        for outbox in list(self._listeners.get(name, ())):
            outbox.close(code, reason)
