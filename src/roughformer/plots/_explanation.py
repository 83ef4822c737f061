"""What drove a prediction: windows, channels, words."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from roughformer.errors import InputError
from roughformer.plots._figure import (
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
from roughformer.plots._series import (
    choose_channels,
    draw_channel,
    one_series,
    time_label,
    title_of,
)
from roughformer.series import SeriesBatch

__all__ = ["plot_explanation"]

_MOST_CHANNELS = 4
_MOST_BARS = 12


def plot_explanation(
    explanation: Any, batch: SeriesBatch, i: int = 0, *, path: Path | None = None
) -> Any:
    """Plot a series shaded by the importance of its windows, over bars for channels and words.

    The channels drawn are the (at most 4) most important ones, the bars the 12 largest by size.
    Orange speaks for the prediction, blue (below zero) against it.

    Parameters
    ----------
    explanation : Explanation
        What drove the prediction.
    batch : SeriesBatch
        The series.
    i : int, default 0
        Number of the series in the batch.
    path : path, optional
        Also save the figure there (PNG, SVG, PDF by its ending).

    Returns
    -------
    matplotlib.figure.Figure
    """
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
        rows = above.subplots(max(len(names), 1), 1, sharex=True, squeeze=False)[:, 0]
        above.suptitle(
            f"{title_of(batch, i)}  →  {shorten(explanation.prediction, 70)}",
            x=0.01,
            ha="left",
            fontsize=11,
            fontweight="bold",
        )
        shade = None
        for axes, name in zip(rows, names, strict=False):
            draw_channel(axes, times, values[:, one.channels.index(name)])
            shade = _shade(matplotlib, axes, edges, importance)
            axes.set_ylabel(shorten(name, 18), rotation=0, ha="right", va="center")
        if not names:
            note(rows[0], "no channels")
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
        return choose_channels(one, None, _MOST_CHANNELS)
    first = sorted(known, key=lambda name: -abs(channels[name]))[:_MOST_CHANNELS]
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
        edges,
        (low, high),
        finite[None, :],
        cmap=colours,
        vmin=-largest if signed else 0.0,
        vmax=largest,
        zorder=0.5,
        rasterized=True,
    )
    axes.set_ylim(low, high)
    axes.grid(visible=False)
    return mesh


def _draw_bars(axes: Any, title: str, bars: Mapping[str, float], most: int) -> None:
    tidy(axes, "x")
    first = sorted(bars, key=lambda name: (-abs(bars[name]), name))[:_MOST_BARS]
    more = len(bars) - len(first)
    axes.set_title(title + (f" (first {len(first)} of {len(bars)})" if more else ""))
    if not first:
        note(axes, "none")
        axes.set(xticks=[], yticks=[])
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
