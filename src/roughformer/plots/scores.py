"""Pictures of a training, and of predictions beside the truth."""

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

_HIGHER_IS_BETTER = {"accuracy", "balanced_accuracy", "auroc", "auprc", "f1", "r2"}


def plot_history(
    history: Any,
    *,
    higher_is_better: bool | None = None,
    path: Path | None = None,
) -> Any:
    """Plot losses with the learning rate behind them, and the metric with its best epoch.

    Parameters
    ----------
    history : sequence of mapping, or estimator
        A fitted estimator, or its ``history_``: records with "epoch", "train_loss", "valid_loss",
        "valid_metric", "metric" (its name) and "learning_rate". None and NaN are gaps; what no
        record has is left out.
    higher_is_better : bool, optional
        Of the metric; by default known from its name (an unknown one is an error: lower is better).
    path : path, optional
        Also save the figure there (PNG, SVG, PDF by its ending).

    Returns
    -------
    matplotlib.figure.Figure
    """
    history = getattr(history, "history_", history)
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
                note(axes, "no epochs yet", ticks=False)
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
    losses = [value for line in axes.lines for value in line.get_ydata() if np.isfinite(value)]
    if losses and min(losses) > 0 and max(losses) > 20 * min(losses):
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
        note(axes, "no validation", ticks=False)
        axes.set_title("validation")
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


# Predictions beside the truth.

_MOST_NUMBERS = 15  # classes whose cells are large enough for a number
_MOST_NAMES = 40
_MOST_DOTS = 20_000
_RANGES = 8  # of the horizon, at most
_ENOUGH = 30  # values that a range of the horizon needs


def plot_confusion(matrix: Any, classes: Sequence[Any], *, path: Path | None = None) -> Any:
    """Plot a confusion matrix.

    The colour is the share of the row, so that rare classes are as readable as frequent ones.

    Parameters
    ----------
    matrix : array-like (K, K)
        Counts; rows are the truth, columns the prediction.
    classes : sequence
        Class labels.
    path : path, optional
        Also save the figure there (PNG, SVG, PDF by its ending).

    Returns
    -------
    matplotlib.figure.Figure
    """
    counts = np.asarray(matrix)
    k = len(classes)
    if counts.shape != (k, k) or (counts.size and not (counts >= 0).all()):
        raise InputError(
            f"matrix must be ({k}, {k}) counts, one row for each of {k} classes, got shape "
            f"{counts.shape}" + ("" if counts.shape != (k, k) else " with a number below zero")
        )
    total = counts.sum(axis=1, keepdims=True) if k else counts
    share = np.divide(counts, total, out=np.zeros(counts.shape), where=total > 0)
    with styled() as matplotlib:
        size = min(3.2 + 0.5 * k, 8.5) if k <= _MOST_NUMBERS else 8.5
        figure = new_figure(matplotlib, size + 0.6, size)
        axes = figure.subplots()
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")
        axes.tick_params(length=0)
        if k == 0:
            note(axes, "no classes", ticks=False)
            return finish(figure, path)
        right = float(np.trace(counts) / counts.sum()) if counts.sum() else float("nan")
        axes.set_title(f"{counts.sum():,.0f} predictions, {right:.1%} right" if total.any() else "")
        image = axes.imshow(share, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        for side in axes.spines.values():
            side.set_visible(False)
        if k <= _MOST_NAMES:
            names = [shorten(c, 16) for c in classes]
            turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
            long = sum(map(len, names)) > 40
            small = 8 if k > _MOST_NUMBERS else 9.5
            axes.set_xticks(range(k), names, fontsize=small, **(turned if long else {}))
            axes.set_yticks(range(k), names, fontsize=small)
        if k <= _MOST_NUMBERS:
            for (row, column), count in np.ndenumerate(counts):
                colour = "white" if share[row, column] > 0.55 else "#303338"
                text = f"{count:,.0f}" if count else "·"
                axes.text(column, row, text, ha="center", va="center", color=colour)
        bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02, aspect=25)
        bar.ax.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0, decimals=0))
        bar.set_label("share of the true class")
        bar.outline.set_visible(False)
        return finish(figure, path)


def plot_calibration(
    labels: Any, probabilities: Any, *, bins: int = 10, path: Path | None = None
) -> Any:
    """Plot how often predictions made with a certain confidence are right.

    With two classes the confidence is the probability of class 1 and "right" is "class 1 occurs";
    with more it is the largest probability. A bar is the 95 % interval (Wilson). The error in the
    title is the mean gap between confidence and frequency, weighted by group size.

    Parameters
    ----------
    labels : array-like of int (N,)
        Class numbers.
    probabilities : array-like (N, K)
        Predicted probabilities.
    bins : int, default 10
        Maximum number of groups, which have equal size.
    path : path, optional
        Also save the figure there (PNG, SVG, PDF by its ending).

    Returns
    -------
    matplotlib.figure.Figure
    """
    p = np.asarray(probabilities, dtype=np.float64)
    y = np.asarray(labels)
    if p.ndim != 2 or y.shape != (len(p),):
        raise InputError(
            f"expected probabilities (N, K) and labels (N,), got shapes {p.shape} and {y.shape}"
        )
    binary = p.shape[1] == 2
    with styled() as matplotlib:
        figure = new_figure(matplotlib, 5.2, 5.6)
        axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        for part in (axes, below):
            tidy(part)
        axes.plot([0, 1], [0, 1], ls="--", color=GREY, lw=1, label="perfect")
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        axes.set_ylabel("how often class 1 occurs" if binary else "how often it is right")
        below.set_xlabel("probability of class 1" if binary else "confidence (largest probability)")
        below.set_ylabel("predictions")
        if p.size == 0:
            note(axes, "no predictions")
            return finish(figure, path)
        confidence = p[:, 1] if binary else p.max(axis=1)
        right = (y == 1) if binary else (p.argmax(axis=1) == y)
        groups = np.array_split(np.argsort(confidence, kind="stable"), min(bins, len(y)))
        mean = np.array([confidence[g].mean() for g in groups])
        rate = np.array([right[g].mean() for g in groups])
        size = np.array([len(g) for g in groups])
        low, high = _wilson(rate, size)
        gap = float((np.abs(rate - mean) * size).sum() / size.sum())
        axes.errorbar(
            mean, rate, yerr=np.stack([rate - low, high - rate]).clip(0), fmt="o-", color=BLUE,
            ecolor=LIGHT, elinewidth=2, ms=5, label="observed, 95 % interval",
        )  # fmt: skip
        axes.legend(loc="upper left")
        axes.set_title(f"calibration error {gap:.3f}")
        below.hist(confidence, bins=np.linspace(0, 1, 41), color=BLUE, alpha=0.8)
        return finish(figure, path)


def plot_regression(
    true: Any, predicted: Any, interval: Any = None, *, path: Path | None = None
) -> Any:
    """Plot predicted against true values, and the errors.

    Parameters
    ----------
    true : array-like (N,)
        True values; NaN is left out.
    predicted : array-like (N,)
        Predicted values.
    interval : array-like (N, 2), optional
        Lower and upper ends, drawn as bars; the title tells how many true values they hold.
    path : path, optional
        Also save the figure there (PNG, SVG, PDF by its ending).

    Returns
    -------
    matplotlib.figure.Figure
    """
    y, guess = np.asarray(true, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    if y.ndim != 1 or y.shape != guess.shape:
        raise InputError(
            f"expected true (N,) and predicted (N,), got shapes {y.shape} and {guess.shape}"
        )
    ends = None if interval is None else np.asarray(interval, dtype=np.float64)
    if ends is not None and ends.shape != (len(y), 2):
        raise InputError(f"interval must be ({len(y)}, 2), lower and upper, got {ends.shape}")
    known = np.isfinite(y) & np.isfinite(guess)
    y, guess, ends = y[known], guess[known], None if ends is None else ends[known]
    with styled() as matplotlib:
        figure = new_figure(matplotlib, 9, 4.4)
        left, right = figure.subplots(1, 2, width_ratios=(1.1, 1))
        for axes in (left, right):
            tidy(axes)
        left.set(xlabel="true", ylabel="predicted")
        right.set(xlabel="predicted − true", ylabel="series")
        if len(y) == 0:
            for axes in (left, right):
                note(axes, "no predictions", ticks=False)
            return finish(figure, path)
        _draw_scatter(left, y, guess, ends)
        error = guess - y
        rmse, mae = float(np.sqrt((error**2).mean())), float(np.abs(error).mean())
        median = float(np.median(np.abs(error)))
        right.set_title(f"RMSE {rmse:.3g} · MAE {mae:.3g} · median {median:.3g}")
        _draw_errors(right, error)
        right.axvline(0, color=GREY, lw=1, ls="--")
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


def _draw_scatter(axes: Any, y: Any, guess: Any, ends: Any) -> None:
    low, high = float(min(y.min(), guess.min())), float(max(y.max(), guess.max()))
    margin = 0.04 * (high - low) or max(abs(high), 1.0) * 0.1
    span = (low - margin, high + margin)
    shown = np.arange(len(y))
    if len(y) > _MOST_DOTS:
        shown = np.random.default_rng(0).choice(len(y), _MOST_DOTS, replace=False)
    few = len(shown) <= 300
    if ends is not None:
        axes.vlines(
            y[shown], ends[shown, 0], ends[shown, 1], color=LIGHT, lw=1.6 if few else 0.6,
            alpha=0.9 if few else 0.5, rasterized=True,
        )  # fmt: skip
        held = ((ends[:, 0] <= y) & (y <= ends[:, 1])).mean()
        axes.set_title(f"{len(y):,} series; intervals hold {held:.1%} of them")
    else:
        axes.set_title(f"{len(y):,} series")
    axes.plot(span, span, ls="--", color=ORANGE, lw=1.1)
    axes.plot(
        y[shown], guess[shown], "o", color=BLUE, ms=4 if few else 2.5, mew=0,
        alpha=0.75 if few else 0.35, rasterized=not few,
    )  # fmt: skip
    axes.set(xlim=span, ylim=span)
    axes.set_aspect("equal", adjustable="box")


def _draw_errors(axes: Any, error: npt.NDArray[np.float64]) -> None:
    """A histogram symmetrical about 0; the few errors far outside stand in the outermost bars."""
    size = np.abs(error)
    reach = float(np.percentile(size, 98)) * 1.5 or 1.0
    reach = min(reach, float(size.max()) or 1.0)
    pairs = int(np.clip(np.sqrt(len(error)), 4, 30))
    edges = np.linspace(-reach, reach, 2 * pairs + 1)
    axes.hist(error.clip(-reach, reach), bins=edges, color=BLUE, alpha=0.85)
    axes.locator_params(axis="y", integer=True)
    beyond = int((size > reach).sum())
    if beyond:
        text = f"{beyond:,} beyond ±{reach:.3g}\nin the outer bars"
        axes.text(0.98, 0.97, text, transform=axes.transAxes, ha="right", va="top", color=GREY)


def _wilson(rate: Any, size: Any) -> tuple[Any, Any]:
    """The 95 % interval of a frequency: honest for small groups and near 0 and 1."""
    z2 = 1.96**2
    centre = (rate + z2 / (2 * size)) / (1 + z2 / size)
    half = np.sqrt(z2 * (rate * (1 - rate) / size + z2 / (4 * size**2))) / (1 + z2 / size)
    return centre - half, centre + half
