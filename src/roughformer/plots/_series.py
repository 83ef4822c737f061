"""One series: its channels one above the other, with gaps and windows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.plots._figure import (
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
from roughformer.windows import Windows

__all__ = ["choose_channels", "draw_channel", "one_series", "plot_series", "time_label", "title_of"]

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
    cuts = None if windows is None else _cuts(batch, i, windows)
    with styled() as matplotlib:
        height = 1.0 + max(0.85 if len(names) > 6 else 1.35, 2.2 / max(len(names), 1)) * len(names)
        figure = new_figure(matplotlib, 9, height)
        rows = figure.subplots(max(len(names), 1), 1, sharex=True, squeeze=False)[:, 0]
        for axes, name in zip(rows, names, strict=False):
            column = values[:, one.channels.index(name)]
            _draw_cuts(axes, cuts)
            draw_channel(axes, times, np.where(kept, column, np.nan))
            axes.plot(times[~kept], column[~kept], "x", color=ORANGE, ms=3.5, mew=0.9)
            axes.set_ylabel(shorten(name, 18), rotation=0, ha="right", va="center")
        if not names:
            note(rows[0], "no channels")
        rows[0].set_title(_headline(batch, i, len(times), kept, cuts))
        label = time_label(batch)
        if len(names) < one.n_channels:
            label += f"      {len(names)} of {one.n_channels} channels shown; others: channels=[…]"
        rows[-1].set_xlabel(label)
        figure.align_ylabels(rows)
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


def choose_channels(one: SeriesBatch, wish: Sequence[str] | None, most: int) -> list[str]:
    """Names in the order of the batch; without a wish those that are observed most."""
    if wish is None:
        seen = np.isfinite(one.values).sum(axis=0)
        best = np.sort(np.argsort(-seen, kind="stable")[:most])
        return [one.channels[c] for c in best]
    names = [wish] if isinstance(wish, str) else list(wish)
    unknown = [name for name in names if name not in one.channels]
    if unknown:
        raise InputError(
            f"there is no channel {unknown[0]!r}; there are {', '.join(one.channels[:20])}"
        )
    if len(names) > most:
        raise InputError(f"at most {most} channels fit in a picture, got {len(names)}; choose some")
    return names


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


def _cuts(batch: SeriesBatch, i: int, windows: Any) -> Array:
    return Windows.of(windows).place(batch).of(i % len(batch))


def _draw_cuts(axes: Any, cuts: Array | None) -> None:
    # Hundreds of lines would be a grey wall that hides the series.
    if cuts is not None and len(cuts) <= _MOST_CUTS:
        strength = 1.0 if len(cuts) < 40 else 0.7
        for cut in cuts:
            axes.axvline(cut, color=GREY, lw=0.8 * strength, alpha=0.6 * strength, zorder=1)
