"""The series that estimators take, in all the shapes that scikit-learn's users have."""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from roughformer.errors import InputError
from roughformer.series import (
    SeriesBatch,
    is_table,
    is_tensor,
    layout_of,
    refuse_tables,
    with_roles,
)

_ROLES = ("series_id", "time", "channel", "value", "channels", "static", "label")


class SeriesEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose samples are series."""

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Keep the parameters of ``__init__``, its ``locals()``."""
        for name in inspect.signature(type(self)).parameters:
            setattr(self, name, given[name])

    def __sklearn_tags__(self) -> Any:
        """Allow missing values, and arrays ``(B, L)`` and ``(B, L, C)``."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.two_d_array = True
        tags.input_tags.three_d_array = True
        return tags


def as_series(
    x: Any,
    times: Any = None,
    lengths: Any = None,
    *,
    layout: str | None = None,
    columns: Mapping[str, Any] | None = None,
    n_channels: int | None = None,
    known: Mapping[str, Any] | None = None,
    one_series: bool = False,
) -> SeriesBatch:
    """Anything ``SeriesBatch.of`` takes; also series of one channel as an array ``(B, L)`` or as a
    list of flat sequences, batches of one series (scikit-learn's splits of a ``SeriesBatch``), and
    whatever numpy can make an array of. ``n_channels``: as many as in training, which settles
    where ``layout`` would be ambiguous. ``columns``: what those of a table mean. ``known``: the
    columns of the training table, or the layout of the training arrays. ``one_series``: whether a
    table without ids may be one.
    """
    if is_table(x):
        return _read_frame(x, times, lengths, layout, columns, known, one_series=one_series)[0]
    if columns is not None:
        raise InputError(f"columns are those of a table, but X is {type(x).__name__}")
    if type(x).__module__.startswith("scipy.sparse"):
        raise InputError(
            "sparse input is not supported: zeros would count as observed; give a dense array "
            "with np.nan for what was not observed"
        )
    if _is_array(x) or is_tensor(x):
        if not is_tensor(x):
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
            if n_channels not in (None, 1) and n_channels in x.shape:
                one = "x[None]" if x.shape[1] == n_channels else "x.T[None]"
                raise InputError(
                    f"expected series of {n_channels} channels, got an array of shape {x.shape}, "
                    f"which is read as {len(x)} series of one channel; if it is one series, give "
                    f"{one}"
                )
            x, layout = x[:, :, None], "time_first"
    elif (
        isinstance(x, list) and x and all(isinstance(one, SeriesBatch) for one in x)
        and times is None and lengths is None and layout is None
    ):  # fmt: skip
        return SeriesBatch.concatenate(x)
    elif _is_list_of_flat(x):
        x, layout = [_numbers(np.asanyarray(one))[:, None] for one in x], "time_first"  # masks stay
    if isinstance(x, list | tuple):
        refuse_tables(x)
    if isinstance(x, np.ndarray | list | tuple) or is_tensor(x):
        layout = layout or (known or {}).get("layout")
        layout = layout_of(x, layout, times=times, n_channels=n_channels)
    return SeriesBatch.of(x, times, lengths, layout=layout)


def series_to_fit(
    x: Any,
    y: Any = None,
    times: Any = None,
    lengths: Any = None,
    layout: str | None = None,
    columns: Mapping[str, Any] | None = None,
    one_series: bool = False,
) -> tuple[SeriesBatch, dict[str, Any]]:
    """Series to learn from, and what a model keeps to read others in the same way: the meaning of
    the columns of a table, or the layout if it was given. A column named like ``y`` is taken for
    the target.
    """
    if is_table(x):
        try:
            return _read_frame(x, times, lengths, layout, columns, y=y, one_series=one_series)
        except InputError as error:
            if hasattr(x, "to_numpy") and y is not None and np.shape(y)[:1] == (len(x),):
                raise InputError(
                    f"{error}. A table is read as observations, a row for each point; if its rows "
                    "are series of one channel, give X.to_numpy()"
                ) from None
            raise
    batch = as_series(x, times, lengths, layout=layout, columns=columns)
    return batch, {} if layout is None else {"layout": layout}


def _read_frame(
    table: Any,
    times: Any,
    lengths: Any,
    layout: str | None,
    columns: Mapping[str, Any] | None,
    known: Mapping[str, Any] | None = None,
    y: Any = None,
    one_series: bool = False,
) -> tuple[SeriesBatch, dict[str, Any]]:
    """Series of a table, and what its columns meant: as ``columns`` say (arguments of
    ``SeriesBatch.from_table``), as is ``known`` from another table, or guessed.
    """
    if isinstance(table, Mapping) and any(np.ndim(column) > 1 for column in table.values()):
        raise InputError(
            "a dict is read as the columns of a table, but its entries have several axes; if they "
            "are series, give list(x.values())"
        )
    for name, given in (("times", times), ("lengths", lengths), ("layout", layout)):
        if given is not None:
            raise InputError(f"a table has a row for each point; leave {name}= out")
    columns = columns or {}
    known = dict(known or {})
    if "target" in known:
        known["label"] = known.pop("target")
    wrong = [role for role in columns if role not in _ROLES]
    if wrong:
        raise InputError(f"columns has the unknown key {wrong[0]!r}; known are {', '.join(_ROLES)}")
    data, options = with_roles(
        table, columns, {role: known[role] for role in _ROLES if role in known}, option=_option,
        one_series=one_series,
    )  # fmt: skip
    _check_no_target(y, columns)
    if "channels" not in columns and "channels" not in known and options["channels"]:
        options["channels"] = _without_target(y, options["channels"])
    batch = SeriesBatch.from_table(data, **options)
    about = {role: options[role] for role in _ROLES if options.get(role)}
    about.setdefault("series_id", None)  # one series
    about |= {role: list(about[role]) for role in ("static",) if role in about}
    about["channels"] = list(batch.channels)
    if "label" in about:
        about["target"] = about.pop("label")
    return batch, about


def _option(role: str) -> str:
    one = " (None: the table is one series)" if role == "series_id" else ""
    return f"columns={{{role!r}: ...}}{one}"


def _names_of(y: Any) -> list[str]:
    """The names of the targets, if a frame or a column of one holds them."""
    names = getattr(y, "columns", [getattr(y, "name", None)])
    return [name for name in names if isinstance(name, str)]


def _check_no_target(y: Any, columns: Mapping[str, Any]) -> None:
    for role in ("channels", "static"):
        for name in _names_of(y):
            if name in (columns.get(role) or ()):
                raise InputError(
                    f"columns names {name!r} among the {role}, but y has that name too: leave the "
                    "target out, or give y.to_numpy() if the column is something else"
                )


def _without_target(y: Any, channels: Sequence[str]) -> tuple[str, ...]:
    """The guessed channels that do not hold the target."""
    leaking = [name for name in _names_of(y) if name in channels]
    if not leaking:
        return tuple(channels)
    if set(channels) <= set(leaking):
        raise InputError(f"no column is left to be a channel beside the target {leaking[0]!r}")
    warnings.warn(
        "columns with the name of y are taken for the target and not used as channels: "
        f"{', '.join(map(repr, leaking))}; give y.to_numpy() if they are something else",
        UserWarning,
        stacklevel=5,
    )
    return tuple(name for name in channels if name not in leaking)


def aligned(values: Any, batch: Any, name: str = "y") -> Any:
    """Bring a pandas Series or DataFrame, whose index are the ids, into the order of the series.

    Anything else, and all of series without ids, is in that order already.
    """
    ids = getattr(batch, "ids", None)  # a store has none
    if ids is None or not hasattr(values, "iloc"):
        return values
    index = values.index
    if not index.is_unique:
        twice = index[index.duplicated()][0]
        raise InputError(f"{name} must have one entry for each id, got two or more for {twice!r}")
    places = index.get_indexer(ids)
    absent = ids[places < 0].tolist()
    if absent:
        raise InputError(
            f"{name} must be indexed by the ids of the series, but has no entry for "
            f"{_listed(absent)}; its index has {_listed(index.tolist())}. For entries in the "
            f"order of the series give {name}.to_numpy()"
        )
    extra = index[~index.isin(ids)].tolist()
    if extra:
        raise InputError(f"{name} has entries without a series: {_listed(extra)}; leave them out")
    return values.iloc[places]


def _listed(ids: list[Any]) -> str:
    return ", ".join(map(repr, ids[:3])) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")


def _is_array(x: Any) -> bool:
    """An array, or something that numpy takes for one; not tensors and tables, which the batch
    reads itself, nor arrays of arrays.
    """
    if isinstance(x, np.ndarray):
        return not (x.dtype == object and x.ndim == 1)
    library = type(x).__module__.split(".")[0]
    return hasattr(x, "__array__") and library not in ("torch", "pandas", "polars", "pyarrow")


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
