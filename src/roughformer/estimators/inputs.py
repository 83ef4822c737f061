"""The series that estimators take, in all the shapes that scikit-learn's users have."""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.series._convert import is_tensor
from roughformer.series._layout import layout_of

__all__ = ["as_series"]


def as_series(
    x: Any,
    times: Any = None,
    lengths: Any = None,
    *,
    layout: str | None = None,
    n_channels: int | None = None,
) -> SeriesBatch:
    """Anything ``SeriesBatch.of`` takes; also series of one channel as an array ``(B, L)`` or as a
    list of flat sequences, batches of one series (scikit-learn's splits of a ``SeriesBatch``), and
    whatever numpy can make an array of. ``n_channels``: as many as in training, which settles
    where ``layout`` would be ambiguous.
    """
    if type(x).__module__.startswith("scipy.sparse"):
        raise InputError(
            "sparse input is not supported: zeros would count as observed; give a dense array "
            "with np.nan for what was not observed"
        )
    if _is_array(x):
        x = _numbers(x if isinstance(x, np.ma.MaskedArray) else np.asarray(x))
        if x.ndim < 2:
            raise InputError(
                f"expected many series, got an array of shape {x.shape}. Reshape your data: "
                "x[None, :] is one series of one channel, [x[:, None]] too"
            )
        if x.ndim == 2:
            if len(x) and x.shape[1] == 0:
                raise InputError(
                    f"0 feature(s) (shape={x.shape}) while a minimum of 1 is required: each "
                    "series needs at least one point"
                )
            x, layout = x[:, :, None], "time_first"
    elif _is_list_of_batches(x) and times is None and lengths is None:
        return SeriesBatch.concatenate(x)
    elif _is_list_of_flat(x):
        x, layout = [_numbers(np.asanyarray(one))[:, None] for one in x], "time_first"  # masks stay
    if isinstance(x, np.ndarray | list | tuple) or is_tensor(x):
        layout = layout_of(x, layout, times=times, n_channels=n_channels)
    return SeriesBatch.of(x, times, lengths, layout=layout)


def _is_array(x: Any) -> bool:
    """An array, or something that numpy takes for one; not tensors and tables, which the batch
    reads itself, nor arrays of arrays.
    """
    if isinstance(x, np.ndarray):
        return not (x.dtype == object and x.ndim == 1)
    library = type(x).__module__.split(".")[0]
    return hasattr(x, "__array__") and library not in ("torch", "pandas", "polars", "pyarrow")


def _is_list_of_batches(x: Any) -> bool:
    return isinstance(x, list) and len(x) > 0 and all(isinstance(one, SeriesBatch) for one in x)


def _is_list_of_flat(x: Any) -> bool:
    if isinstance(x, np.ndarray):  # of arrays
        x = x.tolist()
    if not isinstance(x, Sequence) or isinstance(x, str) or len(x) == 0:
        return False
    first = x[0]
    if isinstance(first, np.ndarray):
        return first.ndim == 1
    return isinstance(first, Sequence) and len(first) > 0 and isinstance(first[0], Real)


def _numbers(x: Any) -> Any:
    """Numbers kept as Python objects become float64; complex ones are refused."""
    if x.dtype == object:
        x = x.astype(np.float64)
    if x.dtype.kind == "c":
        raise InputError(
            "Complex data not supported: give the real and the imaginary parts as two channels"
        )
    return x
