"""Signature and clock words of streams, one piece of a window after the other: as
``stream/signatures.py``, dense.
"""

import torch
from torch import Tensor

from roughformer.export.clocks import waves
from roughformer.export.dense import at_rows, number
from roughformer.export.knots import Knots
from roughformer.export.packing import Packing, State, per_stream
from roughformer.export.taking import Piece
from roughformer.export.views import window_levels
from roughformer.signatures.twin import multiply
from roughformer.tokens import Tokenizer
from roughformer.tokens.context import as_levels, as_words, blocks_of, jump
from roughformer.words import word_count

__all__ = ["StepWords"]

Levels = list[Tensor]


class StepWords:
    """The local signature S of the open window grows by Chen's relation, S ⊗ S(piece); at its end
    the global one grows by S, or the rings of products of 1, 2, 4, ... windows of a context.
    """

    def __init__(self, tokenizer: Tokenizer, packing: Packing) -> None:
        """Its parts are added to ``packing``."""
        self.tokenizer, self.config = tokenizer, tokenizer.config
        self.depth, views = self.config.depth, self.config.views
        self.lifts = tokenizer.layout.lifts[views[0]]  # views differ in their clocks only
        self.clock = tokenizer.layout.lifts["local"].clock if "local" in views else None
        self.dim = tokenizer.layout.dim(views[0])
        channels, words = len(tokenizer.channels), word_count(self.dim, self.depth)
        packing.add("local", words)
        packing.add("begin", channels)  # values where the window begins
        if self.clock is not None:
            packing.add("clocks", channels, self.clock.count, 2)
        if "global" in views and self.config.context is None:
            packing.add("whole", words)
            packing.add("first", channels)
        elif "global" in views:
            assert self.config.context is not None
            packing.add("rings", 2 * blocks_of(self.config.context)[0] - 1, words)
            packing.add("starts", self.config.context, channels)

    def __call__(self, piece: Piece, old: State, new: State) -> Tensor:
        """``(B, F)``: words of the open windows as they are now."""
        begin = torch.where(piece.fresh.unsqueeze(1), piece.begin, old["begin"])
        local = multiply(self._levels(old["local"]), self._of_piece(piece))
        new["local"] = per_stream(piece.ended, 0.0, as_words(local))
        new["begin"] = per_stream(piece.ended, piece.x[:, -1], begin)
        parts = []
        for view in self.config.views:
            levels, start = local, begin
            if view == "global" and self.config.context is None:
                levels, start = self._since_start(local, begin, piece, old, new)
            elif view == "global":
                levels, start = self._over_context(local, begin, piece, old, new)
            if self.lifts.basepoint:
                levels = multiply(jump(start, self.lifts.time is not None, self.depth), levels)
            parts.append(self.tokenizer.in_transform(as_words(levels), self.dim))
        if self.clock is not None:
            turns = old["clocks"] + self._turns(piece)
            new["clocks"] = per_stream(piece.ended, 0.0, turns)
            parts.append(turns.flatten(1))
        return torch.cat(parts, dim=-1)

    def _levels(self, words: Tensor) -> Levels:
        return as_levels(words, self.dim, self.depth)

    def _of_piece(self, piece: Piece) -> Levels:
        """Levels ``(B, d^k)`` of the piece."""
        path = piece.x
        if self.lifts.time is not None:
            assert self.lifts.time.unit is not None
            clock = piece.times * number(1.0 / self.lifts.time.unit, path)
            path = torch.cat([clock.unsqueeze(-1), path], dim=-1)
        edge = torch.zeros_like(piece.taken).unsqueeze(1)
        at = torch.cat([edge, edge + (path.shape[1] - 1)], dim=1)  # one window: first, last corner
        none = torch.zeros_like(piece.times[:, 1:], dtype=torch.int64)
        knots = Knots(piece.times, at, none, none)
        levels = window_levels(path[:, 1:] - path[:, :-1], knots, self.depth, local=True)
        return [level[:, 0] for level in levels]

    def _turns(self, piece: Piece) -> Tensor:
        """Clock words ``(B, C, J, 2)`` of the piece, on the clock of its window."""
        assert self.clock is not None
        assert self.clock.frequencies is not None
        omega = torch.tensor(self.clock.frequencies, dtype=torch.float64, device=piece.x.device)
        times = piece.times - piece.opened.unsqueeze(1)
        middle, length = 0.5 * (times[:, 1:] + times[:, :-1]), times[:, 1:] - times[:, :-1]
        step = (piece.x[:, 1:] - piece.x[:, :-1]).transpose(1, 2)  # (B, C, P + 1)
        return torch.stack([step @ wave for wave in waves(middle, length, omega)], dim=-1)

    def _since_start(
        self, local: Levels, begin: Tensor, piece: Piece, old: State, new: State
    ) -> tuple[Levels, Tensor]:
        """Levels since the stream's start, and its values there ``(B, C)``."""
        levels = multiply(self._levels(old["whole"]), local)
        first = torch.where(piece.fresh.unsqueeze(1), begin, old["first"])
        new["whole"] = per_stream(piece.ended, as_words(levels), old["whole"])
        new["first"] = first
        return levels, first

    def _over_context(
        self, local: Levels, begin: Tensor, piece: Piece, old: State, new: State
    ) -> tuple[Levels, Tensor]:
        """Levels over the last windows up to now, and the values where those begin ``(B, C)``."""
        size, window = self.config.context, piece.window
        assert size is not None
        wanted = blocks_of(size)
        rings = kept = old["rings"]
        block, found, back, length = local, None, 0, 1
        while True:
            here = length - 1 + window % length  # in the ring of products of this length
            if length in wanted:
                part = block
                if back:  # nothing was there before the first window
                    earlier = _row(rings, length - 1 + (window - back) % length)
                    there = (window >= back).unsqueeze(1)
                    part = self._levels(torch.where(there, earlier, 0.0))
                found = part if found is None else multiply(part, found)
                back += length
            kept = _with_row(kept, here, as_words(block))
            if length >= wanted[0]:
                break
            block, length = multiply(self._levels(_row(rings, here)), block), 2 * length
        starts = _with_row(old["starts"], window % size, begin)
        new["rings"] = per_stream(piece.ended, kept, rings)
        new["starts"] = per_stream(piece.ended, starts, old["starts"])
        assert found is not None
        return found, _row(starts, (window - size + 1).clamp(min=0) % size)


def _row(x: Tensor, at: Tensor) -> Tensor:
    """``x (B, M, F)``, ``at (B,)`` -> ``(B, F)``."""
    return at_rows(x, at.unsqueeze(1))[:, 0]


def _with_row(x: Tensor, at: Tensor, row: Tensor) -> Tensor:
    """``x (B, M, F)`` with ``row (B, F)`` in the place ``at (B,)``."""
    place = torch.arange(x.shape[1], device=x.device) == at.unsqueeze(1)
    return torch.where(place.unsqueeze(-1), row.unsqueeze(1), x)
