"""Pictures of the demo: training, accuracy against dropped points, a series and its tokens."""

from typing import Any

import numpy as np

from roughformer import plots
from roughformer.plots._figure import BLUE, ORANGE, new_figure, styled, tidy
from roughformer.series import SeriesBatch

__all__ = ["demo_figures"]

_MOST_NAMES = 24  # tokens coordinates drawn


def demo_figures(
    result: dict[str, Any], models: dict[str, Any], test: SeriesBatch, seed: int
) -> list[tuple[str, str, Any]]:
    """(file name, caption, figure) of each."""
    found = [
        ("accuracy", "Accuracy on test series with points left out", _curve(result)),
        ("history_rformer", "Training of RFormer", plots.plot_history(models["rformer"].history_)),
        (
            "history_transformer",
            "Training of the vanilla Transformer",
            plots.plot_history(models["transformer"].history_),
        ),
    ]
    # The slowest sine is the one whose shape can be seen.
    slowest = int(np.argmin(test.static[:, 0])) if test.static is not None else 0
    one = test[slowest : slowest + 1]
    encoder = models["rformer"].predictor_.encoder
    rule = encoder.config.rule
    found.append(("series", "A test series and its windows", plots.plot_series(one, windows=rule)))
    thinned = one.drop_points(0.5, seed)
    figure = plots.plot_series(thinned, windows=rule)
    found.append(("series_dropped", "The same with half of its points left out", figure))
    names = encoder.names[:_MOST_NAMES]
    for part, file, caption in (
        (one, "tokens", "Its tokens, all points: a column is a window"),
        (thinned, "tokens_dropped", "Its tokens with half of the points left out"),
    ):
        inputs = encoder.encode(part)
        tokens = inputs["tokens"][0, :, : len(names)].numpy()
        times = inputs["times"][0].numpy() * encoder.time_unit
        found.append((file, caption, plots.plot_tokens(tokens, times, names, per_feature=True)))
    return found


def _curve(result: dict[str, Any]) -> Any:
    with styled() as matplotlib:
        figure = new_figure(matplotlib, 6, 3.4)
        axes = figure.subplots()
        tidy(axes)
        for name, title, colour in (
            ("rformer", "RFormer", BLUE),
            ("transformer", "vanilla Transformer", ORANGE),
        ):
            curve = {100 * float(rate): a for rate, a in result[name]["curve"].items()}
            axes.plot(list(curve), list(curve.values()), "o-", color=colour, label=title)
        axes.set(xlabel="points left out, %", ylabel="test accuracy", ylim=(-0.03, 1.03))
        axes.legend(loc="center left")
        return figure
