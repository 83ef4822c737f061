"""Forecasts beside what came: one series with its bands, and errors against the horizon."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from roughformer.errors import InputError
from roughformer.plots.figure import (
    BLUE,
    GREY,
    ORANGE,
    Path,
    finish,
    new_figure,
    note,
    shorten,
    styled,
    tidy,
)
from roughformer.plots.series import draw_channel, one_series, time_label, title_of
from roughformer.series import SeriesBatch

__all__ = ["plot_forecast", "plot_horizon"]

_MOST_CHANNELS = 6
_RANGES = 8  # of the horizon, at most
_ENOUGH = 30  # values that a range of the horizon needs


def plot_forecast(
    backtest: Any,
    batch: SeriesBatch,
    i: int = 0,
    *,
    channels: Sequence[str] | None = None,
    path: Path | None = None,
) -> Any:
    """Plot one series with the forecast of its last part and its interval.

    Parameters
    ----------
    backtest : Backtest
        What ``RFormerForecaster.backtest`` gave.
    batch : SeriesBatch
        The series that were forecast.
    i : int, default 0
        Number of the series in the batch.
    channels : sequence of str, optional
        Names to draw, at most 6; by default those with the most forecasts.
    path : path, optional
        Also save the figure there (PNG, SVG, PDF by its ending).

    Returns
    -------
    matplotlib.figure.Figure
    """
    one = one_series(batch, i)
    times, values = one.series(0)
    mine = backtest.series == i
    count = np.bincount(backtest.channel[mine], minlength=one.n_channels)
    if channels is None:
        most = np.sort(np.argsort(-count, kind="stable")[:_MOST_CHANNELS])
        numbers = [int(c) for c in most if count[c]]
    else:
        unknown = [name for name in channels if name not in one.channels]
        if unknown or len(channels) > _MOST_CHANNELS:
            raise InputError(
                f"channels must be at most {_MOST_CHANNELS} of {', '.join(one.channels)}, got "
                f"{', '.join(map(str, channels))}"
            )
        numbers = [one.channels.index(name) for name in channels]
    with styled() as matplotlib:
        figure = new_figure(matplotlib, 9, 1.2 + 1.5 * max(len(numbers), 1))
        rows = figure.subplots(max(len(numbers), 1), 1, sharex=True, squeeze=False)[:, 0]
        for axes, c in zip(rows, numbers, strict=False):
            draw_channel(axes, times, values[:, c])
            mask = mine & (backtest.channel == c)
            at = backtest.time[mask]
            order = np.argsort(at)
            axes.fill_between(
                at[order], backtest.lower[mask][order], backtest.upper[mask][order],
                color=ORANGE, alpha=0.25, lw=0,
            )  # fmt: skip
            axes.plot(at[order], backtest.value[mask][order], "o-", color=ORANGE, lw=1.2, ms=2.6)
            if mask.any():
                origin = float((at - backtest.ahead[mask])[0])
                axes.axvline(origin, color=GREY, lw=0.8, ls=":")
            axes.set_ylabel(shorten(one.channels[c], 18), rotation=0, ha="right", va="center")
        if not numbers:
            note(rows[0], "nothing was forecast")
        rows[0].set_title(
            f"{title_of(batch, i)}: forecast (orange) with intervals for "
            f"{backtest.coverage:.0%} of the values"
        )
        rows[-1].set_xlabel(time_label(batch))
        figure.align_ylabels(rows)
        return finish(figure, path)


def plot_horizon(backtest: Any, *, path: Path | None = None) -> Any:
    """Plot errors and coverage against the horizon.

    Parameters
    ----------
    backtest : Backtest
        What ``RFormerForecaster.backtest`` gave.
    path : path, optional
        Also save the figure there (PNG, SVG, PDF by its ending).

    Returns
    -------
    matplotlib.figure.Figure
    """
    n = int(np.clip(len(backtest.ahead) // _ENOUGH, 1, _RANGES))
    with styled() as matplotlib:
        figure = new_figure(matplotlib, 9, 3.4)
        left, right = figure.subplots(1, 2)
        if len(backtest.ahead):
            edges = np.unique(np.quantile(backtest.ahead, np.linspace(0, 1, n + 1)[1:-1]))
            of_range = np.searchsorted(edges, backtest.ahead)
            ranges = [of_range == r for r in np.unique(of_range)]
            middle = [backtest.ahead[r].mean() for r in ranges]
            error = np.abs(backtest.error)
            last = np.abs(backtest.last - backtest.true) / backtest.scale
            left.plot(middle, [error[r].mean() for r in ranges], "o-", color=BLUE, label="forecast")
            seen = [np.nanmean(last[r]) if (~np.isnan(last[r])).any() else np.nan for r in ranges]
            left.plot(middle, seen, "s--", color=GREY, ms=4, label="last value")
            left.set_ylim(bottom=0)
            left.legend()
            right.plot(middle, [100 * backtest.covered[r].mean() for r in ranges], "o-", color=BLUE)
            right.set_ylim(min(50, right.get_ylim()[0]), 100)
        else:
            note(left, "nothing was forecast")
        right.axhline(100 * backtest.coverage, color=ORANGE, lw=1.2, ls="--")
        left.set_title("Mean absolute error, in spreads of a channel")
        right.set_title("Values in their intervals, %")
        for axes in (left, right):
            tidy(axes)
            axes.set_xlabel("time ahead")
        return finish(figure, path)
