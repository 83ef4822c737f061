"""Streams of a model that looks at a series as a whole: it is run on the last observations again.

At the times start + every, start + 2 · every, ... an event says what the model says of the
observations in (t - span, t]. Those are kept, older ones are not, so cost and memory depend on how
dense the observations are and not on how many there were.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.errors import CapacityError, InputError
from roughformer.inference import Predictor
from roughformer.series import SeriesBatch
from roughformer.stream.answers import Answers, Events, answers_of, no_events
from roughformer.stream.arrivals import Arrivals
from roughformer.stream.state import State

__all__ = ["SlidingStreams", "static_names"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_MOST_EVENTS = 100_000  # of one push
_EVENTS_AT_ONCE = 256  # bounds the memory of what they look at


def static_names(predictor: Predictor) -> tuple[str, ...]:
    """Static covariates that a model takes."""
    encoder = predictor.encoder
    config = getattr(encoder, "config", None)
    found = getattr(config, "static", None)
    if found is None:  # encoders of baselines have no configuration of their own
        columns = getattr(getattr(encoder, "static_encoder", None), "columns", ())
        found = tuple(column.name for column in columns)
    return tuple(found)


class SlidingStreams:
    """``state.n`` streams of any model, over a sliding span."""

    def __init__(
        self, predictor: Predictor, state: State, span: float, every: float, max_points: int
    ) -> None:
        """Arrays are added to ``state``; ``max_points``: rows that a stream may hold."""
        self.predictor, self.span, self.every, self.most = predictor, span, every, max_points
        encoder = predictor.encoder
        self.channels = encoder.channels
        self.names = static_names(predictor)
        self.start = state.add("start", (), np.float64)
        self.now = state.add("now", (), np.float64)
        self.due = state.add("due", (), np.int64)  # number of the next event
        self.begun = state.add("begun", (), np.bool_)
        self.static = state.add("static", (len(self.names),), np.float64, np.nan)
        none = np.zeros(0), np.zeros((0, len(self.channels)))
        self._none = none
        self.kept: list[tuple[Floats, Floats]] = [none] * state.n

    def open(self, slots: Ints, static: Floats) -> None:
        """Forget what was kept; ``static (s, S)`` covariates."""
        self.static[slots] = static
        for slot in slots:
            self.kept[slot] = self._none

    def push(self, rows: Arrivals) -> Events:
        """All at once, or an error with nothing changed."""
        slots = rows.slots
        if len(slots) == 0:
            return no_events(self.predictor, rows.dropped)
        newest = rows.times[rows.offsets[1:] - 1]
        start = np.where(self.begun[slots], self.start[slots], rows.times[rows.offsets[:-1]])
        due = np.where(self.begun[slots], self.due[slots], 0)
        count = self._count(newest - start)
        ended = np.maximum(count - due, 0)
        if ended.max() > _MOST_EVENTS:
            raise InputError(
                f"{int(ended.max())} predictions fall due with one push of a stream, more than "
                f"{_MOST_EVENTS}; is a time in another unit? Begin a stream anew after such a gap"
            )
        joined = [self._joined(rows, g) for g in range(len(slots))]
        kept, ask, who, number = [], [], [], []
        for g, (times, values) in enumerate(joined):
            for k in range(int(due[g]), int(due[g] + ended[g])):
                at = start[g] + (k + 1) * self.every
                low, high = np.searchsorted(times, [at - self.span, at], side="right")
                if high > low:  # nothing was seen: nothing can be said
                    ask.append((times[low:high], values[low:high]))
                    who.append(g)
                    number.append(k)
            low = int(np.searchsorted(times, newest[g] - self.span, side="right"))
            if len(times) - low > self.most:
                raise CapacityError(
                    f"stream {slots[g]} would hold {len(times) - low} rows within {self.span:g}, "
                    f"more than the {self.most} allowed; raise max_points, or send fewer"
                )
            kept.append((times[low:].copy(), values[low:].copy()))
        owner, window = np.array(who, dtype=np.int64), np.array(number, dtype=np.int64)
        output = self._run(ask, self.static[slots[owner]])
        answers = None if output is None else answers_of(self.predictor, output)
        for g, slot in enumerate(slots):
            self.kept[slot] = kept[g]
        self.start[slots], self.now[slots] = start, newest
        self.due[slots], self.begun[slots] = np.maximum(count, due), True
        times = start[owner] + (window + 1) * self.every
        if answers is None:
            return no_events(self.predictor, rows.dropped)
        return Events(slots[owner], times, window, answers, rows.dropped)

    def _count(self, elapsed: Floats) -> Ints:
        """How many times an event has fallen due, ``elapsed`` after the start."""
        number = np.floor(elapsed / self.every)
        number += (number + 1) * self.every <= elapsed  # the quotient is rounded
        number -= number * self.every > elapsed
        return np.asarray(number).astype(np.int64)

    def _joined(self, rows: Arrivals, g: int) -> tuple[Floats, Floats]:
        """What is kept of a stream, and what is new."""
        part = slice(rows.offsets[g], rows.offsets[g + 1])
        times, values = self.kept[rows.slots[g]]
        new = ~np.isnan(rows.values[part]).all(axis=1)  # a row of nothing only says that time goes
        return (
            np.concatenate([times, rows.times[part][new]]),
            np.concatenate([values, rows.values[part][new]]),
        )

    def _run(self, parts: list[tuple[Floats, Floats]], static: Array) -> Tensor | None:
        """Outputs ``(e, n[, k])`` for series ``(times, values)``."""
        found = []
        for i in range(0, len(parts), _EVENTS_AT_ONCE):
            some = parts[i : i + _EVENTS_AT_ONCE]
            batch = SeriesBatch(
                np.concatenate([t for t, _ in some]),
                np.concatenate([v for _, v in some]),
                np.cumsum([0, *(len(t) for t, _ in some)]),
                channels=self.channels,
                static=static[i : i + len(some)] if self.names else None,
                static_names=list(self.names) or None,
            )
            output, mask = self.predictor.forward(batch)
            found.append(self.predictor.at_last_window(output, mask))
        return torch.cat(found) if found else None

    def predict(self, slots: Ints) -> Answers:
        """What the model says of the observations of the last span."""
        parts = []
        for slot in slots:
            times, values = self.kept[slot]
            if len(times) == 0:
                raise InputError(
                    f"stream {slot} has no observation in the last {self.span:g} units of time"
                )
            parts.append((times, values))
        output = self._run(parts, self.static[slots])
        if output is None:
            return no_events(self.predictor).answers
        return answers_of(self.predictor, output)

    def nbytes(self, slots: Ints) -> Ints:
        """Bytes of what is kept."""
        return np.array([sum(part.nbytes for part in self.kept[s]) for s in slots], dtype=np.int64)

    # Snapshots: what is kept, one stream behind the other

    def extra_rows(self, slots: Ints) -> dict[str, Array]:
        """What these streams keep beside their state."""
        times = [self.kept[s][0] for s in slots]
        values = [self.kept[s][1] for s in slots]
        return {
            "kept_times": np.concatenate([*times, self._none[0]]),
            "kept_values": np.concatenate([*values, self._none[1]]),
            "kept_offsets": np.cumsum([0, *(len(t) for t in times)]).astype(np.int64),
        }

    def checked_extra(
        self, rows: dict[str, Array], n: int, refuse: Callable[[str], Exception]
    ) -> dict[str, Array]:
        """That part of a snapshot's ``rows`` (it is taken out), if it fits ``n`` streams."""
        try:
            extra = {name: rows.pop(name) for name in ("kept_times", "kept_values", "kept_offsets")}
        except KeyError as error:
            raise refuse(f"it has no {error}") from None
        offsets, times, values = extra["kept_offsets"], extra["kept_times"], extra["kept_values"]
        kinds = offsets.dtype == np.int64 and times.dtype == values.dtype == np.float64
        good = offsets.shape == (n + 1,) and times.ndim == 1
        if not (kinds and good) or values.shape != (len(times), len(self.channels)):
            raise refuse("what was kept has another shape")
        if offsets[0] != 0 or offsets[-1] != len(times) or (np.diff(offsets) < 0).any():
            raise refuse("what was kept is of other streams")
        return extra

    def impossible(self, rows: dict[str, Array], extra: dict[str, Array]) -> str | None:
        """What no stream of this model remembers: numbers out of range, or at odds."""
        begun, last = rows["begun"], rows["last_time"]
        if (begun == np.isnan(last)).any():
            return "last_time does not fit whether it has begun"
        if not (np.isfinite(rows["start"]).all() and np.isfinite(rows["now"]).all()):
            return "start or now is not finite"
        if np.isinf(rows["static"]).any() or np.isinf(extra["kept_values"]).any():
            return "a value is infinite"
        if (rows["now"][begun] != last[begun]).any():
            return "now does not fit the last time"
        due = np.floor(np.where(begun, rows["now"] - rows["start"], 0.0) / self.every)
        if (due < 0).any() or (due > 2**53).any() or (np.abs(rows["due"] - due) > 1).any():
            return "the number of the next event does not fit the time"
        offsets, times = extra["kept_offsets"], extra["kept_times"]
        lengths = np.diff(offsets)
        if lengths.max(initial=0) > self.most or lengths[~begun].any():
            return "more observations are kept than may be"
        owner = np.repeat(np.arange(len(lengths)), lengths)
        later = np.diff(times) > 0
        now = rows["now"][owner]
        inside = (times > now - self.span) & (times <= now)
        if not inside.all() or not later[owner[1:] == owner[:-1]].all():
            return "kept times do not ascend within the span"
        return None

    def put_extra(self, slots: Ints, extra: dict[str, Array]) -> None:
        """The way back of ``extra_rows``."""
        offsets = extra["kept_offsets"]
        for i, slot in enumerate(slots):
            part = slice(offsets[i], offsets[i + 1])
            self.kept[slot] = (extra["kept_times"][part].copy(), extra["kept_values"][part].copy())
