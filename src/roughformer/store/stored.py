"""Series of a store, read when they are asked for: data larger than memory to train on."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.store.manifest import Manifest
from roughformer.store.places import Place
from roughformer.store.shards import Rows, Tokens
from roughformer.store.shelf import MIXED, Shelf
from roughformer.tokens import Tokenizer

__all__ = ["StoredSeries"]

_SAMPLED_POINTS, _PLACES = 1_000_000, 32
Array = npt.NDArray[Any]
Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Covariates:
    static: npt.NDArray[np.float64]
    static_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.static)


class _Wanted:
    """Series of a store in the order of its row groups, each of which is needed once only.

    ``back (B,)``: where each of those asked for stands in that order. ``counts (G,)``: how many
    series of each row group may ever be asked for.
    """

    def __init__(self, shelf: Shelf, series: Index, counts: Index) -> None:
        self.shelf, self.counts = shelf, counts
        order = np.argsort(series, kind="stable")
        self.sorted = series[order]
        self.back = np.empty(len(series), dtype=np.int64)
        self.back[order] = np.arange(len(series))
        self.as_is = bool((order[1:] > order[:-1]).all())  # nothing to put back

    def rows(self, *, tokens: bool) -> Iterator[tuple[Rows, Index]]:
        """Row groups, and which of their series are wanted.

        One that is wanted as a whole is not kept in memory: only of others will more be wanted.
        """
        present, first = np.unique(self.shelf.group_of(self.sorted), return_index=True)
        ends = [*first, len(self.sorted)][1:]
        # What is in memory stays there until its turn comes, whatever is read before.
        held = self.shelf.held(present.tolist(), tokens=tokens)
        for group, start, end in zip(present.tolist(), first, ends, strict=True):
            at = self.sorted[start:end] - self.shelf.starts[group]
            keep = bool(end - start < self.counts[group])
            rows = held.pop(group, None) or self.shelf.rows(group, tokens=tokens, keep=keep)
            if not keep:
                self.shelf.forget(group, tokens=tokens)
            yield rows, at


@dataclass(frozen=True)
class StoredSeries:
    """Series ``which (B,)`` of a store, in that order. Labels ``(B,)`` are in memory; what else is
    asked for is read.
    """

    shelf: Shelf
    which: Index
    labels: Array | None = None

    @classmethod
    def open(cls, place: str | os.PathLike[str] | Place) -> "StoredSeries":
        """All series of the store at a path or URI."""
        where = Place.of(place)
        shelf = Shelf(where, Manifest.read(where))
        return cls(shelf, np.arange(len(shelf)), shelf.labels())

    def __len__(self) -> int:
        """B."""
        return len(self.which)

    @property
    def manifest(self) -> Manifest:
        """What the store holds."""
        return self.shelf.manifest

    @property
    def channels(self) -> tuple[str, ...]:
        """Their names."""
        return self.manifest.channels

    @property
    def n_channels(self) -> int:
        """C."""
        return len(self.channels)

    @property
    def n_points(self) -> int:
        """Of all series of the store."""
        return self.manifest.totals.points

    @property
    def tokenizer(self) -> Tokenizer | None:
        """What made the tokens, where the store holds them."""
        return self.manifest.tokenizer if "tokens" in self.manifest.holds else None

    @property
    def holds_series(self) -> bool:
        """Whether the store has the points, and not their tokens alone."""
        return "series" in self.manifest.holds

    @property
    def key(self) -> str:
        """A hash of the data and of which series of it these are."""
        numbers = hashlib.blake2b(np.ascontiguousarray(self.which).tobytes(), digest_size=16)
        return f"{self.manifest.key}-{numbers.hexdigest()}"

    @cached_property
    def _counts(self) -> Index:
        """``(G,)``: how many of the series are in each row group of the store."""
        return np.bincount(self.shelf.group_of(self.which), minlength=len(self.shelf.where))

    def part(self, which: Any) -> "StoredSeries":
        """Some of the series, by their numbers here; nothing is read."""
        labels = None if self.labels is None else self.labels[which]
        return StoredSeries(self.shelf, self.which[which], labels)

    def sample(self, n: int) -> "StoredSeries":
        """At most ``n`` of the series and about a million points, from places spread evenly over
        all: few places, because a row group is read as a whole.
        """
        totals = self.manifest.totals
        n = min(n, max(int(_SAMPLED_POINTS * totals.series / max(totals.points, 1)), 1))
        if n >= len(self):
            return self
        each = -(-n // _PLACES)
        starts = np.linspace(0, len(self) - each, n // each).round().astype(np.int64)
        return self.part((starts[:, None] + np.arange(each)).ravel())

    def shuffled(self, rng: np.random.Generator, size: int) -> Index:
        """The numbers 0 ... B-1 in a random order, for batches of ``size``, that needs few row
        groups at a time, and fewer for a part of each batch.

        Row groups at random, each with its series at random, stand in a line, which is cut into
        M = ``MIXED`` lanes. A batch of n takes n / M series of each lane: at place b the next one
        of lane floor(b M / n), and if n < M, of the lanes from that one to the one of place b + 1
        by turns, one a batch. So neighbours in a batch are of the same row groups, and a process
        with the same part of all batches reads that part of the row groups.
        """
        present, code = np.unique(self.shelf.group_of(self.which), return_inverse=True)
        line = np.lexsort((rng.random(len(self)), rng.permutation(len(present))[code]))
        batch, place = np.divmod(np.arange(len(self)), size)
        sizes = np.minimum(len(self) - batch * size, size)
        low, high = place * MIXED // sizes, (place + 1) * MIXED // sizes
        turn = np.where(sizes == size, batch, 0)  # a last batch of few has no turns
        lane = low + turn % np.maximum(high - low, 1)
        order = np.empty(len(self), dtype=np.int64)
        order[np.argsort(lane, kind="stable")] = line
        return order

    def __getitem__(self, which: Any) -> SeriesBatch:
        """Series by number, slice, list, array or mask, read into memory."""
        if not self.holds_series:
            raise InputError(
                f"the store {self.shelf.place} holds tokens only; to have the series too, make it "
                "with roughformer features --series"
            )
        wanted = _Wanted(self.shelf, np.atleast_1d(self.which[which]), self._counts)
        parts = [
            rows.series[at] for rows, at in wanted.rows(tokens=False) if rows.series is not None
        ]
        if not parts:
            return self._no_series()
        batch = SeriesBatch.concatenate(parts)
        return batch if wanted.as_is else batch[wanted.back]

    def inputs(self, which: Any) -> dict[str, Array]:
        """Stored tokens of series by number, slice, ...: ``tokens (B, L, F)``, ``times (B, L)``,
        and where they apply ``mask (B, L)``, ``spectrum (B, C, J)`` and ``static (B, S)``.
        """
        tokenizer = self.tokenizer
        if tokenizer is None:
            raise InputError(f"the store {self.shelf.place} holds no tokens")
        wanted = _Wanted(self.shelf, np.atleast_1d(self.which[which]), self._counts)
        # Only what is wanted of each row group stays in memory.
        found = [(_some(rows, at), np.arange(len(at))) for rows, at in wanted.rows(tokens=True)]
        inputs = _padded([(rows.tokens, at) for rows, at in found if rows.tokens is not None])
        if tokenizer.config.static:
            held = [rows.static[at] for rows, at in found if rows.static is not None]
            known = _Covariates(np.concatenate(held), self.manifest.static_names)
            inputs["static"] = tokenizer.static_encoder.encode(known)
        if wanted.as_is:
            return inputs
        return {name: array[wanted.back] for name, array in inputs.items()}

    def _no_series(self) -> SeriesBatch:
        n_static = len(self.manifest.static_names)
        return SeriesBatch(
            np.zeros(0), np.zeros((0, self.n_channels)), [0],
            channels=self.channels,
            static=np.zeros((0, n_static)) if n_static else None,
            static_names=self.manifest.static_names or None,
            labels=None if self.labels is None else self.labels[:0],
        )  # fmt: skip


def _some(rows: Rows, at: Index) -> Rows:
    """The tokens and covariates of some of the series, as copies."""
    held = rows.tokens
    assert held is not None
    which = _ranges(held.offsets[at], held.windows[at])
    offsets = np.concatenate([[0], np.cumsum(held.windows[at])])
    spectrum = None if held.spectrum is None else held.spectrum[at]
    tokens = Tokens(held.tokens[which], held.times[which], offsets, spectrum)
    static = None if rows.static is None else rows.static[at]
    return Rows(rows.ids[at], 0, None, static, None, tokens)


def _padded(parts: list[tuple[Tokens, Index]]) -> dict[str, Array]:
    """Tokens of some series of each part as one array, padded with zeros and masked."""
    counts = [held.windows[at] for held, at in parts]
    windows = np.concatenate(counts) if counts else np.zeros(0, np.int64)
    most = int(windows.max(initial=0))
    size = parts[0][0].tokens.shape[1] if parts else 0
    real = np.arange(most)[None, :] < windows[:, None]
    inputs: dict[str, Array] = {
        "tokens": np.zeros((len(windows), most, size), np.float32),
        "times": np.zeros((len(windows), most), np.float32),
    }
    first = 0
    for (held, at), count in zip(parts, counts, strict=True):
        last = first + len(at)
        row = _ranges(held.offsets[at], count)
        inputs["tokens"][first:last][real[first:last]] = held.tokens[row]
        inputs["times"][first:last][real[first:last]] = held.times[row]
        first = last
    if not real.all():
        inputs["mask"] = real
    if parts and parts[0][0].spectrum is not None:
        inputs["spectrum"] = np.concatenate(
            [held.spectrum[at] for held, at in parts if held.spectrum is not None]
        )
    return inputs


def _ranges(starts: Index, counts: Index) -> Index:
    """``starts[i], starts[i] + 1, ...``, ``counts[i]`` numbers for each i, one after the other."""
    skipped = np.cumsum(counts) - counts
    return np.asarray(np.arange(int(counts.sum())) + np.repeat(starts - skipped, counts))
