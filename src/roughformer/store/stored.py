"""Series of a store, read when they are asked for: data larger than memory to train on."""

import hashlib
import multiprocessing
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.store.shards import DAMAGE, Manifest, Rows, Tokens, open_shard, read_rows
from roughformer.store.storage import Place, retrying
from roughformer.store.workers import begin_worker
from roughformer.tokens import Tokenizer

MIXED = 16  # row groups that series are taken from by turns
_HELD = 2 * MIXED + 2  # in memory: those in use, and those that are read ahead
Index = npt.NDArray[np.int64]


class RowGroupCache:
    """Row group g has the series ``starts[g]:starts[g + 1]``; ``where[g]`` are its shard and its
    number there.
    """

    def __init__(self, place: Place, manifest: Manifest) -> None:
        """Reads the ends of all shards, not their numbers."""
        self.place, self.manifest = place, manifest
        where, counts = [], []
        for shard, info in enumerate(manifest.shards):
            footer = self._with_file(shard, lambda file: file.metadata)
            rows = [footer.row_group(k).num_rows for k in range(footer.num_row_groups)]
            if sum(rows) != info.series:
                raise InputError(
                    f"{place / info.file} has {sum(rows):,} series, the manifest of the "
                    f"store says {info.series:,}; make the store again"
                )
            where += [(shard, number) for number in range(len(rows))]
            counts += rows
        self.where: Index = np.array(where, dtype=np.int64).reshape(-1, 2)
        self.starts: Index = np.cumsum([0, *counts], dtype=np.int64)
        self._begin()

    def _begin(self) -> None:
        self._held: OrderedDict[tuple[int, bool], Rows] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> tuple[Any, ...]:
        """Another process reads for itself."""
        return self.place, self.manifest, self.where, self.starts

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """Nothing is held yet."""
        self.place, self.manifest, self.where, self.starts = state
        self._begin()

    def __len__(self) -> int:
        """Series of the store."""
        return int(self.starts[-1])

    def group_of(self, series: Index) -> Index:
        """The row group that each of the series is in."""
        return np.searchsorted(self.starts, series, side="right") - 1

    def held(self, groups: list[int], *, tokens: bool) -> dict[int, Rows]:
        """Those of some row groups that are in memory."""
        with self._lock:
            return {g: self._held[g, tokens] for g in groups if (g, tokens) in self._held}

    def forget(self, group: int, *, tokens: bool) -> None:
        """Nobody will ask for it soon."""
        with self._lock:
            self._held.pop((group, tokens), None)

    def rows(self, group: int, *, tokens: bool, keep: bool = True) -> Rows:
        """A row group: its tokens, or its series. ``keep``: in memory, for the next call."""
        with self._lock:
            if (group, tokens) in self._held:
                self._held.move_to_end((group, tokens))
                return self._held[group, tokens]
        shard, number = (int(k) for k in self.where[group])
        found: Rows = self._with_file(
            shard,
            lambda file: read_rows(file, self.manifest, [number], series=not tokens, tokens=tokens),
        )
        with self._lock:
            if keep:
                self._held[group, tokens] = found
            while len(self._held) > _HELD:
                self._held.popitem(last=False)
        return found

    def labels(self) -> npt.NDArray[Any] | None:
        """``(B,)`` of all series, in memory; None if there are none."""
        if not self.manifest.labelled:
            return None
        parts = [
            self._with_file(shard, lambda file: file.read(["label"]).column(0))
            for shard in range(len(self.manifest.shards))
        ]
        found = pa.chunked_array([chunk for part in parts for chunk in part.chunks])
        if pa.types.is_string(found.type) or pa.types.is_large_string(found.type):
            return np.array(found.to_pylist(), dtype=str)
        return np.asarray(found.to_numpy())

    def _with_file(self, shard: int, use: Any) -> Any:
        place = self.place / self.manifest.shards[shard].file

        def call() -> Any:
            with place.open() as stream, open_shard(stream) as file:
                return use(file)

        try:
            return retrying(call, place)
        except DAMAGE as error:
            if isinstance(error, PermissionError | InputError):
                raise
            raise InputError(
                f"{place} is missing or damaged ({str(error).partition(chr(10))[0]}); run the "
                "command that made the store again with --verify: shards that are whole are kept"
            ) from None


# Series of a store, read when they are asked for: data larger than memory to train on.

_SAMPLED_POINTS, _PLACES = 1_000_000, 32
Array = npt.NDArray[Any]


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

    def __init__(self, cache: RowGroupCache, series: Index, counts: Index) -> None:
        self.cache, self.counts = cache, counts
        order = np.argsort(series, kind="stable")
        self.sorted = series[order]
        self.back = np.empty(len(series), dtype=np.int64)
        self.back[order] = np.arange(len(series))
        self.as_is = bool((order[1:] > order[:-1]).all())  # nothing to put back

    def rows(self, *, tokens: bool) -> Iterator[tuple[Rows, Index]]:
        """Row groups, and which of their series are wanted.

        One that is wanted as a whole is not kept in memory: only of others will more be wanted.
        """
        present, first = np.unique(self.cache.group_of(self.sorted), return_index=True)
        ends = [*first, len(self.sorted)][1:]
        # What is in memory stays there until its turn comes, whatever is read before.
        held = self.cache.held(present.tolist(), tokens=tokens)
        for group, start, end in zip(present.tolist(), first, ends, strict=True):
            at = self.sorted[start:end] - self.cache.starts[group]
            keep = bool(end - start < self.counts[group])
            rows = held.pop(group, None) or self.cache.rows(group, tokens=tokens, keep=keep)
            if not keep:
                self.cache.forget(group, tokens=tokens)
            yield rows, at


@dataclass(frozen=True)
class StoredSeries:
    """Series ``which (B,)`` of a store, in that order. Labels ``(B,)`` are in memory; what else is
    asked for is read.
    """

    cache: RowGroupCache
    which: Index
    labels: Array | None = None

    @classmethod
    def open(cls, place: str | os.PathLike[str] | Place) -> "StoredSeries":
        """All series of the store at a path or URI."""
        where = Place.of(place)
        cache = RowGroupCache(where, Manifest.read(where))
        return cls(cache, np.arange(len(cache)), cache.labels())

    def __len__(self) -> int:
        """B."""
        return len(self.which)

    @property
    def manifest(self) -> Manifest:
        """What the store holds."""
        return self.cache.manifest

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
        return np.bincount(self.cache.group_of(self.which), minlength=len(self.cache.where))

    def part(self, which: Any) -> "StoredSeries":
        """Some of the series, by their numbers here; nothing is read."""
        labels = None if self.labels is None else self.labels[which]
        return StoredSeries(self.cache, self.which[which], labels)

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
        present, code = np.unique(self.cache.group_of(self.which), return_inverse=True)
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
                f"the store {self.cache.place} holds tokens only; to have the series too, make it "
                "with roughformer features --series"
            )
        wanted = _Wanted(self.cache, np.atleast_1d(self.which[which]), self._counts)
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
            raise InputError(f"the store {self.cache.place} holds no tokens")
        wanted = _Wanted(self.cache, np.atleast_1d(self.which[which]), self._counts)
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


# Inputs of stored series, made in processes of their own; torch is loaded only if tokens need it.

_own: dict[str, Any] = {}  # of such a process


def encode_inputs(
    stored: StoredSeries,
    tokenizer: Tokenizer | None,
    which: npt.NDArray[np.int64],
    drop: float,
    seed: int,
    places: npt.NDArray[np.int64],
) -> dict[str, Array]:
    """Inputs of the series ``which (B,)``: the stored tokens without a tokenizer, else tokens made
    anew of what is left when a share ``drop`` of the points goes, chosen by ``seed`` and the
    numbers ``places (B,)``.
    """
    if tokenizer is None:
        return stored.inputs(which)
    return tokenizer.arrays(stored[which], drop=drop, seed=seed, series=places, threads=1)


def encode_worker(stored: StoredSeries, tokenizer: Tokenizer | None) -> ProcessPoolExecutor:
    """One process for ``encode_in_worker``. It is spawned: a fork would copy torch and its threads.

    A pool of several would hand its work to any of them: each would read every row group.
    """
    return ProcessPoolExecutor(
        1,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin_encoding,
        initargs=(stored, tokenizer),
    )


def _begin_encoding(stored: StoredSeries, tokenizer: Tokenizer | None) -> None:
    begin_worker()
    _own.update(stored=stored, tokenizer=tokenizer)


def encode_in_worker(*wish: Any) -> dict[str, Array]:
    """``encode_inputs`` of the process's own store; ``wish``: its other arguments."""
    return encode_inputs(_own["stored"], _own["tokenizer"], *wish)
