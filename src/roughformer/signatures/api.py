"""Public functions of the engine: multi-view signatures of whole batches."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch, check_mask, is_tensor
from roughformer.signatures.engine import (
    Engine,
    check_dropping,
    check_finite,
    compute_tokens,
    pad,
    pick_engine,
    placed_of,
)
from roughformer.signatures.features import (
    Basis,
    Layout,
    Transform,
    check_capacity,
    in_double,
    layout_of,
)
from roughformer.signatures.lifts import Lifts, View
from roughformer.signatures.thinning import Dropping, check_series
from roughformer.signatures.windows import Windows
from roughformer.util.checks import whole_number

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["logsignature", "multiview_signature", "signature"]

_FLOATS = {"float32": np.float32, "float64": np.float64}


def _dtype(wish: Any, default: Any) -> Any:
    if wish is None:
        return np.dtype(default).type
    name = str(wish).removeprefix("torch.") if not isinstance(wish, type) else np.dtype(wish).name
    if name not in _FLOATS:
        raise InputError(f"dtype must be float32 or float64, got {wish!r}")
    return _FLOATS[name]


def _refuse_what_would_be_lost(x: Any) -> None:
    if isinstance(x, list | tuple) and any(getattr(item, "requires_grad", False) for item in x):
        raise InputError(
            "gradients cannot flow to a list of tensors; give one padded tensor (B, L, C) with "
            "lengths=, or detach them"
        )
    known = isinstance(x, SeriesBatch | np.ndarray | list | tuple) or hasattr(x, "requires_grad")
    if not known:
        raise InputError(
            f"expected a SeriesBatch, an array, a tensor or a list of arrays, got "
            f"{type(x).__name__}; for a table build rf.SeriesBatch.from_table(...) first"
        )


def multiview_signature(
    x: Any,
    windows: Any = 75,
    depth: int = 2,
    views: tuple[View, ...] | View = ("global", "local"),
    *,
    lifts: Lifts = (),
    transform: Transform = "signature",
    basis: Basis = "brackets",
    times: Any = None,
    lengths: Any = None,
    layout: str | None = None,
    keep: Any = None,
    drop: float = 0.0,
    seed: int = 0,
    series: Any = None,
    dtype: Any = None,
    precise: bool = False,
    out: npt.NDArray[Any] | None = None,
    threads: int | None = None,
    engine: Engine = "auto",
    max_memory: int | None = None,
) -> Any:
    """Compute multi-view signatures of irregular series: the tokens of a Rough Transformer.

    For window ends t_1 < ... < t_L of each series the truncated signatures

        S(X)_{t_0, t_k} (global)   and   S(X)_{t_{k-1}, t_k} (local)

    of the piecewise-linear path X through its observations, in one pass over the points.

    Parameters
    ----------
    x : SeriesBatch, array or tensor (B, L, C), or list of arrays (L_i, C)
        Series.
    windows : int, Windows, dict or array-like, default 75
        A number of windows over each series' own span, or as in ``Windows.of``.
    depth : int, default 2
        Truncation level n.
    views : {"global", "local"} or tuple of them, default ("global", "local")
        Which views, in the order wanted.
    lifts : lifts or mapping from view to lifts, default ()
        Channels added to the path: ``rf.Time()``, ``rf.Lag(delay)``, ``rf.Counts()``,
        ``rf.Basepoint()``, ``rf.Clock(count)``.
    transform : {"signature", "logsignature"}, default "signature"
        Signatures, or their logarithms in Lyndon coordinates.
    basis : {"brackets", "words"}, default "brackets"
        Coordinates of log-signatures: of the Lyndon brackets or of the Lyndon words.
    times : array-like, optional
        Times of the points, as in ``SeriesBatch.of``.
    lengths : array-like of int (B,), optional
        Lengths of padded series.
    layout : {"time_first", "channels_first"}, optional
        Layout of arrays, as in ``SeriesBatch.of``.
    keep : array-like of bool (N,), optional
        Points to use, True = keep; the first and last point of a series must stay.
    drop : float, default 0
        Fraction of the points of each series to leave out, never its first and last point.
    seed : int, default 0
        Chooses the points to drop.
    series : array-like of int (B,), optional
        Numbers of the series that the choice depends on; not given: 0 ... B-1. Give the original
        numbers to thin a part of a larger batch exactly as the whole would be.
    dtype : float32 or float64, optional
        Type of the result; not given: that of the values.
    precise : bool, default False
        Carry sums in float64 even if neither values nor result are. Differences are always taken
        before any rounding to float32.
    out : ndarray (B, L, d), optional
        Array to write into; reusing one saves more than the computation costs.
    threads : int, optional
        Threads of the native engine; not given: all.
    engine : {"auto", "native", "torch"}, default "auto"
        "auto": native if it is available and the values are in main memory.
    max_memory : int, optional
        Limit in bytes on result and working memory; not given: 80 % of the free memory.

    Returns
    -------
    ndarray or Tensor (B, L, d)
        With d = ``feature_count(...)``: a tensor if ``x`` is one (differentiable if it requires a
        gradient). Series with fewer windows than the longest are padded with zeros.

    Raises
    ------
    CapacityError
        If more than ``max_memory`` would be needed.
    """
    _refuse_what_would_be_lost(x)
    # Gradients flow through the tensor itself, which _tokens is given beside the batch.
    batch = SeriesBatch.of(x.detach() if is_tensor(x) else x, times, lengths, layout=layout)
    if layout == "channels_first" and is_tensor(x):
        x = x.transpose(1, 2)  # gradients flow back through it
    features = layout_of(batch.channels, depth, views, lifts, transform, basis)
    return _tokens(
        x, batch, Windows.of(windows), features, keep, drop, seed, series, dtype, precise,
        out, threads, engine, max_memory,
    )  # fmt: skip


def _tokens(
    x: Any,
    batch: SeriesBatch,
    windows: Windows,
    layout: Layout,
    keep: Any,
    drop: float,
    seed: int,
    series: Any,
    dtype: Any,
    precise: bool,
    out: npt.NDArray[Any] | None,
    threads: int | None,
    engine: Engine,
    max_memory: int | None,
) -> Any:
    if threads is not None:
        threads = whole_number(threads, "threads", 1)
    mask = None
    if keep is not None:
        if drop:
            raise InputError("give keep= or drop=, not both")
        mask = check_mask(keep, batch.offsets, batch.ids)
    kind = batch.values.dtype
    result = _dtype(dtype, kind)
    wide = precise or kind == np.float64 or result is np.float64 or in_double(layout)
    dropping = Dropping(mask, drop, seed, check_series(series, len(batch)))
    in_torch = not isinstance(x, SeriesBatch | np.ndarray | list) and hasattr(x, "requires_grad")
    if in_torch and (x.requires_grad or x.device.type != "cpu"):
        if out is not None:
            raise InputError(
                "out= cannot be given with a tensor that requires a gradient or is not in main "
                "memory; leave it out, or pass x.detach()"
            )
        return _tensor_tokens(x, batch, windows, layout, dropping, result, wide, engine, max_memory)
    found = compute_tokens(
        batch,
        windows,
        layout,
        dropping=dropping,
        dtype=result,
        compute=np.float64 if wide else np.float32,
        out=out,
        threads=threads,
        engine=engine,
        max_memory=max_memory,
    )
    if in_torch:
        import torch

        return torch.from_numpy(found)
    return found


def _tensor_tokens(
    x: "Tensor",
    batch: SeriesBatch,
    windows: Windows,
    layout: Layout,
    dropping: Dropping,
    dtype: Any,
    wide: bool,
    engine: Engine,
    max_memory: int | None,
) -> "Tensor":
    """Tokens of padded series ``x (B, L, C)`` that gradients flow through, on their device.

    ``batch``: the same series, checked, which say where points are.
    """
    import torch

    from roughformer.signatures.operators import padded_tokens

    check_dropping(dropping, windows)
    native = pick_engine(engine, x.device.type) == "native"
    cuts = windows.place(batch)
    check_capacity(layout, len(batch), cuts.most, np.dtype(dtype).itemsize, max_memory, 1)
    mask = dropping.mask(batch)
    thin = batch if mask is None else batch.drop_points(mask=mask)
    _, times, lengths = pad(thin)
    column = torch.arange(times.shape[1]).expand(times.shape)
    if mask is not None:
        place = np.arange(batch.n_points) - np.repeat(batch.offsets[:-1], batch.lengths)
        inside = column < lengths[:, None]
        column = torch.zeros(times.shape, dtype=torch.int64).masked_scatter(
            inside, torch.from_numpy(place[mask])
        )
    rows = torch.arange(len(batch))[:, None].to(x.device)
    values = x[rows, column.to(x.device)]
    placed = placed_of(cuts, batch.span[0])
    here = placed._replace(
        edges=placed.edges.to(x.device),
        mask=None if placed.mask is None else placed.mask.to(x.device),
    )
    found = padded_tokens(
        values.double() if wide else values,
        times.to(x.device), lengths.to(x.device), here, layout, native=native,
    )  # fmt: skip
    found = found.to(torch.float64 if dtype is np.float64 else torch.float32)
    check_finite(found, batch, layout, np.float64 if wide else np.float32)
    return found


def signature(x: Any, depth: int, **options: Any) -> Any:
    """Compute the signature over the whole span of each series.

    Parameters
    ----------
    x : SeriesBatch, array or tensor (B, L, C), or list of arrays (L_i, C)
        Series.
    depth : int
        Truncation level n.
    **options
        Those of ``multiview_signature`` except ``windows``, ``views`` and ``transform``.

    Returns
    -------
    ndarray or Tensor (B, d + d² + ... + dⁿ)
        With d the number of lifted channels.
    """
    return _whole(x, depth, "signature", options)


def logsignature(x: Any, depth: int, **options: Any) -> Any:
    """Compute the log-signature over the whole span of each series, in Lyndon coordinates.

    Parameters
    ----------
    x : SeriesBatch, array or tensor (B, L, C), or list of arrays (L_i, C)
        Series.
    depth : int
        Truncation level n.
    **options
        Those of ``signature``. ``basis="brackets"`` (default): coordinates in the basis of Lyndon
        brackets; ``basis="words"``: coefficients of the Lyndon words in the tensor logarithm.

    Returns
    -------
    ndarray or Tensor (B, number of Lyndon words)
    """
    return _whole(x, depth, "logsignature", options)


def _whole(x: Any, depth: int, transform: Transform, options: dict[str, Any]) -> Any:
    for name in ("windows", "views", "transform"):
        if name in options:
            raise InputError(f"{transform} takes no {name}=; use multiview_signature")
    out = options.pop("out", None)
    if out is not None:
        out = out[:, None, :]
    tokens = multiview_signature(x, 1, depth, "local", transform=transform, out=out, **options)
    return tokens[:, 0]
