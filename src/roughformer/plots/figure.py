"""What all pictures share: matplotlib on demand, colours, the look of axes, saving."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from roughformer.errors import InputError
from roughformer.util.checks import optional

# Okabe and Ito's colours: told apart with any kind of colour vision, and in grey by lightness.
BLUE, ORANGE = "#0072B2", "#D55E00"
GREY, LIGHT = "#5f6368", "#c9ccd1"
Path = str | os.PathLike[str]

_LOOK = {
    "figure.facecolor": "white",
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": "#303338",
    "axes.edgecolor": "#8a8d93",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "axes.formatter.limits": (-4, 6),
    "grid.color": "#e6e8eb",
    "grid.linewidth": 0.8,
    "xtick.color": "#8a8d93",
    "ytick.color": "#8a8d93",
    "xtick.labelcolor": "#303338",
    "ytick.labelcolor": "#303338",
    "legend.frameon": False,
    "savefig.dpi": 150,
    "savefig.facecolor": "white",
    "svg.hashsalt": "roughformer",  # the same figure gives the same SVG
}


@contextmanager
def styled() -> Iterator[Any]:
    """matplotlib with our settings and not the user's; the user's are back afterwards."""
    matplotlib = optional("matplotlib", "plots")
    for part in ("figure", "ticker"):
        optional(f"matplotlib.{part}", "plots")
    backend = {"backend", "backend_fallback"}
    usual = {k: v for k, v in matplotlib.rcParamsDefault.items() if k not in backend}
    with matplotlib.rc_context({**usual, **_LOOK}):
        yield matplotlib


def new_figure(matplotlib: Any, width: float, height: float) -> Any:
    """Make a figure that no global state knows of.

    Parameters
    ----------
    matplotlib : module
        As ``styled`` gives it.
    width : float
        In inches.
    height : float
        In inches.

    Returns
    -------
    Figure
    """
    figure = matplotlib.figure.Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.06)
    return figure


def finish(figure: Any, path: Path | None) -> Any:
    """Save if asked to; the figure itself. Dates are left out: same input, same bytes."""
    if path is not None:
        ending = os.path.splitext(os.fspath(path))[1].lower()
        try:
            figure.savefig(path, metadata={"Date": None} if ending == ".svg" else None)
        except (ValueError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"cannot save a picture as {os.fspath(path)!r}: {why}") from None
    return figure


def tidy(axes: Any, grid: str = "both") -> None:
    """Draw a light grid behind the data, and ticks without marks.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        To be changed.
    grid : {"both", "x", "y"}, default "both"
        Axis of the grid.
    """
    axes.tick_params(length=0)
    axes.grid(visible=True, axis=grid)


def note(axes: Any, text: str, ticks: bool = True) -> None:
    """Say in the middle of empty axes why they are empty, without ``ticks`` that mean nothing."""
    if not ticks:
        axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY)


def shorten(text: Any, most: int) -> str:
    """At most ``most`` characters on one line; a dollar sign is a dollar sign, not mathematics."""
    line = " ".join(str(text).split())
    line = line if len(line) <= most else line[: most - 1] + "…"
    return line.replace("$", r"\$")
