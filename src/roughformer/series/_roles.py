"""Which column of a table holds what: as it was said, or guessed from usual names."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from roughformer.errors import InputError

__all__ = ["Read", "guess_roles", "index_roles", "is_kept_index", "is_usual"]

_USUAL = {
    "series_id": (
        "series_id", "series", "id", "case_id", "patient_id", "patient", "record", "recordid",
    ),
    "time": ("time", "t", "timestamp", "datetime", "date"),
}  # fmt: skip
_WHAT = {"series_id": "ids of the series", "time": "times"}
_LEVELS = ("series_id", "time", "channel")  # of a pandas index without names
_KEPT_INDEX = re.compile(r"__index_level_\d+__")
_MAYBE_INDEX = ("", "Unnamed: 0", "index")  # what a row index is called in a CSV, or by reset_index
Read = Callable[[list[str]], pa.Table]


def is_usual(name: Any, *roles: str) -> bool:
    """Whether a column of this name would be taken for ids or times, or only for ``roles``."""
    return isinstance(name, str) and any(name.lower() in _USUAL[role] for role in roles or _USUAL)


def is_kept_index(name: str, series_id: str | None, read: Read) -> bool:
    """Whether this is a row index that pandas kept in a file: never a channel.

    Either the name says so, or it is a usual one and the rows of each series are numbered
    consecutively, with no number twice in the table. ``read`` gives those columns that there are.
    """
    if name not in _MAYBE_INDEX:
        return _KEPT_INDEX.fullmatch(name) is not None
    data = read([name] if series_id is None else [name, series_id])
    numbers = data.column(0)
    distinct = pt.is_integer(numbers.type) and pc.count_distinct(numbers).as_py() == len(numbers)
    if not distinct or numbers.null_count:
        return False
    keys = ["series"] if data.num_columns == 2 else []
    found = data.rename_columns(["row", *keys]).group_by(keys)
    spans = found.aggregate([("row", "min"), ("row", "max"), ("row", "count")])
    rise = pc.subtract(spans.column("row_max"), spans.column("row_min"))
    return bool(pc.all(pc.equal(pc.add(rise, 1), spans.column("row_count"))).as_py())


def _keyword(role: str) -> str:
    return "series_id= (None: the table is one series)" if role == "series_id" else f"{role}="


def guess_roles(
    present: Sequence[str],
    given: Mapping[str, Any],
    taken: Sequence[str] = (),
    *,
    read: Read,
    table: str = "the table",
    option: Callable[[str], str] = _keyword,
) -> dict[str, Any]:
    """Find the columns that were not ``given``.

    Ids and times go by usual names. A table with the columns ``channel``, of texts, and ``value``
    is long.
    The channels of a wide one are the columns with no other role.

    Parameters
    ----------
    present
        Names of all columns.
    given
        Roles that are known: ``series_id`` (None: the table is one series), ``time``, ``channel``,
        ``value``, ``channels``, ``static``, ``label``.
    taken
        Columns that have another role, such as a target. A column ``label`` always has.
    read
        Returns those of the columns asked for that there are; called where names do not suffice.
    table, option
        How errors call the table and the option for a role.

    Returns
    -------
    The arguments ``series_id``, ``time``, ``channel``, ``value`` and ``channels`` of
    ``SeriesBatch.from_table``.
    """
    found = dict.fromkeys(("series_id", "time", "channel", "value", "channels"))
    found |= {role: given[role] for role in found if role in given}
    for role in ("series_id", "time"):
        if role not in given:
            name = _usual_name(present, role)
            if name is None:
                raise InputError(
                    f"cannot tell which column of {table} holds the {_WHAT[role]}: name it with "
                    f"{option(role)}. Its columns are {', '.join(present)}"
                )
            found[role] = name
    if found["channel"] is not None or found["value"] is not None:
        return found
    channels = found["channels"]
    usual = {"channel", "value"} <= set(present) and not set(channels or ()) & set(present)
    if usual and _holds_names(read(["channel"]).column(0)):
        return found | {"channel": "channel", "value": "value"}
    if channels is None:
        others = {found["series_id"], found["time"], given.get("label"), "label", *taken}
        others |= set(given.get("static", ()))
        found["channels"] = tuple(
            name
            for name in present
            if name not in others and not is_kept_index(name, found["series_id"], read)
        )
        if not found["channels"]:
            raise InputError(
                f"{table} has no column left to be a channel; see {option('channels')}"
            )
    return found


def _holds_names(column: pa.ChunkedArray) -> bool:
    kind = column.type
    text = pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)
    return text or pt.is_dictionary(kind) or len(column) == 0


def index_roles(
    levels: Sequence[Any], columns: Sequence[Any], given: Mapping[str, Any]
) -> tuple[list[str], dict[str, Any]]:
    """Read a pandas index of two or three levels: (id, time), or (id, time, channel) of one column.

    Returns
    -------
    The names of the levels, which they have as columns, and ``given`` with the roles they tell.
    """
    if len(levels) > len(_LEVELS):
        raise InputError(
            f"the index of a frame must be (id, time) or (id, time, channel), got {len(levels)} "
            "levels; make columns of them with reset_index() and name the columns"
        )
    names = [
        usual if level is None else str(level)
        for level, usual in zip(levels, _LEVELS, strict=False)
    ]
    roles = {role: given.get(role) or _usual_name(names, role) for role in ("series_id", "time")}
    rest = [name for name in names if name not in roles.values()]
    for role, name in roles.items():
        if name is None:
            roles[role] = rest.pop(0)
    if len(levels) == 3 and rest and "channel" not in given:
        values = [str(name) for name in columns if str(name) != given.get("label", "label")]
        if len(values) != 1:
            raise InputError(
                "a frame with the index (id, time, channel) must have one column of values, got "
                f"{', '.join(values) or 'none'}"
            )
        roles |= {"channel": rest[0], "value": values[0]}
    return names, {**given, **roles}


def _usual_name(present: Sequence[str], role: str) -> str | None:
    by_lower = {name.lower(): name for name in reversed(present)}
    return next((by_lower[name] for name in _USUAL[role] if name in by_lower), None)
