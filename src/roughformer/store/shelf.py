"""The row groups of a store, numbered through; the last used ones stay in memory."""

import threading
from collections import OrderedDict
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roughformer.errors import InputError
from roughformer.store.manifest import Manifest
from roughformer.store.places import Place, retrying
from roughformer.store.shards import DAMAGE, Rows, open_shard, read_rows

__all__ = ["MIXED", "Shelf"]

MIXED = 16  # row groups that series are taken from by turns
_HELD = 2 * MIXED + 2  # in memory: those in use, and those that are read ahead
Index = npt.NDArray[np.int64]


class Shelf:
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
