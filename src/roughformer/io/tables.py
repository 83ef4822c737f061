"""Parquet and CSV tables, long or wide -> ``SeriesBatch``, and back.

Wide: a row per (series, time), a column per channel. Long: a row per (series, time, channel)
with one value. Which columns mean what is said by name; everything else about the table (order
of rows, kinds of time stamps, duplicates) is the business of ``SeriesBatch.from_table``.
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roughformer.errors import InputError
from roughformer.io.roots import existing_file
from roughformer.series import SeriesBatch

__all__ = ["read_table", "write_table"]

_PARQUET = (".parquet", ".pq")
_SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}

AnyPath = str | PathLike[str]


def read_table(
    paths: AnyPath | Sequence[AnyPath],
    *,
    series_id: str,
    time: str,
    channel: str | None = None,
    value: str | None = None,
    channels: Sequence[str] | None = None,
    static: Sequence[str] = (),
    label: str | None = None,
) -> SeriesBatch:
    """Read one table from one or several ``.parquet``/``.csv`` files (their rows are joined).

    Long if ``channel`` and ``value`` name columns, else wide with the columns ``channels``
    (default: all that have no other role). ``static`` and ``label`` are columns that are constant
    within a series. Empty fields, null, nan and ? = not observed. Only the columns that are needed
    are read.
    """
    files = [paths] if isinstance(paths, str | PathLike) else list(paths)
    if not files:
        raise InputError("expected at least one file to read, got an empty list")
    if (channel is None) != (value is None):
        given, absent = ("channel", "value") if value is None else ("value", "channel")
        raise InputError(
            f"got {given}= without {absent}=; a long table needs both, a wide one neither"
        )
    roles = [series_id, time, *static, *([label] if label is not None else [])]
    columns: list[str] | None = None  # None = all
    if channel is not None and value is not None:
        columns = [*roles, channel, value]
    elif channels is not None:
        columns = [*roles, *channels]
    tables = [_read_file(existing_file(file), columns) for file in files]
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(
            f"the files do not make one table, their columns differ in kind: {error}"
        ) from None
    return SeriesBatch.from_table(
        table,
        series_id=series_id,
        time=time,
        channel=channel,
        value=value,
        channels=channels,
        static=static,
        label=label,
    )


def _format(file: Path) -> str:
    """The suffix that decides the format, e.g. ``.csv.gz``."""
    name = file.name.lower()
    for suffix in (*_PARQUET, *_SEPARATORS):
        if name.endswith(suffix):
            return suffix
    known = ", ".join((*_PARQUET, *_SEPARATORS))
    raise InputError(f"cannot tell the format of {file}: expected a name that ends in {known}")


def _read_file(file: Path, columns: list[str] | None) -> pa.Table:
    suffix = _format(file)
    try:
        if suffix in _PARQUET:
            import pyarrow.parquet as pq

            present: list[str] = pq.read_schema(file).names
            _require(file, present, columns)
            return pq.read_table(file, columns=columns)
        return _read_csv(file, _SEPARATORS[suffix], columns)
    except pa.ArrowInvalid as error:
        raise InputError(f"{file} cannot be read as {suffix}: {error}") from None


def _read_csv(file: Path, separator: str, columns: list[str] | None) -> pa.Table:
    import pyarrow.csv as pv

    options: dict[str, Any] = {
        "parse_options": pv.ParseOptions(delimiter=separator),
        "convert_options": pv.ConvertOptions(
            null_values=["", "NA", "N/A", "NaN", "nan", "NULL", "null", "?"],
        ),
    }
    with pa.input_stream(str(file)) as head, pv.open_csv(head, **options) as reader:
        _require(file, reader.schema.names, columns)
    if columns is not None:
        options["convert_options"].include_columns = list(dict.fromkeys(columns))
    return pv.read_csv(file, **options)


def _require(file: Path, present: list[str], columns: list[str] | None) -> None:
    missing = [column for column in columns or () if column not in present]
    if missing:
        raise InputError(
            f"{file} has no column {missing[0]!r}; its columns are {', '.join(map(repr, present))}"
        )


def write_table(
    batch: SeriesBatch,
    path: AnyPath,
    *,
    form: Literal["wide", "long"] = "wide",
    series_id: str = "series_id",
    time: str = "time",
    channel: str = "channel",
    value: str = "value",
    label: str = "label",
) -> None:
    """Write ``batch`` as a table with the given column names, format by the name of the file.

    Series without ids are numbered. Static covariates and labels are repeated on each row of their
    series. NaN becomes an empty field (CSV) or null (Parquet) in the wide form and no row in the
    long one, so the long form forgets points and channels at which nothing was observed.
    For an exact copy of a batch use ``SeriesBatch.save``.
    """
    file = Path(path)
    suffix = _format(file)
    if form not in ("wide", "long"):
        raise InputError(f"form must be 'wide' or 'long', got {form!r}")
    n_series, n_channels = len(batch), batch.n_channels
    series = np.repeat(np.arange(n_series), batch.lengths)
    ids = np.arange(n_series) if batch.ids is None else batch.ids
    points = np.arange(batch.n_points)
    measured: dict[str, Any] = {}
    if form == "long":
        points, which = np.nonzero(~np.isnan(batch.values))
        names = pa.DictionaryArray.from_arrays(
            pa.array(which.astype(np.int32)), pa.array(list(batch.channels), pa.string())
        )
        measured = {channel: names.cast(pa.string()), value: batch.values[points, which]}
    else:
        measured = {
            name: pa.array(np.ascontiguousarray(batch.values[:, c]), from_pandas=True)
            for c, name in enumerate(batch.channels)
        }
    owner = series[points]
    columns: dict[str, Any] = {series_id: ids[owner], time: _stamps(batch)[points]}
    expected = 2 + len(measured)
    columns.update(measured)
    if batch.static is not None:
        expected += batch.static.shape[1]
        for s, name in enumerate(batch.static_names or ()):
            columns[name] = pa.array(batch.static[owner, s], from_pandas=True)
    if batch.labels is not None:
        if batch.labels.ndim != 1:
            raise InputError(
                f"a table has one label per series, got labels of shape {batch.labels.shape}; "
                "use SeriesBatch.save, or batch.with_labels(labels[:, k])"
            )
        expected += 1
        columns[label] = batch.labels[owner]
    if len(columns) != expected:
        raise InputError(
            f"two columns would have the same name among {series_id!r}, {time!r}, {label!r}, the "
            f"{n_channels} channels and the static covariates; choose other column names"
        )
    _write(pa.table(columns), file, suffix)


def _stamps(batch: SeriesBatch) -> npt.NDArray[Any]:
    """Times as stored, or the dates they came from."""
    if batch.time_origin is None:
        return batch.times
    dates: npt.NDArray[Any] = batch.time_origin + np.rint(batch.times * 1e9).astype(
        "timedelta64[ns]"
    )
    return dates


def _write(table: pa.Table, file: Path, suffix: str) -> None:
    if suffix in _PARQUET:
        import pyarrow.parquet as pq

        pq.write_table(table, file)
        return
    import pyarrow.csv as pv

    with pa.output_stream(str(file)) as stream:
        pv.write_csv(table, stream, pv.WriteOptions(delimiter=_SEPARATORS[suffix]))
