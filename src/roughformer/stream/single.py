"""Stream: one live stream of a model."""

import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.stream.answers import Answers
from roughformer.stream.arrivals import Unordered, numbers_of
from roughformer.stream.batch import StreamBatch

__all__ = ["Stream", "StreamEvent"]


@dataclass(frozen=True)
class StreamEvent:
    """A window that ended.

    Attributes
    ----------
    time : float
        When it ended.
    window : int
        Its number, from 0.
    answer : Answers
        The prediction at its end; one row.
    """

    time: float
    window: int
    answer: Answers

    def plain(self) -> dict[str, Any]:
        """Convert to JSON."""
        return {"time": self.time, "window": self.window, **self.answer.plain()[0]}


class Stream:
    """One live stream: push observations as they come, get a prediction at the end of every window.

    ``StreamBatch`` is for many streams, and says more of how they work.

    Parameters
    ----------
    model : estimator, Predictor or path
        A fitted estimator, a predictor, or the directory of a saved model.
    span : float, optional
        Run the model on the observations of the last ``span``; together with ``every``.
    every : float, optional
        Time between two runs of the model.
    static : dict of str to float, optional
        Static covariates by name.
    unordered : {"raise", "drop"}, default "raise"
        Whether observations not later than the last one are refused or left out.
    **limits
        ``max_windows`` and ``max_points`` of ``StreamBatch``.
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
        """Take in one observation or several.

        Parameters
        ----------
        t : float or array-like (m,)
            Times.
        values : array-like (C,) or (m, C)
            Observations; NaN = not observed.

        Returns
        -------
        list of StreamEvent
            Windows that have ended by now.
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
        """Let time pass: nothing at or before ``t`` will be pushed any more.

        Parameters
        ----------
        t : float
            The time that is reached.

        Returns
        -------
        list of StreamEvent
            Windows that have ended by now.
        """
        return self._listed(self._batch.advance(0, t))

    def _listed(self, events: Any) -> list[StreamEvent]:
        return [
            StreamEvent(float(events.time[i]), int(events.window[i]), events.answers[i : i + 1])
            for i in range(len(events))
        ]

    def __copy__(self) -> Self:
        """Make a stream of the same model that goes on by itself."""
        twin = type(self).__new__(type(self))
        twin._batch = copy.copy(self._batch)
        return twin

    def predict(self) -> Answers:
        """Predict at the time reached; one row of ``Answers``."""
        return self._batch.predict(0)

    @property
    def last_time(self) -> float:
        """Time of the last observation or of ``advance``; NaN if there was none yet."""
        return float(self._batch.last_time(0)[0])

    @property
    def count(self) -> int:
        """Number of observations so far."""
        return int(self._batch.count(0)[0])

    @property
    def nbytes(self) -> int:
        """Bytes that the stream holds."""
        return int(self._batch.nbytes(0)[0])

    def snapshot(self) -> bytes:
        """Save what the stream remembers, as bytes for ``restore``."""
        return self._batch.snapshot(0)

    @classmethod
    def restore(cls, model: Any, blob: bytes, **options: Any) -> "Stream":
        """Continue a stream from its ``snapshot``.

        Parameters
        ----------
        model : estimator, Predictor or path
            The same model.
        blob : bytes
            What ``snapshot`` returned.
        **options
            Of ``Stream``, as then.

        Returns
        -------
        Stream
        """
        stream = cls(model, **options)
        stream._batch.restore(0, blob)
        return stream
