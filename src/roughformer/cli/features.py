"""``roughformer features``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from roughformer.cli import _options as options

__all__ = ["features"]


def features(
    data: options.Data,
    out: Annotated[Path, typer.Option(help="Parquet file to write.")] = Path("tokens.parquet"),
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
        typer.Option(help="Of time, counts, basepoint, clock, clock:N, lag:DELAY; none for none."),
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
    threads: options.Threads = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Only print the size, write nothing.")
    ] = False,
) -> None:
    """Multi-view signatures of series as a Parquet file, one row per (series, window).

    Columns: series_id, window, start, end, label if there is one, and each feature by its word.
    """
    from roughformer.cli._data import read_data
    from roughformer.cli._tokens import TokenJob, lifts_of, write_tokens
    from roughformer.errors import InputError
    from roughformer.signatures.features import readable

    if out.suffix.lower() not in (".parquet", ".pq"):
        raise InputError(f"cannot write {out}: the name must end in .parquet")
    if not estimate:
        options.check_place(out, "--out")
    if out.exists() and not (force or estimate):
        raise InputError(
            f"{out} exists; choose another name with --out, or replace it with --force"
        )
    wish = label if label is not None or labels is None else "label"
    read = read_data(
        data,
        options.columns_of(series_id, time, channel, value, channels),
        target=wish,
        labels=labels,
    )
    for note in read.notes:
        options.say(f"note: {note}")
    rule: Any = options.windows_of(windows, window_duration, window_points)
    job = TokenJob(
        read.batch,
        read.batch.labels if read.target is None else read.target,
        rule=75 if rule is None else rule,
        depth=depth,
        views=options.words_of(views),
        lifts=lifts_of(options.words_of(lift)),
        transform=transform,
        drop=drop,
        seed=seed,
        threads=threads,
    )
    size = job.size()
    typer.echo(
        f"{size.series:,} series, {size.windows:,} windows, {size.features:,} features: "
        f"{readable(size.bytes)}"
    )
    if not estimate:
        write_tokens(job, out)
        typer.echo(f"wrote {out} ({readable(out.stat().st_size)})")
