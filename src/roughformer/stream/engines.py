"""How a model is run on streams: window by window, or again and again on the last observations."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.errors import CapacityError, InputError
from roughformer.inference import ClassTargets, Predictor
from roughformer.model import Ensemble, RFormer, why_no_step
from roughformer.series import SeriesBatch
from roughformer.stream.messages import COVERAGE, Answers, Events, InputRows
from roughformer.stream.state import State
from roughformer.tokens import Tokenizer, TokenStep, WindowTokens, stream_tokens

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_MOST_WINDOWS = 100_000  # that may end with one push
_AT_ONCE = 1024  # windows that the model takes at a time, ...
_IN_A_ROW = 128  # ... and those of one stream


def check_streams(predictor: Predictor) -> None:
    """``InputError`` unless the model can be run window by window."""
    members = _members(predictor)
    if not all(isinstance(m, RFormer) for m in members):
        raise InputError(
            "only an RFormer is run window by window; give span and every to run this model on "
            "the last observations again and again (roughformer serve: --span and --every)"
        )
    reason = why_no_step(predictor.encoder, predictor.outputs.causal)
    if reason is not None:
        raise InputError(
            f"{reason}; or give span and every to run "
            "it on the last observations again and again (roughformer serve: --span and --every)"
        )


def _members(predictor: Predictor) -> list[Any]:
    model = predictor.model
    return list(model.members) if isinstance(model, Ensemble) else [model]


def _numbered(count: Ints) -> Ints:
    """0, 1, ... for the first of ``count``, then from 0 on for the next, and so on."""
    return np.asarray(np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count))


def answers_of(predictor: Predictor, output: Tensor, observed: Floats | None = None) -> Answers:
    """From outputs ``(e, n[, k])`` of the model.

    ``observed (e,)``: number of values that were looked at, for intervals.
    """
    targets = predictor.targets
    numbers = {name: x.numpy() for name, x in predictor.answers(output).items()}
    if isinstance(targets, ClassTargets):
        return Answers(classes=targets.labels, probabilities=numbers["probabilities"])
    if observed is not None and predictor.promises(COVERAGE):
        numbers["interval"] = predictor.intervals(numbers, observed, COVERAGE)
    return Answers(**numbers, flat=targets.flat)


def no_events(predictor: Predictor, dropped: int = 0) -> Events:
    """An empty list of events."""
    outputs = predictor.outputs
    raw = outputs.shaped(torch.zeros(0, outputs.n_outputs * outputs.outputs_per_target))
    none = np.zeros(0, dtype=np.int64)
    return Events(none, np.zeros(0), none, answers_of(predictor, raw), dropped)


class CausalStreams:
    """``state.n`` streams of one model. Tokens and predictions are those of the offline model for
    the observations so far; nothing that is kept or done depends on how many those were.
    """

    def __init__(self, predictor: Predictor, state: State, max_windows: int) -> None:
        """Arrays are added to ``state``. ``max_windows``: that a stream may have if the model
        attends to all of them, because it was trained without a context.
        """
        check_streams(predictor)
        self.predictor = predictor
        self.tokenizer: Tokenizer = predictor.encoder
        self.rule = self.tokenizer.config.rule
        tokens = self.tokenizer.for_padded()
        shapes = TokenStep(tokens).shapes
        self.rows = {name: state.add(name, shape, np.float64) for name, shape in shapes.items()}
        self.tokens = stream_tokens(tokens, self.rows)
        self.static = state.add("static", (len(self.tokenizer.static),), np.float32, np.nan)
        outputs = predictor.outputs
        self.last = state.add("answer", (outputs.n_outputs, outputs.outputs_per_target), np.float32)
        self.members = _members(predictor)
        context = self.members[0].config.context
        self.endless, self.most = context is not None, context or max_windows
        self.rings = [
            [
                torch.from_numpy(
                    state.add(f"member{m}_block{i}", member.ring_shape(self.most), np.float32)
                )
                for i in range(member.config.n_layers)
            ]
            for m, member in enumerate(self.members)
        ]
        self.member_arrays = [name for name in state.arrays if name.startswith("member")]
        self._memories = [state.arrays[name] for name in self.member_arrays]
        for member in self.members:
            member.eval()
        self._silence = no_events(predictor)

    # Everything that a stream remembers is in its state.

    def open(self, slots: Ints, static: Floats) -> None:
        """Streams begin anew, with covariates ``static (s, S)``."""
        names = self.tokenizer.config.static
        if names:
            nothing = np.zeros((len(slots), 1))
            batch = SeriesBatch(
                nothing[:, 0], nothing, np.arange(len(slots) + 1),
                static=static, static_names=list(names),
            )  # fmt: skip
            self.static[slots] = self.tokenizer.static_encoder.encode(batch)

    def nbytes(self, slots: Ints) -> Ints:
        """Nothing more is held."""
        return np.zeros(len(slots), dtype=np.int64)

    def extra_rows(self, slots: Ints) -> dict[str, npt.NDArray[Any]]:
        """Nothing more to keep."""
        return {}

    def checked_extra(self, rows: dict[str, Any], n: int, refuse: Any) -> dict[str, Any]:
        """Nothing more to put back."""
        return {}

    def put_extra(self, slots: Ints, extra: dict[str, Any]) -> None:
        """Nothing more to put back."""

    def impossible(self, rows: dict[str, Any], extra: dict[str, Any]) -> str | None:
        """What no stream of this model remembers: numbers out of range, or at odds."""
        for name in ("answer", *self.rows, *self.member_arrays):
            if not np.isfinite(rows[name]).all():
                return f"{name} is not finite"
        points, window, last = rows["points"], rows["window"], rows["last_time"]
        for name, number in (("points", points), ("window", window)):
            if (number < 0).any() or (number % 1).any() or (number > 2**53).any():
                return f"{name} is not a count"
        if ((points > 0) == np.isnan(last)).any() or (rows["count"] > points).any():
            return "points do not fit the last time and the count"
        begun = points > 0
        since = np.where(begun, last - rows["start"], 0.0)
        if (since != rows["time"]).any() or (since < 0).any():
            return "time does not fit the start and the last time"
        if (window != np.where(begun, self.tokens.ended(since, points), 0)).any():
            return "window does not fit the time"
        if (rows["opened"] < 0).any() or (rows["opened"] > since).any():
            return "the open window begins outside the stream"
        if not self.endless and (window > self.most).any():
            return f"there are more than {self.most} windows"
        return None

    # What comes in

    def push(self, rows: InputRows) -> Events:
        """All at once, or an error with nothing changed."""
        if len(rows.slots) == 0:
            return replace(self._silence, dropped=rows.dropped)
        slots = rows.slots
        first = self.rows["window"][slots].astype(np.int64)
        count = self._count(rows, first)
        owner = np.repeat(np.arange(len(slots)), count)
        slot, window = slots[owner], first[owner] + _numbered(count)
        with self._undoing(slots, slot, window):
            ends, outputs, at = [], [], 0
            given = (rows.offsets, rows.times, rows.values)
            for part in self.tokens.advance(slots, *given, len(owner)):
                these = slice(at, at := at + len(part.ends))
                outputs.append(self._run(slot[these], window[these], part))
                ends.append(part.ends)
            assert at == len(owner)
            if not outputs:
                return replace(self._silence, dropped=rows.dropped)
            time = self.rows["start"][slot] + np.concatenate(ends)
            answers = answers_of(self.predictor, torch.cat(outputs))
        return Events(slot, time, window, answers, rows.dropped)

    @contextmanager
    def _undoing(self, slots: Ints, slot: Ints, window: Ints) -> Iterator[None]:
        """If anything fails, the streams ``slots``, of which ``slot (e,)`` end their windows number
        ``window (e,)``, are put back to where they were. Without an end the model is not run, and
        a single call of the kernel does all or nothing.
        """
        if not len(slot):
            yield
            return
        written = (slot, slice(None), slice(None), window % self.most)
        states = (*self.rows.values(), self.last)
        kept: list[Any] = [(array, slots, array[slots]) for array in states]
        kept += [(array, written, array[written]) for array in self._memories]
        try:
            yield
        except BaseException:
            for array, which, before in kept:
                array[which] = before
            raise

    def _count(self, rows: InputRows, first: Ints) -> Ints:
        """``(g,)``: windows that end with these rows, from number ``first (g,)`` on. More than can
        be are refused, before anything changes.
        """
        slots = rows.slots
        begun = self.rows["points"][slots]
        start = np.where(begun > 0, self.rows["start"][slots], rows.times[rows.offsets[:-1]])
        last = rows.times[rows.offsets[1:] - 1] - start
        points: Floats = begun + rows.lengths
        ended = self.tokens.ended(last, points)
        passed = ended - first
        if passed.max() > _MOST_WINDOWS:
            raise InputError(
                f"{passed.max():.0f} windows of a stream would end with one push, more than "
                f"{_MOST_WINDOWS}; is a time in another unit? Start a new stream after so "
                "long a gap"
            )
        reached = points - 1 if self.rule.rule == "points" else last
        begun = ended + (reached > ended * self.rule.amount)
        if not self.endless and begun.max() > self.most:
            raise CapacityError(
                f"stream {slots[int(begun.argmax())]} would have more than {self.most} windows, "
                "and this model attends to all of them: train with context=, which bounds what a "
                "stream remembers, or allow more with max_windows="
            )
        return passed.astype(np.int64)

    # What comes out

    @torch.inference_mode()
    def _run(self, slot: Ints, window: Ints, ended: WindowTokens) -> Tensor:
        """Outputs ``(e, n[, k])`` for windows that are over, number ``window (e,)`` of the streams
        ``slot (e,)``; those of a stream stand together, in order.
        """
        times = (torch.from_numpy(ended.ends) / self.tokenizer.time_unit).float()
        at = np.flatnonzero(np.append(True, slot[1:] != slot[:-1]))  # the next one of each stream
        end = np.append(at[1:], len(slot))
        outputs, places = [], []
        while len(at):
            # As many as all of them have: then there is nothing to pad.
            size = min(int((end - at).min()), max(_AT_ONCE // len(at), 1), _IN_A_ROW)
            place = torch.from_numpy(at[:, None] + np.arange(size))
            output = self._forward(slot[at], ended.tokens[place], times[place], window[at])
            newest = output[:, -1].reshape(len(at), *self.last.shape[1:])
            self.last[slot[at]] = newest.numpy()
            outputs.append(output.flatten(0, 1))
            places.append(place.flatten())
            at += size
            at, end = at[at < end], end[at < end]
        if len(outputs) == 1:
            return outputs[0]
        return torch.cat(outputs)[torch.cat(places).argsort()]

    def _forward(
        self, slots: Ints, tokens: Tensor, times: Tensor, window: Ints, over: bool = True
    ) -> Tensor:
        """Outputs ``(s, K, n[, k])`` for windows from number ``window (s,)`` on; ``over``: they
        are.
        """
        which, number = torch.from_numpy(slots), torch.from_numpy(window)
        static = torch.from_numpy(self.static[slots]) if self.static.shape[1] else None
        # All streams at once need no copy of what they remember.
        everyone = over and len(slots) == len(self.last) and bool((slots[1:] > slots[:-1]).all())
        answers: list[Tensor] = []
        for member, rings in zip(self.members, self.rings, strict=True):
            past = rings if everyone else [ring.index_select(0, which) for ring in rings]
            kept, answer = member.step_tokens(past, tokens, times, static, number, None)
            if over and not everyone:
                for ring, new in zip(rings, kept, strict=True):
                    ring.index_copy_(0, which, new)
            answers.append(answer)
        if len(answers) == 1:
            return answers[0]
        committee = self.predictor.model
        assert isinstance(committee, Ensemble)
        return committee.joined(torch.stack(answers))

    @torch.inference_mode()
    def predict(self, slots: Ints) -> Answers:
        """What the offline model says at the end of what has come so far."""
        open_ = self.tokens.open_windows(slots)
        window = self.rows["window"][slots].astype(np.int64)
        # At a window's end there is nothing newer than what was said then.
        moved = (window == 0) | (open_.ends > self.rows["opened"][slots])
        output = self.predictor.outputs.shaped(torch.zeros(0, int(np.prod(self.last.shape[1:]))))
        output = torch.from_numpy(self.last[slots]).reshape(len(slots), *output.shape[1:])
        if moved.any():
            which = torch.from_numpy(moved)
            times = (torch.from_numpy(open_.ends[moved]) / self.tokenizer.time_unit).float()
            tokens = open_.tokens[which].unsqueeze(1)
            answer = self._forward(
                slots[moved], tokens, times.unsqueeze(1), window[moved], over=False
            )
            output[which] = answer[:, 0]
        return answers_of(self.predictor, output)


Array = npt.NDArray[Any]
_MOST_EVENTS = 100_000  # of one push
_EVENTS_AT_ONCE = 256  # bounds the memory of what they look at


class SlidingStreams:
    """``state.n`` streams of any model, over a sliding span."""

    def __init__(
        self, predictor: Predictor, state: State, span: float, every: float, max_points: int
    ) -> None:
        """Arrays are added to ``state``; ``max_points``: rows that a stream may hold."""
        self.predictor, self.span, self.every, self.most = predictor, span, every, max_points
        encoder = predictor.encoder
        self.channels = encoder.channels
        self.names = predictor.static_names
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

    def push(self, rows: InputRows) -> Events:
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
                f"{_MOST_EVENTS}; is a time in another unit? Start a new stream after such a gap"
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
        answers = self._run(ask, self.static[slots[owner]])
        for g, slot in enumerate(slots):
            self.kept[slot] = kept[g]
        self.start[slots], self.now[slots] = start, newest
        self.due[slots], self.begun[slots] = np.maximum(count, due), True
        times = start[owner] + (window + 1) * self.every
        return Events(slots[owner], times, window, answers, rows.dropped)

    def _count(self, elapsed: Floats) -> Ints:
        """How many times an event has fallen due, ``elapsed`` after the start."""
        number = np.floor(elapsed / self.every)
        number += (number + 1) * self.every <= elapsed  # the quotient is rounded
        number -= number * self.every > elapsed
        return np.asarray(number).astype(np.int64)

    def _joined(self, rows: InputRows, g: int) -> tuple[Floats, Floats]:
        """What is kept of a stream, and what is new."""
        part = slice(rows.offsets[g], rows.offsets[g + 1])
        times, values = self.kept[rows.slots[g]]
        new = ~np.isnan(rows.values[part]).all(axis=1)  # a row of nothing only says that time goes
        return (
            np.concatenate([times, rows.times[part][new]]),
            np.concatenate([values, rows.values[part][new]]),
        )

    def _run(self, parts: list[tuple[Floats, Floats]], static: Array) -> Answers:
        """Predictions for series ``(times, values)``."""
        if not parts:
            return no_events(self.predictor).answers
        outputs = []
        for i in range(0, len(parts), _EVENTS_AT_ONCE):
            group = parts[i : i + _EVENTS_AT_ONCE]
            batch = SeriesBatch(
                np.concatenate([t for t, _ in group]),
                np.concatenate([v for _, v in group]),
                np.cumsum([0, *(len(t) for t, _ in group)]),
                channels=self.channels,
                static=static[i : i + len(group)] if self.names else None,
                static_names=list(self.names) or None,
            )
            output, mask = self.predictor.forward(batch)
            outputs.append(self.predictor.at_last_window(output, mask))
        observed = np.array([np.count_nonzero(~np.isnan(v)) for _, v in parts], dtype=np.float64)
        return answers_of(self.predictor, torch.cat(outputs), observed)

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
        return self._run(parts, self.static[slots])

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
