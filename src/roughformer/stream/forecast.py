"""ForecastStream: forecasts of a live stream, at every window or on request.

A forecast looks at the last ``context`` points of a series, at the last observations of each
channel and at how long it has been going on. So a stream keeps these points and the time of the
first one, and a forecast costs the same after a thousand observations as after a million.
"""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.inference import ForecastPredictor
from roughformer.series import SeriesBatch
from roughformer.stream.messages import (
    Answers,
    Events,
    Unordered,
    check_rows,
    numbers_of,
    slots_of,
)
from roughformer.stream.state import read_snapshot, write_snapshot
from roughformer.util.checks import real_number

Floats = npt.NDArray[np.float64]

_MOST_DUE = 1000  # forecasts without a new observation
_EPOCH = np.datetime64(0, "s")


@dataclass(frozen=True)
class Forecast:
    """Forecasts of all channels, made at one time.

    Attributes
    ----------
    time : float
        When the forecast was made: nothing later was known.
    at : ndarray (M,)
        Times that it is for.
    value : ndarray (M, C)
        Predicted values.
    lower, upper : ndarray (M, C)
        Ends of the intervals.
    """

    time: float
    at: Floats
    value: Floats
    lower: Floats
    upper: Floats

    def plain(self) -> dict[str, Any]:
        """Convert to JSON; what cannot be predicted is None."""
        plain: dict[str, Any] = {"time": self.time, "at": self.at.tolist()}
        for name in ("value", "lower", "upper"):
            rows = getattr(self, name).tolist()
            plain[name] = [[None if x != x else x for x in row] for row in rows]
        return plain


class ForecastStream:
    """One live stream of a forecaster: push observations as they come, ask for what comes next.

    Times are numbers in the unit that the model was fitted to; for a model of dates, dates or
    seconds since 1970.

    Parameters
    ----------
    model : RFormerForecaster, ForecastPredictor or path
        A fitted forecaster, or the directory of a saved one.
    every : float, optional
        Make a forecast each time so much has passed since the first observation; 1,000 times at
        most without a new one, after which a warning says that there are none until it comes.
    ahead : array-like (M,), optional
        How long ahead these forecasts are for; by default ten steps up to the horizon. More than
        the horizon after the last observation, forecasts stay as they are there.
    coverage : float, default 0.9
        Share of the values that intervals are to cover.
    static : array-like (S,), optional
        Static covariates, in the order of ``fit``; NaN = unknown.
    unordered : {"raise", "drop"}, default "raise"
        Whether observations not later than the last one are refused or left out.

    Examples
    --------
    >>> import numpy as np
    >>> import roughformer as rf
    >>> rng = np.random.default_rng(0)
    >>> times = [np.sort(rng.uniform(0, 20, 30)) for _ in range(64)]
    >>> X = [np.sin(t + rng.uniform(0, 6))[:, None] for t in times]
    >>> model = rf.RFormerForecaster(steps=20, random_state=0).fit(X, times)
    >>> stream = rf.ForecastStream(model)
    >>> stream.push(times[0], X[0])
    []
    >>> stream.forecast(at=[20.5, 21.0]).value.shape
    (2, 1)
    """

    def __init__(
        self,
        model: Any,
        *,
        every: float | None = None,
        ahead: npt.ArrayLike | None = None,
        coverage: float = 0.9,
        static: npt.ArrayLike | None = None,
        unordered: Unordered = "raise",
    ) -> None:
        """The first observation says when the stream begins."""
        self._predictor = predictor = _predictor_of(model)
        if every is not None:
            real_number(every, "every", "a positive time", positive=True)
        if not 0 < coverage < 1:
            raise InputError(f"coverage must lie between 0 and 1, got {coverage!r}")
        steps = np.linspace(0, predictor.horizon, 11)[1:] if ahead is None else ahead
        self._ahead = np.atleast_1d(numbers_of(steps, "ahead"))
        if self._ahead.ndim != 1 or not (np.isfinite(self._ahead) & (self._ahead > 0)).all():
            raise InputError(f"ahead must be positive times (M,), got {ahead!r}")
        known = np.zeros((1, 0)) if static is None else numbers_of(static, "static").reshape(1, -1)
        if known.shape[1] != predictor.n_static or np.isinf(known).any():
            raise InputError(
                f"the model takes {predictor.n_static} static covariates, finite or NaN, got "
                f"{known.shape[1]}"
            )
        self._static, self._every, self._coverage = known, every, coverage
        self._unordered: Unordered = unordered
        # For the points that are kept (of the past, of a known future, and of both once the future
        # has come), and ``context`` more, so that points are moved once in as many rows.
        width = len(predictor.channels)
        most = predictor.context + predictor.networks[0].config.n_recent * width
        room = most * (3 if predictor.known_future else 1) + predictor.context
        self._times, self._values = np.zeros(room), np.zeros((room, width))
        self._first, self._last, self._size, self._count = np.nan, np.nan, 0, 0

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels."""
        return self._predictor.channels

    @property
    def last_time(self) -> float:
        """Time of the last observation or of ``advance``; NaN if there was none yet."""
        return float(self._last)

    @property
    def count(self) -> int:
        """Number of observations so far."""
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes that the stream holds."""
        return self._times.nbytes + self._values.nbytes

    def push(self, t: Any, values: npt.ArrayLike) -> list[Forecast]:
        """Take in one observation or several.

        Parameters
        ----------
        t : float, date or array-like (m,)
            Times.
        values : array-like (C,) or (m, C)
            Observations; NaN = not observed.

        Returns
        -------
        list of Forecast
            With ``every``: forecasts that were due before the last of these times. Each is made
            from the observations up to its own time.
        """
        times = np.atleast_1d(self._seconds(t))
        rows = numbers_of(values, "values")
        width = len(self.channels)
        if rows.ndim < 2 and rows.size == times.size * width:
            rows = rows.reshape(times.size, width)
        # All rows are checked before the first one counts.
        new = check_rows(
            np.zeros(len(times), dtype=np.int64), times, rows, np.array([self._last]), width,
            self._unordered,
        )  # fmt: skip
        made: list[Forecast] = []
        begin = 0
        while begin < len(new.times):
            if not self._count:
                self._first = new.times[0]
            due = self._due(new.times[-1], inclusive=False)
            if due is not None and self._is_stale(due):
                self._keep(new.times[begin : begin + 1], new.values[begin : begin + 1])
                begin += 1
                continue
            end = len(new.times) if due is None else int(np.searchsorted(new.times, due, "right"))
            self._keep(new.times[begin:end], new.values[begin:end])
            if due is not None:
                made.append(self._advanced(due))
            begin = end
        return made

    def advance(self, t: Any) -> list[Forecast]:
        """Let time pass: nothing at or before ``t`` will be pushed any more.

        Parameters
        ----------
        t : float or date
            The time that is reached.

        Returns
        -------
        list of Forecast
            With ``every``: forecasts that are due by now.
        """
        time = float(real_number(float(self._seconds(t)), "t", "a finite time"))
        if not self._count or time <= self._last:
            return []
        made = []
        while (due := self._due(time, inclusive=True)) is not None and not self._is_stale(due):
            made.append(self._advanced(due))
        self._last = time
        return made

    def forecast(self, at: Any = None) -> Forecast:
        """Forecast from all observations so far.

        Parameters
        ----------
        at : array-like (M,), optional
            Times after the last observation; by default ``ahead`` of the time reached.

        Returns
        -------
        Forecast
        """
        if not self._count:
            raise InputError("there is nothing to forecast from: push an observation first")
        asked = self._last + self._ahead if at is None else np.atleast_1d(self._seconds(at))
        newest = self._times[self._size - 1]
        if asked.ndim != 1 or not np.isfinite(asked).all():
            raise InputError("at must be finite times (M,)")
        if self._predictor.known_future:
            newest = self._predictor.ends(self._batch())[0]
        if (asked <= newest).any():
            raise InputError(
                f"a stream forecasts what comes after its last observation at {newest:.17g}, got "
                f"{asked.min():.17g}; ask the model itself for times within"
            )
        return self._forecast(asked)

    def snapshot(self) -> bytes:
        """Save what the stream remembers, as bytes for ``restore``."""
        rows = {
            "times": self._times[: self._size],
            "values": self._values[: self._size],
            "about": np.array([self._first, self._last, self._count], dtype=np.float64),
            "static": self._static,
        }
        return write_snapshot(self._predictor.key(), rows)

    @classmethod
    def restore(cls, model: Any, blob: bytes, **options: Any) -> "ForecastStream":
        """Continue a stream from its ``snapshot``.

        Parameters
        ----------
        model : RFormerForecaster, ForecastPredictor or path
            The same model.
        blob : bytes
            What ``snapshot`` returned.
        **options
            Of ``ForecastStream``; static covariates come from the snapshot.

        Returns
        -------
        ForecastStream
        """
        predictor = _predictor_of(model)
        rows = read_snapshot(predictor.key(), blob)
        stream = cls(predictor, **options | {"static": rows["static"][0]})
        stream._size = len(rows["times"])
        stream._times[: stream._size], stream._values[: stream._size] = (
            rows["times"],
            rows["values"],
        )
        stream._first, stream._last = rows["about"][:2]
        stream._count = int(rows["about"][2])
        return stream

    def _seconds(self, t: Any) -> Floats:
        array = np.asarray(t)
        if array.dtype.kind == "O" and array.size and hasattr(array.ravel()[0], "year"):
            array = array.astype("datetime64[ns]")
        if array.dtype.kind != "M":
            return numbers_of(t, "times")
        if not self._predictor.dated:
            raise InputError("the model was fitted to times that are numbers, got dates")
        return np.asarray((array - _EPOCH) / np.timedelta64(1, "s"), dtype=np.float64)

    def _due(self, until: float, *, inclusive: bool) -> float | None:
        """The next time of a forecast, if it comes before ``until`` (or at it, if inclusive)."""
        if self._every is None:
            return None
        reached = 0.0 if np.isnan(self._last) else self._last - self._first
        number = np.floor(reached / self._every * (1 + 1e-12)) + 1
        due = float(self._first + number * self._every)
        return due if due < until or (inclusive and due == until) else None

    def _is_stale(self, due: float) -> bool:
        """Whether so much time passed without an observation that no more forecasts are made."""
        assert self._every is not None
        newest = self._times[self._size - 1] if self._size else due
        stale = bool(due > newest + _MOST_DUE * self._every)
        if stale:
            warnings.warn(
                f"nothing was observed for more than {_MOST_DUE} times 'every' after {newest:.9g}: "
                "there are no forecasts until something is",
                UserWarning,
                stacklevel=3,
            )
        return stale

    def _advanced(self, due: float) -> Forecast:
        self._last = due
        return self._forecast(due + self._ahead)

    def _keep(self, times: Floats, values: Floats) -> None:
        """Append points; where there is no room, only those that count from now on stay."""
        self._count += len(times)
        if len(times):
            self._last = times[-1]
        size = self._size + len(times)
        if size > len(self._times):
            times = np.r_[self._times[: self._size], times]
            values = np.vstack([self._values[: self._size], values])
            kept = self._predictor.kept(self._series(times, values))
            times, values, self._size, size = times[kept], values[kept], 0, len(kept)
        new = slice(self._size, size)
        self._times[new], self._values[new], self._size = times, values, size

    def _batch(self) -> SeriesBatch:
        """The points that are kept; before them, one that says when all began."""
        times, values = self._times[: self._size], self._values[: self._size]
        if times[0] > self._first:
            times = np.r_[self._first, times]
            values = np.vstack([np.full(values.shape[1], np.nan), values])
        return self._series(times, values)

    def _series(self, times: Floats, values: Floats) -> SeriesBatch:
        return SeriesBatch(
            times, values, np.array([0, len(times)]), channels=self.channels,
            time_origin=_EPOCH if self._predictor.dated else None,
        )  # fmt: skip

    def _forecast(self, at: Floats) -> Forecast:
        predictor, n = self._predictor, len(self.channels)
        # With gaps between observations a horizon is soon exceeded: no news in a live stream.
        answers = predictor.ask(self._batch(), self._static, [at], np.arange(n), warn=False)
        ends = ((1 - self._coverage) / 2, (1 + self._coverage) / 2)
        value, lower, upper = (
            x.reshape(len(at), n)
            for x in (answers.point, *(predictor.quantile(answers, level) for level in ends))
        )
        return Forecast(float(self._last), at, value, lower, upper)


@dataclass(frozen=True)
class _ForecastAnswers(Answers):
    """Forecasts as the answers of windows; ``point`` and ``quantiles`` are those furthest ahead."""

    forecasts: tuple[Forecast, ...] = ()

    @classmethod
    def of(cls, forecasts: Sequence[Forecast], n_channels: int) -> Self:
        """Take forecasts as answers."""
        point, lower, upper = (
            np.array([getattr(x, name)[-1] for x in forecasts]).reshape(-1, n_channels)
            for name in ("value", "lower", "upper")
        )
        quantiles = np.stack([lower, upper], axis=-1)
        return cls(point=point, quantiles=quantiles, flat=False, forecasts=tuple(forecasts))

    def plain(self) -> list[dict[str, Any]]:
        """Convert to JSON."""
        both = zip(super().plain(), self.forecasts, strict=True)
        return [last | forecast.plain() for last, forecast in both]


class ForecastStreamBatch:
    """Many ``ForecastStream`` of one model, by number, with the methods of ``StreamBatch``.

    A window ends with each forecast that is due.

    Parameters
    ----------
    model : RFormerForecaster, ForecastPredictor or path
        A fitted forecaster, or the directory of a saved one.
    n : int
        Number of streams.
    every : float
        Time between forecasts.
    unordered : {"raise", "drop"}, default "raise"
        Whether observations not later than the last one are refused or left out.
    ahead : array-like (M,), optional
        How long ahead forecasts are for; by default as in ``ForecastStream``.
    static_names : sequence of str, default ()
        Names of the static covariates.
    """

    causal = False

    def __init__(
        self,
        model: Any,
        n: int,
        *,
        every: float,
        unordered: Unordered = "raise",
        ahead: npt.ArrayLike | None = None,
        static_names: Sequence[str] = (),
    ) -> None:
        """All streams are new."""
        self._predictor, self.n, self.every = _predictor_of(model), n, every
        self._options: dict[str, Any] = {"every": every, "unordered": unordered, "ahead": ahead}
        self._static_names = tuple(static_names)
        self._streams: dict[int, ForecastStream] = {}

    def open(self, slot: int, static: dict[str, float] | None = None) -> None:
        """Begin a stream anew, with static covariates by name."""
        known = static or {}
        row = [known.get(name, np.nan) for name in self._static_names]
        self._streams[slot] = ForecastStream(self._predictor, static=row, **self._options)

    def push(self, slots: Any, times: Any, values: Any) -> Events:
        """Take in observations of any streams: all of them, or none if one is refused."""
        last, width = self.last_time(np.arange(self.n)), len(self._predictor.channels)
        rows = check_rows(slots, times, values, last, width, self._options["unordered"])
        made = []
        for slot, begin, end in zip(rows.slots, rows.offsets[:-1], rows.offsets[1:], strict=True):
            forecasts = self._stream(slot).push(rows.times[begin:end], rows.values[begin:end])
            made += [(int(slot), forecast) for forecast in forecasts]
        return self._events(made, rows.dropped)

    def advance(self, slots: Any, times: Any) -> Events:
        """Let time pass in streams."""
        pairs = zip(slots_of(slots, self.n).tolist(), np.atleast_1d(times), strict=True)
        return self._events([(s, f) for s, time in pairs for f in self._stream(s).advance(time)])

    def predict(self, slots: Any) -> Answers:
        """Forecast now."""
        made = [(slot, self._stream(slot).forecast()) for slot in slots_of(slots, self.n).tolist()]
        return self._events(made).answers

    def last_time(self, slots: Any) -> Floats:
        """Times that streams have reached; NaN where nothing was observed."""
        return np.array([s.last_time if (s := self._streams.get(k)) else np.nan for k in slots])

    def count(self, slots: Any) -> npt.NDArray[np.int64]:
        """Number of observations of each stream."""
        return np.array([s.count if (s := self._streams.get(k)) else 0 for k in slots], dtype=int)

    def nbytes(self, slots: Any) -> npt.NDArray[np.int64]:
        """Bytes that each stream holds."""
        return np.array([s.nbytes if (s := self._streams.get(k)) else 0 for k in slots], dtype=int)

    def snapshot(self, slots: Any) -> bytes:
        """Save what one stream remembers."""
        (slot,) = slots
        return self._stream(slot).snapshot()

    def restore(self, slots: Any, blob: bytes) -> None:
        """Continue one stream from its snapshot."""
        (slot,) = slots
        self._streams[slot] = ForecastStream.restore(self._predictor, blob, **self._options)

    def take_over(self, other: "ForecastStreamBatch") -> None:
        """Continue the streams of a smaller batch."""
        self._streams = other._streams

    def _stream(self, slot: int) -> ForecastStream:
        if slot not in self._streams:
            self.open(slot)
        return self._streams[slot]

    def _events(self, made: list[tuple[int, Forecast]], dropped: int = 0) -> Events:
        times = np.array([forecast.time for _, forecast in made])
        first = np.array([self._stream(slot)._first for slot, _ in made])
        return Events(
            np.array([slot for slot, _ in made], dtype=np.int64),
            times,
            np.rint((times - first) / self.every).astype(np.int64) - 1,
            _ForecastAnswers.of([forecast for _, forecast in made], len(self._predictor.channels)),
            dropped,
        )


def _predictor_of(model: Any) -> ForecastPredictor:
    predictor = getattr(model, "predictor_", model)
    if isinstance(predictor, str | os.PathLike):
        return ForecastPredictor.load(predictor)
    if not isinstance(predictor, ForecastPredictor):
        raise InputError(
            f"a fitted RFormerForecaster is needed, or the directory of a saved one, got "
            f"{type(model).__name__}"
        )
    return predictor
