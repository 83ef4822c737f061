"""Stream: one live stream of a model."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.stream.answers import Answers
from roughformer.stream.arrivals import Unordered, numbers_of
from roughformer.stream.batch import StreamBatch

__all__ = ["Stream", "StreamEvent"]


@dataclass(frozen=True)
class StreamEvent:
    """The window of number ``window`` (from 0) ended at ``time``; ``answer`` is one row."""

    time: float
    window: int
    answer: Answers

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"time": self.time, "window": self.window, **self.answer.plain()[0]}


class Stream:
    """One stream: push observations as they come, get predictions at every window's end.

    Options as those of ``StreamBatch``, which is for many streams; ``static``: covariates by name.
    """

    def __init__(
        self,
        model: Any,
        *,
        span: float | None = None,
        every: float | None = None,
        static: dict[str, float] | None = None,
        unordered: Unordered = "raise",
        **limits: Any,
    ) -> None:
        """The first observation says when the stream begins."""
        self._batch = StreamBatch(model, 1, span=span, every=every, unordered=unordered, **limits)
        if static:
            self._batch.open(0, static)

    def push(self, t: Any, values: npt.ArrayLike) -> list[StreamEvent]:
        """One observation at ``t`` with ``values (C,)``, or many: ``t (m,)``, ``values (m, C)``;
        NaN = not observed. Returns the windows that have ended by now.
        """
        times = np.atleast_1d(numbers_of(t, "times"))
        rows = numbers_of(values, "values")
        width = len(self._batch.channels)
        if rows.ndim < 2:
            # One observation, or one channel.
            rows = rows.reshape(len(times), -1) if rows.size == len(times) * width else rows
        if rows.shape != (len(times), width):
            raise InputError(
                f"{len(times)} observations of {width} channels need values of shape "
                f"({len(times)}, {width}), got {np.shape(values)}"
            )
        return self._listed(self._batch.push(np.zeros(len(times), dtype=np.int64), times, rows))

    def advance(self, t: float) -> list[StreamEvent]:
        """Time passes up to ``t``: nothing at or before it will be pushed any more."""
        return self._listed(self._batch.advance(0, t))

    def _listed(self, events: Any) -> list[StreamEvent]:
        return [
            StreamEvent(float(events.time[i]), int(events.window[i]), events.answers[i : i + 1])
            for i in range(len(events))
        ]

    def predict(self) -> Answers:
        """What the model says now; one row."""
        return self._batch.predict(0)

    @property
    def last_time(self) -> float:
        """Of the last observation, or of ``advance``; NaN: none yet."""
        return float(self._batch.last_time(0)[0])

    @property
    def count(self) -> int:
        """Observations so far."""
        return int(self._batch.count(0)[0])

    @property
    def nbytes(self) -> int:
        """Bytes that the stream holds."""
        return int(self._batch.nbytes(0)[0])

    def snapshot(self) -> bytes:
        """What the stream remembers."""
        return self._batch.snapshot(0)

    @classmethod
    def restore(cls, model: Any, blob: bytes, **options: Any) -> "Stream":
        """The stream of ``snapshot``, which goes on where it was; options as then."""
        stream = cls(model, **options)
        stream._batch.restore(0, blob)
        return stream
