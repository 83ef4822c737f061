"""Long Parquet tables of any size, written in pieces: (id, time, x, y, z)."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["COLUMNS", "decode", "make_table"]

COLUMNS = ("id", "time", "x", "y", "z")
_PIECE = 1 << 20  # rows of a row group
_FILE = 10  # row groups of a file


def make_table(directory: Path, rows: int, length: int, order: str) -> Path:
    """Files of ``rows`` rows in all, series of ``length`` points (``shuffled``: on average).

    ``sorted``: by series and time. ``shuffled``: each row of any series, times rising from row
    group to row group, in any order within one. Made once: a finished directory is taken as it is.
    """
    done = directory / "_done"
    if done.exists():
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    n_series = max(rows // length, 1)
    writer: pq.ParquetWriter | None = None
    for piece, first in enumerate(range(0, rows, _PIECE)):
        count = min(_PIECE, rows - first)
        rng = np.random.default_rng([piece, rows])
        if order == "sorted":
            row = np.arange(first, first + count)
            ids, time = row // length, (row % length) + rng.random(count) * 0.9
        else:
            ids = rng.integers(0, n_series, count)
            time = (first + rng.permutation(count) + rng.random(count) * 0.9) / n_series
        walk = rng.normal(size=(count, 3)).cumsum(axis=0).astype(np.float32)
        columns = [ids, np.round(time, 6), *np.ascontiguousarray(walk.T)]
        table = pa.table(columns, names=list(COLUMNS))
        if writer is None or piece % _FILE == 0:
            if writer is not None:
                writer.close()
            name = directory / f"part-{piece // _FILE:05d}.parquet"
            writer = pq.ParquetWriter(name, table.schema)
        writer.write_table(table, row_group_size=_PIECE)
    assert writer is not None
    writer.close()
    done.touch()
    return directory


def decode(unit: tuple[str, list[int]]) -> int:
    """Rows of some row groups, which are decoded with no thread beside and thrown away."""
    path, groups = unit
    file = pq.ParquetFile(path)
    columns = list(COLUMNS)
    found = file.iter_batches(1 << 18, row_groups=groups, columns=columns, use_threads=False)
    return sum(len(batch) for batch in found)
