"""Pictures of series, tokens, training and predictions, drawn with matplotlib (extra ``plots``).

Every function returns a ``matplotlib.figure.Figure`` that no global state knows of, so no display
is needed and nothing has to be closed; ``path=`` also saves it (PNG, SVG, PDF by its ending).
"""

from roughformer.plots._evaluation import plot_calibration, plot_confusion, plot_regression
from roughformer.plots._explanation import plot_explanation
from roughformer.plots._figure import BLUE, GREY, ORANGE, new_figure, styled, tidy
from roughformer.plots._series import plot_series
from roughformer.plots._tokens import plot_tokens
from roughformer.plots._training import plot_history

__all__ = [
    "BLUE",
    "GREY",
    "ORANGE",
    "new_figure",
    "plot_calibration",
    "plot_confusion",
    "plot_explanation",
    "plot_history",
    "plot_regression",
    "plot_series",
    "plot_tokens",
    "styled",
    "tidy",
]
