"""Tables (Arrow, pandas, polars) of series, long or wide -> the flat parts of a batch, and back."""

import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from roughformer.errors import InputError
from roughformer.series._arrays import (
    Extras,
    FloatTimes,
    Index,
    Parts,
    as_origin,
    offsets_of,
    to_seconds,
)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """What pyarrow cannot do with a column becomes an ``InputError`` that names it."""
    try:
        yield
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise InputError(
            f"column {name!r} cannot be read: {str(error).partition(chr(10))[0]}; times must be "
            "numbers, dates or durations, channels numbers, ids and labels numbers, texts or dates"
        ) from None


def listed(names: Sequence[str]) -> str:
    """The names of columns in an error: the first of many."""
    more = f", ... ({len(names)} in all)" if len(names) > 12 else ""
    return ", ".join(map(repr, names[:12])) + more


def check_columns(data: pa.Table, names: Sequence[str]) -> None:
    """Every name is a column, once, with one role."""
    counts = Counter(data.column_names)
    for name in names:
        if counts[name] != 1:
            raise InputError(
                f"the table must have one column {name!r}, got {counts[name]} of that name; "
                f"its columns are {listed(data.column_names)}"
            )
    for name, roles in Counter(names).items():
        if roles > 1:
            raise InputError(f"column {name!r} was given {roles} roles; name each column once")


def encode(data: pa.Table, name: str) -> tuple[npt.NDArray[Any], Index]:
    """-> the K different entries in order of first appearance, and codes ``(n,)`` in 0 ... K-1."""
    column = data.column(name)
    _refuse_null(column, name, "name the series or channel of each row")
    if column.num_chunks == 0 or len(column) == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    coded = _decode(column).dictionary_encode().unify_dictionaries()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in coded.chunks])
    entries = pa.chunked_array([coded.chunk(0).dictionary])
    return _plain(entries, name), codes.astype(np.int64)


def encode_runs(data: pa.Table, name: str) -> tuple[npt.NDArray[Any], Index, Index]:
    """``encode`` for a column whose entries mostly stand side by side: the K entries, and codes
    ``(R,)`` of the runs of rows that begin at ``starts (R,)``.
    """
    column = data.column(name)
    _refuse_null(column, name, "name the series or channel of each row")
    if not has_exact_ids(column):
        raise InputError(
            f"ids in column {name!r} are floating-point numbers beyond 2^53, which cannot be told "
            "apart; give them as whole numbers of 64 bits or as texts"
        )
    starts = run_starts(column)
    if len(starts) > len(column) // 4:
        return *encode(data, name), np.arange(len(column))
    return *encode(pa.table({name: take_rows(column, starts)}), name), starts


def has_exact_ids(column: pa.ChunkedArray) -> bool:
    """Whether whole numbers cannot have been rounded to the same floating-point number."""
    if not pt.is_floating(column.type):
        return True
    ends = pc.min_max(column).as_py()
    return bool(max(abs(ends["min"] or 0), abs(ends["max"] or 0)) <= 2**53)


def run_starts(column: pa.ChunkedArray) -> Index:
    """Rows at which another entry begins than in the row before, and those at which chunks do."""
    starts, at = [np.zeros(0, dtype=np.int64)], 0
    for chunk in column.chunks:
        if pt.is_dictionary(chunk.type):
            chunk = chunk.indices
        if pt.is_integer(chunk.type) or pt.is_floating(chunk.type):
            array = chunk.to_numpy(zero_copy_only=False)
            changes = np.flatnonzero(array[1:] != array[:-1])
        elif pt.is_null(chunk.type):
            changes = np.zeros(0, dtype=np.int64)
        else:
            changes = np.flatnonzero(pc.not_equal(chunk[1:], chunk[:-1]))
        starts += [np.full(min(len(chunk), 1), at), changes + (at + 1)]
        at += len(chunk)
    return np.concatenate(starts)


def take_rows(column: pa.ChunkedArray, rows: Index) -> pa.ChunkedArray:
    """Entries of a few rows, which ascend; pyarrow would join all chunks into one first."""
    taken, at = [], 0
    for chunk in column.chunks:
        first, last = np.searchsorted(rows, (at, at + len(chunk)))
        taken.append(chunk.take(pa.array(rows[first:last] - at)))
        at += len(chunk)
    return pa.chunked_array(taken, column.type)


def column_times(
    data: pa.Table, name: str, origin: np.datetime64 | None = None
) -> tuple[FloatTimes, np.datetime64 | None]:
    """A column of numbers, dates or durations -> seconds and origin; aware dates are in UTC. Dates
    count from ``origin`` if it is given, else from the earliest.
    """
    column = _decode(data.column(name))
    _refuse_null(column, name, "drop the row or give it a time")
    kind = column.type
    if pt.is_null(kind):  # a table without rows: nothing tells the kind
        return np.zeros(0), origin
    if pt.is_decimal(kind):
        column = column.cast(pa.float64())
    elif pt.is_timestamp(kind) or pt.is_date(kind) or pt.is_duration(kind):
        unit = "timedelta64[ns]" if pt.is_duration(kind) else "datetime64[ns]"
        target = pa.duration("ns") if pt.is_duration(kind) else pa.timestamp("ns")
        if pt.is_timestamp(kind) and kind.tz is not None:
            target = pa.timestamp("ns", tz=kind.tz)
        try:
            whole = column.cast(target).cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid as error:
            raise InputError(
                f"column {name!r} must fit 64-bit nanoseconds (years 1678 to 2262), got {error}"
            ) from None
        return to_seconds(whole.view(unit), origin, what=f"times in column {name!r}")
    elif pt.is_time(kind):
        raise InputError(
            f"times in column {name!r} must be numbers, dates or durations, got times of day; join "
            "them with their date in one column, such as 2024-03-30T14:05:00"
        )
    elif not (pt.is_integer(kind) or pt.is_floating(kind)):
        raise InputError(
            f"times in column {name!r} must be numbers, dates or durations, got "
            f"{_first_text(column, _as_date)}; write dates as 2024-03-30T14:05:00, or parse them "
            "first, e.g. with pandas.to_datetime"
        )
    seconds, origin = to_seconds(column.to_numpy(), origin, what=f"times in column {name!r}")
    finite = np.isfinite(seconds)
    if not finite.all():
        row = int(np.argmin(finite))
        raise InputError(
            f"times in column {name!r} must be finite, got {seconds[row]} in row {row}; "
            "drop the row or give it a time"
        )
    return seconds, origin


def column_numbers(data: pa.Table, name: str) -> npt.NDArray[Any]:
    """A column of numbers -> float32 (from float32, float16) or float64; null becomes NaN."""
    parts = number_parts(data, name)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def number_parts(data: pa.Table, name: str) -> list[npt.NDArray[Any]]:
    """``numbers``, chunk by chunk: not copied where that is possible."""
    column = _decode(data.column(name))
    kind = column.type
    if pt.is_null(kind):
        return [np.full(len(column), np.nan)]
    if pt.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif not (pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)):
        raise InputError(
            f"column {name!r} must hold numbers, got {_first_text(column, float)}; convert it, "
            "leave it out by naming the channels, or give it another role"
        )
    single = pt.is_float32(kind) or pt.is_float16(kind)
    wanted = pa.float32() if single else pa.float64()
    if kind != wanted:
        column = column.cast(wanted, safe=False)
    parts = [chunk.to_numpy(zero_copy_only=False) for chunk in column.chunks]
    return parts or [np.zeros(0, np.float32 if single else np.float64)]


def _first_text(column: pa.ChunkedArray, parse: Callable[[str], Any]) -> str:
    """The kind of a column, or the first of its texts that cannot be parsed."""
    with suppress(UnicodeError):
        for row, entry in enumerate(column.to_pylist() if _is_text(column.type) else ()):
            try:
                parse(entry or "0")
            except ValueError:
                return f"the text {entry[:40]!r} in row {row}"
    return str(column.type)


def _as_date(text: str) -> np.datetime64:
    return np.datetime64(text[:19])  # without a time zone


def plain(data: pa.Table, name: str) -> npt.NDArray[Any]:
    """A column of numbers, bools, texts or dates -> an array of that dtype."""
    return _plain(_decode(data.column(name)), name)


def _plain(column: pa.ChunkedArray, name: str) -> npt.NDArray[Any]:
    kind = column.type
    if pt.is_null(kind) and len(column) == 0:
        return np.zeros(0)
    if pt.is_integer(kind) or pt.is_floating(kind):
        return np.asarray(column.to_numpy())  # integers with nulls come as float64 with NaN
    _refuse_null(column, name, "fill it in or drop the row")
    if pt.is_boolean(kind):
        return np.asarray(column.to_numpy(), dtype=bool)
    if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind):
        return np.array(column.to_pylist(), dtype=str)
    if pt.is_timestamp(kind) or pt.is_date(kind):
        return np.asarray(column.to_numpy(), dtype="datetime64[ns]")
    raise InputError(
        f"column {name!r} must hold numbers, texts or dates to serve as id, channel or label, "
        f"got {kind}; convert it"
    )


def _decode(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # The order of a category's values is not the order of appearance.
    return column.cast(column.type.value_type) if pt.is_dictionary(column.type) else column


def _refuse_null(column: pa.ChunkedArray, name: str, remedy: str) -> None:
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise InputError(
            f"column {name!r} must have an entry in each row, got null in row {row}; {remedy}"
        )


# The rows of a table and the series they belong to: in pieces, and in which order.


class Rows:
    """The rows of a table and the series that each belongs to: run r, the rows from ``starts[r]``
    on, to series ``run_codes[r]`` in 0 ... B-1, which count first appearances.
    """

    def __init__(
        self,
        data: pa.Table,
        run_codes: Index,
        starts: Index,
        n_series: int,
        keys: npt.NDArray[Any] | None,
    ) -> None:
        self.data, self.run_codes, self.starts = data, run_codes, starts
        self.n_series, self.keys = n_series, keys

    @cached_property
    def codes(self) -> Index:
        """``(n,)``: the series of each row."""
        return np.repeat(self.run_codes, np.diff(self.starts, append=len(self.data)))

    @cached_property
    def bounds(self) -> Index | None:
        """``(B+1,)`` offsets of the series if each stands in one piece, else None."""
        step = np.diff(self.run_codes, prepend=-1)
        if not ((step == 0) | (step == 1)).all():
            return None
        return np.append(self.starts[step == 1], len(self.data))

    def name(self, b: int) -> str:
        return f"series {b}" if self.keys is None else f"series {b} (id {self.keys[b].item()!r})"

    def order(self, times: FloatTimes) -> Index | None:
        """The permutation that sorts by series, then time; None if nothing is to be done."""
        if self.bounds is None:
            return sorting_order(self.codes, times)
        ahead = times[1:] > times[:-1]
        ahead[self.bounds[1:-1] - 1] = True  # the step from one series to the next
        return None if ahead.all() else sorting_order(self.codes, times)

    def constant(
        self, name: str, read: Callable[[pa.Table, str], npt.NDArray[Any]]
    ) -> npt.NDArray[Any]:
        """A column that does not change within a series -> ``(B,)``."""
        # It is enough to look where it changes, or the series does.
        column = self.data.column(name)
        with reading(name):
            rows = np.union1d(self.starts, run_starts(column))
            codes = self.run_codes[np.searchsorted(self.starts, rows, "right") - 1]
            entries = read(pa.table({name: take_rows(column, rows)}), name)
        # Codes count first appearances, so a row is the first of its series where they peak.
        peak = np.maximum.accumulate(codes)
        first = np.flatnonzero(np.diff(peak, prepend=-1))
        expected = entries[first][codes]
        differs = (entries != expected) & ((entries == entries) | (expected == expected))
        if differs.any():
            at = int(np.argmax(differs))
            raise InputError(
                f"column {name!r} must not change within a series, got {entries[at].item()!r} in "
                f"row {rows[at]} and {expected[at].item()!r} before in "
                f"{self.name(int(codes[at]))}; write one value in all rows of a series, or give it "
                "as a channel"
            )
        return entries[first]


def sorting_order(codes: Index, times: FloatTimes, *, strict: bool = True) -> Index | None:
    """The permutation that sorts by series, then time; None if nothing is to be done."""
    if _in_order(codes, times, strict):
        return None
    # Sorting small integers takes numpy one pass per byte: by series first.
    small = codes.astype(np.min_scalar_type(int(codes.max())))
    order = np.argsort(small, kind="stable")
    when = times[order]
    ends = np.cumsum(np.bincount(codes))
    starts = np.append(0, ends[:-1])
    ahead = np.append(True, when[1:] >= when[:-1])
    ahead[starts[starts < ends]] = True
    wrong = np.unique(np.searchsorted(ends, np.flatnonzero(~ahead), "right"))
    if len(wrong) > len(times) // 64:  # many short series
        by_time = np.argsort(times)
        return np.asarray(by_time[np.argsort(small[by_time], kind="stable")], dtype=np.int64)
    for b in wrong.tolist():  # each fits a cache
        part = slice(int(starts[b]), int(ends[b]))
        order[part] = order[part][np.argsort(when[part])]
    return np.asarray(order, dtype=np.int64)


def _in_order(codes: Index, times: FloatTimes, strict: bool) -> bool:
    ahead = times[1:] > times[:-1] if strict else times[1:] >= times[:-1]
    ahead |= codes[1:] != codes[:-1]
    return bool(ahead.all()) and bool((codes[1:] >= codes[:-1]).all())


# Which column of a table holds what: as it was said, or guessed from usual names.

_USUAL = {
    "series_id": (
        "seriesid", "series", "id", "caseid", "patientid", "patient", "record", "recordid",
        "uniqueid", "itemid",
    ),
    "time": ("time", "t", "timestamp", "datetime", "date", "ds"),
}  # fmt: skip
_WHAT = {"series_id": "ids of the series", "time": "times"}
_LEVELS = ("series_id", "time", "channel")  # of a pandas index without names
_KEPT_INDEX = re.compile(r"__index_level_\d+__")
_MAYBE_INDEX = ("", "Unnamed: 0", "index")  # what a row index is called in a CSV, or by reset_index
Read = Callable[[list[str]], pa.Table]


def is_usual(name: Any, *roles: str) -> bool:
    """Whether a column of this name would be taken for ids or times, or only for ``roles``."""
    return isinstance(name, str) and any(_bare(name) in _USUAL[role] for role in roles or _USUAL)


def _bare(name: str) -> str:
    """``"Patient-ID"``, ``"patient_id"`` and ``"PatientID"`` -> ``"patientid"``."""
    return re.sub(r"[\s_-]", "", name.lower())


def is_kept_index(name: str, series_id: str | None, read: Read) -> bool:
    """Whether this is a row index that pandas kept in a file: never a channel.

    Either the name says so, or it is a usual one and the rows of each series are numbered
    consecutively, with no number twice in the table. ``read`` gives those columns that there are.
    """
    number = series_id is None and _bare(name) in _USUAL["series_id"]  # of the rows of one series
    if name not in _MAYBE_INDEX and not number:
        return _KEPT_INDEX.fullmatch(name) is not None
    data = read([name] if series_id is None else [name, series_id])
    numbers = data.column(0)
    if pt.is_null(numbers.type):  # a separator after the last column of a CSV
        return True
    distinct = pt.is_integer(numbers.type) and pc.count_distinct(numbers).as_py() == len(numbers)
    if not distinct or numbers.null_count:
        return False
    keys = ["series"] if data.num_columns == 2 else []
    by_series = data.rename_columns(["row", *keys]).group_by(keys)
    spans = by_series.aggregate([("row", "min"), ("row", "max"), ("row", "count")])
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
    one_series: bool = False,
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
    one_series
        Whether a table without ids is one series, if each row is later than the one before it and
        no column looks like ids.

    Returns
    -------
    The arguments ``series_id``, ``time``, ``channel``, ``value`` and ``channels`` of
    ``SeriesBatch.from_table``.
    """
    roles = dict.fromkeys(("series_id", "time", "channel", "value", "channels"))
    roles |= {role: given[role] for role in roles if role in given}
    time: str | None = roles["time"] or _usual_name(present, "time")
    for role in ("time", "series_id"):
        if role not in given:
            name = _usual_name(present, role)
            one = one_series and role == "series_id" and time is not None
            if name is None and not (one and _is_one_series(present, str(time), read)):
                raise InputError(
                    f"cannot tell which column of {table} holds the {_WHAT[role]}: name it with "
                    f"{option(role)}. Its columns are {listed(present)}"
                )
            roles[role] = name
    if roles["channel"] is not None or roles["value"] is not None:
        return roles
    channels = roles["channels"]
    usual = {"channel", "value"} <= set(present) and not set(channels or ()) & set(present)
    if usual and _holds_names(read(["channel"]).column(0)):
        return roles | {"channel": "channel", "value": "value"}
    if channels is None:
        others = {roles["series_id"], roles["time"], given.get("label"), "label", *taken}
        others |= set(given.get("static", ()))
        roles["channels"] = tuple(
            name
            for name in present
            if name not in others and not is_kept_index(name, roles["series_id"], read)
        )
        if not roles["channels"]:
            raise InputError(
                f"{table} has no column left to be a channel; see {option('channels')}"
            )
    return roles


def _is_one_series(present: Sequence[str], time: str, read: Read) -> bool:
    """Whether each row is later than the one before it, and no column has texts or whole numbers
    that each stand in one run of rows, as ids do.
    """
    times = read([time]).column(0)
    if len(times) == 0 or times.null_count or not _has_order(times.type):
        return False
    if (
        len(times) > 1
        and not pc.all(pc.greater(times.slice(1), times.slice(0, len(times) - 1))).as_py()
    ):
        return False
    for name in present:
        column = read([name]).column(0)
        if name == time or not (pt.is_integer(column.type) or _is_text(column.type)):
            continue
        changes = pc.sum(pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))).as_py()
        if 1 < pc.count_distinct(column).as_py() == (changes or 0) + 1 < len(column):
            return False
    return True


def _has_order(kind: pa.DataType) -> Any:
    return pt.is_integer(kind) or pt.is_floating(kind) or pt.is_temporal(kind) or _is_text(kind)


def _is_text(kind: pa.DataType) -> Any:
    return pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)


def _holds_names(column: pa.ChunkedArray) -> bool:
    kind = column.type
    return bool(_is_text(kind) or pt.is_dictionary(kind) or len(column) == 0)


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
    by_bare = {_bare(name): name for name in reversed(present)}
    return next((by_bare[name] for name in _USUAL[role] if name in by_bare), None)


# Tables of pandas, polars or pyarrow, long or wide -> the flat ragged layout.

_AT_ONCE = 1 << 14
_FEW = 10  # rows that may be numbered by chance


def is_table(x: object) -> bool:
    """Whether ``to_arrow`` can read it; imports neither pandas nor polars."""
    if type(x).__module__.startswith("scipy."):  # one kind of sparse matrix is a dict
        return False
    return isinstance(x, pa.Table | pa.RecordBatch | Mapping) or _frame_kind(x) is not None


def _frame_kind(x: object) -> str | None:
    for kind, names in (("pandas", ("DataFrame",)), ("polars", ("DataFrame", "LazyFrame"))):
        module = sys.modules.get(kind)
        if module is not None and isinstance(x, tuple(getattr(module, n) for n in names)):
            return kind
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(x, pandas.Series):  # with times, a frame
        return "pandas" if x.index.nlevels > 1 or x.index.dtype.kind == "M" else None
    return "arrow" if hasattr(x, "__arrow_c_stream__") else None


def with_roles(
    table: Any,
    given: Mapping[str, Any],
    known: Mapping[str, Any] | None = None,
    **naming: Any,
) -> tuple[pa.Table, dict[str, Any]]:
    """Find out which columns mean what -> the table, and the arguments of ``from_table``.

    ``given`` are arguments of ``from_table``; ``known`` are those of another table, which count
    where this one has such columns. A column ``label`` without nulls is the label. ``naming``: how
    errors call things, as in ``guess_roles``.
    """
    given, known = dict(given), dict(known or {})
    levels: Sequence[Any] = []
    if _frame_kind(table) == "pandas":
        table = _as_frame(table)
        levels = table.index.names
        times = [name for name in map(str, table.columns) if is_usual(name, "time")]
        if len(levels) == 2 and levels[1] is None and (times or given.get("time") in table):
            # Rows numbered anew in each series, as pandas.concat(frames, keys=ids) leaves them.
            table = table.droplevel(1)
            levels = table.index.names
        if len(levels) == 1 and table.index.dtype.kind == "M":
            if "time" not in given and "time" not in table and not is_usual(levels[0]):
                table = table.rename_axis("time")
                levels = table.index.names
            naming = {"one_series": True} | naming
    if len(levels) > 1:
        names, given = index_roles(levels, table.columns, given)
        data = to_arrow(table.set_axis(table.index.set_names(names)), names)
    else:
        named = [name for name in (*given.values(), *known.values()) if name is not None]
        data = to_arrow(table, [name for name in levels if is_usual(name) or name in named])
    label = known.pop("label", "label")
    for role, name in known.items():
        if name is None and _usual_name(data.column_names, role) is not None:
            continue  # the other table was one series
        if role not in given and (not isinstance(name, str) or name in data.column_names):
            given[role] = name
    roles = guess_roles(data.column_names, given, [label], read=_reader(data), **naming)
    used = [*roles.values(), *(roles["channels"] or ()), *given.get("static", ())]
    free = "label" not in given and label in data.column_names and label not in used
    if free and data.column(label).null_count == 0:
        given["label"] = label
    return data, {**given, **roles}


def _as_frame(table: Any) -> Any:
    """A pandas Series as a frame of one column."""
    return table if table.ndim == 2 else table.to_frame(table.name or "value")


def _reader(data: pa.Table) -> Read:
    names = data.column_names
    return lambda wanted: data.select([names.index(name) for name in wanted if name in names])


def to_arrow(table: Any, names: Iterable[Any] = ()) -> pa.Table:
    """Any table -> pyarrow, without a copy where the library allows it. Levels of a pandas index
    become columns if ``names`` has them.
    """
    if isinstance(table, pa.Table):
        return table
    kind = _frame_kind(table)
    try:
        if kind == "pandas":
            table, wanted = _as_frame(table), set(names)
            levels = [i for i, name in enumerate(table.index.names) if name in wanted]
            table = table.reset_index(level=levels) if levels else table
            return pa.Table.from_pandas(table, preserve_index=False)
        if kind == "polars":
            return (table.collect() if hasattr(table, "collect") else table).to_arrow()
        if is_table(table):
            return pa.table(dict(table) if isinstance(table, Mapping) else table)
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise InputError(f"the table cannot be read as columns of one kind each: {error}") from None
    raise InputError(
        "expected a table of pandas, polars or pyarrow, or a dict of columns, got "
        f"{type(table).__name__}"
    )


def read(
    table: Any,
    series_id: str | None,
    time: str,
    channel: str | None,
    value: str | None,
    channels: Sequence[str] | None,
    static: Sequence[str],
    label: str | None,
    time_origin: Any = None,
    absent: bool = False,
) -> tuple[Parts, Extras]:
    """-> parts and the extras of the constructor; arguments as in ``SeriesBatch.from_table``."""
    if isinstance(static, str) or isinstance(channels, str):
        raise InputError("static and channels must be sequences of column names, got one text")
    if (channel is None) != (value is None):
        raise InputError(
            "a long table needs both channel= and value=, a wide one neither; got "
            f"channel={channel!r}, value={value!r}"
        )
    roles = [n for n in (series_id, time, channel, value, label, *static) if n is not None]
    data = to_arrow(table, roles)
    check_columns(data, roles)
    if series_id is None:
        one = np.zeros(min(len(data), 1), dtype=np.int64)
        rows = Rows(data, one, one, len(one), None)
    else:
        with reading(series_id):
            keys, codes, starts = encode_runs(data, series_id)
        rows = Rows(data, codes, starts, len(keys), keys)
    with reading(time):
        seconds, origin = column_times(data, time, as_origin(time_origin))
    if channel is not None and value is not None:
        parts, names = _long(rows, seconds, origin, channel, value, channels, absent)
    else:
        taken = set(roles)
        if channels is None:
            names_left = [n for n in data.column_names if n not in taken]
            reader = _reader(data)
            channels = [n for n in names_left if not is_kept_index(n, series_id, reader)]
        check_columns(data, [*roles, *channels])
        parts, names = _wide(rows, seconds, origin, list(channels))
        _warn_of_row_numbers(parts, names)
    extras = Extras(channels=names, ids=rows.keys)
    if static:
        columns = [rows.constant(n, column_numbers) for n in static]
        extras["static"], extras["static_names"] = np.stack(columns, axis=1), tuple(static)
    if label is not None:
        extras["labels"] = rows.constant(label, plain)
    return parts, extras


def _wide(
    rows: Rows, times: FloatTimes, origin: np.datetime64 | None, channels: list[str]
) -> tuple[Parts, tuple[str, ...]]:
    columns = [rows.data.column(name) for name in channels]
    single = bool(columns) and all(pt.is_float32(c.type) or pt.is_float16(c.type) for c in columns)
    order = rows.order(times)
    values = np.empty((len(times), len(channels)), dtype=np.float32 if single else np.float64)
    if order is None:
        _side_by_side([number_parts(rows.data, name) for name in channels], values)
    else:
        for c, name in enumerate(channels):
            values[:, c] = column_numbers(rows.data, name)[order]
    times = times if order is None else times[order]
    offsets = rows.bounds
    if offsets is None:
        offsets = offsets_of(np.bincount(rows.codes, minlength=rows.n_series))
    return Parts(values, offsets, times, None, origin), tuple(channels)


def _warn_of_row_numbers(parts: Parts, channels: Sequence[str]) -> None:
    """Point out channels that number the rows of all series: they tell the series apart.

    A part of the rows is still numbered: by ones within each series, and no number comes twice.
    """
    first, last = parts.offsets[:-1], parts.offsets[1:] - 1
    if len(first) < 2 or len(parts.values) < _FEW or (first == last).all():
        return
    for c, name in enumerate(channels):
        column = parts.values[:, c]
        starts, ends = column[first], column[last]
        # A cheap look at the ends of the series settles it for nearly every channel.
        with np.errstate(invalid="ignore"):  # infinite values are refused later
            if (ends - starts != last - first).any() or (starts % 1 != 0).any():
                continue
        order = np.argsort(starts)
        steps = np.diff(column)
        steps[last[:-1]] = 1  # from one series to the next
        if (starts[order][1:] > ends[order][:-1]).all() and (steps == 1).all():
            warnings.warn(
                f"channel {name!r} is a running number of the rows, over all series: it may be an "
                "index that was saved with the data, and may hold the answer; leave it out by "
                "naming the other channels",
                UserWarning,
                stacklevel=4,
            )


def _side_by_side(columns: list[list[npt.NDArray[Any]]], out: npt.NDArray[Any]) -> None:
    """Columns, each in parts, into ``out (n, C)``; a cache takes what is written at a time."""
    lengths = [[len(part) for part in parts] for parts in columns]
    if any(other != lengths[0] for other in lengths):
        columns = [[np.concatenate(parts)] for parts in columns]
    at = 0
    for parts_of_rows in zip(*columns, strict=True):
        for first in range(0, len(parts_of_rows[0]), _AT_ONCE):
            here = out[at + first : at + first + _AT_ONCE]
            for c, part in enumerate(parts_of_rows):
                here[: len(part) - first, c] = part[first : first + _AT_ONCE]
        at += len(parts_of_rows[0])


def _long(
    rows: Rows,
    times: FloatTimes,
    origin: np.datetime64 | None,
    channel: str,
    value: str,
    channels: Sequence[str] | None,
    absent: bool,
) -> tuple[Parts, tuple[str, ...]]:
    entries, kinds = encode(rows.data, channel)
    present = [str(name) for name in entries]
    names = tuple(present if channels is None else channels)
    unknown = [n for n in names if n not in present]
    if unknown and len(kinds) and not absent:
        raise InputError(
            f"channel {unknown[0]!r} is not in column {channel!r}, which has "
            f"{', '.join(map(repr, present[:8]))}{', ...' if len(present) > 8 else ''}"
        )
    codes, data = rows.codes, column_numbers(rows.data, value)
    single = pt.is_float32(rows.data.column(value).type)
    place = np.array([names.index(n) if n in names else -1 for n in present], dtype=np.int64)
    kinds = place[kinds] if len(kinds) else kinds
    if (place < 0).any():  # rows of channels that were not chosen
        kept = np.flatnonzero(kinds >= 0)
        codes, times, kinds, data = codes[kept], times[kept], kinds[kept], data[kept]
        empty = np.flatnonzero(np.bincount(codes, minlength=rows.n_series) == 0)
        if len(empty):
            raise InputError(
                f"each series needs at least one row of the chosen channels, got none in "
                f"{rows.name(int(empty[0]))}; leave it out of the table or choose more channels"
            )
    order = sorting_order(codes, times, strict=False)
    if order is not None:
        codes, times, kinds, data = codes[order], times[order], kinds[order], data[order]
    new = np.ones(len(codes), dtype=bool)  # the first row of each point
    new[1:] = (codes[1:] != codes[:-1]) | (times[1:] != times[:-1])
    point = np.cumsum(new) - 1
    n_points = int(new.sum())
    cells = point * len(names) + kinds
    written = np.zeros(n_points * len(names), dtype=bool)
    written[cells] = True
    if np.count_nonzero(written) < len(cells):
        _refuse_twice(rows, codes, times, cells, kinds, names, origin)
    values = np.full(written.shape, np.nan, dtype=np.float32 if single else np.float64)
    values[cells] = data
    offsets = offsets_of(np.bincount(codes[new], minlength=rows.n_series))
    table = values.reshape(n_points, len(names))
    return Parts(table, offsets, times[new], None, origin), names


def _refuse_twice(
    rows: Rows,
    codes: Index,
    times: FloatTimes,
    cells: Index,
    kinds: Index,
    names: tuple[str, ...],
    origin: np.datetime64 | None,
) -> None:
    by_cell = np.argsort(cells, kind="stable")
    at = by_cell[1:][np.diff(cells[by_cell]) == 0].min()
    when = f"{times[at]}" + ("" if origin is None else f" s after {origin}")
    raise InputError(
        f"a channel can have one value at a time, got two for channel {names[kinds[at]]!r} at "
        f"time {when} of {rows.name(int(codes[at]))}; average them or keep one"
    )


def to_table(
    batch: Any,
    form: str = "wide",
    series_id: str = "series_id",
    time: str = "time",
    channel: str = "channel",
    value: str = "value",
    label: str = "label",
) -> pa.Table:
    """Convert a batch to a wide or long table with these column names; the inverse of ``read``."""
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
    stamps = batch.times
    if batch.time_origin is not None:
        stamps = batch.time_origin + np.rint(stamps * 1e9).astype("timedelta64[ns]")
    columns: dict[str, Any] = {series_id: ids[owner], time: stamps[points]}
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
    return pa.table(columns)
