"""``roughformer forecast``."""

from pathlib import Path
from typing import Annotated

import typer

from roughformer.cli import _options as options

__all__ = ["forecast"]


def forecast(
    data: options.Data,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Directory of a forecaster: used if it is there, else learned from DATA (or "
            "--train) and written there (default: learned and not kept)."
        ),
    ] = None,
    train: Annotated[
        Path | None, typer.Option(help="Series to learn from (default: DATA itself).")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="Times to answer for, e.g. 10,20 or 2024-03-01T12:00; past or future."),
    ] = None,
    ahead: Annotated[
        str | None,
        typer.Option(
            help="Or: how long after the end of each series, e.g. 1,2,24, in the unit of the times "
            "(seconds for dates; default: ten steps up to the horizon)."
        ),
    ] = None,
    horizon: Annotated[
        float | None,
        typer.Option(help="How far ahead to learn (default: half a usual series, or --ahead)."),
    ] = None,
    interval: Annotated[
        float, typer.Option(help="Share of new values that the intervals are to cover.")
    ] = 0.9,
    out: Annotated[
        Path | None, typer.Option(help="File to write, .csv or .parquet (default: CSV on stdout).")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Page to write (.html): forecasts of the last part of each series of DATA beside "
            "what came, with errors against the horizon. Meaningful with --train or a model."
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of training.")] = 3000,
    seed: Annotated[int, typer.Option(help="Seed of the training.")] = 0,
    series_id: options.SeriesId = None,
    time: options.Time = None,
    channel: options.Channel = None,
    value: options.Value = None,
    channels: options.Channels = None,
    static: options.Static = None,
    threads: options.Threads = None,
) -> None:
    """Forecast or interpolate: a row for each series, time and channel, with an interval."""
    from roughformer.cli._forecasting import forecast_file

    given = options.columns_of(series_id, time, channel, value, channels, static)
    if at is not None and ahead is not None:
        raise typer.BadParameter("give one of them only", param_hint="--at, --ahead")
    forecast_file(
        data, given, model=model, train=train, at=options.words_of(at),
        ahead=options.numbers_of(ahead or "", "--ahead"), horizon=horizon, interval=interval,
        out=out, report=report, steps=steps, seed=seed, threads=threads,
    )  # fmt: skip
    if out is not None:
        options.say(f"wrote {out}")
    if report is not None:
        options.say(f"wrote {report}")
