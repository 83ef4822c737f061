"""Columns of tables: what they are called, what they mean, one value for each series."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from roughformer.errors import InputError
from roughformer.series import Read, guess_roles

__all__ = ["Columns", "column_names", "resolve", "values_by_series"]

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
        found = {k: v for k, v in asdict(self).items() if v not in (None, ())}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in found.items()}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> "Columns":
        """What ``plain`` gave; a wrong name or kind is an ``InputError``."""
        found: dict[str, Any] = {}
        for name, value in plain.items():
            if name not in cls.__dataclass_fields__:
                known = ", ".join(cls.__dataclass_fields__)
                raise InputError(f"[data] has the unknown key {name!r}; known are {known}")
            if name in ("channels", "static"):
                ok = isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)
                value = tuple(value) if ok else value
            else:
                ok = isinstance(value, str)
            if not ok:
                raise InputError(f"[data] {name} must name columns, got {value!r}")
            found[name] = value
        return cls(**found)


def column_names(path: Path) -> list[str]:
    """The names of a table's columns, without reading the rest."""
    import pyarrow as pa

    if not path.exists():
        raise InputError(f"there is no file {str(path)!r}; check the path")
    try:
        if path.suffix.lower() in _PARQUET:
            import pyarrow.parquet as pq

            return list(pq.read_schema(path).names)
        import pyarrow.csv as pv

        with pa.input_stream(str(path)) as head, pv.open_csv(head, **_csv(path)) as reader:
            return list(reader.schema.names)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path} cannot be read as a table: {' '.join(str(error).split())}"
        ) from None


def _csv(path: Path) -> dict[str, Any]:
    import pyarrow.csv as pv

    separator = "\t" if ".tsv" in path.name.lower() else ","
    return {"parse_options": pv.ParseOptions(delimiter=separator)}


def resolve(
    path: Path,
    given: Columns,
    present: list[str],
    taken: Sequence[str],
    read: Read | None = None,
) -> Columns:
    """Find out what was not given: ids and times by usual names, a long table by its columns
    ``channel`` and ``value``, the channels of a wide one as the columns with no other role
    (``taken`` have one, and so has ``label``). ``read`` reads columns of a file that is not local.
    """
    said = {role: name for role, name in asdict(given).items() if name not in (None, ())}
    roles = guess_roles(
        present,
        said,
        taken,
        read=read or (lambda names: _read_columns(path, [n for n in names if n in present])),
        table=str(path),
        option=lambda role: f"--{role.replace('_', '-')}",
    )
    return Columns(**roles, static=given.static)


def _read_columns(path: Path, names: list[str]) -> Any:
    import pyarrow as pa

    try:
        if path.suffix.lower() in _PARQUET:
            import pyarrow.parquet as pq

            return pq.read_table(path, columns=names)
        import pyarrow.csv as pv

        options = pv.ConvertOptions(include_columns=names)
        return pv.read_csv(path, **_csv(path), convert_options=options)
    except pa.ArrowException as error:
        raise InputError(
            f"{path} cannot be read as a table: {' '.join(str(error).split())}"
        ) from None


def values_by_series(path: Path, key: str, column: str) -> dict[str, Any]:
    """id (as text) -> the value of ``column``, which must not change within a series."""
    import pyarrow as pa

    for name in (key, column):
        if name not in column_names(path):
            raise InputError(
                f"{path} has no column {name!r}; its columns are {', '.join(column_names(path))}"
            )
    table = _read_columns(path, list(dict.fromkeys((key, column))))
    small = pa.table({"key": table.column(key), "value": table.column(column)})
    found = small.group_by("key").aggregate([("value", "min"), ("value", "max")]).to_pylist()
    for row in found:
        if row["value_min"] != row["value_max"]:
            raise InputError(
                f"column {column!r} of {path} must not change within a series, but series "
                f"{row['key']!r} has {row['value_min']!r} and {row['value_max']!r}"
            )
    return {str(row["key"]): row["value_min"] for row in found if row["value_min"] is not None}
