"""Streams of a causal model: the windows of the offline model, one after the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.errors import CapacityError, InputError
from roughformer.inference import Predictor
from roughformer.model import RFormer
from roughformer.model.committee import Committee
from roughformer.model.rformer import why_no_step
from roughformer.series import SeriesBatch
from roughformer.stream.answers import Answers, Events, answers_of, no_events
from roughformer.stream.arrivals import Arrivals
from roughformer.stream.state import State
from roughformer.tokens import Tokenizer
from roughformer.tokens.step import TokenStep
from roughformer.tokens.streams import WindowTokens, stream_tokens

__all__ = ["CausalStreams", "check_streams"]

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
    return list(model.members) if isinstance(model, Committee) else [model]


def _numbered(count: Ints) -> Ints:
    """0, 1, ... for the first of ``count``, then from 0 on for the next, and so on."""
    return np.asarray(np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count))


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
        shapes = TokenStep(self.tokenizer).shapes
        self.rows = {name: state.add(name, shape, np.float64) for name, shape in shapes.items()}
        self.tokens = stream_tokens(self.tokenizer, self.rows)
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
                return f"{name} is no number of {name}"
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

    def push(self, rows: Arrivals) -> Events:
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

    def _count(self, rows: Arrivals, first: Ints) -> Ints:
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
                f"{_MOST_WINDOWS}; is a time in another unit? Begin a stream anew after so long a "
                "gap"
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
            output = self._said(slot[at], ended.tokens[place], times[place], window[at])
            newest = output[:, -1].reshape(len(at), *self.last.shape[1:])
            self.last[slot[at]] = newest.numpy()
            outputs.append(output.flatten(0, 1))
            places.append(place.flatten())
            at += size
            at, end = at[at < end], end[at < end]
        if len(outputs) == 1:
            return outputs[0]
        return torch.cat(outputs)[torch.cat(places).argsort()]

    def _said(
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
        assert isinstance(committee, Committee)
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
            some = torch.from_numpy(moved)
            times = (torch.from_numpy(open_.ends[moved]) / self.tokenizer.time_unit).float()
            tokens = open_.tokens[some].unsqueeze(1)
            answer = self._said(slots[moved], tokens, times.unsqueeze(1), window[moved], over=False)
            output[some] = answer[:, 0]
        return answers_of(self.predictor, output)
