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
from roughformer.model.rformer import why_no_step
from roughformer.predictor import Predictor
from roughformer.series import SeriesBatch
from roughformer.signatures.padded import window_count
from roughformer.stream.answers import Answers, Events, answers_of, no_events
from roughformer.stream.arrivals import Arrivals
from roughformer.stream.state import State
from roughformer.stream.waiting import Waiting
from roughformer.tokens import Tokenizer
from roughformer.tokens.step import Piece, TokenStep

__all__ = ["CausalStreams", "check_streams"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Ended = tuple[Ints, Ints, Floats, Tensor]  # slots, numbers of windows, times, outputs
_MOST_WINDOWS = 100_000  # that may end with one push
_ROWS_AT_ONCE = 128


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
        self.rule = self.tokenizer.config.rule
        self.tokens = TokenStep(self.tokenizer)
        self.rows = {
            name: state.add(name, shape, np.float64) for name, shape in self.tokens.shapes.items()
        }
        self.kept = {name: torch.from_numpy(rows) for name, rows in self.rows.items()}
        self.static = state.add("static", (len(self.tokenizer.static),), np.float32, np.nan)
        outputs = predictor.outputs
        self.last = state.add("answer", (outputs.n_outputs, outputs.outputs_per_target), np.float32)
        self.waiting = Waiting(len(self.tokenizer.channels), state)
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
        for member in self.members:
            member.eval()

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
        found: list[Ended] = []
        if len(now.slots):
            held = self.waiting.count[now.slots].copy()
            found = self._take_in(now.after(self.waiting.take(now.slots)), held)
        self.waiting.put(rows.some(patient))
        return replace(self._events(found), dropped=rows.dropped)

    def _can_wait(self, rows: Arrivals) -> npt.NDArray[np.bool_]:
        """``(g,)`` streams that have begun, have room, and end no window with these rows."""
        slots = rows.slots
        known = {name: self.rows[name][slots] for name in ("start", "window", "points")}
        last = rows.times[rows.offsets[1:] - 1] - known["start"]
        count = self.waiting.count[slots] + rows.lengths
        open_ = (known["points"] > 0) & ~self.tokens.ends(known, last, count)
        return np.asarray(open_ & self.waiting.has_room(rows))

    def _remembered(self, slots: Ints) -> dict[str, Tensor]:
        """What these streams remember of their tokens: a copy, unless it is all streams."""
        if self._everyone(slots):
            return self.kept
        which = torch.from_numpy(slots)
        return {name: rows.index_select(0, which) for name, rows in self.kept.items()}

    def _everyone(self, slots: Ints) -> bool:
        return len(slots) == len(self.last) and bool((slots[1:] > slots[:-1]).all())

    def _take_in(self, rows: Arrivals, held: Ints) -> list[Ended]:
        """Rows go into their windows; ``held (g,)`` of them had waited, should this fail."""
        try:
            self._check_room(rows)
        except (InputError, CapacityError):
            # They wait on: nothing has changed.
            first = np.arange(len(rows.times)) - np.repeat(rows.offsets[:-1], rows.lengths)
            old = first < np.repeat(held, rows.lengths)
            offsets = np.concatenate([[0], np.cumsum(held)])
            self.waiting.put(Arrivals(rows.slots, offsets, rows.times[old], rows.values[old], 0))
            raise
        return self._advance(rows, wait=True)

    def _check_room(self, rows: Arrivals) -> None:
        """Refuse more windows than can be, before anything changes."""
        slots = rows.slots
        begun = self.rows["points"][slots] > 0
        start = np.where(begun, self.rows["start"][slots], rows.times[rows.offsets[:-1]])
        span = rows.times[rows.offsets[1:] - 1] - start
        points = self.rows["points"][slots].astype(np.int64) + rows.lengths
        most = _MOST_WINDOWS if self.endless else min(self.most, _MOST_WINDOWS)
        rough = (points if self.rule.rule == "points" else span) / self.rule.amount
        if rough.max() < most - 2:
            return
        window = window_count(self.rule, torch.from_numpy(span), torch.from_numpy(points)) - 1
        open_ = torch.from_numpy(self.rows["window"][slots].astype(np.int64))
        passed = int((window - open_).max())
        if passed > _MOST_WINDOWS:
            raise InputError(
                f"{passed} windows of a stream would end with one push, more than "
                f"{_MOST_WINDOWS}; is a time in another unit? Begin a stream anew after so long a "
                "gap"
            )
        if not self.endless and int(window.max()) >= self.most:
            raise CapacityError(
                f"stream {slots[int(window.argmax())]} would have more than {self.most} windows, "
                "and this model attends to all of them: train with context=, which bounds what a "
                "stream remembers, or allow more with max_windows="
            )

    def _advance(self, rows: Arrivals, wait: bool) -> list[Ended]:
        """Take in all rows, window after window; ``wait``: rows that end none may wait."""
        found: list[Ended] = []
        while len(rows.slots):
            piece, tokens = self._step(rows, np.minimum(self._count(rows), _ROWS_AT_ONCE))
            if tokens is not None:
                ended = piece.ended.numpy()
                found.append(self._close(rows.slots[ended], piece, tokens, ended))
            rows = rows.behind(piece.taken.numpy())
            if wait and len(rows.slots):
                patient = self._can_wait(rows)
                self.waiting.put(rows.some(patient))
                rows = rows.some(~patient)
        return found

    def _count(self, rows: Arrivals) -> Ints:
        """``(g,)``: rows of the open windows, and the one behind them, which says that they end."""
        slots, first = rows.slots, rows.offsets[:-1]
        begun = self.rows["points"][slots] > 0
        start = np.where(begun, self.rows["start"][slots], rows.times[first])
        known = {
            name: np.repeat(self.rows[name][slots], rows.lengths) for name in ("points", "window")
        }
        place = np.arange(len(rows.times)) - np.repeat(first, rows.lengths)
        inside = self.tokens.inside(known, rows.times - np.repeat(start, rows.lengths), place)
        count = np.add.reduceat(inside, first, dtype=np.int64) + 1
        return np.asarray(np.minimum(count, rows.lengths))

    def _step(self, rows: Arrivals, count: Ints) -> tuple[Piece, Tensor | None]:
        """One step of these streams, with the first ``count (g,)`` rows of each; no tokens if no
        window ends.
        """
        slots, most = rows.slots, len(rows.times) - 1
        # Behind the count stands what comes next, which the step does not look at.
        source = np.minimum(rows.offsets[:-1, None] + np.arange(int(count.max())), most)
        values, times = rows.values[source], rows.times[source]
        with torch.inference_mode():
            new, piece, tokens = self.tokens.extend(
                self._remembered(slots),
                torch.from_numpy(values),
                torch.from_numpy(times),
                torch.from_numpy(count),
            )
            which = torch.from_numpy(slots)
            for name, part in new.items():
                self.kept[name].index_copy_(0, which, part.double())
        return piece, tokens

    # What comes out

    def _close(
        self, slots: Ints, piece: Piece, tokens: Tensor, ended: npt.NDArray[np.bool_]
    ) -> Ended:
        """Windows of these streams end where they are."""
        over = torch.from_numpy(ended)
        window, now = piece.window[over], piece.now[over]
        output = self._run(slots, tokens[over], now, window, commit=True)
        self.last[slots] = output.reshape(len(slots), *self.last.shape[1:]).numpy()
        start = self.kept["start"][torch.from_numpy(slots)]
        return slots, window.numpy(), (start + now).numpy(), output

    @torch.inference_mode()
    def _run(
        self, slots: Ints, tokens: Tensor, now: Tensor, window: Tensor, commit: bool
    ) -> Tensor:
        """Outputs of the model ``(s, n[, k])`` for windows as they are ``now``; ``commit``: they
        are over.
        """
        which = torch.from_numpy(slots)
        times = (now / self.tokenizer.time_unit).float()
        static = torch.from_numpy(self.static[slots]) if self.static.shape[1] else None
        answers: list[Tensor] = []
        # All streams at once need no copy of what they remember.
        everyone = commit and self._everyone(slots)
        for member, rings in zip(self.members, self.rings, strict=True):
            past = rings if everyone else [ring.index_select(0, which) for ring in rings]
            kept, answer = member.step_tokens(
                past, tokens.unsqueeze(1), times.unsqueeze(1), static, window, None
            )
            if commit and not everyone:
                for ring, new in zip(rings, kept, strict=True):
                    ring.index_copy_(0, which, new)
            answers.append(answer[:, 0])
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
            self._advance(self.waiting.take(some), wait=False)
        known = self._remembered(slots)
        nothing = torch.full((len(slots), 1, len(self.tokenizer.channels)), torch.nan)
        with torch.inference_mode():
            _, piece, tokens = self.tokens(
                known,
                nothing,
                torch.zeros(len(slots), 1),
                torch.zeros(len(slots), dtype=torch.int64),
            )
        # At a window's end there is nothing newer than what was said then.
        moved = (known["window"] == 0) | (known["time"] > known["opened"])
        output = self.predictor.outputs.shaped(torch.zeros(0, int(np.prod(self.last.shape[1:]))))
        output = torch.from_numpy(self.last[slots]).reshape(len(slots), *output.shape[1:])
        if moved.any():
            output[moved] = self._run(
                slots[moved.numpy()], tokens[moved], piece.now[moved], piece.window[moved],
                commit=False,
            )  # fmt: skip
        return answers_of(self.predictor, output)

    def _events(self, found: list[Ended]) -> Events:
        if not found:
            return no_events(self.predictor)
        slot, window, time = (np.concatenate([part[i] for part in found]) for i in range(3))
        output = torch.cat([part[3] for part in found])
        return Events(slot, time, window, answers_of(self.predictor, output))
