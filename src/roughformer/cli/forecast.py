"""``roughformer forecast``."""

from pathlib import Path
from typing import Annotated

import typer

from roughformer.cli import common as options
from roughformer.cli.common import option


@options.grouped
def forecast(
    data: options.Data,
    table: options.FullTableOptions,
    model: Annotated[
        Path | None,
        option(
            "Directory of a forecaster: used if it is there, else learned from DATA (or "
            "--train) and written there (default: learned and not kept)."
        ),
    ] = None,
    train: Annotated[Path | None, option("Series to learn from (default: DATA itself).")] = None,
    at: Annotated[
        str | None, option("Times to answer for, e.g. 10,20 or 2024-03-01T12:00; past or future.")
    ] = None,
    ahead: Annotated[
        str | None,
        option(
            "Or: how long after the end of each series, e.g. 1,2,24, in the unit of the times "
            "(seconds for dates; default: ten steps up to the horizon)."
        ),
    ] = None,
    horizon: Annotated[
        float | None, option("How far ahead to learn (default: half a usual series, or --ahead).")
    ] = None,
    interval: Annotated[
        float, option("Share of new values that the intervals are to cover.")
    ] = 0.9,
    out: Annotated[
        Path | None, option("File to write, .csv or .parquet (default: CSV on stdout).")
    ] = None,
    report: Annotated[
        Path | None,
        option(
            "Page to write (.html): forecasts of the last part of each series of DATA beside "
            "what came, with errors against the horizon. Meaningful with --train or a model."
        ),
    ] = None,
    steps: Annotated[int, option("Steps of training.", min=1)] = 3000,
    seed: Annotated[int, option("Seed of the training.")] = 0,
    threads: options.Threads = None,
) -> None:
    """Forecast or interpolate: a row for each series, time and channel, with an interval."""
    if at is not None and ahead is not None:
        raise typer.BadParameter("give one of them only", param_hint="--at, --ahead")
    options.check_place(out, "--out")
    options.check_place(report, "--report")
    from roughformer.runs import forecast_file

    forecast_file(
        data, table.columns(), model=model, train=train, at=options.words_of(at),
        ahead=options.numbers_of(ahead or "", "--ahead"), horizon=horizon, interval=interval,
        out=out, report=report, steps=steps, seed=seed, threads=threads,
    )  # fmt: skip
    if out is not None:
        options.say(f"wrote {out}")
    if report is not None:
        options.say(f"wrote {report}")
