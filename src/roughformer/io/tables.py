"""Parquet and CSV tables, long or wide -> ``SeriesBatch``, and back.

Wide: a row per (series, time), a column per channel. Long: a row per (series, time, channel)
with one value. Which columns mean what is said by name; everything else about the table (order
of rows, kinds of time stamps, duplicates) is the business of ``SeriesBatch.from_table``.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from roughformer.errors import InputError
from roughformer.series import SeriesBatch, has_exact_ids, listed, to_table
from roughformer.util.checks import existing_file

_PARQUET = (".parquet", ".pq")
_SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}

# Cells of numbers and dates that were not measured; texts stay as they are.
_NOTHING = [
    "", " ", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None", "none",
    "?", "-",
]  # fmt: skip

AnyPath = str | PathLike[str]


def read_table(
    paths: AnyPath | Sequence[AnyPath],
    *,
    series_id: str | None,
    time: str,
    channel: str | None = None,
    value: str | None = None,
    channels: Sequence[str] | None = None,
    static: Sequence[str] = (),
    label: str | None = None,
) -> SeriesBatch:
    """Read one table from ``.parquet``, ``.csv`` or ``.tsv`` files.

    A ``.csv`` may have commas, semicolons or tabs, with semicolons and tabs also decimal commas.
    It is long if ``channel`` and ``value`` are given, else wide. Empty fields, NA, null, None,
    nan, ? and - = not observed. Only the columns that are needed are read.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, whose rows are joined.
    series_id : str or None
        Column that tells the series apart; None: the table is one series.
    time : str
        Column of times.
    channel : str, optional
        Column of channel names, of a long table.
    value : str, optional
        Column of values, of a long table.
    channels : sequence of str, optional
        Columns of a wide table that are channels; by default all that have no other role.
    static : sequence of str, default ()
        Columns of static covariates, constant within a series.
    label : str, optional
        Column of labels, constant within a series.

    Returns
    -------
    SeriesBatch
    """
    files = [paths] if isinstance(paths, str | PathLike) else list(paths)
    if not files:
        raise InputError("expected at least one file to read, got an empty list")
    if (channel is None) != (value is None):
        given, absent = ("channel", "value") if value is None else ("value", "channel")
        raise InputError(
            f"got {given}= without {absent}=; a long table needs both, a wide one neither"
        )
    roles = [name for name in (series_id, time, *static, label) if name is not None]
    columns: list[str] | None = None  # None = all
    if channel is not None and value is not None:
        columns = [*roles, channel, value]
    elif channels is not None:
        columns = [*roles, *channels]
    for file in files:
        _format(existing_file(file))
    tables = [read_columns(file, columns, series_id) for file in files]
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
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


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Errors say which file cannot be read."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        text = " ".join(str(error).split())
        if isinstance(error, UnicodeError) or "invalid UTF8" in text:
            text += "; save it as UTF-8"
        if re.search("Expected [0-9]+ columns", text):
            text += "; the first row must name the columns, and the others have a cell for each"
        raise InputError(f"{file} cannot be read as a table: {text}") from None


def column_names(path: AnyPath) -> list[str]:
    """Name the columns of a Parquet or CSV table, without reading the rest.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    list of str
    """
    file = existing_file(path)
    with _naming(file):
        if file.suffix.lower() in _PARQUET:
            import pyarrow.parquet as pq

            return list(pq.read_schema(file).names)
        opened, options = _csv(file, _separator(file))
        return _csv_names(opened, options)


def read_columns(
    path: AnyPath, columns: Sequence[str] | None = None, series_id: str | None = None
) -> pa.Table:
    """Read columns of a Parquet or CSV table.

    Parameters
    ----------
    path : path
        The file.
    columns : sequence of str, optional
        Their names; not given: all.
    series_id : str, optional
        As in ``read_csv``.

    Returns
    -------
    pyarrow.Table
    """
    file = existing_file(path)
    wanted = None if columns is None else list(dict.fromkeys(columns))
    with _naming(file):
        if file.suffix.lower() in _PARQUET:
            import pyarrow.parquet as pq

            _require(file, pq.read_schema(file).names, wanted)
            return pq.read_table(file, columns=wanted)
        return read_csv(file, _separator(file), wanted, series_id)


def _separator(file: Path) -> str | None:
    return "\t" if ".tsv" in file.name.lower() else None


def read_csv(
    source: Path | bytes,
    separator: str | None = None,
    columns: list[str] | None = None,
    series_id: str | None = None,
) -> pa.Table:
    """Read a CSV file, or its bytes, as an Arrow table.

    Unless the separator is the comma, numbers may have decimal commas.

    Parameters
    ----------
    source : Path or bytes
        The file, or its content.
    separator : str, optional
        Not given: comma, semicolon or tab, whichever the first line has most of.
    columns : list of str, optional
        Columns to read; not given: all.
    series_id : str, optional
        A column of ids: they stay strings if two of them would become the same number.

    Returns
    -------
    pyarrow.Table
    """
    import pyarrow.compute as pc
    import pyarrow.csv as pv

    opened, options = _csv(source, separator)
    if columns is not None:
        _require(source, _csv_names(opened, options), columns)
        options["convert_options"].include_columns = columns
    with opened() as stream:
        table = pv.read_csv(stream, **options)
    if table.column_names.count(series_id) == 1 and not has_exact_ids(table.column(series_id)):
        # Whole numbers of more than 64 bits.
        options["convert_options"].column_types = {series_id: pa.string()}
        with opened() as stream:
            table = pv.read_csv(stream, **options)
    for k, field in enumerate(table.schema):
        if pa.types.is_binary(field.type):
            name = "the file" if isinstance(source, bytes) else source
            raise InputError(f"column {field.name!r} of {name} is not UTF-8; save it as UTF-8")
        if "read_options" in options and pa.types.is_string(field.type):
            table = table.set_column(k, field.name, pc.utf8_trim_whitespace(table.column(k)))
    return table


def _csv(
    source: Path | bytes, separator: str | None
) -> tuple[Callable[[], pa.NativeFile], dict[str, Any]]:
    """A function that opens the file, and how it is to be read."""
    import pyarrow.csv as pv

    def opened() -> pa.NativeFile:
        return (
            pa.BufferReader(source) if isinstance(source, bytes) else pa.input_stream(str(source))
        )

    with opened() as stream:
        head, _, rest = stream.read(65_536).partition(b"\n")
    if separator is None:
        separator = max((",", ";", "\t"), key=lambda sign: head.count(sign.encode()))
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        name = "the file" if isinstance(source, bytes) else source
        raise InputError(f"{name} is UTF-16; save it as UTF-8")
    comma = separator != "," and re.search(rb"\d,\d", rest) is not None
    options: dict[str, Any] = {
        "parse_options": pv.ParseOptions(delimiter=separator),
        "convert_options": pv.ConvertOptions(
            null_values=[*_NOTHING, *(f" {text}" for text in _NOTHING)],
            decimal_point="," if comma else ".",
        ),
    }
    names = _csv_names(opened, options) if b" " in head else []
    if any(name != name.strip() for name in names):  # a space after each comma
        names = [name.strip() for name in names]
        options["read_options"] = pv.ReadOptions(column_names=names, skip_rows=1)
    return opened, options


def _csv_names(opened: Callable[[], pa.NativeFile], options: dict[str, Any]) -> list[str]:
    import pyarrow.csv as pv

    with opened() as stream, pv.open_csv(stream, **options) as reader:
        return list(reader.schema.names)


def _require(file: Path | bytes, present: list[str], columns: list[str] | None) -> None:
    name = "the file" if isinstance(file, bytes) else file
    missing = [column for column in columns or () if column not in present]
    if missing:
        raise InputError(f"{name} has no column {missing[0]!r}; its columns are {listed(present)}")


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
    """Write a batch as a table, format by the name of the file.

    Series without ids are numbered. Static covariates and labels are repeated on each row of their
    series. NaN becomes an empty field (CSV) or null (Parquet) in the wide form and no row in the
    long one, so the long form forgets points and channels at which nothing was observed.
    For an exact copy of a batch use ``SeriesBatch.save``.

    Parameters
    ----------
    batch : SeriesBatch
        The series.
    path : path
        File to write: ``.parquet``, ``.csv``, ``.tsv``, ...
    form : {"wide", "long"}, default "wide"
        A column per channel, or a row per value.
    series_id : str, default "series_id"
        Name of the column of ids.
    time : str, default "time"
        Name of the column of times.
    channel : str, default "channel"
        Name of the column of channel names, in the long form.
    value : str, default "value"
        Name of the column of values, in the long form.
    label : str, default "label"
        Name of the column of labels.
    """
    file = Path(path)
    suffix = _format(file)
    _write(to_table(batch, form, series_id, time, channel, value, label), file, suffix)


def _write(table: pa.Table, file: Path, suffix: str) -> None:
    if suffix in _PARQUET:
        import pyarrow.parquet as pq

        pq.write_table(table, file)
        return
    import pyarrow.csv as pv

    with pa.output_stream(str(file)) as stream:
        pv.write_csv(table, stream, pv.WriteOptions(delimiter=_SEPARATORS[suffix]))
