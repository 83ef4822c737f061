"""The open streams: names, alarms, and operations on them. Only the worker's thread calls them."""

import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from roughformer.errors import CapacityError, CheckpointError, InputError
from roughformer.inference import Alarm, AlarmState
from roughformer.serve.config import Limits, StreamOptions
from roughformer.serve.errors import APIError, invalid
from roughformer.serve.json_bodies import Observations
from roughformer.stream import Events

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_INITIAL_SLOTS = 64


class StreamableModel(Protocol):
    """What streams need of the model that is served."""

    predictor: Any
    channels: tuple[str, ...]
    static_names: tuple[str, ...]

    @property
    def classes(self) -> list[Any] | None:
        """Classes; None of a regression or a forecaster."""

    @property
    def targets(self) -> list[str]:
        """Names of the numbers that alarms may watch."""

    def stream_options(self, options: StreamOptions) -> StreamOptions:
        """The options of its streams."""

    def stream_batch(self, n: int, options: StreamOptions) -> Any:
        """``n`` new streams."""


class WindowRule(NamedTuple):
    """What ends a window: ``duration``, or else ``points``. ``span``: how long before the end of a
    window something must have been observed for the model to run.
    """

    duration: float | None
    points: float = 1.0
    span: float = np.inf


@dataclass
class StreamEntry:
    """An open stream. ``used``: when it was last asked for; ``changed``: since its snapshot;
    ``event``: its last window.
    """

    name: str
    slot: int
    used: float
    changed: bool = True
    event: dict[str, Any] | None = None


@dataclass
class PushResult:
    """What a push did: windows that ended, each a dict with ``id``; rows, and how many of them were
    late; for a push to one stream, its state afterwards.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    rows: int = 0
    dropped: int = 0
    last_time: float | None = None
    accepted: int = 0

    @property
    def state(self) -> dict[str, Any]:
        """From where to send on."""
        return {"last_time": self.last_time, "accepted": self.accepted, "dropped": self.dropped}


class Streams:
    """Names -> slots of one batch of streams, which is replaced by a larger one when it is full."""

    def __init__(self, model: StreamableModel, limits: Limits, options: StreamOptions) -> None:
        """Open no stream yet."""
        options = model.stream_options(options)
        self.model, self.limits, self.options = model, limits, options
        self.entries: dict[str, StreamEntry] = {}
        self.batch = model.stream_batch(min(_INITIAL_SLOTS, limits.max_streams), options)
        self.free = list(range(self.batch.n))
        self.names: list[str] = [""] * self.batch.n
        self.alarms = AlarmTracker(options.alarms, self.batch.n, model.classes, model.targets)
        if options.every is not None:
            span = math.inf if options.span is None else options.span
            self.rule = WindowRule(options.every, span=span)
        else:
            # Windows of an RFormer: streams of forecasters always have ``every``.
            rule = model.predictor.encoder.config.rule
            duration = rule.amount if rule.rule == "duration" else None
            self.rule = WindowRule(duration, rule.amount)

    # Open and close

    def open(self, name: str, static: dict[str, float] | None) -> dict[str, Any]:
        """Open a stream; 409 if there is one of that name."""
        if name in self.entries:
            raise APIError(
                409, f"there is a stream {name!r} already; ask for its state, or delete it"
            )
        entry = self._occupy(name)
        try:
            self.batch.open(entry.slot, static=static if self.model.static_names else None)
        except InputError as error:
            self.close(name)
            raise APIError(400, str(error)) from None
        return self.state(name)

    def close(self, name: str) -> None:
        """Forget a stream."""
        self.free.append(self._entry(name).slot)
        del self.entries[name]

    def check_room(self, more: int) -> None:
        """Raise 429 if so many more streams would be too many."""
        if len(self.entries) + more > self.limits.max_streams:
            raise APIError(
                429,
                f"there may be {self.limits.max_streams} open streams, there are "
                f"{len(self.entries)}; delete some that are not needed",
                retry_after=10,
            )

    def _occupy(self, name: str) -> StreamEntry:
        self.check_room(1)
        if not self.free:
            n = self.batch.n
            more = min(2 * n, self.limits.max_streams)
            larger: Any = self.model.stream_batch(more, self.options)
            larger.take_over(self.batch)
            self.batch = larger
            self.free = list(range(n, more))
            self.names += [""] * (more - n)
            self.alarms.resize(more)
        slot = self.free.pop()
        self.alarms.reset(slot)
        self.names[slot] = name
        entry = self.entries[name] = StreamEntry(name, slot, time.monotonic())
        return entry

    def _entry(self, name: str, row: int | None = None) -> StreamEntry:
        entry = self.entries.get(name)
        if entry is None:
            position = None if row is None else {"row": row}
            raise APIError(404, f"there is no stream {name[:64]!r}; open it first", position)
        entry.used = time.monotonic()
        return entry

    def state(self, name: str) -> dict[str, Any]:
        """What a client is told: it may send after ``last_time``; ``accepted`` so far."""
        slot = [self._entry(name).slot]
        return {
            "id": name,
            "channels": list(self.model.channels),
            "last_time": _finite(self.batch.last_time(slot)[0]),
            "accepted": int(self.batch.count(slot)[0]),
            "bytes": int(self.batch.nbytes(slot)[0]),
            "alarms": self.alarms.state(slot[0]),
        }

    def overview(self, most: int) -> list[dict[str, Any]]:
        """The last prediction and the alarms of ``most`` streams, the alarming ones first."""
        entries = list(self.entries.values())
        slots = np.array([entry.slot for entry in entries], dtype=np.int64)
        last, count = self.batch.last_time(slots), self.batch.count(slots)
        streams: list[dict[str, Any]] = [
            {
                "id": entry.name,
                "last_time": _finite(last[k]),
                "accepted": int(count[k]),
                "alarms": self.alarms.state(entry.slot),
                "time": None if entry.event is None else entry.event["time"],
                "prediction": None if entry.event is None else entry.event["prediction"],
            }
            for k, entry in enumerate(entries)
        ]
        calm = {s["id"]: not any(a["active"] for a in s["alarms"]) for s in streams}
        return sorted(streams, key=lambda s: (calm[s["id"]], s["id"]))[:most]

    def expire(self, seconds: float, keep: Sequence[str]) -> list[str]:
        """Close streams that nobody has used for so long, except those to ``keep``."""
        for name in keep:
            if name in self.entries:
                self._entry(name)
        limit = time.monotonic() - seconds
        names = [name for name, entry in self.entries.items() if entry.used < limit]
        for name in names:
            self.close(name)
        return names

    # Observations

    def slots_of(self, rows: Observations) -> Ints:
        """``(k,)``: the slot of each named stream."""
        slots = np.zeros(len(rows.names), dtype=np.int64)
        for k, name in enumerate(rows.names):
            row = 0
            if name not in self.entries and rows.codes is not None:
                row = int(np.argmax(rows.codes == k))
            entry = self._entry(name, row)
            entry.changed = True
            slots[k] = entry.slot
        return slots

    def push(self, pushes: list[tuple[Observations, Ints]]) -> list[PushResult | Exception]:
        """Push to different streams (observations, and slots of their names), in one call if all
        are right; else one by one, so that each gets its own answer. A push that fails changes
        nothing.
        """
        try:
            return list(self._push(pushes))
        except (InputError, CapacityError) as error:
            failure: Exception = _api_error(error)
        except Exception as error:
            failure = error
        return [failure] if len(pushes) == 1 else [self.push([one])[0] for one in pushes]

    def _push(self, pushes: list[tuple[Observations, Ints]]) -> list[PushResult]:
        slots = np.concatenate([_slot_of_rows(rows, own) for rows, own in pushes])
        times = np.concatenate([rows.times for rows, _ in pushes])
        values = np.concatenate([rows.values for rows, _ in pushes])
        self._check_rows(slots, times)
        for rows, own in pushes:
            self._check_work(self.windows_of(rows, own))
        before = [int(self.batch.count(own).sum()) for _, own in pushes]
        events = self.batch.push(slots, times, values)
        results = [PushResult(rows=len(rows.times)) for rows, _ in pushes]
        # Streams of different pushes differ: the slot tells whose event it is.
        owner = np.zeros(self.batch.n, dtype=np.int64)
        for k, (_, own) in enumerate(pushes):
            owner[own] = k
            results[k].accepted = int(self.batch.count(own).sum())
            results[k].dropped = results[k].rows - (results[k].accepted - before[k])
            if len(own) == 1:
                results[k].last_time = _finite(self.batch.last_time(own)[0])
        for k, message in zip(owner[events.slot].tolist(), self._messages(events), strict=True):
            results[k].events.append(message)
        return results

    def _messages(self, events: Events) -> list[dict[str, Any]]:
        messages = self.alarms.update(events, self.names)
        for message in messages:
            self.entries[message["id"]].event = message
        return messages

    def advance(self, name: str, moment: float) -> PushResult:
        """Let time pass in a stream: no observation up to ``moment`` will come any more."""
        entry = self._entry(name)
        slots, moments = np.array([entry.slot]), np.array([moment])
        last = self.batch.last_time(slots)
        if moment > last[0]:
            self._check_rows(slots, moments)
            self._check_work(_windows_ended(slots, moments, last, self.rule))
        events = self.batch.advance(slots, moments)
        entry.changed = True
        state = self.state(name)
        return PushResult(
            self._messages(events),
            last_time=state["last_time"],
            accepted=state["accepted"],
        )

    def predict(self, name: str) -> dict[str, Any]:
        """What the model predicts now."""
        slot = [self._entry(name).slot]
        last_time = _finite(self.batch.last_time(slot)[0])
        if last_time is None:
            raise APIError(409, f"stream {name!r} has no observation yet")
        (prediction,) = self.batch.predict(slot).plain()
        return {"id": name, "time": last_time, "prediction": prediction}

    @property
    def max_windows(self) -> int:
        """Number of windows that one push may end."""
        return self.limits.max_ended if self.batch.causal else self.limits.max_runs

    def windows_of(self, rows: Observations, own: Ints) -> float:
        """Bound the number of windows that a push to the slots ``own`` ends."""
        slots = _slot_of_rows(rows, own)
        return _windows_ended(slots, rows.times, self.batch.last_time(slots), self.rule)

    def _check_work(self, windows: float) -> None:
        if windows > self.max_windows:
            name = "max_ended" if self.batch.causal else "max_runs"
            raise APIError(
                400,
                f"this ends {windows:.0f} windows of its streams, {name} = {self.max_windows} is "
                "the limit; send fewer observations or fewer streams at once",
            )

    def _check_rows(self, slots: Ints, times: Floats) -> None:
        """Rows are in order (unless late ones are dropped), and none is too far ahead: the windows
        of one stream are made one after the other, and everybody waits meanwhile.
        """
        last = self.batch.last_time(slots)
        order, first = _by_stream(slots)
        now = times[order]
        before = np.where(first, last[order], np.append(np.nan, now[:-1])[: len(now)])
        late = now <= before  # False for NaN: a stream may begin at any time
        if late.any() and self.options.unordered != "drop":
            row, k = _first_row(late, order)
            raise invalid(
                f"the time {now[k]:.17g} is not after {before[k]:.17g}, the last one of stream "
                f"{self.names[slots[row]]!r}; send from there on, in order of time",
                {"row": row},
            )
        begin = np.flatnonzero(first)
        size = np.diff(np.append(begin, len(now)))
        if self.rule.duration is not None:
            start = np.where(np.isnan(last[order]), now, last[order])[begin]
            windows = (now - np.repeat(start, size)) / self.rule.duration
        else:
            windows = (np.arange(len(now)) - np.repeat(begin, size)) / self.rule.points
        far = windows > self.limits.max_leap
        if far.any():
            row, k = _first_row(far, order)
            raise invalid(
                f"the time {now[k]:.17g} is more than {self.limits.max_leap} windows on from where "
                "the stream was; is it in another unit? Send less at once, or open a new stream "
                "after so long a gap",
                {"row": row},
            )

    # Snapshots

    def snapshot(self, name: str) -> bytes:
        """A stream with its alarms, as bytes."""
        slot = self._entry(name).slot
        return pack(name, self.alarms.save(slot), self.batch.snapshot([slot]))

    def changed_snapshots(self, names: Sequence[str]) -> dict[str, bytes]:
        """Snapshots of those streams that are there and changed; they count as unchanged then."""
        snapshots = {}
        for name in names:
            entry = self.entries.get(name)
            if entry is not None and entry.changed:
                used = entry.used  # looking at a stream does not use it
                snapshots[name] = self.snapshot(name)
                entry.changed, entry.used = False, used
        return snapshots

    def mark_changed(self, names: Sequence[str]) -> None:
        """Their snapshots were not written."""
        for name in names:
            if name in self.entries:
                self.entries[name].changed = True

    def restore(self, name: str, data: bytes) -> dict[str, Any]:
        """Restore a stream from a snapshot; it is opened if it is not there."""
        snapshot = unpack(data)
        new = name not in self.entries
        entry = self._occupy(name) if new else self._entry(name)
        try:
            self.batch.restore([entry.slot], snapshot.blob)
        except (InputError, CheckpointError) as error:
            if new:
                self.close(name)
            raise APIError(400, f"the snapshot cannot be used: {error}") from None
        self.alarms.load(entry.slot, snapshot.alarms)
        entry.changed = True
        return self.state(name)


# Snapshots: a line ``roughformer stream 1 SHA-256``, a line of JSON (name, states of the alarms),
# then the bytes of ``StreamBatch.snapshot``.

_MAGIC = b"roughformer stream 1 "


class Snapshot(NamedTuple):
    """The stream's name, the states of its alarms, its blob."""

    name: str
    alarms: list[dict[str, Any]]
    blob: bytes


def pack(name: str, alarms: list[dict[str, Any]], blob: bytes) -> bytes:
    """Encode a snapshot."""
    rest = json.dumps({"name": name, "alarms": alarms}).encode() + b"\n" + blob
    return _MAGIC + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def unpack(data: bytes) -> Snapshot:
    """Decode what ``pack`` made; ``APIError`` if it is anything else."""
    head, _, rest = data.partition(b"\n")
    if not head.startswith(_MAGIC):
        raise APIError(400, "this is not a snapshot of a stream")
    if head[len(_MAGIC) :] != hashlib.sha256(rest).hexdigest().encode():
        raise APIError(400, "the snapshot is damaged: its checksum does not match")
    line, _, blob = rest.partition(b"\n")
    try:
        about = json.loads(line)
        return Snapshot(str(about["name"]), [dict(state) for state in about["alarms"]], blob)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise APIError(400, "this is not a snapshot of a stream") from error


def _api_error(error: InputError | CapacityError) -> APIError:
    if isinstance(
        error, CapacityError
    ):  # it speaks of slots and options, which clients do not have
        return APIError(
            400,
            "a stream would hold more observations, or end more windows at once, than it may; send "
            "less often or fewer at once",
        )
    row = getattr(error, "row", None)
    return APIError(400, str(error), None if row is None else {"row": int(row)})


def _slot_of_rows(rows: Observations, own: Ints) -> Ints:
    """``(m,)``: the slot of each row, of the slots ``own`` of its streams."""
    return np.repeat(own, len(rows.times)) if rows.codes is None else own[rows.codes]


def _windows_ended(slots: Ints, times: Floats, last: Floats, rule: WindowRule) -> float:
    """Bound the number of windows that rows end, over all their streams."""
    if rule.duration is None:
        return len(times) / rule.points
    order, first = _by_stream(slots)
    now = times[order]
    before = np.where(first, last[order], np.append(np.nan, now[:-1])[: len(now)])
    passed = np.where(np.isnan(before), 0.0, now - before)
    return float(np.clip(passed, 0.0, rule.span).sum() / rule.duration)


def _by_stream(slots: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Rows in the order of their streams, and which of them are the first of one."""
    order = np.argsort(slots, kind="stable")
    owner = slots[order]
    return order, np.append(True, owner[1:] != owner[:-1])[: len(owner)]


def _first_row(wrong: npt.NDArray[np.bool_], order: Ints) -> tuple[int, int]:
    """Of the wrong rows, in the order ``order``, the one that came first: its number as it came,
    and its place in the order.
    """
    places = np.flatnonzero(wrong)
    k = int(places[np.argmin(order[places])])
    return int(order[k]), k


def _finite(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None


class AlarmTracker:
    """The states of all alarms, each over ``n`` slots, and events as clients get them."""

    def __init__(
        self, alarms: Sequence[Alarm], n: int, classes: list[Any] | None, targets: list[str]
    ) -> None:
        """Raise ``InputError`` if an alarm watches what the model does not predict."""
        self._columns = [alarm.column(classes, targets) for alarm in alarms]
        self._states = [AlarmState(alarm, n) for alarm in alarms]

    def reset(self, slot: int) -> None:
        """Clear the alarms of a stream."""
        for state in self._states:
            state.reset(slot)

    def resize(self, n: int) -> None:
        """Make room for more streams."""
        for state in self._states:
            state.resize(n)

    def state(self, slot: int) -> list[dict[str, Any]]:
        """The alarms of a stream, as clients get them."""
        return [
            {
                "name": str(state.alarm),
                "active": bool(state.active[slot]),
                "since": _finite(state.since[slot]),
            }
            for state in self._states
        ]

    def save(self, slot: int) -> list[dict[str, Any]]:
        """The alarms of a stream, for a snapshot."""
        return [state.save(slot) for state in self._states]

    def load(self, slot: int, saved: list[dict[str, Any]]) -> None:
        """Restore what ``save`` gave; alarms that were not there then begin anew."""
        self.reset(slot)
        for state in self._states:
            for entry in saved:
                if entry.get("alarm") == str(state.alarm):
                    state.load(slot, entry)

    def update(self, events: Events, names: Sequence[str]) -> list[dict[str, Any]]:
        """Events with the alarms after each: ``id, time, window, prediction, alarms``."""
        if not len(events):
            return []
        answers = events.answers
        numbers = answers.point if answers.probabilities is None else answers.probabilities
        assert numbers is not None
        slots, times = events.slot.tolist(), events.time.tolist()
        messages: list[dict[str, Any]] = [
            {"id": names[slot], "time": t, "window": k, "prediction": prediction, "alarms": []}
            for slot, t, k, prediction in zip(
                slots, times, events.window.tolist(), answers.plain(), strict=True
            )
        ]
        for column, state in zip(self._columns, self._states, strict=True):
            name, values = str(state.alarm), np.asarray(numbers[:, column], dtype=np.float64)
            now = {s: (bool(state.active[s]), float(state.since[s])) for s in set(slots)}
            changes = state.update(events.slot, events.time, values).tolist()
            for message, slot, t, value, change in zip(
                messages, slots, times, values.tolist(), changes, strict=True
            ):
                if change:
                    now[slot] = (change > 0, t if change > 0 else math.nan)
                active, since = now[slot]
                message["alarms"].append(
                    {
                        "name": name,
                        "active": active,
                        "changed": change != 0,
                        "since": _finite(since),
                        "value": _finite(value),
                    }
                )
        return messages
