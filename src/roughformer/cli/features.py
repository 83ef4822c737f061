"""``roughformer features``."""

import os
import time as clock
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from roughformer.cli import common as options
from roughformer.cli.common import option

if TYPE_CHECKING:
    from roughformer.runs import TokenJob
    from roughformer.store import Built
    from roughformer.store import Progress as StoreProgress


@dataclass(frozen=True)
class TokenOptions(options.WindowOptions):
    """What a token is made of; 75 windows by default."""

    depth: Annotated[int, option("Depth of the signatures.", min=1)] = 2
    views: Annotated[str, option("global, local, or both: global,local.")] = "global,local"
    lift: Annotated[
        str,
        option(
            "Of time, counts, basepoint, clock, clock:N, lag:DELAY; none for none. Time is a "
            "fraction of each series' span; in a store it is in one unit, or time:span."
        ),
    ] = "time"
    transform: Annotated[str, option("signature or logsignature.")] = "signature"
    drop: options.Drop = 0.0
    seed: options.Seed = 0

    @property
    def rule(self) -> Any:
        """How series are cut into windows."""
        return super().rule or 75


@dataclass(frozen=True)
class StoreOptions:
    """What a store holds, and who makes it."""

    panel: ClassVar = "Feature store (--out DIR)"
    series: Annotated[
        bool, option("Keep the series too, to train with points dropped.", "--series")
    ] = False
    tokens: Annotated[bool, option("Make tokens, or keep series only.", "--tokens/--no-tokens")] = (
        True
    )
    workers: Annotated[int | None, option("Processes (default: one for each core).", min=1)] = None
    memory: Annotated[
        str, option("Data that each process may hold, e.g. 500MB; the interpreter comes on top.")
    ] = "1GB"
    engine: Annotated[str, option("local: processes here; ray: a cluster.")] = "local"
    address: Annotated[str | None, option("Of the Ray cluster (default: one on this machine).")] = (
        None
    )
    verify: Annotated[
        bool, option("Read finished shards, and make those that are damaged again.", "--verify")
    ] = False


@options.grouped
def features(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA...",
            help="For a store: Parquet tables, as files, directories, patterns such as "
            "'data/**/*.parquet', or URIs (s3://, gs://, file://). For one file: whatever holds "
            "series, as in the other commands.",
        ),
    ],
    wanted: TokenOptions,
    table: options.FullTableOptions,
    store: StoreOptions,
    out: Annotated[
        str,
        option(
            "A name that ends in .parquet: one file, a row per window. Any other path or URI: "
            "a store, a directory of shards with a row per series."
        ),
    ] = "tokens.parquet",
    label: Annotated[
        str | None, option("Column with the label (default: that of a .ts or batch file).")
    ] = None,
    labels: options.Labels = None,
    threads: Annotated[int | None, option("Threads, for one file (default: all).", min=1)] = None,
    force: Annotated[
        bool, option("Replace an existing file; make all of a store again.", "--force")
    ] = False,
    estimate: Annotated[bool, option("Only print the size, write nothing.", "--estimate")] = False,
) -> None:
    """Multi-view signatures of series: one Parquet file, or a store for data of any size.

    Series are cut into 75 windows unless another number, a duration or points are given.
    One file has a row per (series, window): series_id, window, start, end, label if there is one,
    and each feature by its word. A store has a row per series and is made in bounded memory, by
    several processes. Killed at any moment, the same command goes on where it was; complete, it
    does nothing; with other data or options it makes the store anew.
    """
    if Path(out).suffix.lower() in (".parquet", ".pq"):
        if not estimate:
            options.check_place(Path(out), "--out")
            options.check_free([Path(out)], force)
        job = _file_job(data, wanted, table, label, labels)
        _write_file(replace(job, threads=threads), Path(out), estimate)
        return
    from roughformer.errors import InputError

    if Path(out).suffix.lower() in (".csv", ".tsv", ".gz", ".json", ".arrow", ".feather", ".ts"):
        raise InputError(
            f"cannot write {out}: the name must end in .parquet, or be that of a directory"
        )
    if store.verify and force:
        raise InputError("--verify keeps what is whole, --force keeps nothing; give one of them")
    if wanted.drop and isinstance(wanted.rule, dict) and "points" in wanted.rule:
        raise InputError("--drop cannot be combined with --window-points; cut by count or duration")
    _make_store(data, out, wanted, table, store, label, labels, force=force, estimate=estimate)


def _file_job(
    data: list[str],
    wanted: TokenOptions,
    table: options.FullTableOptions,
    label: str | None,
    labels: Path | None,
) -> "TokenJob":
    from roughformer.errors import InputError
    from roughformer.runs import TokenJob, lifts_of, read_data

    if len(data) > 1:
        raise InputError(
            f"one file of tokens is made of one DATA, got {len(data)}; to make a store of many "
            "give --out a directory"
        )
    target = label if label is not None or labels is None else "label"
    read = read_data(Path(data[0]), table.columns(), target=target, labels=labels)
    for note in read.notes:
        options.say(f"note: {note}")
    return TokenJob(
        read.batch,
        read.batch.labels if read.target is None else read.target,
        rule=wanted.rule,
        depth=wanted.depth,
        views=options.words_of(wanted.views),
        lifts=lifts_of(options.words_of(wanted.lift)),
        transform=wanted.transform,
        drop=wanted.drop,
        seed=wanted.seed,
    )


def _write_file(job: "TokenJob", out: Path, estimate: bool) -> None:
    from roughformer.runs import write_tokens
    from roughformer.signatures import readable

    size = job.size()
    typer.echo(
        f"{size.series:,} series, {size.windows:,} windows, {size.features:,} features: "
        f"{readable(size.bytes)}"
    )
    if not estimate:
        write_tokens(job, out)
        typer.echo(f"wrote {out} ({readable(out.stat().st_size)})")


def _make_store(
    data: list[str],
    out: str,
    wanted: TokenOptions,
    table: options.FullTableOptions,
    store: StoreOptions,
    label: str | None,
    labels: Path | None,
    *,
    force: bool,
    estimate: bool,
) -> None:
    from pydantic import ByteSize, TypeAdapter, ValidationError

    from roughformer.errors import InputError
    from roughformer.runs import label_table, store_columns, token_config
    from roughformer.signatures import readable
    from roughformer.store import build_store, by_id, find_files, open_source

    config = None
    if store.tokens:
        config = token_config(
            options.words_of(wanted.lift),
            windows=wanted.rule,
            depth=wanted.depth,
            views=options.words_of(wanted.views),
            transform=wanted.transform,
            static=table.columns().static,
        )
    try:
        memory = int(TypeAdapter(ByteSize).validate_python(store.memory.strip()))
    except ValidationError:
        raise InputError(f"--memory must be such as 500MB or 2GB, got {store.memory!r}") from None
    columns = store_columns(data, table.columns(), label, labels)
    if estimate:
        source = open_source(find_files(data), columns.needed, columns.series_id)
        columns.check(source.schema)
        size = sum(group.bytes for group in source.groups)
        way = "in the order of the series" if by_id(source.groups) else "to be shuffled by series"
        files = f"{len(source.files):,} files"
        typer.echo(f"{source.rows:,} rows in {files}, {readable(size)} in memory, {way}")
        return
    start = clock.perf_counter()
    with _bar() as progress:
        built = build_store(
            data,
            out,
            columns,
            config,
            labels=label_table(columns, label, labels),
            series=store.series,
            drop=wanted.drop,
            seed=wanted.seed,
            engine=store.engine,  # type: ignore[arg-type]
            workers=store.workers or os.cpu_count() or 1,
            address=store.address,
            memory=memory,
            afresh=force,
            verify=store.verify,
            progress=progress,
        )
    if store.verify and built.made == 0:
        options.say(f"note: all {built.kept:,} shards were read and are whole")
    _print_store(built, out, labels, clock.perf_counter() - start)


def _print_store(built: "Built", out: str, labels: Path | None, seconds: float) -> None:
    from roughformer.signatures import readable
    from roughformer.store import Place

    manifest, totals = built.manifest, built.manifest.totals
    windows = ""
    if manifest.tokenizer is not None:
        windows = f", {totals.windows:,} windows of {manifest.tokenizer.n_features:,} features"
    size = readable(sum(shard.bytes for shard in manifest.shards))
    what = (
        f"{totals.series:,} series, {totals.points:,} observations{windows}, "
        f"{len(manifest.shards):,} shards, {size}"
    )
    place = Place.of(out)
    if built.made == 0:
        typer.echo(f"{place} is complete, of these data and options; nothing to do: {what}")
        return
    for channel, count in built.unobserved.items():
        options.say(f"note: never observed, taken as constant 0: {channel!r} in {count:,} series")
    if built.left_out:
        options.say(f"note: {built.left_out:,} series have no row in {labels} and are left out")
    if built.kept:
        options.say(f"note: {built.kept:,} shards were finished before and are kept")
    speed = totals.points * built.made / len(manifest.shards) / seconds
    typer.echo(f"wrote {place}: {what}; {seconds:.1f} s, {speed:,.0f} observations/s")


@contextmanager
def _bar() -> Iterator["StoreProgress"]:
    """Show a progress bar with the time left, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} observations"),
        TimeRemainingColumn(), console=console, disable=not console.is_terminal,
    )  # fmt: skip
    tasks: dict[str, Any] = {}

    def update(stage: str, done: int, total: int) -> None:
        if stage not in tasks:
            tasks[stage] = bar.add_task(stage, total=total, completed=done)
        bar.update(tasks[stage], completed=done)

    with bar:
        yield update
