"""Forecasts of a file of series: as a table, and as a page beside what came."""

from pathlib import Path
from typing import Any

import numpy as np

from roughformer.errors import InputError
from roughformer.estimators import RFormerForecaster
from roughformer.plots import plot_forecast, plot_horizon
from roughformer.plots.report import write_report
from roughformer.runs.data import Columns, ids_of, read_data, say, stamps
from roughformer.runs.evaluation import check_ending, write_columns
from roughformer.series import SeriesBatch

_SHOWN = 4  # series that a report shows
_STEPS = 10  # times up to the horizon, where none are asked for


def forecast_file(
    path: Path,
    columns: Columns,
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
    """Write a row for each series, time and channel to ``out`` (None: CSV on stdout).

    The forecaster is the one in ``model`` if there is one; else it learns from ``train``, or from
    the series themselves, and is kept in ``model``. ``report``: a page with a backtest.
    """
    check_ending(out)
    if report is not None and report.suffix != ".html":
        raise InputError(f"--report: a page is called ....html, got {report.name!r}")
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
        say(f"learning from {len(series)} series")
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
    forecaster: RFormerForecaster,
    batch: SeriesBatch,
    coverage: float,
    name: str,
    trained_on_it: bool,
) -> None:
    """A page with forecasts of the last part of each series beside what came."""
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
