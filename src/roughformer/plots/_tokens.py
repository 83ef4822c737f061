"""The tokens of one series as a heat map."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.plots._figure import Path, finish, new_figure, note, shorten, styled

__all__ = ["plot_tokens"]

_MOST_NAMES = 40


def plot_tokens(
    features: Any,
    times: Any,
    names: Sequence[str],
    *,
    per_feature: bool = False,
    title: str = "tokens",
    path: Path | None = None,
) -> Any:
    """Plot the tokens of one series as a heat map, a row for each feature.

    The colours reach from -s to s, where s is the 98th percentile of the absolute values, so that
    one outlier does not wash out the rest.

    Parameters
    ----------
    features : array-like (L, F)
        Tokens of L windows.
    times : array-like (L,) or (L + 1,)
        Ends of the windows, or the cut times.
    names : sequence of str
        Names of the features, shown if there are at most 40.
    per_feature : bool, default False
        First divide each row by its own s, for features of different sizes, such as the levels of a
        signature.
    title : str, default "tokens"
        Title of the figure.
    path : path, optional
        Also save the figure there (PNG, SVG, PDF by its ending).

    Returns
    -------
    matplotlib.figure.Figure
    """
    x = np.asarray(features, dtype=np.float64)
    if x.ndim != 2 or len(names) != x.shape[1]:
        raise InputError(
            f"features must be (L, F) with a name for each of the F features, got shape {x.shape} "
            f"and {len(names)} names"
        )
    edges = _edges(np.asarray(times, dtype=np.float64), len(x))
    if per_feature and x.size:
        size = np.array([_robust(column) for column in x.T])
        x = x / size
    n = x.shape[1]
    with styled() as matplotlib:
        row = 0.19 if n <= _MOST_NAMES else 6 / n
        figure = new_figure(matplotlib, 9, min(1.5 + max(row * n, 1.0), 9.5))
        axes = figure.subplots()
        axes.set_title(f"{shorten(title, 80)}: {len(x)} × {n}")
        axes.set_xlabel("time")
        if x.size == 0:
            note(axes, "no tokens")
            axes.set_xticks([])
            axes.set_yticks([])
            return finish(figure, path)
        # Light grey for NaN, which the white middle of the colours must not stand for.
        colours = matplotlib.colormaps["RdBu_r"].with_extremes(bad="#b9bcc2")
        limit = _robust(x)
        mesh = axes.pcolormesh(
            edges,
            np.arange(n + 1),
            np.where(np.isfinite(x), x, np.nan).T,
            cmap=colours,
            vmin=-limit,
            vmax=limit,
            rasterized=True,
        )
        axes.set_ylim(n, 0)
        axes.tick_params(length=0)
        if n <= _MOST_NAMES:
            axes.set_yticks(np.arange(n) + 0.5, [shorten(name, 32) for name in names], fontsize=8)
        else:
            axes.set_ylabel("feature number")
        bar = figure.colorbar(mesh, ax=axes, pad=0.01, extend="both", aspect=30)
        bar.outline.set_visible(False)
        bar.set_label("value / own 98th percentile" if per_feature else "value")
        return finish(figure, path)


def _robust(x: npt.NDArray[np.float64]) -> float:
    """The 98th percentile of |x| over what is finite; 1 if that is nothing."""
    size = np.abs(x[np.isfinite(x)])
    if len(size) == 0 or size.max() == 0:
        return 1.0
    return float(np.percentile(size, 98)) or float(size.max())


def _edges(times: npt.NDArray[np.float64], n_windows: int) -> npt.NDArray[np.float64]:
    if times.shape == (n_windows,) and n_windows:
        first = times[0] - (times[1] - times[0] if n_windows > 1 else 1.0)
        times = np.concatenate([[first], times])
    elif times.shape not in ((n_windows,), (n_windows + 1,)):
        raise InputError(
            f"times must be the {n_windows} ends of the windows or their {n_windows + 1} cut "
            f"times, got shape {times.shape}"
        )
    if not (np.isfinite(times).all() and (np.diff(times) > 0).all()):
        raise InputError("times must be finite and strictly increasing")
    return times
