"""Live streams of one model: StreamBatch for many, Stream for one."""

import copy
import hashlib
import json
import os
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from roughformer.errors import CheckpointError, InputError
from roughformer.inference import Predictor
from roughformer.stream.engines import CausalStreams, SlidingStreams
from roughformer.stream.messages import (
    Answers,
    Events,
    Unordered,
    check_rows,
    numbers_of,
    slots_of,
)
from roughformer.stream.state import State, read_snapshot, write_snapshot
from roughformer.util.checks import real_number, whole_number

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_MOST_ROWS = 2**53  # of a stream: whole numbers up to there are exact in float64


def predictor_of(model: Any) -> Predictor:
    """Of a fitted estimator, a ``Predictor`` itself, or the directory of a model."""
    if isinstance(model, Predictor):
        return model
    if isinstance(model, str | os.PathLike):
        inside = os.path.join(os.fspath(model), "model")
        return Predictor.load(inside if os.path.isdir(inside) else model)
    predictor = getattr(model, "predictor_", None)
    if isinstance(predictor, Predictor):
        return predictor
    raise InputError(
        "a stream needs a fitted estimator, a Predictor or the directory of a model, got "
        f"{type(model).__name__}"
    )


class StreamBatch:
    """``n`` live streams that receive observations at irregular moments, for as long as they like.

    A causal RFormer (windows by duration or points) gives an event at the end of every window, and
    its predictions are those of the offline model on the observations so far; cost and memory do
    not depend on how many those were. Any other model is run every ``every`` units of time on the
    observations of the last ``span``. One thread at a time may use a ``StreamBatch``.

    Parameters
    ----------
    model : estimator, Predictor or path
        A fitted estimator, a predictor, or the directory of a saved model.
    n : int
        Number of streams.
    span : float, optional
        Run the model on the observations of the last ``span``; together with ``every``.
    every : float, optional
        Time between two runs of the model.
    unordered : {"raise", "drop"}, default "raise"
        Whether rows not later than the last one of their stream are refused or left out.
    max_windows : int, default 1024
        Windows that a stream may have, if a causal model was trained without ``context``.
    max_points : int, default 65536
        Observations that a stream may hold within ``span``.
    """

    def __init__(
        self,
        model: Any,
        n: int,
        *,
        span: float | None = None,
        every: float | None = None,
        unordered: Unordered = "raise",
        max_windows: int = 1024,
        max_points: int = 65536,
    ) -> None:
        """All streams are open; the first row of a stream says when it begins."""
        self.n = whole_number(n, "the number of streams", 0)
        if unordered not in ("raise", "drop"):
            raise InputError(f"unordered must be 'raise' or 'drop', got {unordered!r}")
        self._unordered = unordered
        self._predictor = predictor_of(model)
        self._state = State(self.n)
        self._last = self._state.add("last_time", (), np.float64, np.nan)
        self._count = self._state.add("count", (), np.int64)
        if (span is None) != (every is None):
            raise InputError("span= and every= belong together: how far back, and how often")
        self._streams: CausalStreams | SlidingStreams
        more: dict[str, Any] = {}
        if span is None or every is None:
            limit = whole_number(max_windows, "max_windows", 1)
            self._streams = CausalStreams(self._predictor, self._state, limit)
            more["windows"] = self._streams.most
        else:
            span = real_number(span, "span", "a positive duration", positive=True)
            every = real_number(every, "every", "a positive duration", positive=True)
            most = whole_number(max_points, "max_points", 2)
            self._streams = SlidingStreams(self._predictor, self._state, span, every, most)
            more |= {"span": span, "every": every}
        self._more = more
        self._options = {
            "span": span,
            "every": every,
            "unordered": unordered,
            "max_windows": max_windows,
            "max_points": max_points,
        }
        for slot in range(self.n):
            self.open(slot)
        self._key: str | None = None

    @property
    def causal(self) -> bool:
        """Whether the model is run window by window."""
        return isinstance(self._streams, CausalStreams)

    @property
    def channels(self) -> tuple[str, ...]:
        """Channels of an observation, in order."""
        return tuple(self._predictor.encoder.channels)

    @property
    def static_names(self) -> tuple[str, ...]:
        """Names of the static covariates that ``open`` takes."""
        return self._predictor.static_names

    @property
    def predictor(self) -> Predictor:
        """The model behind the streams."""
        return self._predictor

    def open(self, slot: int, static: dict[str, float] | None = None) -> None:
        """Begin a stream anew.

        Parameters
        ----------
        slot : int
            Which stream.
        static : dict of str to float, optional
            Static covariates by name; those not given are not known.
        """
        slots = slots_of(slot, self.n)
        row = self._static(static or {})
        self._state.reset(slots)
        self._streams.open(slots, np.repeat(row, len(slots), axis=0))

    def _static(self, static: dict[str, float]) -> Floats:
        """``(1, S)``."""
        names = self.static_names
        unknown = [name for name in static if name not in names]
        if unknown:
            raise InputError(f"the model takes the static covariates {list(names)}, not {unknown}")
        row = np.array([[float(static.get(name, np.nan)) for name in names]])
        if np.isinf(row).any():
            raise InputError("static covariates must be finite, or NaN where not known")
        return row

    def push(self, slots: Any, times: Any, values: Any) -> Events:
        """Take in observations, in any order of streams, each stream's in order of time.

        Parameters
        ----------
        slots : array-like of int (m,)
            Streams that the rows belong to.
        times : array-like (m,)
            Times of the rows.
        values : array-like (m, C)
            Observations; NaN = not observed.

        Returns
        -------
        Events
            Windows that have ended by now.

        Raises
        ------
        InputError
            If a row is wrong: its number is in ``error.row``, and nothing has changed.
        """
        rows = check_rows(slots, times, values, self._last, len(self.channels), self._unordered)
        events = self._streams.push(rows)
        np.add.at(self._count, rows.slots, rows.lengths)
        if len(rows.slots):
            self._last[rows.slots] = rows.times[rows.offsets[1:] - 1]
        return events

    def advance(self, slots: Any, times: Any) -> Events:
        """Let time pass, as a row in which nothing was observed does.

        Parameters
        ----------
        slots : int or array-like of int (m,)
            Which streams.
        times : float or array-like (m,)
            No observation at or before these times will come any more.

        Returns
        -------
        Events
            Windows that have ended by now.
        """
        which = slots_of(slots, self.n)
        when = np.broadcast_to(np.asarray(times, dtype=np.float64), which.shape)
        begun = ~np.isnan(self._last[which])
        later = begun & ~(when <= self._last[which])  # what is past already changes nothing
        which, when = which[later], when[later]
        nothing = np.full((len(which), len(self.channels)), np.nan)
        rows = check_rows(which, when, nothing, self._last, len(self.channels), "raise")
        events = self._streams.push(rows)
        self._last[which] = when
        return events

    def predict(self, slots: Any) -> Answers:
        """Predict at the time of the last row, or of ``advance``.

        Parameters
        ----------
        slots : int or array-like of int (m,)
            Which streams.

        Returns
        -------
        Answers
        """
        which = slots_of(slots, self.n)
        silent = np.flatnonzero(np.isnan(self._last[which]))
        if len(silent):
            raise InputError(f"stream {which[silent[0]]} has no observation yet")
        return self._streams.predict(which)

    def last_time(self, slots: Any) -> Floats:
        """Get the time of the last row of each stream.

        Parameters
        ----------
        slots : int or array-like of int (m,)
            Which streams.

        Returns
        -------
        ndarray (m,)
            NaN: none yet.
        """
        return self._last[slots_of(slots, self.n)]

    def count(self, slots: Any) -> Ints:
        """Count the rows that each stream has accepted.

        Parameters
        ----------
        slots : int or array-like of int (m,)
            Which streams.

        Returns
        -------
        ndarray (m,)
        """
        return self._count[slots_of(slots, self.n)]

    def nbytes(self, slots: Any) -> Ints:
        """Count the bytes that each stream holds.

        Parameters
        ----------
        slots : int or array-like of int (m,)
            Which streams.

        Returns
        -------
        ndarray (m,)
        """
        return self._streams.nbytes(slots_of(slots, self.n)) + self._state.bytes_each

    def snapshot(self, slots: Any) -> bytes:
        """Save what streams remember.

        Parameters
        ----------
        slots : int or array-like of int (m,)
            Which streams.

        Returns
        -------
        bytes
            For ``restore``, in any process that has the same model.
        """
        which = slots_of(slots, self.n)
        rows = self._state.rows(which) | self._streams.extra_rows(which)
        return write_snapshot(self._model_key(), rows)

    def restore(self, slots: Any, blob: bytes) -> None:
        """Let streams go on where those of a ``snapshot`` were.

        Parameters
        ----------
        slots : int or array-like of int (m,)
            Which streams, each once only.
        blob : bytes
            What ``snapshot`` returned.

        Raises
        ------
        CheckpointError
            If the bytes are damaged or of another model.
        """
        which = slots_of(slots, self.n)
        if len(np.unique(which)) != len(which):
            raise InputError("each stream can be restored once only")
        rows = read_snapshot(self._model_key(), blob)

        def refuse(why: str) -> Exception:
            return CheckpointError(f"the snapshot does not fit {len(which)} streams: {why}")

        extra = self._streams.checked_extra(rows, len(which), refuse)
        self._state.check(which, rows, refuse)
        wrong = self._impossible(rows) or self._streams.impossible(rows, extra)
        if wrong is not None:
            raise refuse(f"no stream can be in this state: {wrong}")
        self._put(which, rows, extra)

    def take_over(self, other: "StreamBatch") -> None:
        """Let the first streams go on where all streams of ``other``, of the same model, are.

        Parameters
        ----------
        other : StreamBatch
            Of no more streams.
        """
        which = np.arange(other.n)
        self._put(which, other._state.rows(which), other._streams.extra_rows(which))

    def _put(self, which: Ints, rows: dict[str, Any], extra: dict[str, Any]) -> None:
        self._state.put(which, rows)
        self._streams.put_extra(which, extra)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by snapshot: the kernel holds addresses of what the streams remember."""
        blob = self.snapshot(np.arange(self.n))
        return _restored, (type(self), self._predictor, self.n, self._options, blob)

    def _impossible(self, rows: dict[str, Any]) -> str | None:
        """What is wrong with the state of a stream, if anything."""
        if np.isinf(rows["last_time"]).any():
            return "last_time is infinite"
        if (rows["count"] < 0).any() or (rows["count"] > _MOST_ROWS).any():
            return "count is out of range"
        return None

    def _model_key(self) -> str:
        """A hash of everything that a stream's state depends on: encoder, model and weights."""
        if self._key is None:
            digest = hashlib.sha256()
            config = {
                "encoder": self._predictor.encoder.model_dump(mode="json"),
                "model": self._predictor.outputs.model_dump(mode="json"),
                "more": self._more,
            }
            digest.update(json.dumps(config, sort_keys=True).encode())
            for name, tensor in sorted(self._predictor.model.state_dict().items()):
                digest.update(name.encode())
                digest.update(np.ascontiguousarray(tensor.cpu().numpy()).tobytes())
            self._key = digest.hexdigest()
        return self._key


def _restored(
    kind: type[StreamBatch], model: Predictor, n: int, options: dict[str, Any], blob: bytes
) -> StreamBatch:
    """Streams that go on where those of a snapshot of all of them were."""
    streams = kind(model, n, **options)
    streams.restore(np.arange(n), blob)
    return streams


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
