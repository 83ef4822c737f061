"""Tokens of series as one Parquet file, and what a feature store needs to know of its tables."""

import os
import secrets
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from roughformer.errors import CapacityError, InputError
from roughformer.io import column_names
from roughformer.runs.data import (
    Columns,
    ids_of,
    resolve,
    say,
    stamps,
    values_by_series,
)
from roughformer.series import SeriesBatch, UnobservedWarning, keep_mask
from roughformer.signatures import (
    Clock,
    Cuts,
    Lag,
    Lift,
    Windows,
    layout_of,
    memory_estimate,
    multiview_signature,
    over_limit,
    readable,
)
from roughformer.store import (
    TableColumns,
    entries_of,
    find_files,
    keys_of,
    schema_of_file,
)
from roughformer.tokens import TokenConfig

_BYTES_AT_ONCE = 1 << 26  # of tokens in memory, and so of a row group
_MOST_COLUMNS = 50_000  # a Parquet file with more is of no use
Array = npt.NDArray[Any]


class Size(NamedTuple):
    """How large the tokens of a job are, as float32."""

    series: int
    windows: int
    features: int
    bytes: int


def _lift_options(words: Sequence[str]) -> dict[str, Any]:
    """``time``, ``time:span``, ``counts``, ``clock:8``, ``lag:0.5``, ... or ``none`` as options of
    ``TokenConfig``.
    """
    options: dict[str, Any] = {"time": "none"}
    for word in () if tuple(words) == ("none",) else words:
        name, _, amount = word.partition(":")
        try:
            if word in ("counts", "basepoint"):
                options[word] = True
            elif word in ("time", "time:span"):
                options["time"] = "span" if amount else "unit"
            elif name == "clock":
                options["clock"] = int(amount or 16)
            elif name == "lag":
                options["lags"] = (*options.get("lags", ()), float(amount))
            else:
                raise InputError(
                    f"--lift {word}: unknown; known are time, time:span, counts, basepoint, clock, "
                    "clock:N and lag:DELAY, or none"
                )
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"--lift {word}: a number is needed after the colon") from None
    return options


def lifts_of(words: Sequence[str]) -> tuple[Lift | str, ...]:
    """``time``, ``clock:8``, ``lag:0.5``, ... as lifts; ``none`` for none."""
    options = _lift_options(words)
    names: list[Lift | str] = [name for name in ("counts", "basepoint") if name in options]
    names += ["time"] if options["time"] != "none" else []
    clock = [Clock(options["clock"])] if "clock" in options else []
    return (*names, *clock, *(Lag(delay) for delay in options.get("lags", ())))


def token_config(lifts: Sequence[str], **options: Any) -> TokenConfig:
    """``time``, ``counts``, ``clock:8``, ... as a model's configuration has them."""
    return TokenConfig(**_lift_options(lifts), **options)


@dataclass(frozen=True)
class TokenJob:
    """Series, their labels ``(B,)`` if any, and what their tokens are made of."""

    batch: SeriesBatch
    labels: Array | None
    rule: Any
    depth: int
    views: tuple[Any, ...]
    lifts: tuple[Lift | str, ...]
    transform: Any
    drop: float = 0.0
    seed: int = 0
    threads: int | None = None

    @cached_property
    def windows(self) -> Windows:
        """The rule as the engine takes it."""
        return Windows.of(self.rule)

    @cached_property
    def cuts(self) -> Cuts:
        """Cut times of all series."""
        return self.windows.place(self.batch)

    @cached_property
    def layout(self) -> Any:
        """What a token holds."""
        return layout_of(self.batch.channels, self.depth, self.views, self.lifts, self.transform)

    def size(self) -> Size:
        """What will be written; nothing is computed."""
        windows, features = int(self.cuts.n_windows.sum()), self.layout.size
        return Size(len(self.batch), windows, features, memory_estimate(1, windows, features))

    def check(self, directory: Path) -> None:
        """``CapacityError`` if it cannot work out; nothing is allocated."""
        size = self.size()
        ways = "lower --depth, use --transform logsignature, one view or fewer channels"
        if size.features > _MOST_COLUMNS:
            raise CapacityError(
                f"a token would have {size.features:,} features, and a file of more than "
                f"{_MOST_COLUMNS:,} columns is of no use; {ways}"
            )
        one = memory_estimate(1, self.cuts.most, size.features)
        over = over_limit(2 * max(one, min(size.bytes, _BYTES_AT_ONCE)), None)
        if over is not None:
            raise CapacityError(
                f"the tokens of one series need {readable(one)}, and the memory has "
                f"{readable(over)}; {ways}, or take fewer windows"
            )
        free = shutil.disk_usage(directory).free
        if size.bytes > free:
            raise CapacityError(
                f"the tokens have {readable(size.bytes)}, but {directory} has {readable(free)} "
                f"left; {ways}, or write to another disk with --out"
            )

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Series ``[first, last)`` whose padded tokens stay within the bound."""
        counts = self.cuts.n_windows
        first = 0
        while first < len(counts):
            last, most = first, 0
            while last < len(counts):
                most = max(most, int(counts[last]))
                need = memory_estimate(last + 1 - first, most, self.layout.size)
                if need > _BYTES_AT_ONCE and last > first:
                    break
                last += 1
            yield first, last
            first = last

    def table(self, first: int, last: int, keep: Array | None) -> pa.Table:
        """The rows of some series."""
        part = self.batch[first:last]
        offsets = self.batch.offsets
        mask = None if keep is None else keep[offsets[first] : offsets[last]]
        tokens = multiview_signature(
            part, self.windows, self.depth, self.views, lifts=self.lifts,
            transform=self.transform, keep=mask, dtype=np.float32, threads=self.threads,
        )  # fmt: skip
        counts = self.cuts.n_windows[first:last]
        row = np.repeat(np.arange(last - first), counts)
        window = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        flat = tokens[row, window]  # (rows, d)
        edges = [self.cuts.of(b) for b in range(first, last)]
        columns: dict[str, Any] = {
            "series_id": ids_of(self.batch)[first:last][row],
            "window": window,
            "start": stamps(self.batch, np.concatenate([e[:-1] for e in edges])),
            "end": stamps(self.batch, np.concatenate([e[1:] for e in edges])),
        }
        if self.labels is not None and self.labels.ndim == 1:
            columns["label"] = self.labels[first:last][row]
        columns |= {
            name: np.ascontiguousarray(flat[:, k]) for k, name in enumerate(self.layout.names())
        }
        return pa.table(columns)


def write_tokens(job: TokenJob, path: Path) -> None:
    """Write aside, then move into place; a bar on a terminal if it takes long."""
    from rich.console import Console
    from rich.progress import track

    if len(job.batch) == 0:
        raise InputError("there are no series to take features of")
    job.check(path.parent)
    keep = keep_mask(job.batch.lengths, job.drop, job.seed) if job.drop else None
    if keep is not None and job.windows.rule == "points":
        raise InputError("--drop cannot be combined with --window-points; cut by count or duration")
    job.batch.warn_unobserved(job.batch.unobserved().sum(axis=0))
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    console = Console(stderr=True)
    chunks = list(job.chunks())
    writer: Any = None
    try:
        shown = console.is_terminal and len(chunks) > 1
        for first, last in track(chunks, "tokens", console=console, disable=not shown):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UnobservedWarning)  # said once, for all series
                table = job.table(first, last, keep)
            if writer is None:
                writer = pq.ParquetWriter(aside, table.schema, compression="zstd")
            writer.write_table(table, row_group_size=len(table))
        writer.close()
        os.replace(aside, path)
    except BaseException:
        with suppress(Exception):
            writer.close()
        aside.unlink(missing_ok=True)
        raise


# Tables of any size -> a feature store, with a bar on a terminal and a line at the end.


def store_columns(
    data: Sequence[Any], given: Columns, label: str | None = None, labels: Path | None = None
) -> TableColumns:
    """What the columns of the Parquet tables ``data`` mean, by the first file; ``given`` decides
    where it says something. ``labels``: a table that has the labels instead of a column ``label``.
    """
    files = find_files(data)
    for file in files:
        if not file.name.lower().endswith((".parquet", ".pq")):
            raise InputError(
                f"{file} is no .parquet: a store is made of Parquet tables. Write such files "
                "as tables with roughformer.io.write_table, or give --out a name that ends in "
                ".parquet to have one file of tokens"
            )
    schema = schema_of_file(files[0])
    if b"roughformer.batch" in (schema.metadata or {}):
        raise InputError(
            f"{files[0]} was written by SeriesBatch.save, whose ids and labels are no columns; "
            "write it as a table with roughformer.io.write_table"
        )
    # A column that is called like the labels of a table of labels holds them, too.
    taken = [name for name in (label,) if name is not None]
    # What directories tell (patient=17/) is the same in all rows of a file: no channel.
    keys = [name for name in keys_of(files[0]) if name not in schema.names]
    path, names = Path(str(files[0])), list(schema.names)

    def read(wanted: list[str]) -> Any:
        # The first row group is enough to tell, and fits into memory.
        present = [name for name in wanted if name in names]
        with files[0].open() as stream:
            file = pq.ParquetFile(stream)
            return file.read_row_group(0, present) if file.num_row_groups else file.read(present)

    try:
        columns = resolve(path, given, names, taken, read)
    except InputError:
        every, taken = [*names, *keys], [*taken, *keys]
        columns = resolve(path, given, every, taken, read)
    if columns.series_id in keys:
        say(f"note: series are told by directories, {columns.series_id}=...")
    assert columns.series_id is not None
    assert columns.time is not None
    channels = columns.channels
    if columns.channel is not None:
        present = entries_of(files, columns.channel)
        unknown = [name for name in channels or () if name not in present]
        if unknown:
            raise InputError(
                f"no row is of channel {unknown[0]!r}; the channels are {', '.join(present)}"
            )
        channels = channels or tuple(present)
    assert channels is not None
    return TableColumns(
        columns.series_id, columns.time, channels, columns.channel, columns.value, columns.static,
        label if labels is None else None,
    )  # fmt: skip


def label_table(
    columns: TableColumns, label: str | None, labels: Path | None
) -> dict[str, Any] | None:
    """id -> label, of a table of labels."""
    if labels is None:
        return None
    present = column_names(labels)
    key = columns.series_id if columns.series_id in present else present[0]
    name = label or ("label" if "label" in present else None)
    if name is None:
        others = [column for column in present if column != key]
        if len(others) != 1:
            raise InputError(
                f"which column of {labels} is the label: {', '.join(others)}? Name it with --label"
            )
        name = others[0]
    by_series = values_by_series(labels, key, name)
    if not by_series:
        raise InputError(f"{labels} has no label at all in its column {name!r}")
    return by_series
