"""Streams of a causal model: the windows of the offline model, one after the other."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.errors import CapacityError, InputError
from roughformer.model import RFormer
from roughformer.model.committee import Committee
from roughformer.predictor import Predictor
from roughformer.series import SeriesBatch
from roughformer.stream.answers import Answers, Events, answers_of, no_events
from roughformer.stream.arrivals import Arrivals
from roughformer.stream.attention import CachedModel
from roughformer.stream.cutting import Position, pieces_of, windows_of
from roughformer.stream.observations import RunningObservations
from roughformer.stream.signatures import RunningWords
from roughformer.stream.state import State
from roughformer.stream.waiting import Waiting
from roughformer.tokens import Tokenizer

__all__ = ["CausalStreams", "check_streams"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def check_streams(predictor: Predictor) -> None:
    """``InputError`` unless the model can be run window by window."""
    encoder = predictor.encoder
    members = _members(predictor)
    if not isinstance(encoder, Tokenizer) or not all(isinstance(m, RFormer) for m in members):
        raise InputError(
            "only an RFormer is run window by window; give span and every to run this model on "
            "the last observations again and again (roughformer serve: --span and --every)"
        )
    if not predictor.outputs.causal:
        raise InputError(
            "this model looks at a series as a whole: train one with causal=True, or give span and "
            "every to run it on the last observations again and again (roughformer serve: --span "
            "and --every)"
        )
    config = encoder.config
    if config.rule.rule not in ("duration", "points"):
        raise InputError(
            "windows of a stream are by duration or by points: others end where the end of the "
            "series says; train with windows=rf.Windows.by_duration(...)"
        )
    if config.lags:
        raise InputError("lags need the past itself, which a stream does not keep; train without")


def _members(predictor: Predictor) -> list[Any]:
    model = predictor.model
    return list(model.members) if isinstance(model, Committee) else [model]


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
        config, n_channels = self.tokenizer.config, len(self.tokenizer.channels)
        self.rule = config.rule
        self.start = state.add("start", (), np.float64)
        self.time = state.add("time", (), np.float64)  # of the last point, from the first one
        self.rows = state.add("rows", (), np.int64)
        self.window = state.add("window", (), np.int64)  # the open one
        self.opened = state.add("opened", (), np.float64)  # where it began
        self.values = state.add("values", (n_channels,), np.float64)
        self.static = state.add("static", (len(self.tokenizer.static),), np.float32, np.nan)
        outputs = predictor.outputs
        self.last = state.add("answer", (outputs.n_outputs, outputs.outputs_per_target), np.float32)
        self.waiting = Waiting(n_channels, state)
        self.words = RunningWords(self.tokenizer, state) if config.depth else None
        counted = self.tokenizer.value_range is not None
        self.observations = RunningObservations(self.tokenizer, state) if counted else None
        members = _members(predictor)
        self.endless = members[0].config.context is not None
        self.most = members[0].config.context or max_windows
        self.models = [
            CachedModel(member.eval(), state, self.most, f"member{i}")
            for i, member in enumerate(members)
        ]

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

    # What comes in

    def push(self, rows: Arrivals) -> Events:
        """All at once, or ``InputError`` with nothing changed."""
        if len(rows.slots) == 0:
            return no_events(self.predictor, rows.dropped)
        patient = self._can_wait(rows)
        now = rows.some(~patient)
        events = None
        if len(now.slots):
            held = self.waiting.count[now.slots].copy()
            events = self._take_in(now.after(self.waiting.take(now.slots)), held)
        self.waiting.put(rows.some(patient))
        if events is None:
            return no_events(self.predictor, rows.dropped)
        return replace(events, dropped=rows.dropped)

    def _can_wait(self, rows: Arrivals) -> npt.NDArray[np.bool_]:
        """``(g,)`` streams that have begun, have room, and end no window with these rows."""
        slots = rows.slots
        last = rows.times[rows.offsets[1:] - 1] - self.start[slots]
        number = self.rows[slots] + self.waiting.count[slots] + rows.lengths
        window = windows_of(self.rule, last, number - 1)
        open_ = (window == self.window[slots]) & ~self._at_end(last, window, number)
        return np.asarray((self.rows[slots] > 0) & open_ & self.waiting.has_room(rows))

    def _take_in(self, rows: Arrivals, held: Ints) -> Events:
        """Rows go into their windows; ``held (g,)`` of them had waited, should this fail."""
        slots, lengths = rows.slots, rows.lengths
        try:
            return self._cut(rows)
        except (InputError, CapacityError):
            # They wait on: nothing has changed.
            first = np.arange(len(rows.times)) - np.repeat(rows.offsets[:-1], lengths)
            old = first < np.repeat(held, lengths)
            some = Arrivals(
                slots, np.concatenate([[0], np.cumsum(held)]), rows.times[old], rows.values[old], 0
            )
            self.waiting.put(some)
            raise

    def _cut(self, rows: Arrivals) -> Events:
        slots, lengths = rows.slots, rows.lengths
        fresh = self.rows[slots] == 0
        first = rows.offsets[:-1]
        start = np.where(fresh, rows.times[first], self.start[slots])
        since = rows.times - np.repeat(start, lengths)
        held = self._held(rows, fresh)
        at = Position(self.window[slots], self.time[slots], self.values[slots], self.rows[slots])
        pieces = pieces_of(self.rule, at, lengths, since, held)
        self._check_room(slots, pieces.owner, pieces.window)
        made = None if self.words is None else self.words.of_pieces(pieces.paths)
        # Nothing can fail from here on.
        new = slots[fresh]
        self.start[new] = start[fresh]
        if self.words is not None:
            self.words.begin_streams(new, held[first[fresh]])
        seen = 0 * lengths  # rows that have gone in, of each stream
        order, found = pieces.order, []
        ends = pieces.paths.span[1]
        values = pieces.paths.values[pieces.paths.offsets[1:] - 1]
        last = np.append(pieces.owner[1:] != pieces.owner[:-1], True)
        for number in range(int(order.max()) + 1):
            p = np.flatnonzero(order == number)
            who = pieces.owner[p]
            slot = slots[who]
            if self.words is not None:
                assert made is not None
                words, clocks = made
                gap = pieces.paths.span[0][p] - self.opened[slot]
                self.words.extend(slot, words[p], None if clocks is None else clocks[p], gap)
            if self.observations is not None:
                self._observe(rows, since, who, seen[who], pieces.rows_until[p])
            seen[who] = pieces.rows_until[p]
            self.time[slot], self.values[slot] = ends[p], values[p]
            ended = self._at_end(self.time[slot], pieces.window[p], self.rows[slot] + seen[who])
            over = ~last[p] | ended
            if over.any():
                found.append(self._close(slot[over], pieces.window[p][over]))
        self.rows[slots] += lengths
        return self._events(found)

    def _held(self, rows: Arrivals, fresh: npt.NDArray[np.bool_]) -> Floats:
        """Values ``(m, C)``; what is missing is what was last seen, 0 if nothing was."""
        values = rows.values
        gap = np.isnan(values)
        if not gap.any():
            return values
        at = np.repeat(rows.offsets[:-1], rows.lengths)[:, None]
        place = np.arange(len(values))[:, None]
        newest = np.maximum.accumulate(np.where(gap, -1, place), axis=0)
        known = newest >= at
        before = np.where(fresh[:, None], 0.0, self.values[rows.slots])
        carried = np.repeat(before, rows.lengths, axis=0)
        filled = np.take_along_axis(values, np.maximum(newest, 0), axis=0)
        return np.where(known, filled, carried)

    def _check_room(self, slots: Ints, owner: Ints, window: Ints) -> None:
        if self.endless or window.max(initial=0) < self.most:
            return
        slot = slots[owner[int(np.argmax(window))]]
        raise CapacityError(
            f"stream {slot} would have more than {self.most} windows, and this model attends to "
            "all of them: train with context=, which bounds what a stream remembers, or allow more "
            "with max_windows="
        )

    def _observe(self, rows: Arrivals, since: Floats, who: Ints, begin: Ints, end: Ints) -> None:
        """Rows ``begin ... end`` of the streams ``who`` go into the open windows."""
        assert self.observations is not None
        size = end - begin
        row = np.repeat(rows.offsets[:-1][who] + begin - (np.cumsum(size) - size), size)
        row += np.arange(len(row))
        at, channel = np.nonzero(~np.isnan(rows.values[row]))
        row = row[at]
        slot = np.repeat(rows.slots[who], size)[at]
        self.observations.extend(slot, channel, since[row], rows.values[row, channel])

    def _at_end(self, time: Floats, window: Ints, rows: Ints) -> npt.NDArray[np.bool_]:
        """Whether points at ``time``, each the last of ``rows``, are the last of their windows."""
        if self.rule.rule == "points":
            size = int(self.rule.amount)
            return np.asarray((rows > 1) & ((rows - 1) % size == 0))
        return np.asarray((window + 1) * self.rule.amount <= time)

    # What comes out

    def _close(self, slots: Ints, window: Ints) -> tuple[Ints, Ints, Floats, Tensor]:
        """Windows end where the streams are."""
        output = self._run(slots, window, commit=True)
        self.last[slots] = output.reshape(len(slots), *self.last.shape[1:]).numpy()
        if self.words is not None:
            self.words.close(slots, window, self.values[slots])
        if self.observations is not None:
            self.observations.close(slots, window)
        self.window[slots] = window + 1
        self.opened[slots] = self.time[slots]
        return slots, window, self.start[slots] + self.time[slots], output

    def _run(self, slots: Ints, window: Ints, commit: bool) -> Tensor:
        """Outputs of the model ``(s, n[, k])`` for the open windows as they are."""
        end = self.time[slots]
        parts = []
        if self.words is not None:
            parts.append(self.words.tokens(slots, window, commit))
        if self.observations is not None:
            parts.append(self.observations.tokens(slots, window, end))
        tokens = torch.cat(parts, dim=-1)
        times = torch.from_numpy((end / self.tokenizer.time_unit).astype(np.float32))
        static = torch.from_numpy(self.static[slots]) if self.static.shape[1] else None
        which, number = torch.from_numpy(slots), torch.from_numpy(window)
        with torch.no_grad():
            answers = [
                model.step(which, number, tokens, times, static, commit) for model in self.models
            ]
            if len(answers) == 1:
                return answers[0]
            committee = self.predictor.model
            assert isinstance(committee, Committee)
            return committee.joined(torch.stack(answers))

    def predict(self, slots: Ints) -> Answers:
        """What the offline model says at the end of what has come so far."""
        some = np.unique(slots)
        some = some[self.waiting.count[some] > 0]
        if len(some):
            self._cut(self.waiting.take(some))
        window = self.window[slots]
        output = self.predictor.outputs.shaped(torch.zeros(0, int(np.prod(self.last.shape[1:]))))
        output = torch.from_numpy(self.last[slots]).reshape(len(slots), *output.shape[1:])
        # At a window's end there is nothing newer than what was said then.
        moved = (window == 0) | (self.time[slots] > self.opened[slots])
        if moved.any():
            output[torch.from_numpy(moved)] = self._run(slots[moved], window[moved], commit=False)
        return answers_of(self.predictor, output)

    def _events(self, found: list[tuple[Ints, Ints, Floats, Tensor]]) -> Events:
        if not found:
            return no_events(self.predictor)
        slot, window, time = (np.concatenate([part[i] for part in found]) for i in range(3))
        output = torch.cat([part[3] for part in found])
        return Events(slot, time, window, answers_of(self.predictor, output))
