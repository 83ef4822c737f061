"""Which axis of an array is time: one rule for numpy, torch and lists.

Time comes first, ``(B, L, C)`` and ``(L_i, C)``, unless ``layout="channels_first"`` says otherwise.
Where that is probably not what the array holds, both readings are shown and nothing is guessed.
"""

from typing import Any, Literal

import numpy as np

from roughformer.errors import InputError

__all__ = ["Layout", "check_layout", "layout_of"]

Layout = Literal["time_first", "channels_first"]

_BY_FAR = 2  # series of different lengths may well be short, with a few more channels than points


def check_layout(layout: Any) -> Layout:
    """Return ``layout`` if it is one of the two names."""
    if layout not in ("time_first", "channels_first"):
        raise InputError(f"layout must be 'time_first' or 'channels_first', got {layout!r}")
    return layout  # type: ignore[no-any-return]


def layout_of(
    x: Any, layout: str | None = None, *, times: Any = None, n_channels: int | None = None
) -> Layout:
    """Return the layout of a 3-D block or a list of 2-D arrays, or raise if it is ambiguous.

    Parameters
    ----------
    x
        An array or tensor with three axes, or a sequence of arrays with two. The shapes of
        anything else are checked by whoever converts it.
    layout
        What the caller said, or None.
    times
        Times of the points, or None. Given times are checked against the time axis, so they
        settle the layout.
    n_channels
        The number of channels, where it is known: from training, or from their names.
    """
    chosen = "time_first" if layout is None else check_layout(layout)
    shapes = _shapes(x)
    if not shapes or any(len(shape) != 2 for shape in shapes):
        return chosen
    first, second = ({shape[axis] for shape in shapes} for axis in (0, 1))
    channels, other = (second, first) if chosen == "time_first" else (first, second)
    if n_channels is not None:
        if channels != {n_channels} and other == {n_channels}:
            transposed = "channels_first" if chosen == "time_first" else "time_first"
            raise InputError(
                f"expected {_count(n_channels, 'channel')}, but {_readings(x, shapes)}; "
                f"give layout={transposed!r}"
            )
        return chosen  # or neither fits, which is refused where names are compared
    factor = 1 if len(set(shapes)) == 1 else _BY_FAR
    if layout is None and times is None and all(c > factor * length > 0 for length, c in shapes):
        raise InputError(
            f"cannot tell which axis is time, because there are more channels than points: "
            f"{_readings(x, shapes)}. Give layout='time_first' or layout='channels_first'"
        )
    return chosen


def _shapes(x: Any) -> list[tuple[int, ...]]:
    """The shape of each series, or only one where all have the same."""
    if hasattr(x, "shape"):
        return [tuple(x.shape[1:])]
    try:
        return [tuple(np.shape(series)) for series in x]
    except (TypeError, ValueError):  # a ragged list: the converter says what is wrong with it
        return []


def _readings(x: Any, shapes: list[tuple[int, ...]]) -> str:
    """Both readings with their sizes."""
    (a, b), whole = shapes[0], hasattr(x, "shape")
    what = f"shape {tuple(x.shape)}" if whole else f"shape {shapes[0]} of series 0"
    axes = ("(B, L, C)", "(B, C, L)") if whole else ("(L, C)", "(C, L)")
    return (
        f"{what} is {_count(b, 'channel')} of {_count(a, 'point')} as 'time_first' {axes[0]}, and "
        f"{_count(a, 'channel')} of {_count(b, 'point')} as 'channels_first' {axes[1]}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
