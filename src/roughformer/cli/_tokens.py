"""Tokens of many series -> one Parquet file, a bounded number of series at a time."""

import os
import secrets
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import typer

from roughformer.cli import _options as options
from roughformer.cli._columns import Columns
from roughformer.cli._data import ids_of, read_data, stamps
from roughformer.dropping import keep_mask
from roughformer.errors import CapacityError, InputError
from roughformer.lifts import Clock, Lag, Lift
from roughformer.series import SeriesBatch, UnobservedWarning
from roughformer.signatures.api import multiview_signature
from roughformer.signatures.features import layout_of, memory_estimate, over_limit, readable
from roughformer.windows import Cuts, Windows

__all__ = ["Size", "TokenJob", "TokenOptions", "features_file", "lifts_of", "write_tokens"]

_BYTES_AT_ONCE = 1 << 26  # of tokens in memory, and so of a row group
_MOST_COLUMNS = 50_000  # a Parquet file with more is of no use
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Size:
    """How large the tokens of a job are, as float32."""

    series: int
    windows: int
    features: int

    @property
    def bytes(self) -> int:
        """Of all rows."""
        return memory_estimate(1, self.windows, self.features)


def lifts_of(words: tuple[str, ...]) -> tuple[Lift | str, ...]:
    """``time``, ``clock:8``, ``lag:0.5``, ... as lifts; ``none`` for none."""
    found: list[Lift | str] = []
    for word in () if words == ("none",) else words:
        name, _, amount = word.partition(":")
        try:
            if name == "lag":
                found.append(Lag(float(amount)))
            elif name == "clock" and amount:
                found.append(Clock(int(amount)))
            else:
                found.append(word)
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"--lift {word}: a number is needed after the colon") from None
    return tuple(found)


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
        if isinstance(self.rule, dict):
            ((kind, amount),) = self.rule.items()
            return Windows.by_duration(amount) if kind == "duration" else Windows.by_points(amount)
        return Windows.of(self.rule)

    @cached_property
    def cuts(self) -> Cuts:
        """Cut times of all series."""
        return self.windows.place(self.batch)

    @cached_property
    def layout(self) -> Any:
        """What a token holds."""
        return layout_of(self.batch.channels, self.depth, self.views, self.lifts, self.transform)

    @cached_property
    def names(self) -> list[str]:
        """Of the features."""
        return list(self.layout.names())

    def size(self) -> Size:
        """What will be written; nothing is computed."""
        return Size(len(self.batch), int(self.cuts.n_windows.sum()), self.layout.size)

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
        columns |= {name: np.ascontiguousarray(flat[:, k]) for k, name in enumerate(self.names)}
        return pa.table(columns)


@dataclass(frozen=True)
class TokenOptions:
    """What the command line says of tokens."""

    rule: Any
    depth: int
    views: tuple[str, ...]
    lifts: tuple[str, ...]
    transform: str
    drop: float
    seed: int
    threads: int | None


def features_file(
    data: Sequence[str],
    out: Path,
    columns: Columns,
    wanted: TokenOptions,
    label: str | None,
    labels: Path | None,
    *,
    force: bool,
    estimate: bool,
) -> None:
    """``roughformer features DATA --out tokens.parquet``."""
    if len(data) > 1:
        raise InputError(
            f"one file of tokens is made of one DATA, got {len(data)}; to make a store of many "
            "give --out a directory"
        )
    if not estimate:
        options.check_place(out, "--out")
    if out.exists() and not (force or estimate):
        raise InputError(
            f"{out} exists; choose another name with --out, or replace it with --force"
        )
    wish = label if label is not None or labels is None else "label"
    read = read_data(Path(data[0]), columns, target=wish, labels=labels)
    for note in read.notes:
        options.say(f"note: {note}")
    job = TokenJob(
        read.batch,
        read.batch.labels if read.target is None else read.target,
        rule=wanted.rule,
        depth=wanted.depth,
        views=wanted.views,
        lifts=lifts_of(wanted.lifts),
        transform=wanted.transform,
        drop=wanted.drop,
        seed=wanted.seed,
        threads=wanted.threads,
    )
    size = job.size()
    typer.echo(
        f"{size.series:,} series, {size.windows:,} windows, {size.features:,} features: "
        f"{readable(size.bytes)}"
    )
    if not estimate:
        write_tokens(job, out)
        typer.echo(f"wrote {out} ({readable(out.stat().st_size)})")


def write_tokens(job: TokenJob, path: Path) -> None:
    """Write aside, then move into place; a bar on a terminal if it takes long."""
    import pyarrow.parquet as pq
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
