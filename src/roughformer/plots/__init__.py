"""Pictures of series, tokens, training and predictions, drawn with matplotlib (extra ``plots``).

Every function returns a ``matplotlib.figure.Figure`` that no global state knows of, so no display
is needed and nothing has to be closed; ``path=`` also saves it (PNG, SVG, PDF by its ending).
``plots.figure`` has what pictures of other packages may share.
"""

from roughformer.plots.figure import BLUE, GREY, ORANGE, new_figure, styled, tidy
from roughformer.plots.scores import (
    plot_calibration,
    plot_confusion,
    plot_history,
    plot_horizon,
    plot_regression,
)
from roughformer.plots.series import (
    plot_explanation,
    plot_forecast,
    plot_series,
)

__all__ = [
    "BLUE",
    "GREY",
    "ORANGE",
    "new_figure",
    "plot_calibration",
    "plot_confusion",
    "plot_explanation",
    "plot_forecast",
    "plot_history",
    "plot_horizon",
    "plot_regression",
    "plot_series",
    "styled",
    "tidy",
]
