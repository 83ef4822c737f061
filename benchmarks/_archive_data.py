"""Read the sets of the archive, drop points, and resample series for models of regular series.

A set is one ``NAME.npz`` without pickled objects: ``values (N, C)`` and ``offsets (B+1,)`` (ragged
series one after the other, NaN = not observed), ``y (B,)``, ``split (B,)`` of "train" and "test",
``task``, and where a set has them ``times (N,)`` (else the sample number) and ``group (B,)``.
"""

import os
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import roughformer as rf
from roughformer import values_at

__all__ = ["ArchiveSet", "Grid", "archive_directory", "choose_grid", "read_set", "resample"]
__all__ += ["set_sizes"]

_AT_ONCE = 256  # series
# MiniRocket's kernels have 9 points; a longer grid than 1,024 gains the peers nothing but time.
_SHORTEST, _LEAST, _MOST = 9, 16, 1024


@dataclass(frozen=True)
class Grid:
    """Where the peers see the linear path of a series.

    ``own_span``: at ``n_points`` even times from the first to the last point of each series;
    otherwise at the times 0, 1, ..., n_points - 1 of a clock that all series share.
    """

    n_points: int
    own_span: bool


@dataclass(frozen=True)
class ArchiveSet:
    """One set with its official split; labels are those of the batches."""

    name: str
    task: str  # "classification" or "regression"
    train: rf.SeriesBatch
    test: rf.SeriesBatch
    groups: npt.NDArray[Any] | None  # of the training series: validation must keep them apart
    grid: Grid


def archive_directory(given: Path | None) -> Path:
    """The directory of the sets: the one given, or ``archive`` in ROUGHFORMER_DATA."""
    root = os.environ.get("ROUGHFORMER_DATA")
    directory = given or (Path(root) / "archive" if root else None)
    if directory is None or not any(directory.glob("*.npz")):
        raise SystemExit(
            f"no sets (NAME.npz) in {directory}; name their directory with --data, or the one "
            "above archive/ with the environment variable ROUGHFORMER_DATA"
        )
    return directory


def set_sizes(directory: Path) -> dict[str, int]:
    """Set -> how many values it holds, smallest first."""
    sizes = {path.stem: _n_values(path) for path in directory.glob("*.npz")}
    return dict(sorted(sizes.items(), key=lambda item: (item[1], item[0])))


def _n_values(path: Path) -> int:
    """From the header alone: nothing is unpacked."""
    with zipfile.ZipFile(path) as archive, archive.open("values.npy") as file:
        assert np.lib.format.read_magic(file) == (1, 0)
        return int(np.prod(np.lib.format.read_array_header_1_0(file)[0]))


def read_set(path: Path, drop: float = 0.0, seed: int = 0) -> ArchiveSet:
    """Read a set and drop a share of the points of every series, in training and test alike.

    Which points go depends on the seed and the number of the series in the file, on nothing else.
    """
    with np.load(path, allow_pickle=False) as file:
        found = {name: file[name] for name in file.files}
    offsets, training = found["offsets"], found["split"] == "train"
    lengths = np.diff(offsets)
    own_times = "times" in found
    times = found["times"] if own_times else np.arange(offsets[-1]) - offsets[:-1].repeat(lengths)
    batch = rf.SeriesBatch(times, found["values"], offsets, labels=found["y"])
    if drop:
        batch = batch.drop_points(drop, seed=seed)
    return ArchiveSet(
        path.stem,
        str(found["task"]),
        batch[training],
        batch[~training],
        found["group"][training] if "group" in found else None,
        choose_grid(lengths, training, own_times),
    )


def choose_grid(
    lengths: npt.NDArray[Any], training: npt.NDArray[np.bool_], own_times: bool
) -> Grid:
    """The grid of a set, from the lengths before any points are dropped.

    Series of one length and without times of their own share a clock: the grid is their own.
    Otherwise it has as many points as the median training series, between 16 and 1,024.
    """
    if not own_times and len(np.unique(lengths)) == 1:
        return Grid(max(int(lengths[0]), _SHORTEST), own_span=False)
    median = round(float(np.median(lengths[training])))
    return Grid(min(max(median, _LEAST), _MOST), own_span=True)


def resample(batch: rf.SeriesBatch, grid: Grid) -> npt.NDArray[np.float32]:
    """``(B, C, n)``: each channel's linear path on the grid, constant before its first and after
    its last observation, 0 where it has none.
    """
    n = grid.n_points
    if not grid.own_span and not batch.missing and (batch.lengths == n).all():
        values = batch.values.reshape(len(batch), n, batch.n_channels)
        return np.ascontiguousarray(values.transpose(0, 2, 1), dtype=np.float32)
    out = np.empty((len(batch), batch.n_channels, n), np.float32)
    for start in range(0, len(batch), _AT_ONCE):
        part = batch[start : start + _AT_ONCE]
        first, last = part.span
        since = np.linspace(0, 1, n) * (last - first)[:, None] if grid.own_span else np.arange(n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rf.UnobservedWarning)
            out[start : start + _AT_ONCE] = values_at(part, since).transpose(0, 2, 1)
    return out
