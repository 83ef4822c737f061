"""Tokens of streams, one piece of a window after the other: the same words as of whole series.

``TokenStep`` is the definition: a step takes in the points of each stream up to the end of the
window that is open, and no further. What a stream remembers is a fixed set of tensors, one row for
each stream; a new stream is zeros. ``stream_tokens`` does so for many streams whose memory is rows
of arrays; on a CPU the native kernel takes the rows of a push, however many windows they end, in
one call (``native/step.h``).
"""

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.signatures import (
    Layout,
    Windows,
    library,
    piece_clock_words,
    piece_signature,
    word_count,
)
from roughformer.signatures.torch_backend import (
    Levels,
    as_levels,
    as_words,
    at_rows,
    blocks_of,
    in_transform,
    inside_of,
    jump,
    multiply,
    number,
    observation_order,
)
from roughformer.tokens.fitted import WORDS
from roughformer.tokens.padded import Counted, PaddedTokens, scaled, stacked_words, words_of

State = dict[str, Tensor]
Shapes = dict[str, tuple[int, ...]]
_SUMS = ("n", "x", "xx", "t", "tt", "tx")
_KEPT = (*_SUMS, "low", "high", "first", "last", "begin", "when")
_RECENT = ("n", "x", "low", "high")


class TokenStep:
    """One step of the tokens of a causal tokenizer; ``shapes`` are those of what it remembers."""

    def __init__(self, padded: PaddedTokens) -> None:
        """For windows by duration or by points, whose paths hold."""
        self.shapes: Shapes = {}
        self._take = _Taking(padded.rule, padded.n_channels, self.shapes)
        self._parts: list[_Words | _Observations] = []
        if padded.layout is not None:
            self._parts.append(_Words(padded.layout, padded.context, self.shapes))
        if padded.values is not None:
            self._parts.append(_Observations(padded, self.shapes))

    def __call__(
        self, state: State, values: Tensor, times: Tensor, lengths: Tensor
    ) -> tuple[State, "Piece", Tensor]:
        """New points ``values (B, P, C)`` (NaN = not observed), ``times (B, P)``, ``lengths (B,)``
        (0 = none) -> what the streams remember then, what was taken in, and the tokens ``(B, F)``
        of the open windows as they are then.
        """
        new: State = {}
        piece = self._take(values, times, lengths, state, new)
        tokens = torch.cat([part(piece, state, new) for part in self._parts], dim=-1)
        return new, piece, tokens.float()


def per_stream(which: Tensor, yes: Tensor | float, no: Tensor) -> Tensor:
    """``yes`` for the streams ``which (B,)``, ``no (B, ...)`` for the others."""
    return torch.where(which.reshape(-1, *[1] * (no.dim() - 1)), yes, no)


class Piece(NamedTuple):
    """The path goes on through the corners ``times (B, P + 2)``, from each stream's first point on,
    and ``x (B, P + 2, C)``: from where it was, through the points, to where it is now. Corners may
    be repeated: nothing moves between them.

    ``since (B, P)``, ``values (B, P, C)`` and ``seen (B, P, C)``: the points, 0 and False where
    nothing was observed or taken. ``taken (B,)``: points that were. ``fresh``, ``ended (B,)``:
    whether the stream begins, and whether its window ends. ``opened (B,)``: when that began;
    ``window (B,)``: its number.
    """

    times: Tensor
    x: Tensor
    since: Tensor
    values: Tensor
    seen: Tensor
    taken: Tensor
    fresh: Tensor
    ended: Tensor
    opened: Tensor
    window: Tensor

    @property
    def now(self) -> Tensor:
        """``(B,)``: where the stream is, from its first point on."""
        return self.times[:, -1]

    @property
    def begin(self) -> Tensor:
        """``(B, C)``: values where the piece begins."""
        return self.x[:, 0]


class _Taking:
    """Cuts by ``rule``, by duration or by points."""

    def __init__(self, rule: Windows, n_channels: int, shapes: Shapes) -> None:
        """What it remembers is added to ``shapes``."""
        self.rule = rule
        for name in ("start", "time", "opened", "window", "points"):
            shapes[name] = ()
        shapes["held"] = (n_channels,)

    def __call__(
        self, values: Tensor, times: Tensor, lengths: Tensor, old: State, new: State
    ) -> Piece:
        """``values (B, P, C)``, ``times (B, P)``, ``lengths (B,)``, 0 = none."""
        real = inside_of(lengths, values.shape[1])
        fresh = (old["points"] == 0) & (lengths > 0)
        start = torch.where(fresh, times[:, 0].double(), old["start"])
        since = times.double() - start.unsqueeze(1)
        window = old["window"].to(torch.int64)
        if self.rule.rule == "points":
            final = (old["window"] + 1) * int(self.rule.amount)
            place = torch.arange(since.shape[1], device=since.device)
            inside = real & ((old["points"].unsqueeze(1) + place) <= final.unsqueeze(1))
            ended = old["points"] + lengths > final
        else:
            end = (old["window"] + 1) * number(self.rule.amount, since)
            inside = real & (since <= end.unsqueeze(1))  # a point at the end is of the window
            ended = torch.where(real, since, -torch.inf).amax(dim=1) >= end
        taken = inside.to(torch.int64).sum(dim=1)
        last = since.gather(1, (taken - 1).clamp(min=0).unsqueeze(1))[:, 0]
        now = torch.where(taken > 0, last, old["time"])
        if self.rule.rule == "duration":
            now = torch.where(ended, end, now)
        seen = inside.unsqueeze(-1) & ~values.isnan()
        clean = torch.where(seen, values.double(), 0.0)
        count, place = observation_order(seen)
        # The last value is held on, also over the points that are not taken.
        x = torch.where(
            count > 0, clean.gather(1, place.gather(1, count)), old["held"].unsqueeze(1)
        )
        begin = torch.where(fresh.unsqueeze(1), x[:, 0], old["held"])
        until = torch.where(inside, since, now.unsqueeze(1))
        new |= {
            "start": start,
            "time": now,
            "opened": per_stream(ended, now, old["opened"]),
            "window": old["window"] + ended.double(),  # whole numbers times a float are float32
            "points": old["points"] + taken,
            "held": x[:, -1],
        }
        return Piece(
            torch.cat([old["time"].unsqueeze(1), until, now.unsqueeze(1)], dim=1),
            torch.cat([begin.unsqueeze(1), x, x[:, -1:]], dim=1),
            torch.where(inside, since, 0.0),
            clean,
            seen,
            taken,
            fresh,
            ended,
            old["opened"],
            window,
        )


class _Words:
    """The local signature S of the open window grows by Chen's relation, S ⊗ S(piece); at its end
    the global one grows by S, or the rings of products of 1, 2, 4, ... windows of a context.
    """

    def __init__(self, layout: Layout, context: int | None, shapes: Shapes) -> None:
        """What it remembers is added to ``shapes``."""
        self.layout, self.context = layout, context
        self.depth, views = layout.depth, layout.views
        self.lifts = layout.lifts[views[0]]  # views differ in their clocks only
        self.clock = layout.lifts["local"].clock if "local" in views else None
        self.dim = layout.dim(views[0])
        channels, words = len(layout.channels), word_count(self.dim, self.depth)
        shapes["local"] = (words,)
        shapes["begin"] = (channels,)  # values where the window begins
        if self.clock is not None:
            shapes["clocks"] = (channels, 2, self.clock.count)
        if "global" in views and context is None:
            shapes["whole"] = (words,)
            shapes["first"] = (channels,)
        elif "global" in views:
            assert context is not None
            shapes["rings"] = (2 * blocks_of(context)[0] - 1, words)
            shapes["starts"] = (context, channels)

    def __call__(self, piece: Piece, old: State, new: State) -> Tensor:
        """``(B, F)``: words of the open windows as they are now."""
        fresh = piece.fresh.unsqueeze(1)
        begin = torch.where(fresh, piece.begin, old["begin"])
        local = multiply(self._levels(old["local"]), self._of_piece(piece))
        new["local"] = per_stream(piece.ended, 0.0, as_words(local))
        new["begin"] = per_stream(piece.ended, piece.x[:, -1], begin)
        parts = []
        for view in self.layout.views:
            levels, start = local, begin
            if view == "global" and self.context is None:
                levels = multiply(self._levels(old["whole"]), local)
                start = torch.where(fresh, begin, old["first"])
                new["whole"] = per_stream(piece.ended, as_words(levels), old["whole"])
                new["first"] = start
            elif view == "global":
                levels, start = self._over_context(local, begin, piece, old, new)
            if self.lifts.basepoint:
                levels = multiply(jump(start, self.lifts.time is not None, self.depth), levels)
            parts.append(in_transform(as_words(levels), self.layout, view))
        if self.clock is not None:
            turns = old["clocks"] + self._turns(piece).transpose(2, 3)
            new["clocks"] = per_stream(piece.ended, 0.0, turns)
            parts.append(turns.transpose(2, 3).flatten(1))
        return torch.cat(parts, dim=-1)

    def _levels(self, words: Tensor) -> Levels:
        return as_levels(words, self.dim, self.depth)

    def _of_piece(self, piece: Piece) -> Levels:
        """Levels ``(B, d^k)`` of the piece."""
        time = self.lifts.time
        assert time is None or time.unit is not None
        unit = 0.0 if time is None or time.unit is None else time.unit
        return self._levels(piece_signature(piece.x, piece.times, self.depth, unit))

    def _turns(self, piece: Piece) -> Tensor:
        """Clock words ``(B, C, J, 2)`` of the piece, on the clock of its window."""
        assert self.clock is not None
        assert self.clock.frequencies is not None
        return piece_clock_words(piece.x, piece.times, piece.opened, self.clock.frequencies)

    def _over_context(
        self, local: Levels, begin: Tensor, piece: Piece, old: State, new: State
    ) -> tuple[Levels, Tensor]:
        """Levels over the last windows up to now, and the values where those begin ``(B, C)``."""
        size, window = self.context, piece.window
        assert size is not None
        wanted = blocks_of(size)
        lengths = [1 << bit for bit in range(wanted[0].bit_length())]
        later = wanted[-2::-1]  # blocks behind the newest one, from the smallest on
        backs = [sum(wanted[len(wanted) - 1 - i :]) for i in range(len(later))]
        # Places in the rings of products of 1, 2, 4, ... windows, one ring behind the other.
        sizes = torch.tensor([*lengths, *later], device=window.device)
        shift = torch.tensor([0] * len(lengths) + backs, device=window.device)
        since = window.unsqueeze(1) - shift
        places = sizes - 1 + torch.remainder(since, sizes)
        rings = old["rings"]
        kept = at_rows(rings, places)
        # Nothing was there before the first window.
        earlier = torch.where((since >= 0).unsqueeze(-1), kept, 0.0)[:, len(lengths) :]
        blocks = [local]
        for i in range(len(lengths) - 1):
            blocks.append(multiply(self._levels(kept[:, i]), blocks[-1]))
        product = blocks[lengths.index(wanted[-1])]
        for i in range(len(later)):
            product = multiply(self._levels(earlier[:, i]), product)
        rows = torch.stack([as_words(block) for block in blocks], dim=1)
        rows = per_stream(piece.ended, rows, kept[:, : len(lengths)])
        new["rings"] = _with_rows(rings, places[:, : len(lengths)], rows)
        here, starts = window % size, old["starts"]
        begun = per_stream(piece.ended, begin, _row(starts, here))
        new["starts"] = _with_rows(starts, here.unsqueeze(1), begun.unsqueeze(1))
        oldest = (window - size + 1).clamp(min=0)
        first = per_stream(oldest < window, _row(starts, oldest % size), begin)
        return product, first


def _row(x: Tensor, at: Tensor) -> Tensor:
    """``x (B, M, F)``, ``at (B,)`` -> ``(B, F)``."""
    return at_rows(x, at.unsqueeze(1))[:, 0]


def _with_rows(x: Tensor, at: Tensor, rows: Tensor) -> Tensor:
    """``x (B, M, F)`` with ``rows (B, N, F)`` in the places ``at (B, N)``."""
    return x.scatter(1, at.unsqueeze(-1).expand(-1, -1, x.shape[2]), rows)


class _Observations:
    """What the channels were seen to do: in the open window, in those before it, and in each of the
    last ones.
    """

    def __init__(self, padded: PaddedTokens, shapes: Shapes) -> None:
        """What it remembers is added to ``shapes``."""
        self.padded, self.size = padded, max(padded.recent - 1, 1)
        channels = padded.n_channels
        shapes["seen"] = shapes["past"] = (len(_KEPT), channels)
        shapes["recent"] = (len(_RECENT), self.size, channels)

    def __call__(self, piece: Piece, old: State, new: State) -> Tensor:
        """``(B, F)``: words of the open windows as they are now."""
        seen, past = _counted(old["seen"]), _counted(old["past"])
        now = _joined(seen, self._of_piece(piece, seen, past))
        whole = _joined(past, now)
        new["seen"] = per_stream(piece.ended, 0.0, _block(now, _KEPT))
        new["past"] = per_stream(piece.ended, _block(whole, _KEPT), old["past"])
        slot = torch.arange(self.size, device=piece.x.device)
        own = (slot == (piece.window % self.size).unsqueeze(1))[:, None, :, None]
        kept = torch.where(own, _block(now, _RECENT).unsqueeze(2), old["recent"])
        new["recent"] = per_stream(piece.ended, kept, old["recent"])
        half, unit = self.padded.recent, self.padded.unit
        recent, latest = (
            self._last(now, piece.window, old, size) for size in (half, max(half // 2, 1))
        )
        words = words_of(now, whole, recent, latest, piece.now.unsqueeze(-1), unit)
        return stacked_words(words, self.padded.views)

    def _of_piece(self, piece: Piece, window: Counted, past: Counted) -> Counted:
        """Of the points that were taken, each ``(B, C)``; sums count from the first observation of
        the stream: those of large numbers would lose their digits.
        """
        assert self.padded.values is not None
        seen = piece.seen
        z = torch.where(seen, scaled(piece.values, self.padded.values), 0.0)
        when = torch.where(seen, piece.since.unsqueeze(-1), 0.0)
        count, place = observation_order(seen)
        last = place.gather(1, count[:, -1:])
        own = {
            "first": z.gather(1, place[:, 1:2])[:, 0],
            "begin": when.gather(1, place[:, 1:2])[:, 0],
        }
        x, t = (
            torch.where(seen, what - _earliest(name, past, window, own).unsqueeze(1), 0.0)
            for what, name in ((z, "first"), (when, "begin"))
        )
        return own | {
            "n": seen.double().sum(dim=1),
            "x": x.sum(dim=1),
            "xx": (x * x).sum(dim=1),
            "t": t.sum(dim=1),
            "tt": (t * t).sum(dim=1),
            "tx": (t * x).sum(dim=1),
            "low": torch.where(seen, z, torch.inf).amin(dim=1),
            "high": torch.where(seen, z, -torch.inf).amax(dim=1),
            "last": z.gather(1, last)[:, 0],
            "when": when.gather(1, last)[:, 0],
        }

    def _last(self, now: Counted, window: Tensor, old: State, size: int) -> Counted:
        """Over the last ``size`` windows, the open one included."""
        slot = torch.arange(self.size, device=window.device)
        # How many windows ago each entry of the ring was written, from 1 on.
        age = torch.remainder(window.unsqueeze(1) - 1 - slot, self.size) + 1
        there = ((age <= window.unsqueeze(1)) & (age < size)).unsqueeze(-1)
        ring = dict(zip(_RECENT, old["recent"].unbind(dim=1), strict=True))
        used = there & (ring["n"] > 0)
        return {
            "n": now["n"] + torch.where(used, ring["n"], 0.0).sum(dim=1),
            "x": now["x"] + torch.where(used, ring["x"], 0.0).sum(dim=1),
            "low": torch.minimum(now["low"], torch.where(used, ring["low"], torch.inf).amin(1)),
            "high": torch.maximum(now["high"], torch.where(used, ring["high"], -torch.inf).amax(1)),
        }


def _earliest(name: str, past: Counted, window: Counted, piece: Counted) -> Tensor:
    """That of the first stretch with observations."""
    later = torch.where(window["n"] > 0, window[name], piece[name])
    return torch.where(past["n"] > 0, past[name], later)


def _counted(block: Tensor) -> Counted:
    """``(B, 12, C)`` -> what it holds, by name."""
    return dict(zip(_KEPT, block.unbind(dim=1), strict=True))


def _block(counted: Counted, names: tuple[str, ...]) -> Tensor:
    """The way back: ``(B, names, C)``. With 0 for the extremes of nothing: new streams are zeros,
    and no state is infinite.
    """
    observed = counted["n"] > 0
    finite = {name: torch.where(observed, counted[name], 0.0) for name in ("low", "high")}
    return torch.stack([(counted | finite)[name] for name in names], dim=1)


def _joined(a: Counted, b: Counted) -> Counted:
    """What was seen in one stretch and in the next one; of one without observations only ``n`` and
    the sums count, since new streams are zeros.
    """
    before, after = a["n"] > 0, b["n"] > 0
    joined = {name: a[name] + b[name] for name in _SUMS}
    lows = [torch.where(before, a["low"], torch.inf), torch.where(after, b["low"], torch.inf)]
    highs = [torch.where(before, a["high"], -torch.inf), torch.where(after, b["high"], -torch.inf)]
    joined["low"], joined["high"] = torch.minimum(*lows), torch.maximum(*highs)
    joined["first"] = torch.where(before, a["first"], b["first"])
    joined["begin"] = torch.where(before, a["begin"], b["begin"])
    joined["last"] = torch.where(after, b["last"], a["last"])
    joined["when"] = torch.where(after, b["when"], a["when"])
    return joined


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

    def __init__(self, padded: PaddedTokens, arrays: Arrays) -> None:
        """The arrays are written to, and must stay where they are."""
        self.step, self.arrays = TokenStep(padded), arrays
        self.n_channels, self.rule = padded.n_channels, padded.rule

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
            tokens, now, taken, over = self._stepped(
                slots[left], values[source], times[source], size, write=True
            )
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

    def __init__(self, padded: PaddedTokens, arrays: Arrays) -> None:
        super().__init__(padded, arrays)
        self.views, self.layout = padded.views, padded.layout
        places = dict.fromkeys(_PLACES, -1)
        clock, width, time_scale, basepoint = None, 0, 0.0, False
        if self.layout is not None:
            lifts = self.layout.lifts[self.views[0]]
            time_scale = 1.0 / padded.unit if lifts.time is not None else 0.0
            basepoint = lifts.basepoint
            # The kernel writes signatures; their logarithms are taken of all windows at once.
            words = replace(self.layout, transform="signature")
            places |= {f"{view}_at": words.at(view) for view in self.views}
            width = words.size
            if "local" in self.views:
                clock, places["clock_at"] = words.lifts["local"].clock, words.clock_at("local")
        for view in self.views if padded.values is not None else ():
            places[f"seen_{view}_at"] = width
            width += padded.n_channels * len(WORDS[view])
        turns = np.zeros(16)
        if clock is not None:
            turns = np.concatenate([np.asarray(clock.frequencies) / (2 * np.pi), turns])
        known = padded.values
        bounds = np.zeros((4, padded.n_channels))
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
            context=padded.context or 0,
            ring=max(padded.recent - 1, 1),
            recent_windows=padded.recent,
            points_each=int(self.rule.amount) if by_points else 0,
            duration=0.0 if by_points else self.rule.amount,
            time_scale=time_scale,
            time_unit=padded.unit,
            fastest=float(np.abs(turns).max()),
            channels=padded.n_channels,
            depth=0 if self.layout is None else self.layout.depth,
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
            windows = self._call(given, room)
            if len(windows.ends):
                yield windows

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


def stream_tokens(padded: PaddedTokens, arrays: Arrays) -> StreamTokens:
    """By the kernel if there is one."""
    kind = StreamTokens if library.load() is None else _NativeTokens
    return kind(padded, arrays)
