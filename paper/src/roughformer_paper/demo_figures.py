"""Pictures of the demo: accuracies, a series with all and with half of its points."""

from typing import Any

import numpy as np

from roughformer import plots
from roughformer.plots import BLUE, ORANGE, new_figure, styled, tidy
from roughformer.series import SeriesBatch
from roughformer_paper.demo import HALF, TITLES

__all__ = ["demo_figures"]


def demo_figures(
    result: dict[str, Any], models: dict[str, Any], test: SeriesBatch, seed: int
) -> list[tuple[str, str, Any]]:
    """(file name, caption, figure) of each."""
    found = [("accuracy", "Which frequency has a noisy sine? Test accuracy", _bars(result))]
    if "vowels" in result:
        figure = _bars(result["vowels"])
        found.append(("accuracy_vowels", "Who says the vowel? Test accuracy", figure))
    # The slowest sine is the one whose shape can be seen.
    slowest = int(np.argmin(test.static[:, 0])) if test.static is not None else 0
    one = test[slowest : slowest + 1]
    found.append(("series", "A test series", plots.plot_series(one)))
    figure = plots.plot_series(one.drop_points(HALF, seed))
    found.append(("series_dropped", "The same with half of its points left out", figure))
    history = plots.plot_history(models["transformer"].history_)
    found.append(("history_transformer", "Training of the vanilla Transformer", history))
    return found


def _bars(result: dict[str, Any]) -> Any:
    names = [name for name in TITLES if name in result]
    with styled() as matplotlib:
        figure = new_figure(matplotlib, 6, 0.8 + 0.6 * len(names))
        axes = figure.subplots()
        tidy(axes)
        place = np.arange(len(names))[::-1]
        parts = (("full", "all points", BLUE, 0.18), ("dropped", "half dropped", ORANGE, -0.18))
        for part, label, colour, shift in parts:
            shares = [result[name][part] for name in names]
            bars = axes.barh(place + shift, shares, 0.34, color=colour, label=label)
            axes.bar_label(bars, fmt="%.3f", padding=3)
        axes.set_yticks(place, [TITLES[name] for name in names])
        axes.set(xlim=(0, 1.15), xlabel="test accuracy")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
        return figure
