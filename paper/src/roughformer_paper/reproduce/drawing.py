"""Figures of the experiments, in the look of ``roughformer.plots``."""

from collections.abc import Sequence
from typing import Any

from roughformer.plots import new_figure, styled, tidy

__all__ = ["curves", "logarithmic", "look", "whole_ticks"]

_COLOURS = (*(f"C{n}" for n in range(10)), "black")  # matplotlib's, and one more
_MARKERS = "osv^D<>pXdP*h"


def curves(panels: int, x: str, y: str, *, width: float = 9.0, height: float = 3.6) -> Any:
    """A figure with so many panels side by side, and the panels."""
    with styled() as matplotlib:
        figure = new_figure(matplotlib, width if panels > 1 else 0.6 * width, height)
        found = figure.subplots(1, panels, squeeze=False, sharey=True)[0]
        for number, axes in enumerate(found):
            tidy(axes)
            axes.set_xlabel(x)
            if number == 0:
                axes.set_ylabel(y)
    return figure, list(found)


def look(number: int) -> dict[str, Any]:
    """Colour and marker of line ``number``; no two of the first 143 are the same."""
    return {"color": _COLOURS[number % len(_COLOURS)], "marker": _MARKERS[number % len(_MARKERS)]}


def whole_ticks(axes: Any) -> None:
    """Only whole numbers on the x axis."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def logarithmic(axes: Any, ticks: Sequence[float]) -> None:
    """A logarithmic x axis with plain numbers at ``ticks``."""
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
