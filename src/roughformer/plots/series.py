"""Pictures of series: alone, with a forecast, as tokens, and with what drove a prediction."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.plots.figure import (
    BLUE,
    GREY,
    LIGHT,
    ORANGE,
    Path,
    finish,
    new_figure,
    note,
    shorten,
    styled,
    tidy,
)
from roughformer.series import SeriesBatch
from roughformer.signatures import Windows

_MOST_CHANNELS = 12
_MOST_MARKS = 300  # beyond, the marks of single points would run into one band
_MOST_CUTS = 400

Array = npt.NDArray[Any]


def plot_series(
    batch: SeriesBatch,
    i: int = 0,
    *,
    windows: Windows | int | Sequence[float] | None = None,
    keep: Any = None,
    channels: Sequence[str] | None = None,
    path: Path | None = None,
) -> Any:
    """Plot one series, with one axes for each channel.

    Observations are points on a line; across values that are missing the line is thin and dashed.

    Parameters
    ----------
    batch : SeriesBatch
        The series.
    i : int, default 0
        Number of the series in the batch.
    windows : Windows, int or sequence of float, optional
        Draw the cut times.
    keep : array-like of bool (L_i,), optional
        Points where it is False count as dropped and are drawn as orange crosses off the line.
    channels : sequence of str, optional
        Names to draw, at most 12; by default the 12 with the most observations.
    path : path, optional
        Also save the figure there (PNG, SVG, PDF by its ending).

    Returns
    -------
    matplotlib.figure.Figure
    """
    one = one_series(batch, i)
    times, values = one.series(0)
    kept = _as_mask(keep, len(times))
    names = choose_channels(one, channels, _MOST_CHANNELS)
    cuts = None if windows is None else Windows.of(windows).place(batch).of(i % len(batch))
    with styled() as matplotlib:
        height = 1.0 + max(0.85 if len(names) > 6 else 1.35, 2.2 / max(len(names), 1)) * len(names)
        figure = new_figure(matplotlib, 9, height)
        rows = channel_axes(figure, names)
        for axes, name in zip(rows, names, strict=False):
            column = values[:, one.channels.index(name)]
            _draw_cuts(axes, cuts)
            draw_channel(axes, times, np.where(kept, column, np.nan))
            axes.plot(times[~kept], column[~kept], "x", color=ORANGE, ms=3.5, mew=0.9)
        rows[0].set_title(_headline(batch, i, len(times), kept, cuts))
        label = time_label(batch)
        if len(names) < one.n_channels:
            label += f"      {len(names)} of {one.n_channels} channels shown; others: channels=[…]"
        rows[-1].set_xlabel(label)
        return finish(figure, path)


def one_series(batch: SeriesBatch, i: int) -> SeriesBatch:
    """Series i alone, or ``InputError``."""
    if not isinstance(batch, SeriesBatch):
        raise InputError(
            f"a picture is drawn of a SeriesBatch, got {type(batch).__name__}; make one with "
            "rf.SeriesBatch.of(...)"
        )
    if not -len(batch) <= i < len(batch):
        raise InputError(f"there is no series {i}: the batch has {len(batch)}")
    return batch[int(i)]


def choose_channels(one: SeriesBatch, requested: Sequence[str] | None, most: int) -> list[str]:
    """Names in the order of the batch; by default those that are observed most."""
    if requested is None:
        seen = np.isfinite(one.values).sum(axis=0)
        best = np.sort(np.argsort(-seen, kind="stable")[:most])
        return [one.channels[c] for c in best]
    names = [requested] if isinstance(requested, str) else list(requested)
    unknown = [name for name in names if name not in one.channels]
    if unknown:
        raise InputError(
            f"there is no channel {unknown[0]!r}; there are {', '.join(one.channels[:20])}"
        )
    if len(names) > most:
        raise InputError(f"at most {most} channels fit in a picture, got {len(names)}; choose some")
    return names


def channel_axes(figure: Any, names: Sequence[str], empty: str = "no channels") -> Any:
    """One row of axes for each channel, with its name; without channels one that says ``empty``."""
    rows = figure.subplots(max(len(names), 1), 1, sharex=True, squeeze=False)[:, 0]
    for axes, name in zip(rows, names, strict=False):
        axes.set_ylabel(shorten(name, 18), rotation=0, ha="right", va="center")
    if not names:
        note(rows[0], empty)
    figure.align_ylabels(rows)
    return rows


def draw_channel(axes: Any, times: Array, column: Array) -> None:
    """Observations ``column (L,)`` at ``times (L,)``; NaN breaks the line."""
    tidy(axes, "y")
    seen = np.isfinite(column)
    if not seen.any():
        note(axes, "never observed")
        axes.set_yticks([])
        axes.set_xlim(*_limits(times))
        return
    broken = not seen.all()
    if broken:
        axes.plot(times[seen], column[seen], "--", color=LIGHT, lw=0.9, zorder=1.5)
    axes.plot(times, column, color=BLUE, lw=1.0 if len(times) < 2000 else 0.6)
    # A point between two gaps has no line: mark it, however many points there are.
    beside = np.concatenate([[False], seen, [False]])
    alone = seen & ~beside[:-2] & ~beside[2:]
    marked = seen if seen.sum() <= _MOST_MARKS else alone
    axes.plot(times[marked], column[marked], "o", color=BLUE, ms=2.6, mew=0)
    axes.locator_params(axis="y", nbins=4)
    axes.set_xlim(*_limits(times))


def time_label(batch: SeriesBatch) -> str:
    """Label of the time axis."""
    if batch.time_origin is None:
        return "time"
    return f"seconds since {np.datetime_as_string(batch.time_origin, 's').replace('T', ' ')}"


def title_of(batch: SeriesBatch, i: int) -> str:
    """Number or id of a series, and its label if that is one thing."""
    name = f"series {i}" if batch.ids is None else f"series {shorten(batch.ids[i], 40)}"
    if batch.labels is not None and batch.labels.ndim == 1:
        label = batch.labels[i]
        text = f"{label:.4g}" if isinstance(label, float | np.floating) else shorten(label, 40)
        name += f", label {text}"
    return name


def _headline(batch: SeriesBatch, i: int, length: int, kept: Array, cuts: Array | None) -> str:
    parts = [title_of(batch, i), _count(length, "point")]
    if not kept.all():
        parts.append(f"{int((~kept).sum())} dropped")
    if cuts is not None:
        parts.append(_count(len(cuts) - 1, "window"))
    return " · ".join(parts)


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def _limits(times: Array) -> tuple[float, float]:
    first, last = float(times[0]), float(times[-1])
    margin = 0.01 * (last - first) or 0.5
    return first - margin, last + margin


def _as_mask(keep: Any, length: int) -> Array:
    if keep is None:
        return np.ones(length, dtype=bool)
    mask = np.asarray(keep)
    if mask.shape != (length,) or mask.dtype != bool:
        raise InputError(
            f"keep must be {length} booleans, one for each point of the series, got "
            f"{mask.dtype} of shape {mask.shape}"
        )
    return mask


def _draw_cuts(axes: Any, cuts: Array | None) -> None:
    # Hundreds of lines would be a grey wall that hides the series.
    if cuts is not None and len(cuts) <= _MOST_CUTS:
        strength = 1.0 if len(cuts) < 40 else 0.7
        for cut in cuts:
            axes.axvline(cut, color=GREY, lw=0.8 * strength, alpha=0.6 * strength, zorder=1)


# The forecast of the last part of a series.

_MOST_FORECAST = 6


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
        most = np.sort(np.argsort(-count, kind="stable")[:_MOST_FORECAST])
        names = [one.channels[c] for c in most if count[c]]
    else:
        names = choose_channels(one, channels, _MOST_FORECAST)
    with styled() as matplotlib:
        figure = new_figure(matplotlib, 9, 1.2 + 1.5 * max(len(names), 1))
        rows = channel_axes(figure, names, "nothing was forecast")
        for axes, name in zip(rows, names, strict=False):
            c = one.channels.index(name)
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
        rows[0].set_title(
            f"{title_of(batch, i)}: forecast (orange) with intervals for "
            f"{backtest.coverage:.0%} of the values"
        )
        rows[-1].set_xlabel(time_label(batch))
        return finish(figure, path)


# What drove a prediction: windows, channels, words.

_MOST_EXPLAINED = 4
_MOST_BARS = 12


def plot_explanation(
    explanation: Any, batch: SeriesBatch | None = None, i: int = 0, *, path: Path | None = None
) -> Any:
    """Plot a series shaded by the importance of its windows, over bars for channels and words.

    The channels drawn are the (at most 4) most important ones, the bars the 12 largest by size.
    Orange speaks for the prediction, blue (below zero) against it.

    Parameters
    ----------
    explanation : Explanation
        What drove the prediction.
    batch : SeriesBatch, optional
        The series; not given: the one that the explanation keeps.
    i : int, default 0
        Number of the series in the batch.
    path : path, optional
        Also save the figure there (PNG, SVG, PDF by its ending).

    Returns
    -------
    matplotlib.figure.Figure
    """
    batch = explanation.series if batch is None else batch
    one = one_series(batch, i)
    times, values = one.series(0)
    importance = np.asarray(explanation.windows, dtype=np.float64)
    edges = np.asarray(explanation.window_edges, dtype=np.float64)
    if importance.ndim != 1 or edges.shape != (len(importance) + 1,):
        raise InputError(
            "an explanation needs windows (L,) and window_edges (L + 1,), got shapes "
            f"{importance.shape} and {edges.shape}"
        )
    names = _most_important(one, explanation.channels)
    groups = (("channels", explanation.channels), ("signature words", explanation.words))
    n_bars = max(1, *(min(len(bars), _MOST_BARS) for _, bars in groups))
    with styled() as matplotlib:
        top, bottom = max(0.6 + 1.15 * len(names), 2.3), 0.8 + 0.24 * max(n_bars, 3)
        figure = new_figure(matplotlib, 9, top + bottom + 0.4)
        above, below = figure.subfigures(2, 1, height_ratios=(top, bottom))
        rows = channel_axes(above, names)
        above.suptitle(
            f"{title_of(batch, i)}  →  {shorten(explanation.prediction, 70)}",
            x=0.01, ha="left", fontsize=11, fontweight="bold",
        )  # fmt: skip
        shade = None
        for axes, name in zip(rows, names, strict=False):
            draw_channel(axes, times, values[:, one.channels.index(name)])
            shade = _shade(matplotlib, axes, edges, importance)
        rows[-1].set_xlabel(time_label(batch))
        if shade is not None:
            bar = above.colorbar(shade, ax=list(rows), pad=0.01, aspect=15 * len(rows) ** 0.5)
            bar.set_label("window importance")
            bar.outline.set_visible(False)
            bar.locator = matplotlib.ticker.MaxNLocator(4)
            bar.update_ticks()
        for axes, (title, bars) in zip(below.subplots(1, 2), groups, strict=True):
            _draw_bars(axes, title, bars, n_bars)
        return finish(figure, path)


def _most_important(one: SeriesBatch, channels: Mapping[str, float]) -> list[str]:
    known = [name for name in channels if name in one.channels]
    if not known:
        return choose_channels(one, None, _MOST_EXPLAINED)
    first = sorted(known, key=lambda name: -abs(channels[name]))[:_MOST_EXPLAINED]
    return [name for name in one.channels if name in first]


def _shade(matplotlib: Any, axes: Any, edges: Any, importance: Any) -> Any:
    """Colour the windows behind the line; below zero means "spoke against the prediction"."""
    if len(importance) == 0:
        return None
    finite = np.where(np.isfinite(importance), importance, 0.0)
    signed = bool((finite < 0).any())
    largest = float(np.abs(finite).max()) or 1.0
    # Pale ends: the line in front must stay readable on the darkest shade.
    stops = ["#ffffff", "#fdd9a8", "#f0a24a"]
    if signed:
        stops = ["#8fb7dd", "#d6e6f5", *stops]
    colours = matplotlib.colors.LinearSegmentedColormap.from_list("shade", stops)
    low, high = axes.get_ylim()
    mesh = axes.pcolormesh(
        edges, (low, high), finite[None, :], cmap=colours, vmin=-largest if signed else 0.0,
        vmax=largest, zorder=0.5, rasterized=True,
    )  # fmt: skip
    axes.set_ylim(low, high)
    axes.grid(visible=False)
    return mesh


def _draw_bars(axes: Any, title: str, bars: Mapping[str, float], most: int) -> None:
    tidy(axes, "x")
    first = sorted(bars, key=lambda name: (-abs(bars[name]), name))[:_MOST_BARS]
    more = len(bars) - len(first)
    axes.set_title(title + (f" (first {len(first)} of {len(bars)})" if more else ""))
    if not first:
        note(axes, "none", ticks=False)
        return
    sizes = [float(bars[name]) for name in first]
    axes.barh(
        range(len(first)), sizes, height=0.68, color=[BLUE if v < 0 else ORANGE for v in sizes]
    )
    axes.axvline(0, color=GREY, lw=0.8)
    axes.set_yticks(range(len(first)), [shorten(name, 30) for name in first])
    # Few bars stay bars: they do not grow into blocks.
    axes.set_ylim(max(len(first), 3, 0.6 * most) - 0.4, -0.6)
    axes.set_xlabel("importance")
