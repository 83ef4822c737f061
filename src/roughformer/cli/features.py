"""``roughformer features``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from roughformer.cli import _options as options

__all__ = ["features"]

_STORE = "Feature store (--out DIR)"


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
    out: Annotated[
        str,
        typer.Option(
            help="A name that ends in .parquet: one file, a row per window. Any other path or URI: "
            "a store, a directory of shards with a row per series."
        ),
    ] = "tokens.parquet",
    windows: Annotated[
        int | None, typer.Option(min=1, help="Windows of a series (default: 75).")
    ] = None,
    window_duration: Annotated[
        float | None, typer.Option(help="Or: duration of a window, in the unit of the times.")
    ] = None,
    window_points: Annotated[
        int | None, typer.Option(min=1, help="Or: points of a window.")
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="Depth of the signatures.")] = 2,
    views: Annotated[
        str, typer.Option(help="global, local, or both: global,local.")
    ] = "global,local",
    lift: Annotated[
        str,
        typer.Option(
            help="Of time, counts, basepoint, clock, clock:N, lag:DELAY; none for none. Time is a "
            "fraction of each series' span; in a store it is in one unit, or time:span."
        ),
    ] = "time",
    transform: Annotated[str, typer.Option(help="signature or logsignature.")] = "signature",
    drop: Annotated[
        float, typer.Option(min=0, help="Share of each series' points to leave out.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the dropping.")] = 0,
    label: Annotated[
        str | None,
        typer.Option(help="Column with the label (default: that of a .ts or batch file)."),
    ] = None,
    labels: options.Labels = None,
    series_id: options.SeriesId = None,
    time: options.Time = None,
    channel: options.Channel = None,
    value: options.Value = None,
    channels: options.Channels = None,
    static: options.Static = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads, for one file (default: all).")
    ] = None,
    series: Annotated[
        bool,
        typer.Option(
            "--series",
            help="Keep the series too, to train with points dropped.",
            rich_help_panel=_STORE,
        ),
    ] = False,
    tokens: Annotated[
        bool,
        typer.Option(
            "--tokens/--no-tokens", help="Make tokens, or keep series only.", rich_help_panel=_STORE
        ),
    ] = True,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes (default: one for each core).", rich_help_panel=_STORE),
    ] = None,
    memory: Annotated[
        str,
        typer.Option(
            help="Data that each process may hold, e.g. 500MB; the interpreter comes on top.",
            rich_help_panel=_STORE,
        ),
    ] = "1GB",
    engine: Annotated[
        str,
        typer.Option(help="local: processes here; ray: a cluster.", rich_help_panel=_STORE),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="Of the Ray cluster (default: one on this machine).",
                     rich_help_panel=_STORE),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing file; make all of a store again.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Read finished shards, and make those that are damaged again.",
            rich_help_panel=_STORE,
        ),
    ] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Only print the size, write nothing.")
    ] = False,
) -> None:  # fmt: skip
    """Multi-view signatures of series: one Parquet file, or a store for data of any size.

    One file has a row per (series, window): series_id, window, start, end, label if there is one,
    and each feature by its word. A store has a row per series and is made in bounded memory, by
    several processes. Killed at any moment, the same command goes on where it was; complete, it
    does nothing; with other data or options it makes the store anew.
    """
    given = options.columns_of(series_id, time, channel, value, channels, static)
    rule: Any = options.windows_of(windows, window_duration, window_points)
    rule = 75 if rule is None else rule
    if Path(out).suffix.lower() in (".parquet", ".pq"):
        from roughformer.cli._tokens import TokenOptions, features_file

        made = TokenOptions(rule, depth, options.words_of(views), options.words_of(lift), transform,
                            drop, seed, threads)  # fmt: skip
        features_file(data, Path(out), given, made, label, labels, force=force, estimate=estimate)
        return
    from roughformer.cli._stores import StoreJob, bytes_of, token_config
    from roughformer.errors import InputError

    if Path(out).suffix.lower() in (".csv", ".tsv", ".gz", ".json", ".arrow", ".feather", ".ts"):
        raise InputError(
            f"cannot write {out}: the name must end in .parquet, or be that of a directory"
        )
    if verify and force:
        raise InputError("--verify keeps what is whole, --force keeps nothing; give one of them")
    if drop and isinstance(rule, dict) and "points" in rule:
        raise InputError("--drop cannot be combined with --window-points; cut by count or duration")
    config = None
    if tokens:
        config = token_config(
            options.words_of(lift),
            windows=rule,
            depth=depth,
            views=options.words_of(views),
            transform=transform,
            static=given.static,
        )
    job = StoreJob(data, out, given, label, labels)
    if estimate:
        job.estimate()
        return
    job.run(
        config,
        workers,
        series=series,
        drop=drop,
        seed=seed,
        engine=engine,
        address=address,
        memory=bytes_of(memory),
        afresh=force,
        verify=verify,
    )
