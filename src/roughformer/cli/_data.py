"""Any file of series -> a batch, its targets and groups."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.cli._columns import Columns, column_names, resolve, values_by_series
from roughformer.cli._stored_data import stored_at, stored_target
from roughformer.errors import InputError
from roughformer.io import read_edf, read_table, read_ts, read_wfdb
from roughformer.series import SeriesBatch

__all__ = ["Data", "ids_of", "read_data", "stamps"]

_TABLES = (".parquet", ".pq", ".csv", ".csv.gz", ".tsv", ".tsv.gz")
_KNOWN = ".parquet, .csv, .tsv (also .gz), .ts, .hea (WFDB), .edf, .bdf, or a directory of WFDB/EDF"
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Data:
    """What a file holds: B series, and for each its target ``(B,)`` or ``(B, m)`` and its group.
    A store that was asked for lazily is a ``StoredSeries``, not a batch.

    ``columns``: what the columns of a table meant, all found out; ``notes``: for the user.
    """

    batch: Any
    target: Array | None
    groups: Array | None
    columns: Columns
    notes: tuple[str, ...] = ()


def read_data(
    path: Path,
    columns: Columns,
    *,
    target: str | None = None,
    group: str | None = None,
    labels: Path | None = None,
    lazily: bool = False,
) -> Data:
    """Read ``path``. ``target``: a column (several: ``a,b``), ``"label"`` for the labels of a file
    that has them, or a static covariate; None: none is wanted. ``labels``: a table with one row
    for each series that has the target, and the group if it is there. ``lazily``: leave the series
    of a store where they are.
    """
    names = tuple(name.strip() for name in target.split(",")) if target else ()
    stored = stored_at(path)
    if stored is not None:
        if group is not None or labels is not None:
            raise InputError("--group and --labels are for tables; a store has its labels with it")
        found = stored_target(stored, names, path) if names else None
        return Data(stored if lazily else stored[:], found, None, columns)
    if not path.exists():
        raise InputError(f"there is no file {str(path)!r}; check the path")
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise InputError(f"--target names {twice[0]!r} twice; name each target once")
    batch, columns = _read(path, columns, names, group, labelled=labels is None)
    groups = None if group is None else _groups(path, columns, group, labels, batch)
    found = None
    notes: tuple[str, ...] = ()
    if names and labels is not None:
        found, known = _from_labels(labels, columns, names, batch)
        if not known.all():
            missing = int((~known).sum())
            notes = (f"{missing} of {len(batch)} series have no row in {labels} and are left out",)
            batch, found = _with_ids(batch)[known], found[known]
            groups = None if groups is None else groups[known]
    elif names:
        found = _targets(path, columns, names, batch)
    return Data(batch, found, groups, columns, notes)


def ids_of(batch: SeriesBatch) -> Array:
    """The ids, or numbers where the file has none."""
    return np.arange(len(batch)) if batch.ids is None else batch.ids


def stamps(batch: SeriesBatch, times: Array) -> Array:
    """Times of a batch as its file had them: dates where it has dates."""
    if batch.time_origin is None:
        return times
    return np.asarray(batch.time_origin + np.rint(times * 1e9).astype("timedelta64[ns]"))


def _with_ids(batch: SeriesBatch) -> SeriesBatch:
    """The same series with their numbers as ids, so that a part of them keeps its numbers."""
    if batch.ids is not None:
        return batch
    return SeriesBatch(
        batch.times,
        batch.values,
        batch.offsets,
        channels=batch.channels,
        ids=ids_of(batch),
        static=batch.static,
        static_names=batch.static_names or None,
        labels=batch.labels,
        time_origin=batch.time_origin,
    )


def _keys(batch: SeriesBatch) -> list[str]:
    return [str(key) for key in ids_of(batch).tolist()]


def _is_table(path: Path) -> bool:
    return path.name.lower().endswith(_TABLES) and not _is_batch(path)


def _is_batch(path: Path) -> bool:
    """Whether ``SeriesBatch.save`` wrote the file."""
    if path.suffix.lower() not in (".parquet", ".pq"):
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return b"roughformer.batch" in (pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is damaged or no Parquet file: {error}") from None


def _read(
    path: Path,
    columns: Columns,
    targets: tuple[str, ...],
    group: str | None,
    *,
    labelled: bool,
) -> tuple[SeriesBatch, Columns]:
    """``targets`` are no channels; they are in the file if it is ``labelled``."""
    name = path.name.lower()
    if path.is_dir():
        return _read_directory(path, columns), columns
    if _is_table(path):
        present = column_names(path)
        # A role that is not a channel must not become one.
        taken = [*targets, *([group] if group else [])]
        columns = resolve(path, columns, present, [c for c in taken if c in present])
        assert columns.series_id is not None
        assert columns.time is not None
        batch = read_table(
            path,
            series_id=columns.series_id,
            time=columns.time,
            channel=columns.channel,
            value=columns.value,
            channels=columns.channels,
            static=columns.static,
            label=targets[0] if labelled and len(targets) == 1 and targets[0] in present else None,
        )
        return batch, replace(columns, channels=batch.channels)
    if _is_batch(path):
        return SeriesBatch.load(path), columns
    if name.endswith(".ts"):
        return read_ts(path), columns
    if name.endswith(".hea"):
        return read_wfdb(path, channels=columns.channels), columns
    if name.endswith((".edf", ".bdf")):
        return read_edf(path, channels=columns.channels), columns
    raise InputError(f"cannot tell the format of {path}: known are {_KNOWN}")


def _read_directory(path: Path, columns: Columns) -> SeriesBatch:
    if any(path.glob("*.hea")) or (path / "RECORDS").exists():
        return read_wfdb(path, channels=columns.channels)
    files = sorted(f for f in path.iterdir() if f.suffix.lower() in (".edf", ".bdf"))
    if files:
        return read_edf(files, channels=columns.channels)
    raise InputError(f"the directory {path} holds neither WFDB records nor EDF files")


def _targets(
    path: Path, columns: Columns, names: Sequence[str], batch: SeriesBatch
) -> npt.NDArray[Any]:
    if _is_table(path):
        present = column_names(path)
        missing = [name for name in names if name not in present]
        if missing:
            raise InputError(
                f"{path} has no column {missing[0]!r}; name the target with --target, or give its "
                f"file with --labels. Its columns are {', '.join(present)}"
            )
        if len(names) == 1:
            assert batch.labels is not None
            return batch.labels
        assert columns.series_id is not None
        return _stack([_column(path, columns.series_id, name, batch) for name in names])
    found = []
    for name in names:
        if name == "label" and batch.labels is not None:
            found.append(batch.labels)
        elif name in batch.static_names:
            assert batch.static is not None
            found.append(batch.static[:, batch.static_names.index(name)])
        else:
            has = ["label"] if batch.labels is not None else []
            raise InputError(
                f"{path} has no target {name!r}; it has "
                f"{', '.join([*has, *batch.static_names]) or 'neither labels nor covariates'}. "
                "Name one with --target, or give a table of targets with --labels"
            )
    return _stack(found)


def _stack(columns: list[Array]) -> Array:
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)


def _column(
    path: Path, key: str, name: str, batch: SeriesBatch, nothing: float | None = float("nan")
) -> Array:
    """Values of each series, ``nothing`` where the table has none."""
    table = values_by_series(path, key, name)
    return np.array([table.get(k, nothing) for k in _keys(batch)])


def _from_labels(
    labels: Path, columns: Columns, names: Sequence[str], batch: SeriesBatch
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Targets of a table with one row a series, and which series have one."""
    present = column_names(labels)
    key = _key_of(present, columns)
    if list(names) == ["label"] and "label" not in present and len(present) == 2:
        names = [name for name in present if name != key]
    found = []
    keys = _keys(batch)
    known = np.ones(len(batch), dtype=bool)
    for name in names:
        if name not in present:
            raise InputError(
                f"{labels} has no column {name!r}; name the target with --target. Its columns are "
                f"{', '.join(present)}"
            )
        table = values_by_series(labels, key, name)
        some = next(iter(table.values()), None)
        known &= np.array([k in table for k in keys], dtype=bool)
        found.append(np.array([table.get(k, some) for k in keys]))
    if not known.any():
        raise InputError(
            f"no series of the data is in {labels}: its column {key!r} must hold their ids, such "
            f"as {keys[0] if keys else '0'!r}"
        )
    return _stack(found), known


def _key_of(present: list[str], columns: Columns) -> str:
    return columns.series_id if columns.series_id in present else present[0]


def _groups(
    path: Path, columns: Columns, group: str, labels: Path | None, batch: SeriesBatch
) -> Array:
    if labels is not None and group in column_names(labels):
        return _column(labels, _key_of(column_names(labels), columns), group, batch, None)
    if _is_table(path):
        if group not in column_names(path):
            raise InputError(
                f"{path} has no column {group!r} for --group; its columns are "
                f"{', '.join(column_names(path))}"
            )
        assert columns.series_id is not None
        return _column(path, columns.series_id, group, batch, None)
    if group in batch.static_names and batch.static is not None:
        return np.asarray(batch.static[:, batch.static_names.index(group)])
    raise InputError(
        f"{path} has no static covariate {group!r} for --group; it has "
        f"{', '.join(batch.static_names) or 'none'}. Or give a table with it as --labels"
    )
