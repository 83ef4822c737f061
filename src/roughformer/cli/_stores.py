"""Tables of any size -> a feature store, with a bar on a terminal and a line at the end."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import typer

from roughformer.cli._columns import Columns, column_names, resolve, values_by_series
from roughformer.cli._options import say
from roughformer.errors import InputError
from roughformer.signatures.features import readable
from roughformer.store import (
    Built,
    Place,
    Progress,
    TableColumns,
    build_store,
    by_id,
    entries_of,
    find_files,
    keys_of,
    open_source,
    schema_of_file,
)
from roughformer.tokens import TokenConfig

__all__ = ["StoreJob", "token_config"]

_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "": 1}


def token_config(lifts: Sequence[str], **options: Any) -> TokenConfig:
    """``time``, ``counts``, ``clock:8``, ``lag:0.5``, ... as a model's configuration has them."""
    found: dict[str, Any] = {"time": "none"}
    for word in () if tuple(lifts) == ("none",) else lifts:
        name, _, amount = word.partition(":")
        try:
            if word in ("counts", "basepoint"):
                found[word] = True
            elif word in ("time", "time:span"):
                found["time"] = "span" if amount else "unit"
            elif name == "clock":
                found["clock"] = int(amount or 16)
            elif name == "lag":
                found["lags"] = (*found.get("lags", ()), float(amount))
            else:
                raise InputError(
                    f"--lift {word}: unknown; known are time, time:span, counts, basepoint, clock, "
                    "clock:N and lag:DELAY, or none"
                )
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"--lift {word}: a number is needed after the colon") from None
    return TokenConfig(**found, **options)


def bytes_of(text: str) -> int:
    """``"500MB"``, ``"2 GB"`` -> bytes."""
    word = text.strip().lower().replace(" ", "")
    number = word.rstrip("kmgtb")
    try:
        return int(float(number) * _UNITS[word[len(number) :]])
    except (ValueError, KeyError):
        raise InputError(f"--memory must be such as 500MB or 2GB, got {text!r}") from None


@dataclass(frozen=True)
class StoreJob:
    """What the options of ``roughformer features`` ask for."""

    data: Sequence[str]
    out: str
    given: Columns
    label: str | None
    labels: Path | None

    def columns(self) -> TableColumns:
        """What the columns mean, by the first file."""
        files = find_files(self.data)
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
        label = self.label if self.labels is None else None
        # A column that is called like the labels of a table of labels holds them, too.
        taken = [name for name in (self.label,) if name is not None]
        # What directories tell (patient=17/) is the same in all rows of a file: no channel.
        keys = [name for name in keys_of(files[0]) if name not in schema.names]
        path, names = Path(str(files[0])), list(schema.names)

        def read(wanted: list[str]) -> Any:
            # The first row group is enough to tell, and fits into memory.
            columns = [name for name in wanted if name in names]
            with files[0].open() as stream:
                file = pq.ParquetFile(stream)
                return (
                    file.read_row_group(0, columns) if file.num_row_groups else file.read(columns)
                )

        try:
            found = resolve(path, self.given, names, taken, read)
        except InputError:
            found = resolve(path, self.given, [*names, *keys], [*taken, *keys], read)
        if found.series_id in keys:
            say(f"note: series are told by directories, {found.series_id}=...")
        assert found.series_id is not None
        assert found.time is not None
        channels = found.channels
        if found.channel is not None:
            present = entries_of(files, found.channel)
            unknown = [name for name in channels or () if name not in present]
            if unknown:
                raise InputError(
                    f"no row is of channel {unknown[0]!r}; the channels are {', '.join(present)}"
                )
            channels = channels or tuple(present)
        assert channels is not None
        return TableColumns(
            found.series_id, found.time, channels, found.channel, found.value, found.static, label
        )

    def label_table(self, columns: TableColumns) -> dict[str, Any] | None:
        """id -> label, of a table of labels."""
        if self.labels is None:
            return None
        present = column_names(self.labels)
        key = columns.series_id if columns.series_id in present else present[0]
        name = self.label or ("label" if "label" in present else None)
        if name is None:
            others = [column for column in present if column != key]
            if len(others) != 1:
                raise InputError(
                    f"which column of {self.labels} is the label: {', '.join(others)}? Name it "
                    "with --label"
                )
            name = others[0]
        found = values_by_series(self.labels, key, name)
        if not found:
            raise InputError(f"{self.labels} has no label at all in its column {name!r}")
        return found

    def estimate(self) -> None:
        """What the footers tell; nothing is written."""
        columns = self.columns()
        source = open_source(find_files(self.data), columns.needed, columns.series_id)
        columns.check(source.schema)
        size = sum(group.bytes for group in source.groups)
        way = "in the order of the series" if by_id(source.groups) else "to be shuffled by series"
        files = f"{len(source.files):,} files"
        typer.echo(f"{source.rows:,} rows in {files}, {readable(size)} in memory, {way}")

    def run(self, config: TokenConfig | None, workers: int | None, **options: Any) -> None:
        """Make the store and say what was done."""
        columns = self.columns()
        start = time.perf_counter()
        with _bar() as progress:
            built = build_store(
                self.data,
                self.out,
                columns,
                config,
                labels=self.label_table(columns),
                workers=workers or os.cpu_count() or 1,
                progress=progress,
                **options,
            )
        if options["verify"] and built.made == 0:
            say(f"note: all {built.kept:,} shards were read and are whole")
        self._say(built, time.perf_counter() - start)

    def _say(self, built: Built, seconds: float) -> None:
        manifest, totals = built.manifest, built.manifest.totals
        windows = ""
        if manifest.tokenizer is not None:
            windows = f", {totals.windows:,} windows of {manifest.tokenizer.n_features:,} features"
        size = readable(sum(shard.bytes for shard in manifest.shards))
        what = (
            f"{totals.series:,} series, {totals.points:,} observations{windows}, "
            f"{len(manifest.shards):,} shards, {size}"
        )
        place = Place.of(self.out)
        if built.made == 0:
            typer.echo(f"{place} is complete, of these data and options; nothing to do: {what}")
            return
        for channel, count in built.unobserved.items():
            say(f"note: never observed, taken as constant 0: {channel!r} in {count:,} series")
        if built.left_out:
            say(f"note: {built.left_out:,} series have no row in {self.labels} and are left out")
        if built.kept:
            say(f"note: {built.kept:,} shards were finished before and are kept")
        speed = totals.points * built.made / len(manifest.shards) / seconds
        typer.echo(f"wrote {place}: {what}; {seconds:.1f} s, {speed:,.0f} observations/s")


@contextmanager
def _bar() -> Iterator[Progress]:
    """A bar with throughput and time left, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} observations"),
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
        console=console, disable=not console.is_terminal,
    )  # fmt: skip
    tasks: dict[str, tuple[Any, float, int]] = {}

    def tell(stage: str, done: int, total: int) -> None:
        if stage not in tasks:
            # What was finished before does not count for the speed.
            task = bar.add_task(stage, total=total, completed=done, rate="")
            tasks[stage] = (task, time.perf_counter(), done)
            return
        task, start, first = tasks[stage]
        rate = (done - first) / max(time.perf_counter() - start, 1e-9)
        bar.update(task, completed=done, rate=f"{rate / 1e6:.2f} M/s")

    with bar:
        yield tell
