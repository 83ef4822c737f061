"""Read any file of series: a table, an archive's file, recordings, a feature store."""

import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.io import (
    column_names,
    read_columns,
    read_edf,
    read_table,
    read_ts,
    read_wfdb,
)
from roughformer.series import Read, SeriesBatch, guess_roles, listed
from roughformer.store import MANIFEST, MARKER, StoredSeries

_PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a table of series; None: to be found out."""

    series_id: str | None = None
    time: str | None = None
    channel: str | None = None
    value: str | None = None
    channels: tuple[str, ...] | None = None
    static: tuple[str, ...] = ()

    def over(self, other: "Columns") -> "Columns":
        """These, and where they say nothing the others."""
        mine = {name: value for name, value in asdict(self).items() if value not in (None, ())}
        return replace(other, **mine)

    def plain(self) -> dict[str, Any]:
        """What is known, as JSON and TOML have it."""
        known = {k: v for k, v in asdict(self).items() if v not in (None, ())}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in known.items()}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> "Columns":
        """What ``plain`` gave; a wrong name or kind is an ``InputError``."""
        known = cls.__dataclass_fields__
        plain = {name: value for name, value in plain.items() if value is not None}
        for name, value in plain.items():
            if name not in known:
                raise InputError(
                    f"[data] has the unknown key {name!r}; known are {', '.join(known)}"
                )
            several = name in ("channels", "static") and isinstance(value, list | tuple)
            if not all(isinstance(v, str) for v in (value if several else [value])):
                raise InputError(f"[data] {name} must name columns, got {value!r}")
        columns: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()
        }
        return cls(**columns)


def resolve(
    path: Path,
    given: Columns,
    present: list[str],
    taken: Sequence[str],
    read: Read | None = None,
    *,
    one_series: bool | None = False,
) -> Columns:
    """Find out what was not given: ids and times by usual names, a long table by its columns
    ``channel`` and ``value``, the channels of a wide one as the columns with no other role
    (``taken`` have one, and so has ``label``). ``read`` reads columns of a file that is not local.
    ``one_series``: whether the table is one; None: if it has no ids and its times rise.
    """
    names = {role: name for role, name in asdict(given).items() if name not in (None, ())}
    hint = (
        {"series_id": " (or say --one-series, if all rows are one)"} if one_series is None else {}
    )
    roles = guess_roles(
        present,
        names | {"series_id": None} if one_series else names,
        taken,
        read=read or (lambda names: read_columns(path, [n for n in names if n in present])),
        table=str(path),
        option=lambda role: f"--{role.replace('_', '-')}{hint.get(role, '')}",
        one_series=one_series is None,
    )
    return Columns(**roles, static=given.static)


def values_by_series(path: Path, key: str, column: str) -> dict[str, Any]:
    """id (as text) -> the value of ``column``, which must not change within a series."""
    import pyarrow as pa

    present = column_names(path)
    missing = [name for name in (key, column) if name not in present]
    if missing:
        raise InputError(f"{path} has no column {missing[0]!r}; its columns are {listed(present)}")
    table = read_columns(path, (key, column))
    small = pa.table({"key": table.column(key), "value": table.column(column)})
    rows = small.group_by("key").aggregate([("value", "min"), ("value", "max")]).to_pylist()
    for row in rows:
        if row["value_min"] != row["value_max"]:
            raise InputError(
                f"column {column!r} of {path} must not change within a series, but series "
                f"{row['key']!r} has {row['value_min']!r} and {row['value_max']!r}"
            )
    return {str(row["key"]): row["value_min"] for row in rows if row["value_min"] is not None}


# A feature store as the data of a command.

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")  # two letters at least: C:/ is a path


def place_of(path: Path) -> str | None:
    """The URI that was given as a path, which leaves one of its slashes; None: it is a path."""
    scheme = _URI.match(str(path))
    if scheme is None:
        return None
    slashes = ":///" if scheme[1].lower() == "file" else "://"
    return scheme[1] + slashes + str(path)[scheme.end() :]


def stored_at(path: Path) -> StoredSeries | None:
    """The store at a path or URI; None if something else is there."""
    uri = place_of(path)
    if uri is not None:
        return StoredSeries.open(uri)
    if (path / MARKER).is_file():
        raise InputError(
            f"the store {path} is not finished; run the command roughformer features that makes it "
            "again, it goes on where it was"
        )
    return StoredSeries.open(path) if (path / MANIFEST).is_file() else None


def stored_target(stored: StoredSeries, names: tuple[str, ...], place: Path) -> npt.NDArray[Any]:
    """The labels of a store, whichever way they are named."""
    label = stored.manifest.options.get("columns", {}).get("label")
    if stored.labels is None:
        raise InputError(
            f"the store {place} has no labels; make it with roughformer features --label, or "
            "--labels"
        )
    if len(names) != 1 or names[0] not in ("label", label):
        known = "label" if label in (None, "label") else f"label (column {label!r})"
        raise InputError(f"the store {place} has one target, {known}; got {', '.join(names)}")
    return stored.labels


# Any file of series -> a batch, its targets and groups.

_TABLES = (".parquet", ".pq", ".csv", ".csv.gz", ".tsv", ".tsv.gz")
_KNOWN = ".parquet, .csv, .tsv (also .gz), .ts, .hea (WFDB), .edf, .bdf, or a directory of WFDB/EDF"
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class SeriesData:
    """What a file holds.

    Attributes
    ----------
    batch : SeriesBatch
        B series. A store that was read lazily is a ``StoredSeries``.
    target : ndarray (B,) or (B, m), or None
        The target of each series, if one was asked for.
    groups : ndarray (B,) or None
        The group of each series, if one was asked for.
    columns : Columns
        What the columns of a table mean, all found out.
    notes : tuple of str
        What a reader should know, for instance that series without a label were left out.
    """

    batch: Any
    target: Array | None
    groups: Array | None
    columns: Columns
    notes: tuple[str, ...] = ()


def read(
    path: str | PathLike[str],
    *,
    target: str | None = None,
    group: str | None = None,
    labels: str | PathLike[str] | None = None,
    series_id: str | None = None,
    time: str | None = None,
    channel: str | None = None,
    value: str | None = None,
    channels: Sequence[str] | None = None,
    static: Sequence[str] = (),
    lazy: bool = False,
) -> SeriesData:
    """Read a file of series, with the target and the group of each series.

    The format follows from the name and the content: ``.parquet``, ``.csv`` and ``.tsv`` tables
    (long or wide; also ``.gz``), what ``SeriesBatch.save`` wrote, ``.ts``, WFDB (``.hea`` or a
    directory), ``.edf``, ``.bdf``, or a feature store. What the columns of a table mean is guessed
    from their names where it is not given.

    Parameters
    ----------
    path : path
        File or directory; a feature store may also be a URI.
    target : str, optional
        Column (several: ``"a,b"``), static covariate, or ``"label"`` for the labels of a file that
        has them.
    group : str, optional
        Column or static covariate that names the group of each series, for splits.
    labels : path, optional
        Table with one row for each series: its id and its target.
    series_id : str, optional
        Column of series ids.
    time : str, optional
        Column of times.
    channel : str, optional
        Column of channel names, of a long table.
    value : str, optional
        Column of values, of a long table.
    channels : sequence of str, optional
        Channels to read; by default all columns that have no other role.
    static : sequence of str, default ()
        Columns of static covariates.
    lazy : bool, default False
        Leave the series of a feature store on disk.

    Returns
    -------
    SeriesData
        With ``batch``, ``target``, ``groups``, ``columns`` and ``notes``.

    Examples
    --------
    >>> data = rf.read("icu.parquet", target="died", group="hospital")  # doctest: +SKIP
    >>> model.fit(data.batch, data.target, groups=data.groups)  # doctest: +SKIP
    """
    names = None if channels is None else tuple(channels)
    columns = Columns(series_id, time, channel, value, names, tuple(static))
    table = None if labels is None else Path(labels)
    return read_data(Path(path), columns, target=target, group=group, labels=table, lazily=lazy)


def say(text: str) -> None:
    """Print a line for people on stderr: stdout is for results."""
    print(text, file=sys.stderr, flush=True)


def read_data(
    path: Path,
    columns: Columns,
    *,
    target: str | None = None,
    group: str | None = None,
    labels: Path | None = None,
    lazily: bool = False,
    one_series: bool | None = False,
) -> SeriesData:
    """Read ``path``. ``target``: a column (several: ``a,b``), ``"label"`` for the labels of a file
    that has them, or a static covariate; None: none is wanted. ``labels``: a table with one row
    for each series that has the target, and the group if it is there. ``lazily``: leave the series
    of a store where they are. ``one_series``: whether a table is one; None: if it has no ids and
    its times rise.
    """
    names = tuple(name.strip() for name in target.split(",")) if target else ()
    stored = stored_at(path)
    if stored is not None:
        if group is not None or labels is not None:
            raise InputError("--group and --labels are for tables; a store has its labels with it")
        labels_of_store = stored_target(stored, names, path) if names else None
        return SeriesData(stored if lazily else stored[:], labels_of_store, None, columns)
    if not path.exists():
        raise InputError(f"there is no file {str(path)!r}; check the path")
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise InputError(f"--target names {twice[0]!r} twice; name each target once")
    guessed = columns.channels is None
    batch, columns = _read_file(
        path, columns, names, group, labelled=labels is None, one_series=one_series
    )
    groups = None if group is None else _groups(path, columns, group, labels, batch)
    values = None
    notes = _constant_channels(batch) if guessed and names and _is_table(path) else ()
    if names and labels is not None:
        values, known = _from_labels(labels, columns, names, batch)
        if not known.all():
            missing = int((~known).sum())
            notes += (f"{missing} of {len(batch)} series have no row in {labels} and are left out",)
            batch, values = _with_ids(batch)[known], values[known]
            groups = None if groups is None else groups[known]
    elif names:
        values = _targets(path, columns, names, batch)
        # Of one target; where there are several, some of them may be known.
        known = _is_known(values) if values.ndim == 1 else np.ones(len(batch), dtype=bool)
        if not known.all() and known.any():
            notes += (
                f"{(~known).sum()} of {len(batch)} series have no {names[0]!r} and are left out; "
                f"the first is series {_keys(batch)[int(np.argmin(known))]}",
            )
            batch, values = _with_ids(batch)[known], values[known]
            groups = None if groups is None else groups[known]
    return SeriesData(batch, values, groups, columns, notes)


def ids_of(batch: SeriesBatch) -> Array:
    """The ids, or numbers where the file has none."""
    return np.arange(len(batch)) if batch.ids is None else batch.ids


def stamps(batch: SeriesBatch, times: Array) -> Array:
    """Times of a batch as its file had them: dates where it has dates."""
    if batch.time_origin is None:
        return times
    return np.asarray(batch.time_origin + np.rint(times * 1e9).astype("timedelta64[ns]"))


def _constant_channels(batch: SeriesBatch) -> tuple[str, ...]:
    """Notes of channels that never change within a series but differ between series: often what
    was known of a patient only in the end, and with it the answer.
    """
    if len(batch) < 2 or batch.lengths.max() < 2:
        return ()
    high = np.fmax.reduceat(batch.values, batch.offsets[:-1], axis=0)
    low = np.fmin.reduceat(batch.values, batch.offsets[:-1], axis=0)
    changes = (high > low).any(axis=0)
    differs = np.fmax.reduce(high, axis=0) > np.fmin.reduce(low, axis=0)
    return tuple(
        f"channel {name!r} never changes within a series: if it gives the target away, leave it "
        "out by naming the others with --channels; if it is known beforehand, name it with --static"
        for name, one in zip(batch.channels, differs & ~changes, strict=True)
        if one
    )


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


def _read_file(
    path: Path,
    columns: Columns,
    targets: tuple[str, ...],
    group: str | None,
    *,
    labelled: bool,
    one_series: bool | None,
) -> tuple[SeriesBatch, Columns]:
    """``targets`` are no channels; they are in the file if it is ``labelled``."""
    name = path.name.lower()
    if path.is_dir():
        return _read_directory(path, columns), columns
    if _is_table(path):
        present = column_names(path)
        # A role that is not a channel must not become one.
        taken = [*targets, *([group] if group else [])]
        taken = [c for c in taken if c in present]
        guessed = columns.series_id is None
        columns = resolve(path, columns, present, taken, one_series=one_series)
        assert columns.time is not None
        label = targets[0] if labelled and len(targets) == 1 and targets[0] in present else None
        try:
            batch = read_table(
                path,
                series_id=columns.series_id,
                time=columns.time,
                channel=columns.channel,
                value=columns.value,
                channels=columns.channels,
                static=columns.static,
                label=label,
            )
        except InputError as error:
            text = str(error)
            raise InputError(text if str(path) in text else f"{path}: {text}") from None
        if guessed and len(batch) > 1 and batch.lengths.max() == 1:
            raise InputError(
                f"column {columns.series_id!r} of {path} is different in each row, so each row "
                "would be a series of its own: name the column with the ids of the series with "
                "--series-id (or this one, if you mean it)"
                + (", or say --one-series" if one_series is None else "")
                + f". Its columns are {listed(present)}"
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
                f"file with --labels. Its columns are {listed(present)}"
            )
        if len(names) == 1:
            assert batch.labels is not None
            return batch.labels
        assert columns.series_id is not None
        return _stack([_column(path, columns.series_id, name, batch) for name in names])
    targets = []
    for name in names:
        if name == "label" and batch.labels is not None:
            targets.append(batch.labels)
        elif name in batch.static_names:
            assert batch.static is not None
            targets.append(batch.static[:, batch.static_names.index(name)])
        else:
            has = ["label"] if batch.labels is not None else []
            raise InputError(
                f"{path} has no target {name!r}; it has "
                f"{', '.join([*has, *batch.static_names]) or 'neither labels nor covariates'}. "
                "Name one with --target, or give a table of targets with --labels"
            )
    return _stack(targets)


def _is_known(target: Array) -> npt.NDArray[np.bool_]:
    """An empty cell is NaN in a column of numbers, and an empty text in one of texts."""
    return np.asarray(target != "" if target.dtype.kind == "U" else target == target, dtype=bool)


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
    targets = []
    keys = _keys(batch)
    known = np.ones(len(batch), dtype=bool)
    for name in names:
        if name not in present:
            raise InputError(
                f"{labels} has no column {name!r}; name the target with --target. Its columns are "
                f"{listed(present)}"
            )
        table = values_by_series(labels, key, name)
        default = next(iter(table.values()), None)
        known &= np.array([k in table for k in keys], dtype=bool)
        targets.append(np.array([table.get(k, default) for k in keys]))
    if not known.any():
        raise InputError(
            f"no series of the data is in {labels}: its column {key!r} must hold their ids, such "
            f"as {keys[0] if keys else '0'!r}"
        )
    return _stack(targets), known


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
                f"{listed(column_names(path))}"
            )
        assert columns.series_id is not None
        return _column(path, columns.series_id, group, batch, None)
    if group in batch.static_names and batch.static is not None:
        return np.asarray(batch.static[:, batch.static_names.index(group)])
    raise InputError(
        f"{path} has no static covariate {group!r} for --group; it has "
        f"{', '.join(batch.static_names) or 'none'}. Or give a table with it as --labels"
    )
