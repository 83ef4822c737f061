"""Signature words of streams: those of the open window, and those of all before it.

The local signature S of the open window grows by Chen's relation, S ⊗ S(piece); at a window's end
the global one grows by S. Over a sliding context, products of 1, 2, 4, ... windows are kept instead
(``tokens/context.py``), each in a ring of as many entries. Clock words of a piece that begins τ
after its window are those of the piece, turned by ωτ. Everything is in float64.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.lifts import Basepoint, Clock, Lift
from roughformer.signatures.api import multiview_signature
from roughformer.stream.state import State
from roughformer.tokens import Tokenizer
from roughformer.tokens.context import as_words, blocks_of, jump
from roughformer.words import word_count

__all__ = ["RunningWords"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_MANY = 1 << 17  # points from which on a second thread pays
_ROOMY = 1 << 50  # bytes: the words of a window fit, there is no need to look


class RunningWords:
    """Signature and clock words of ``state.n`` streams, as ``tokenizer`` has them."""

    def __init__(self, tokenizer: Tokenizer, state: State) -> None:
        """Its arrays are added to ``state``."""
        self.tokenizer, config, n_channels = tokenizer, tokenizer.config, len(tokenizer.channels)
        self.config, self.views, self.depth = config, config.views, config.depth
        lifts = tokenizer.lifts
        layout = tokenizer.layout
        some = layout.lifts[self.views[0]]  # views differ in their clocks only
        self.with_time, self.basepoint = some.time is not None, some.basepoint
        self.dim = layout.dim(self.views[0])
        self.path_lifts: list[Lift] = [
            lift for lift in lifts[self.views[0]] if not isinstance(lift, Basepoint | Clock)
        ]
        ends = [word_count(self.dim, k) for k in range(self.depth + 1)]
        self._at = [slice(ends[k], ends[k + 1]) for k in range(self.depth)]  # levels in words
        words = ends[-1]
        self.local = state.add("local", (words,), np.float64)
        self.begin = state.add("begin", (n_channels,), np.float64)  # values where the window begins
        self.clock = next((x for x in lifts.get("local", ()) if isinstance(x, Clock)), None)
        if self.clock is not None:
            assert self.clock.frequencies is not None
            self.omega = np.asarray(self.clock.frequencies)
            shape = (n_channels, len(self.omega))
            self.clocks = state.add("clocks", shape, np.complex128)
        self.sliding = config.context if "global" in self.views else None
        if self.sliding is not None:
            self.blocks = blocks_of(self.sliding)
            size = 2 * self.blocks[0] - 1  # rings of 1, 2, 4, ... entries, one behind the other
            self.rings = state.add("rings", (size, words), np.float64)
            if self.basepoint:
                self.starts = state.add("starts", (self.sliding, n_channels), np.float64)
        elif "global" in self.views:
            self.whole = state.add("whole", (words,), np.float64)
            self.first = state.add("first", (n_channels,), np.float64)

    # Pieces of windows

    def of_pieces(self, paths: Any) -> tuple[Floats, Any]:
        """Signatures ``(P, words)`` of paths, and their clock words ``(P, C, J)`` complex, each
        from its own beginning.
        """
        lifts = [*self.path_lifts]
        if self.clock is not None:
            lifts.append(self.clock)
        found = multiview_signature(
            paths, 1, self.depth, "local", lifts=lifts, dtype=np.float64, precise=True,
            threads=1 if paths.n_points < _MANY else None, max_memory=_ROOMY,
        )[:, 0]  # fmt: skip
        words = found[:, : self.local.shape[1]]
        if self.clock is None:
            return words, None
        turns = found[:, self.local.shape[1] :].reshape(len(found), *self.clocks.shape[1:], 2)
        return words, turns[..., 0] + 1j * turns[..., 1]

    def begin_streams(self, slots: Ints, values: Floats) -> None:
        """Streams begin at ``values (s, C)``."""
        self.begin[slots] = values
        if self.sliding is None and "global" in self.views:
            self.first[slots] = values

    def extend(self, slots: Ints, words: Floats, clocks: Any, since: Floats) -> None:
        """Pieces that begin ``since (s,)`` after their windows continue the open windows."""
        self.local[slots] = self._product(self.local[slots], words)
        if self.clock is not None:
            turn = np.exp(1j * since[:, None] * self.omega)
            self.clocks[slots] += turn[:, None, :] * clocks

    def _product(self, a: Floats, b: Floats) -> Floats:
        """Chen's product of signatures ``(s, words)``; ``twin.multiply`` is for torch."""
        found = a + b
        for k in range(1, self.depth):
            for i in range(k):
                left, right = a[:, self._at[i]], b[:, self._at[k - 1 - i]]
                found[:, self._at[k]] += (left[:, :, None] * right[:, None, :]).reshape(len(a), -1)
        return found

    # Tokens

    def tokens(self, slots: Ints, window: Ints, commit: bool) -> Tensor:
        """``(s, F)`` float32, of windows ``window (s,)`` as they are now; ``commit``: they are
        over, and become part of the global view.
        """
        local = self.local[slots]
        whole = self._global(slots, window, local, commit) if "global" in self.views else local
        parts = []
        for view in self.views:
            words = local if view == "local" else whole
            if self.basepoint:
                start = torch.from_numpy(self._start(slots, window, view))
                base = jump(start, self.with_time, self.depth)
                words = self._product(as_words(base).numpy(), words)
            parts.append(self.tokenizer.in_transform(torch.from_numpy(words), self.dim).float())
        if self.clock is not None:
            turns = self.clocks[slots]
            both = np.stack([turns.real, turns.imag], axis=-1).reshape(len(slots), -1)
            parts.append(torch.from_numpy(both).float())
        return torch.cat(parts, dim=-1)

    def close(self, slots: Ints, window: Ints, values: Floats) -> None:
        """The next windows begin, with ``values (s, C)``."""
        if self.sliding is not None and self.basepoint:
            self.starts[slots, window % self.sliding] = self.begin[slots]
        self.local[slots] = 0.0
        self.begin[slots] = values
        if self.clock is not None:
            self.clocks[slots] = 0.0

    def _global(self, slots: Ints, window: Ints, local: Floats, commit: bool) -> Floats:
        if self.sliding is not None:
            return self._products(slots, window, local, commit)
        found = self._product(self.whole[slots], local)
        if commit:
            self.whole[slots] = found
        return found

    def _start(self, slots: Ints, window: Ints, view: str) -> Floats:
        """Values ``(s, C)`` where the view begins."""
        if view == "local":
            return self.begin[slots]
        if self.sliding is None:
            return self.first[slots]
        oldest = np.maximum(window - self.sliding + 1, 0)
        kept = self.starts[slots, oldest % self.sliding]
        return np.where((oldest < window)[:, None], kept, self.begin[slots])

    def _products(self, slots: Ints, window: Ints, local: Floats, commit: bool) -> Floats:
        """Signatures over the last windows up to this one; ``commit``: it is over."""
        block, found, back, length = local, None, 0, 1
        while True:
            ring = length - 1  # where the ring of blocks of this length begins
            here = ring + window % length
            old = self.rings[slots, here]
            if length in self.blocks:
                part = block if back == 0 else self.rings[slots, ring + (window - back) % length]
                if back:  # nothing was there before the first window
                    part = np.where((window >= back)[:, None], part, 0.0)
                found = part if found is None else self._product(part, found)
                back += length
            if commit:
                self.rings[slots, here] = block
            if length >= self.blocks[0]:
                assert found is not None
                return found
            block, length = self._product(old, block), 2 * length
