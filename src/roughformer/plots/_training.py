"""How a training went."""

from collections.abc import Mapping, Sequence
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
    styled,
    tidy,
)

__all__ = ["plot_history"]

_HIGHER_IS_BETTER = {"accuracy", "balanced_accuracy", "auroc", "auprc", "f1", "r2"}


def plot_history(
    history: Sequence[Mapping[str, Any]],
    *,
    higher_is_better: bool | None = None,
    path: Path | None = None,
) -> Any:
    """Plot losses with the learning rate behind them, and the metric with its best epoch.

    Parameters
    ----------
    history : sequence of mapping
        Records with "epoch", "train_loss", "valid_loss", "valid_metric", "metric" (its name) and
        "learning_rate". None and NaN are gaps; what no record has is left out.
    higher_is_better : bool, optional
        Of the metric; by default known from its name (an unknown one is an error: lower is better).
    path : path, optional
        Also save the figure there (PNG, SVG, PDF by its ending).

    Returns
    -------
    matplotlib.figure.Figure
    """
    epochs = _column(history, "epoch")
    if not np.isfinite(epochs).all():
        raise InputError('each record of the history needs its number under "epoch"')
    with styled() as matplotlib:
        figure = new_figure(matplotlib, 9, 3.4)
        left, right = figure.subplots(1, 2)
        for axes in (left, right):
            tidy(axes)
            axes.set_xlabel("epoch")
            whole = matplotlib.ticker.MaxNLocator(integer=True, nbins=8, min_n_ticks=1)
            axes.xaxis.set_major_locator(whole)
        left.set_title("loss")
        right.set_title("metric")
        if len(history) == 0:
            for axes in (left, right):
                note(axes, "no epochs yet")
                axes.set(xticks=[], yticks=[])
            return finish(figure, path)
        margin = max(0.02 * float(np.ptp(epochs)), 0.5)
        for axes in (left, right):
            axes.set_xlim(float(epochs.min()) - margin, float(epochs.max()) + margin)
        _draw_losses(left, history, epochs)
        name = next((str(r["metric"]) for r in history if r.get("metric")), "")
        if higher_is_better is None:
            higher_is_better = name in _HIGHER_IS_BETTER
        _draw_metric(right, _column(history, "valid_metric"), epochs, name, higher_is_better)
        return finish(figure, path)


def _column(history: Sequence[Mapping[str, Any]], key: str) -> npt.NDArray[np.float64]:
    """``(epochs,)``, NaN where a record has nothing."""
    values = [record.get(key) for record in history]
    return np.array([np.nan if v is None else float(v) for v in values])


def _draw_losses(axes: Any, history: Any, epochs: npt.NDArray[np.float64]) -> None:
    rate = _column(history, "learning_rate")
    if np.isfinite(rate).any():
        behind = axes.twinx()
        behind.fill_between(epochs, rate, color=LIGHT, alpha=0.35, lw=0)
        behind.set_ylim(0, 1.25 * np.nanmax(rate) or 1)
        behind.set_ylabel("learning rate (grey)", color=GREY)
        behind.tick_params(length=0, labelcolor=GREY)
        behind.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
        axes.set_zorder(behind.get_zorder() + 1)
        axes.patch.set_visible(False)
    mark = _mark(epochs)
    lines = (("training", "train_loss", BLUE, "-"), ("validation", "valid_loss", ORANGE, "--"))
    for label, key, colour, style in lines:
        loss = _column(history, key)
        if np.isfinite(loss).any():
            axes.plot(epochs, loss, style, marker=mark, ms=3, color=colour, label=label)
    found = [value for line in axes.lines for value in line.get_ydata() if np.isfinite(value)]
    if found and min(found) > 0 and max(found) > 20 * min(found):
        axes.set_yscale("log")
    if axes.lines:
        axes.legend(loc="best")
    else:
        note(axes, "no losses recorded")


def _draw_metric(
    axes: Any, metric: npt.NDArray[np.float64], epochs: npt.NDArray[np.float64], name: str, up: bool
) -> None:
    readable = name.replace("_", " ") or "metric"
    axes.set_title(f"validation {readable}, {'higher' if up else 'lower'} is better")
    if not np.isfinite(metric).any():
        note(axes, "no validation")
        axes.set_title("validation")
        axes.set(xticks=[], yticks=[])
        return
    axes.plot(epochs, metric, marker=_mark(epochs), ms=3, color=ORANGE)
    best = int(np.nanargmax(metric) if up else np.nanargmin(metric))
    axes.axvline(epochs[best], color=GREY, lw=0.8, ls=":")
    axes.plot(epochs[best], metric[best], "o", ms=8, mfc="white", mec=ORANGE, mew=1.8, label="best")
    late = best > len(metric) / 2
    axes.annotate(
        f"best {metric[best]:.4g}\nepoch {epochs[best]:g}",
        (epochs[best], metric[best]),
        xytext=(-10 if late else 10, -8 if up else 8),
        textcoords="offset points",
        ha="right" if late else "left",
        va="top" if up else "bottom",
        bbox={"boxstyle": "round,pad=0.2", "fc": "white", "ec": "none", "alpha": 0.85},
    )


def _mark(epochs: npt.NDArray[np.float64]) -> str:
    return "o" if len(epochs) <= 40 else ""
