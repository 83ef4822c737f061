"""From a file of series to a table of forecasts."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.cli import _options as options
from roughformer.errors import InputError
from roughformer.estimators import RFormerForecaster
from roughformer.runs import Columns, check_ending, ids_of, read_data, stamps, write_columns
from roughformer.series import SeriesBatch

__all__ = ["forecast_file"]

Array = npt.NDArray[Any]

_SHOWN = 4  # series that a report shows
_STEPS = 10  # times up to the horizon, where none are asked for


def forecast_file(
    path: Path,
    given: Columns,
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
    check_ending(out)
    options.check_place(out, "--out")
    if report is not None and report.suffix != ".html":
        raise InputError(f"--report: a page is called ....html, got {report.name!r}")
    options.check_place(report, "--report")
    if not 0 < interval < 1:
        raise InputError(f"--interval must lie between 0 and 1, got {interval}")
    batch = read_data(path, given).batch
    moments = _moments(batch, at)
    loaded = model is not None and model.exists()
    if model is not None and loaded:
        forecaster = RFormerForecaster.load(model).set_params(n_jobs=threads)
    else:
        series = batch if train is None else read_data(train, given).batch
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
    forecaster: RFormerForecaster,
    batch: SeriesBatch,
    coverage: float,
    name: str,
    trained_on_it: bool,
) -> None:
    """A page with forecasts of the last part of each series beside what came."""
    from roughformer.plots import plot_forecast, plot_horizon
    from roughformer.plots.report import write_report

    found = forecaster.backtest(batch, coverage=coverage)
    metrics = {}
    for c in np.unique(found.channel):
        mine = found.channel == c
        metrics[batch.channels[c]] = {
            "mean absolute error": float(np.abs(found.value - found.true)[mine].mean()),
            "of the last value": float(np.nanmean(np.abs(found.last - found.true)[mine])),
            "root mean squared error": float(
                np.sqrt(((found.value - found.true)[mine] ** 2).mean())
            ),
            f"in intervals for {coverage:.0%}": float(found.covered[mine].mean()),
            "values": int(mine.sum()),
        }
    count = np.bincount(found.series, minlength=len(batch))
    shown = np.sort(np.argsort(-count, kind="stable")[:_SHOWN])
    figures = [("Errors and coverage against the horizon.", plot_horizon(found))]
    figures += [
        (
            "A forecast of the last part from the part before it.",
            plot_forecast(found, batch, int(i)),
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
            "values forecast": len(found.true),
            "horizon": forecaster.horizon_,
            "values in intervals": f"{found.covered.mean():.1%} ({coverage:.0%} asked)",
        },
        metrics=metrics,
        figures=figures,
        config=forecaster.get_params(),
        notes=notes,
    )


def _moments(batch: SeriesBatch, at: tuple[str, ...]) -> Array | None:
    """The times that ``--at`` names, as numbers or dates; None if it names none."""
    if not at:
        return None
    kind: Any = np.float64 if batch.time_origin is None else "datetime64[ns]"
    try:
        return np.asarray(np.array(at).astype(kind))
    except ValueError:
        expected = "numbers" if batch.time_origin is None else "dates such as 2024-03-01T12:00"
        raise InputError(f"--at: expected {expected}, got {', '.join(at)}") from None
