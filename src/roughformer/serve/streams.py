"""The open streams: names, alarms, and what is done to them. The worker's thread alone calls it."""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import CapacityError, CheckpointError, InputError
from roughformer.serve.limits import Limits
from roughformer.serve.model import ServedModel
from roughformer.serve.order import Rule, check_leap, check_times, windows_ended
from roughformer.serve.parts import Entry, Pushed, StreamOptions
from roughformer.serve.refusal import Refusal
from roughformer.serve.ringing import Alarms
from roughformer.serve.series import Rows
from roughformer.serve.snapshots import pack, unpack
from roughformer.stream import StreamBatch

__all__ = ["Entry", "Pushed", "StreamOptions", "Streams"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_FEW = 64  # slots at the start; there are more when they are needed


class Streams:
    """Names -> slots of one ``StreamBatch``, which is replaced by a larger one when it is full."""

    def __init__(self, model: ServedModel, limits: Limits, options: StreamOptions) -> None:
        """No stream is open."""
        self.model, self.limits, self.options = model, limits, options
        self.entries: dict[str, Entry] = {}
        self.batch = self._batch(min(_FEW, limits.max_streams))
        self.free = list(range(self.batch.n))
        self.names: list[str] = [""] * self.batch.n
        self.rule = _rule(model, options)
        self.alarms = Alarms(options.alarms, self.batch.n, model.classes, model.targets)

    def _batch(self, n: int) -> StreamBatch:
        return StreamBatch(
            self.model.predictor,
            n,
            span=self.options.span,
            every=self.options.every,
            unordered=self.options.unordered,  # type: ignore[arg-type]
        )

    # Open and close

    def open(self, name: str, static: dict[str, float] | None) -> dict[str, Any]:
        """A new stream; 409 if there is one of that name."""
        if name in self.entries:
            raise Refusal(
                409, f"there is a stream {name!r} already; ask for its state, or delete it"
            )
        entry = self._occupy(name)
        try:
            self.batch.open(entry.slot, static=static if self.model.static_names else None)
        except InputError as error:
            self.close(name)
            raise Refusal(400, str(error)) from None
        return self.state(name)

    def close(self, name: str) -> None:
        """Forget it."""
        entry = self._entry(name)
        del self.entries[name]
        self.free.append(entry.slot)

    def check_room(self, more: int) -> None:
        """429 if so many more would be too many."""
        if len(self.entries) + more > self.limits.max_streams:
            raise Refusal(
                429,
                f"there may be {self.limits.max_streams} open streams, there are "
                f"{len(self.entries)}; delete some that are not needed",
                retry_after=10,
            )

    def _occupy(self, name: str) -> Entry:
        self.check_room(1)
        if not self.free:
            self._grow()
        slot = self.free.pop()
        self.alarms.reset(slot)
        self.names[slot] = name
        entry = self.entries[name] = Entry(name, slot, time.monotonic())
        return entry

    def _grow(self) -> None:
        n = self.batch.n
        more = min(2 * n, self.limits.max_streams)
        larger = self._batch(more)
        larger.take_over(self.batch)
        self.batch = larger
        self.free = list(range(n, more))
        self.names += [""] * (more - n)
        self.alarms.resize(more)

    def _entry(self, name: str, row: int | None = None) -> Entry:
        entry = self.entries.get(name)
        if entry is None:
            place = None if row is None else {"row": row}
            raise Refusal(404, f"there is no stream {name[:64]!r}; open it first", place)
        entry.used = time.monotonic()
        return entry

    # State

    def state(self, name: str) -> dict[str, Any]:
        """What a client is told: from ``last_time`` on it may send, ``accepted`` so far."""
        slot = [self._entry(name).slot]
        return {
            "id": name,
            "channels": list(self.model.channels),
            "last_time": _or_none(float(self.batch.last_time(slot)[0])),
            "accepted": int(self.batch.count(slot)[0]),
            "bytes": int(self.batch.nbytes(slot)[0]),
            "alarms": self.alarms.state(slot[0]),
        }

    def give_up_idle(self, seconds: float, but: Sequence[str]) -> list[str]:
        """Close those that nobody has asked for in so long, ``but`` some, which are in use."""
        for name in but:
            if name in self.entries:
                self._entry(name)
        limit = time.monotonic() - seconds
        names = [name for name, entry in self.entries.items() if entry.used < limit]
        for name in names:
            self.close(name)
        return names

    # Observations

    def slots_of(self, rows: Rows) -> Ints:
        """``(m,)`` the slot of each row, or ``(1,)`` if all are of one stream."""
        found = np.zeros(len(rows.names), dtype=np.int64)
        for k, name in enumerate(rows.names):
            entry = self.entries.get(name)
            if entry is None:
                row = 0 if rows.codes is None else int(np.argmax(rows.codes == k))
                self._entry(name, row)
            else:
                entry.used, entry.changed = time.monotonic(), True
                found[k] = entry.slot
        return found

    def push(self, pushes: list[tuple[Rows, Ints]]) -> list[Pushed | Exception]:
        """Pushes of different streams (rows, and slots of their names), in one call if all are
        right; else one by one, so that each gets its own answer: a push that fails changes nothing.
        """
        try:
            return list(self._push(pushes))
        except (Refusal, InputError, CapacityError) as error:
            if len(pushes) == 1:
                return [_refusal(error)]
        except Exception as error:
            if len(pushes) == 1:
                return [error]
        return [self.push([one])[0] for one in pushes]

    def _push(self, pushes: list[tuple[Rows, Ints]]) -> list[Pushed]:
        slots = np.concatenate([_of_rows(rows, own) for rows, own in pushes])
        times = np.concatenate([rows.times for rows, _ in pushes])
        values = np.concatenate([rows.values for rows, _ in pushes])
        self._check_rows(slots, times)
        for rows, own in pushes:
            self._check_work(self.windows_of(rows, own))
        before = [int(self.batch.count(own).sum()) for _, own in pushes]
        events = self.batch.push(slots, times, values)
        found = [Pushed(rows=len(rows.times)) for rows, _ in pushes]
        # Streams of different pushes differ: the slot tells whose event it is.
        owner = np.zeros(self.batch.n, dtype=np.int64)
        for k, (_, own) in enumerate(pushes):
            owner[own] = k
            found[k].accepted = int(self.batch.count(own).sum())
            found[k].dropped = found[k].rows - (found[k].accepted - before[k])
            if len(own) == 1:
                found[k].last_time = _or_none(float(self.batch.last_time(own)[0]))
        for k, event in zip(
            owner[events.slot].tolist(), self.alarms.told(events, self.names), strict=True
        ):
            found[k].events.append(event)
        return found

    def advance(self, name: str, moment: float) -> Pushed:
        """Time passes in a stream: no observation up to ``moment`` will come any more."""
        entry = self._entry(name)
        slots = np.array([entry.slot])
        last = float(self.batch.last_time(slots)[0])
        if moment > last:
            moments = np.array([moment])
            self._check_rows(slots, moments)
            self._check_work(windows_ended(slots, moments, np.array([last]), self.rule))
        events = self.batch.advance(slots, np.array([moment]))
        entry.changed = True
        state = self.state(name)
        return Pushed(
            self.alarms.told(events, self.names),
            last_time=state["last_time"],
            accepted=state["accepted"],
        )

    def predict(self, name: str) -> dict[str, Any]:
        """What the model says now."""
        slot = [self._entry(name).slot]
        if math.isnan(self.batch.last_time(slot)[0]):
            raise Refusal(409, f"stream {name!r} has no observation yet")
        (answer,) = self.batch.predict(slot).plain()
        return {
            "id": name,
            "time": _or_none(float(self.batch.last_time(slot)[0])),
            "prediction": answer,
        }

    @property
    def most_windows(self) -> int:
        """That one push may end."""
        return self.limits.max_ended if self.batch.causal else self.limits.max_runs

    def windows_of(self, rows: Rows, own: Ints) -> float:
        """That a push to the slots ``own`` ends, at most."""
        slots = _of_rows(rows, own)
        return windows_ended(slots, rows.times, self.batch.last_time(slots), self.rule)

    def _check_work(self, windows: float) -> None:
        if windows > self.most_windows:
            name = "max_ended" if self.batch.causal else "max_runs"
            raise Refusal(
                400,
                f"this ends {windows:.0f} windows of its streams, {name} = {self.most_windows} is "
                "the limit; send fewer observations or fewer streams at once",
            )

    def _check_rows(self, slots: Ints, times: Floats) -> None:
        last = self.batch.last_time(slots)
        check_times(slots, times, last, self.names, drop=self.options.unordered == "drop")
        check_leap(slots, times, last, self.rule, self.limits.max_leap)

    # Snapshots

    def snapshot(self, name: str) -> bytes:
        """A stream with its alarms, as bytes."""
        slot = self._entry(name).slot
        return pack(name, self.alarms.save(slot), self.batch.snapshot([slot]))

    def snapshots(self, names: Sequence[str]) -> dict[str, bytes]:
        """Those of the named streams that are there and changed; they count as unchanged then."""
        found = {}
        for name in names:
            entry = self.entries.get(name)
            if entry is not None and entry.changed:
                used = entry.used  # looking at a stream does not use it
                found[name] = self.snapshot(name)
                entry.changed, entry.used = False, used
        return found

    def mark_changed(self, names: Sequence[str]) -> None:
        """Their snapshots were not written."""
        for name in names:
            if name in self.entries:
                self.entries[name].changed = True

    def restore(self, name: str, data: bytes) -> dict[str, Any]:
        """The stream becomes what the snapshot says; it is opened if it is not there."""
        found = unpack(data)
        new = name not in self.entries
        entry = self._occupy(name) if new else self._entry(name)
        try:
            self.batch.restore([entry.slot], found.blob)
        except (InputError, CheckpointError) as error:
            if new:
                self.close(name)
            raise Refusal(400, f"the snapshot cannot be used: {error}") from None
        self.alarms.load(entry.slot, found.alarms)
        entry.changed = True
        return self.state(name)


def _rule(model: ServedModel, options: StreamOptions) -> Rule:
    if options.every is not None:
        return Rule(options.every, span=math.inf if options.span is None else options.span)
    rule = model.predictor.encoder.config.rule
    return Rule(rule.amount) if rule.rule == "duration" else Rule(None, rule.amount)


def _refusal(error: Refusal | InputError | CapacityError) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, CapacityError):  # it speaks of slots and options, which clients have not
        return Refusal(
            400,
            "a stream would hold more observations, or end more windows at once, than it may; send "
            "less often or fewer at once",
        )
    row = getattr(error, "row", None)
    return Refusal(400, str(error), None if row is None else {"row": int(row)})


def _of_rows(rows: Rows, own: Ints) -> Ints:
    """``(m,)``: the slot of each row, of the slots ``own`` of its streams."""
    return np.repeat(own, len(rows.times)) if rows.codes is None else own[rows.codes]


def _or_none(x: float) -> float | None:
    return x if math.isfinite(x) else None
