"""What a job has cost so far, over all processes that worked on it: kill -9 loses seconds of it."""

import json
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from roughformer.io import write_file

__all__ = ["Spending", "peak_mb", "spent"]

_FILE = "spent.json"
_EVERY = 5.0  # seconds between two notes


def peak_mb() -> float | None:
    """The most memory that this process has had so far; None where it is not told."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def spent(where: Path) -> dict[str, Any]:
    """``seconds`` and ``peak_mb`` of what has worked in the directory, as last noted."""
    try:
        found = json.loads((where / _FILE).read_text())
        return {"seconds": float(found["seconds"]), "peak_mb": found["peak_mb"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {"seconds": 0.0, "peak_mb": None}


class Spending:
    """While it is open, a file in the job's directory tells every few seconds what was spent."""

    def __init__(self, where: Path, every: float = _EVERY) -> None:
        """Go on from what is noted in ``where``."""
        self.where, self.every = where, every
        self.earlier, self.start = spent(where), time.perf_counter()
        self.ended: float | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._note_on, daemon=True)

    def so_far(self) -> dict[str, Any]:
        """``seconds`` as a sum and ``peak_mb`` as a maximum over all processes."""
        now = time.perf_counter() if self.ended is None else self.ended
        peaks = [p for p in (self.earlier["peak_mb"], peak_mb()) if p is not None]
        return {
            "seconds": self.earlier["seconds"] + now - self.start,
            "peak_mb": max(peaks, default=None),
        }

    def _note(self) -> None:
        write_file(self.where / _FILE, json.dumps(self.so_far()).encode())

    def _note_on(self) -> None:
        while not self._end.wait(self.every):
            self._note()

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The last note."""
        self.ended = time.perf_counter()
        self._end.set()
        self._thread.join()
        self._note()
