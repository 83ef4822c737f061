"""Tokens of many streams, whose memory is rows of arrays: by the native kernel, or by the step.

The kernel takes the rows of a push, however many windows they end, in one call (``native/step.h``).
Without it ``TokenStep``, which defines what it computes, takes one window of each stream at a time.
"""

import ctypes
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.signatures import library
from roughformer.signatures.lifts import layout_of
from roughformer.signatures.torch_backend import in_transform
from roughformer.signatures.words import word_count
from roughformer.tokens.step import TokenStep
from roughformer.tokens.value_range import WORDS

if TYPE_CHECKING:
    from roughformer.tokens.tokenizer import Tokenizer

__all__ = ["StreamTokens", "WindowTokens", "stream_tokens"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Arrays = dict[str, npt.NDArray[Any]]
Given = dict[str, npt.NDArray[Any] | None]
_PLACES = ("global_at", "local_at", "clock_at", "seen_global_at", "seen_local_at")
_NUMBERS = 1 << 22  # in the tokens that a call of the kernel makes
_ROWS_AT_ONCE = 128  # of each stream, that a step of the definition looks at


class WindowTokens(NamedTuple):
    """``tokens (e, F)`` of windows, stream by stream, and their ``ends (e,)``, counted from each
    stream's first point.
    """

    tokens: Tensor
    ends: Floats


class StreamTokens:
    """Tokens by the definition. ``arrays`` are what the streams remember: a row for each, zeros for
    new ones, of the shapes that ``TokenStep`` says.
    """

    def __init__(self, tokenizer: "Tokenizer", arrays: Arrays) -> None:
        """The arrays are written to, and must stay where they are."""
        self.step, self.arrays = TokenStep(tokenizer), arrays
        self.n_channels = len(tokenizer.channels)
        self.rule = tokenizer.config.rule

    def ended(self, last: Floats, points: Floats) -> Floats:
        """``(g,)``: windows that have ended in streams with so many ``points`` in all, the last of
        them ``last (g,)`` after the first.
        """
        amount = self.rule.amount
        if self.rule.rule == "points":
            return np.asarray((points - 1) // int(amount))
        count = np.floor(last / amount)
        # The quotient is rounded; whether an end lies behind the last point is not.
        count -= count * amount > last
        count += (count + 1) * amount <= last
        return count

    def advance(
        self, slots: Ints, offsets: Ints, times: Floats, values: Floats, count: int
    ) -> Iterator[WindowTokens]:
        """Rows ``offsets[i] ... offsets[i + 1]`` of ``times (m,)`` and ``values (m, C)`` go into
        the windows of the stream ``slots[i]``. What is returned are the ``count`` windows that end,
        some at a time: all of a long push may be more than fits into memory.
        """
        at, end = offsets[:-1].copy(), offsets[1:]
        owners, parts = [], []
        left = np.arange(len(slots))
        while len(left):
            size = np.minimum(end[left] - at[left], _ROWS_AT_ONCE)
            # Behind the rows of a stream stand others, which the step does not look at.
            source = np.minimum(at[left][:, None] + np.arange(int(size.max())), len(times) - 1)
            found = self._stepped(slots[left], values[source], times[source], size, write=True)
            tokens, now, taken, over = found
            owners.append(left[over])
            parts.append((tokens[torch.from_numpy(over)], now[over]))
            at[left] += taken
            left = left[at[left] < end[left]]
        if count == 0:
            return
        order = np.argsort(np.concatenate(owners), kind="stable")
        tokens = torch.cat([part[0] for part in parts])[torch.from_numpy(order)]
        yield WindowTokens(tokens, np.concatenate([part[1] for part in parts])[order])

    def open_windows(self, slots: Ints) -> WindowTokens:
        """Open windows as they are now."""
        nothing = np.full((len(slots), 1, self.n_channels), np.nan)
        none = np.zeros(len(slots), dtype=np.int64)
        when = np.zeros((len(slots), 1))
        tokens, now, _, _ = self._stepped(slots, nothing, when, none, write=False)
        return WindowTokens(tokens, now)

    @torch.inference_mode()
    def _stepped(
        self, slots: Ints, values: Floats, times: Floats, lengths: Ints, write: bool
    ) -> tuple[Tensor, Floats, Ints, npt.NDArray[np.bool_]]:
        """Tokens, where the streams are then, how many rows were taken, and which windows ended."""
        state = {name: torch.from_numpy(rows[slots]) for name, rows in self.arrays.items()}
        given = (torch.from_numpy(part) for part in (values, times, lengths))
        new, piece, tokens = self.step(state, *given)
        for name, part in new.items() if write else ():
            self.arrays[name][slots] = part.numpy()
        return tokens, piece.now.numpy(), piece.taken.numpy(), piece.ended.numpy()


class _NativeTokens(StreamTokens):
    """The same by the kernel."""

    def __init__(self, tokenizer: "Tokenizer", arrays: Arrays) -> None:
        super().__init__(tokenizer, arrays)
        config, channels = tokenizer.config, tokenizer.channels
        self.views, self.layout = config.views, None
        places = dict.fromkeys(_PLACES, -1)
        clock, width, time_scale, basepoint = None, 0, 0.0, False
        if config.depth:
            self.layout = tokenizer.layout
            lifts = self.layout.lifts[self.views[0]]
            time_scale = 1.0 / tokenizer.time_unit if lifts.time is not None else 0.0
            basepoint = lifts.basepoint
            # The kernel writes signatures; their logarithms are taken of all windows at once.
            words = layout_of(channels, config.depth, self.views, tokenizer.lifts)
            places |= {f"{view}_at": words.at(view) for view in self.views}
            width = words.size
            if "local" in self.views:
                clock, places["clock_at"] = words.lifts["local"].clock, words.clock_at("local")
        for view in self.views if tokenizer.value_range is not None else ():
            places[f"seen_{view}_at"] = width
            width += len(channels) * len(WORDS[view])
        turns = np.zeros(16)
        if clock is not None:
            turns = np.concatenate([np.asarray(clock.frequencies) / (2 * np.pi), turns])
        known = tokenizer.value_range
        bounds = np.zeros((4, len(channels)))
        if known is not None:
            bounds[:] = known.low, known.high, known.mean, known.scale
        by_points = self.rule.rule == "points"
        self._held = turns, bounds  # the kernel looks at them
        self._job = library.Step(
            **{name: rows.ctypes.data for name, rows in arrays.items()},
            **places,
            turns=turns.ctypes.data,
            range=bounds.ctypes.data,
            width=width,
            n_frequencies=len(turns) - 16,
            context=config.context or 0,
            ring=max(tokenizer.recent - 1, 1),
            recent_windows=tokenizer.recent,
            points_each=int(self.rule.amount) if by_points else 0,
            duration=0.0 if by_points else self.rule.amount,
            time_scale=time_scale,
            time_unit=tokenizer.time_unit,
            fastest=float(np.abs(turns).max()),
            channels=len(channels),
            depth=config.depth,
            basepoint=basepoint,
        )

    def advance(
        self, slots: Ints, offsets: Ints, times: Floats, values: Floats, count: int
    ) -> Iterator[WindowTokens]:
        given: Given = {
            "slots": np.ascontiguousarray(slots, np.int64),
            "offsets": np.ascontiguousarray(offsets, np.int64),
            "times": np.ascontiguousarray(times, np.float64),
            "values": np.ascontiguousarray(values, np.float64),
        }
        # The kernel stops where there is no more room, so that there must be some left at the end.
        room = min(count, _NUMBERS // self._job.width) + 1
        self._job.next = self._job.next_row = 0
        while self._job.next < len(slots):
            found = self._call(given, room)
            if len(found.ends):
                yield found

    def open_windows(self, slots: Ints) -> WindowTokens:
        self._job.next = 0
        given: Given = {"slots": np.ascontiguousarray(slots, np.int64)}
        return self._call(given | dict.fromkeys(("offsets", "times", "values")), len(slots))

    def _call(self, given: Given, room: int) -> WindowTokens:
        """One call of the kernel, which says how far it has come."""
        tokens, ends = np.empty((room, self._job.width)), np.empty(room)
        for name, array in (given | {"out": tokens, "ends": ends}).items():
            setattr(self._job, name, None if array is None else array.ctypes.data)
        slots = given["slots"]
        assert slots is not None
        self._job.n_slots, self._job.room = len(slots), room
        native = library.load()
        assert native is not None
        done = native.rf_step(ctypes.byref(self._job))
        if done < 0:
            raise MemoryError("the native kernel could not allocate its scratch memory")
        return WindowTokens(self._finished(torch.from_numpy(tokens[:done])), ends[:done])

    def _finished(self, tokens: Tensor) -> Tensor:
        """Signatures as the tokens have them."""
        if self.layout is None or self.layout.transform == "signature":
            return tokens.float()
        size = word_count(self.layout.dim(self.views[0]), self.layout.depth)
        words = [tokens[:, i * size : (i + 1) * size] for i in range(len(self.views))]
        parts = [in_transform(x, self.layout, v) for x, v in zip(words, self.views, strict=True)]
        return torch.cat([*parts, tokens[:, len(parts) * size :]], dim=-1).float()


def stream_tokens(tokenizer: "Tokenizer", arrays: Arrays) -> StreamTokens:
    """By the kernel if there is one."""
    kind = StreamTokens if library.load() is None else _NativeTokens
    return kind(tokenizer, arrays)
