"""``roughformer forecast``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roughformer.cli import common as options

if TYPE_CHECKING:
    from roughformer.estimators import RFormerForecaster
    from roughformer.runs import Columns
    from roughformer.series import SeriesBatch

__all__ = ["forecast"]

_SHOWN = 4  # series that a report shows
_STEPS = 10  # times up to the horizon, where none are asked for


@options.grouped
def forecast(
    data: options.Data,
    table: options.FullTableOptions,
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
    threads: options.Threads = None,
) -> None:
    """Forecast or interpolate: a row for each series, time and channel, with an interval."""
    if at is not None and ahead is not None:
        raise typer.BadParameter("give one of them only", param_hint="--at, --ahead")
    _forecast_file(
        data, table.columns(), model=model, train=train, at=options.words_of(at),
        ahead=options.numbers_of(ahead or "", "--ahead"), horizon=horizon, interval=interval,
        out=out, report=report, steps=steps, seed=seed, threads=threads,
    )  # fmt: skip
    if out is not None:
        options.say(f"wrote {out}")
    if report is not None:
        options.say(f"wrote {report}")


def _forecast_file(
    path: Path,
    columns: "Columns",
    *,
    model: Path | None,
    train: Path | None,
    at: tuple[str, ...],
    ahead: list[float],
    horizon: float | None,
    interval: float,
    out: Path | None,
    report: Path | None,
    steps: int,
    seed: int,
    threads: int | None,
) -> None:
    """Write a row for each series, time and channel to ``out`` (None: CSV on stdout)."""
    import numpy as np

    from roughformer.errors import InputError
    from roughformer.estimators import RFormerForecaster
    from roughformer.runs import check_ending, ids_of, read_data, stamps, write_columns

    check_ending(out)
    options.check_place(out, "--out")
    if report is not None and report.suffix != ".html":
        raise InputError(f"--report: a page is called ....html, got {report.name!r}")
    options.check_place(report, "--report")
    if not 0 < interval < 1:
        raise InputError(f"--interval must lie between 0 and 1, got {interval}")
    batch = read_data(path, columns).batch
    moments = None
    if at:
        kind: Any = np.float64 if batch.time_origin is None else "datetime64[ns]"
        try:
            moments = np.asarray(np.array(at).astype(kind))
        except ValueError:
            expected = "numbers" if batch.time_origin is None else "dates such as 2024-03-01T12:00"
            raise InputError(f"--at: expected {expected}, got {', '.join(at)}") from None
    loaded = model is not None and model.exists()
    if model is not None and loaded:
        forecaster = RFormerForecaster.load(model).set_params(n_jobs=threads)
    else:
        series = batch if train is None else read_data(train, columns).batch
        forecaster = RFormerForecaster(
            horizon=horizon or max(ahead, default=0.0) or None,
            steps=steps,
            random_state=seed,
            n_jobs=threads,
        )
        options.say(f"learning from {len(series)} series")
        forecaster.fit(series)
        if model is not None:
            forecaster.save(model)
    if report is not None:
        trained_on_it = train is None and not loaded
        _write_report(report, forecaster, batch, interval, path.name, trained_on_it)
    if moments is None:
        ahead = ahead or np.linspace(0, forecaster.horizon_, _STEPS + 1)[1:].tolist()
        times = stamps(batch, batch.times[batch.offsets[1:] - 1][:, None] + np.array(ahead))
    else:
        times = np.tile(moments, (len(batch), 1))
    point = forecaster.predict(batch, at=times)
    lower, upper = forecaster.predict_interval(batch, at=times, coverage=interval)
    n_times, n_channels = times.shape[1], batch.n_channels
    write_columns(
        {
            "series_id": np.repeat(ids_of(batch), n_times * n_channels),
            "time": np.repeat(times.ravel(), n_channels),
            "channel": np.tile(np.array(batch.channels), times.size),
            "value": point.ravel(),
            "lower": lower.ravel(),
            "upper": upper.ravel(),
        },
        out,
    )


def _write_report(
    path: Path,
    forecaster: "RFormerForecaster",
    batch: "SeriesBatch",
    coverage: float,
    name: str,
    trained_on_it: bool,
) -> None:
    """A page with forecasts of the last part of each series beside what came."""
    import numpy as np

    from roughformer.plots import plot_forecast, plot_horizon
    from roughformer.plots.report import write_report

    backtest = forecaster.backtest(batch, coverage=coverage)
    metrics = {}
    for c in np.unique(backtest.channel):
        mine = backtest.channel == c
        metrics[batch.channels[c]] = {
            "mean absolute error": float(np.abs(backtest.value - backtest.true)[mine].mean()),
            "of the last value": float(np.nanmean(np.abs(backtest.last - backtest.true)[mine])),
            "root mean squared error": float(
                np.sqrt(((backtest.value - backtest.true)[mine] ** 2).mean())
            ),
            f"in intervals for {coverage:.0%}": float(backtest.covered[mine].mean()),
            "values": int(mine.sum()),
        }
    count = np.bincount(backtest.series, minlength=len(batch))
    shown = np.sort(np.argsort(-count, kind="stable")[:_SHOWN])
    figures = [("Errors and coverage against the horizon.", plot_horizon(backtest))]
    figures += [
        (
            "A forecast of the last part from the part before it.",
            plot_forecast(backtest, batch, int(i)),
        )
        for i in shown
        if count[i]
    ]
    notes = []
    if trained_on_it:
        notes.append(
            "The model was trained on these very series, so errors are smaller here than on new "
            "ones; learn from other series with --train."
        )
    write_report(
        path,
        title=f"Forecasts of {name}",
        facts={
            "series": len(batch),
            "values forecast": len(backtest.true),
            "horizon": forecaster.horizon_,
            "values in intervals": f"{backtest.covered.mean():.1%} ({coverage:.0%} asked)",
        },
        metrics=metrics,
        figures=figures,
        config=forecaster.get_params(),
        notes=notes,
    )
