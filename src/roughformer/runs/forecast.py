"""Forecasts of a file of series: as a table, and as a page beside what came."""

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from roughformer.errors import InputError
from roughformer.estimators import RFormerForecaster, duration_of
from roughformer.plots import plot_forecast, plot_horizon
from roughformer.plots.report import write_report
from roughformer.runs.data import Columns, ids_of, read_data, say, stamps
from roughformer.runs.evaluation import check_ending, write_columns
from roughformer.series import SeriesBatch

_SHOWN = 4  # series that a report shows
_TRAINING = 3000  # steps
_STEPS = 10  # times up to the horizon, where none are asked for


def forecast_file(
    path: Path,
    columns: Columns,
    *,
    model: Path | None,
    train: Path | None,
    at: tuple[str, ...],
    ahead: tuple[str, ...],
    horizon: str | None,
    known_future: tuple[str, ...],
    interval: float,
    out: Path | None,
    report: Path | None,
    one_series: bool,
    steps: int | None,
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
    loaded = None
    if model is not None and model.exists():
        loaded = RFormerForecaster.load(model).set_params(n_jobs=threads)
        roles = loaded.predictor_.metadata["data"].items()
        known = {role: name for role, name in roles if role in Columns.__dataclass_fields__}
        columns = columns.over(Columns.of(known))
        learning = {"--train": train, "--horizon": horizon, "--steps": steps}
        for name, value in (learning | {"--known-future": known_future or None}).items():
            if value is not None:
                raise InputError(
                    f"{name} is for learning, and {model} holds a forecaster that is used as is; "
                    f"leave {name} out, or name another directory with --model"
                )
    batch = read_data(path, columns, one_series=one_series or None).batch
    dated = batch.time_origin is not None
    moments = _moments(at, dated) if at else None
    steps_ahead = [_duration(text, "--ahead", dated) for text in ahead]
    if loaded is not None:
        forecaster = loaded
    else:
        data = read_data(path if train is None else train, columns, one_series=one_series or None)
        forecaster = RFormerForecaster(
            horizon=max(steps_ahead, default=None)
            if horizon is None
            else _duration(horizon, "--horizon", dated),
            known_future=known_future,
            steps=_TRAINING if steps is None else steps,
            random_state=seed,
            n_jobs=threads,
        )
        say(f"learning from {len(data.batch)} series of {', '.join(data.batch.channels)}")
        forecaster.fit(data.batch)
        say(forecaster.summary())
        forecaster.predictor_.metadata["data"] = data.columns.plain()
        if model is not None:
            forecaster.save(model)
    if report is not None:
        trained_on_it = train is None and loaded is None
        _write_report(report, forecaster, batch, interval, path.name, trained_on_it)
    if moments is None:
        after = np.array(steps_ahead or np.linspace(0, forecaster.horizon_, _STEPS + 1)[1:])
        times = stamps(batch, forecaster.predictor_.ends(batch)[:, None] + after)
    else:
        times = np.tile(moments, (len(batch), 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the intervals say the same
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


def _duration(text: str, name: str, dated: bool) -> float:
    try:
        number = float(text)
    except ValueError:
        return duration_of(text, name, dated=dated)
    if dated:  # days or seconds?
        raise InputError(
            f"{name}: with dates expected a unit, such as {text}d or {text}h, got {text}"
        )
    return duration_of(number, name, dated=dated)


def _moments(at: tuple[str, ...], dated: bool) -> Any:
    """Times of ``--at``. Of dates ``"20"`` is no year 20, and 2024 may be one, but who knows."""
    expected = "dates such as 2024-03-01T12:00" if dated else "numbers"
    try:
        if dated and any(re.fullmatch(r"[+-]?[0-9.]+", text) for text in at):
            expected += "; a year is 2024-01-01, and times after the end are --ahead"
            raise ValueError
        return np.array(at).astype("datetime64[ns]" if dated else np.float64)
    except ValueError:
        raise InputError(f"--at: expected {expected}, got {', '.join(at)}") from None


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
