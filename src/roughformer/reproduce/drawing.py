"""Figures of the experiments, in the look of ``roughformer.plots``."""

from typing import Any

from roughformer.plots._figure import new_figure, styled, tidy

__all__ = ["curves"]


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
