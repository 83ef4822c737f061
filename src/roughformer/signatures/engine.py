"""Signatures of ragged batches: the public functions, and the choice of native kernel or torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import (
    SeriesBatch,
    blocks,
    check_fraction,
    check_mask,
    is_tensor,
    keep_mask,
    series_keys,
)
from roughformer.signatures import library
from roughformer.signatures.library import check_out, clock_words, log_table, new_result
from roughformer.signatures.lifts import (
    Basis,
    Layout,
    Lifts,
    Transform,
    View,
    ViewLifts,
    check_capacity,
    in_double,
    layout_of,
    lift_path,
)
from roughformer.signatures.windows import Cuts, Path, Windows
from roughformer.util.checks import whole_number

if TYPE_CHECKING:
    from torch import Tensor

    from roughformer.signatures.torch_backend import Placed

__all__ = [
    "Dropping",
    "Engine",
    "check_dropping",
    "check_finite",
    "check_series",
    "clock_path",
    "compute_tokens",
    "dense_values",
    "fill_gaps",
    "logsignature",
    "multiview_signature",
    "pad",
    "pick_engine",
    "placed_of",
    "signature",
    "values_at",
]


# Points to leave out of a batch, as the engines take it: a mask, or a fraction and a seed.


def check_series(series: npt.ArrayLike | None, n_series: int) -> npt.NDArray[np.int64] | None:
    """``series`` as whole numbers ``(B,)`` from 0 to 2^32 - 1, or None, or raise ``InputError``."""
    if series is None:
        return None
    numbers = np.asarray(series)
    whole = np.issubdtype(numbers.dtype, np.integer) or numbers.size == 0
    if not whole or numbers.shape != (n_series,):
        raise InputError(
            f"series must be {n_series} whole numbers, one for each series of the batch, got "
            f"{numbers.dtype} of shape {numbers.shape}"
        )
    if numbers.size and not (int(numbers.min()) >= 0 and int(numbers.max()) < 2**32):
        raise InputError(
            f"series must be numbers from 0 to 2**32 - 1, got {numbers.min()} ... {numbers.max()}"
        )
    return numbers.astype(np.int64)


@dataclass(frozen=True)
class Dropping:
    """Points to leave out: a mask (True = keep), or a fraction of each series and a seed.

    ``series (B,)`` are the numbers that the random words are drawn for (default 0 ... B-1).
    """

    keep: npt.NDArray[np.bool_] | None = None
    fraction: float = 0.0
    seed: int = 0
    series: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        """Refuse what is no fraction."""
        check_fraction(self.fraction)

    def __bool__(self) -> bool:
        """Whether anything is dropped."""
        return self.keep is not None or self.fraction > 0

    def mask(self, batch: SeriesBatch) -> npt.NDArray[np.bool_] | None:
        """The mask ``(N,)``, or None if all points stay."""
        if self.keep is not None or not self.fraction > 0:
            return self.keep
        if library.load() is None:
            return keep_mask(batch.lengths, self.fraction, self.seed, self.series)
        return library.thin(batch.lengths, self.fraction, self.keys(len(batch)))

    def keys(self, n_series: int) -> npt.NDArray[np.uint32]:
        """``(B,)`` keys of the random thinning."""
        default = np.arange(n_series)
        numbers: npt.NDArray[np.integer[Any]] = default if self.series is None else self.series
        return series_keys(self.seed, numbers)


# One dispatch for signatures of ragged batches: dropping, native kernel or torch, memory.


Engine = Literal["auto", "native", "torch"]
_AT_ONCE = 1 << 22  # numbers of a padded block: points x words


def pick_engine(engine: Engine, device: str = "cpu") -> str:
    """``native`` if it is there and the data are in main memory, else ``torch``."""
    if engine not in ("auto", "native", "torch"):
        raise InputError(f"engine must be 'auto', 'native' or 'torch', got {engine!r}")
    if engine == "native" and device != "cpu":
        raise InputError(f"the native engine works in main memory, the values are on {device}")
    if engine == "torch" or device != "cpu":
        return "torch"
    if library.load() is not None:
        return "native"
    reason = library.engine_info().get("reason")
    if engine == "native":
        raise InputError(f"the native engine is not available: {reason}")
    _check_torch(f"there is neither the native kernel nor torch to compute signatures ({reason})")
    return "torch"


def _check_torch(why: str) -> None:
    """``ImportError`` in words where torch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise ImportError(f"{why}; pip install torch") from None


@dataclass(frozen=True)
class _Call:
    """Views that share a path and so one pass over it."""

    path: Path
    views: tuple[View, ...]
    basepoint: bool


def fill_gaps(batch: SeriesBatch, keep: Any = None, threads: int | None = None) -> npt.NDArray[Any]:
    """Return the values of series without NaN.

    Each channel is linear in time between its own observations and constant outside of them; 0,
    with an ``UnobservedWarning``, where it has none.

    Parameters
    ----------
    batch : SeriesBatch
        Series.
    keep : array-like of bool (N,), optional
        Points outside of it count as unobserved.
    threads : int, optional
        Threads of the native engine; not given: all.

    Returns
    -------
    ndarray (N, C)
        ``batch.values`` itself if there is nothing to fill.
    """
    if keep is None and not batch.missing:
        return batch.values
    if keep is not None:
        keep = check_mask(keep, batch.offsets, batch.ids, ends=False)
    if library.load() is not None:
        grid, starts = batch.grid, batch.offsets[:-1]
        times, first = (batch.times, starts) if grid is None else (grid, np.zeros_like(starts))
        rows = batch.values, times, starts, batch.lengths, first
        out, unobserved = library.fill_rows(*rows, keep, threads)
    else:
        pick_engine("auto")  # or says what is missing
        out, unobserved = _filled_by_definition(batch, keep)
    batch.warn_unobserved(unobserved.sum(axis=0, dtype=np.int64))
    return out


def _filled_by_definition(
    batch: SeriesBatch, keep: npt.NDArray[np.bool_] | None
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """``library.fill_rows`` without the kernel, a block of series at a time."""
    import torch

    from roughformer.signatures.torch_backend import inside_of, linear_points, observed

    values = batch.values if keep is None else np.where(keep[:, None], batch.values, np.nan)
    out, never = np.empty_like(values), [np.zeros((0, batch.n_channels), bool)]
    for first, last in blocks(batch.offsets):
        offsets = batch.offsets[first : last + 1]
        rows = slice(offsets[0], offsets[-1])
        part = SeriesBatch(batch.times[rows], values[rows], offsets - rows.start)
        x = linear_points(observed(*pad(part))).x
        out[rows] = x[inside_of(torch.from_numpy(part.lengths), x.shape[1])].numpy()
        never.append(part.unobserved())
    return out, np.concatenate(never).view(np.uint8)


def values_at(batch: SeriesBatch, since: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Interpolate series linearly, each channel between its own observations.

    Parameters
    ----------
    batch : SeriesBatch
        Series.
    since : array-like (n,) or (B, n)
        Increasing times, counted from each series' first point.

    Returns
    -------
    ndarray (B, n, C)
        Constant before a channel's first observation and after its last one.
    """
    queries = np.broadcast_to(
        np.asarray(since, dtype=np.float64), (len(batch), np.shape(since)[-1])
    )
    values, offsets, starts = fill_gaps(batch), batch.offsets, batch.span[0]
    out = np.empty((len(batch), queries.shape[1], batch.n_channels))
    for b in range(len(batch)):
        rows = slice(offsets[b], offsets[b + 1])
        times = batch.times[rows] - starts[b]
        for c in range(batch.n_channels):
            out[b, :, c] = np.interp(queries[b], times, values[rows, c])
    return out


def dense_values(
    batch: SeriesBatch, keep: npt.NDArray[np.bool_] | None, threads: int | None
) -> npt.NDArray[Any]:
    """Values ``(N, C)`` without gaps, for the kernel."""
    return fill_gaps(batch, keep, threads) if batch.missing else batch.values


def _calls(batch: SeriesBatch, layout: Layout, values: npt.NDArray[Any]) -> list[_Call]:
    groups: dict[Any, list[View]] = {}
    for view in layout.views:
        lifts = layout.lifts[view]
        key = (lifts.path, view if lifts.basepoint else None)
        groups.setdefault(key, []).append(view)
    return [
        _Call(lift_path(batch, lifts, values), tuple(views), only is not None)
        for (lifts, only), views in groups.items()
    ]


def _request(
    call: _Call, cuts: Cuts, layout: Layout, dropping: Dropping, threads: int | None, compute: Any
) -> library.Request:
    path = call.path
    keys = None
    if dropping.keep is None and dropping.fraction > 0:
        keys = dropping.keys(path.n_series)
    table = None
    if layout.transform == "logsignature":
        table = log_table(path.dim, layout.depth, layout.basis == "brackets")
    return library.Request(
        path=path,
        cuts=cuts,
        depth=layout.depth,
        at={view: layout.at(view) for view in call.views},
        basepoint=call.basepoint,
        log=table,
        keep=dropping.keep,
        keys=keys,
        drop=dropping.fraction,
        threads=threads,
        compute=compute,
    )


def compute_tokens(
    batch: SeriesBatch,
    windows: Windows | Cuts,
    layout: Layout,
    *,
    dropping: Dropping,
    dtype: Any,
    compute: Any,
    out: npt.NDArray[Any] | None = None,
    threads: int | None = None,
    engine: Engine = "auto",
    max_memory: int | None = None,
    hold: bool = False,
    context: int | None = None,
) -> npt.NDArray[Any]:
    """Tokens ``(B, windows, features)`` of a batch; ``hold`` and ``context`` as in
    ``definition.signature_tokens``.
    """
    compute = np.float64 if in_double(layout) else compute
    workers = threads or library.default_threads()
    size = np.dtype(dtype).itemsize
    if isinstance(windows, Windows):
        check_dropping(dropping, windows)
        if windows.rule == "count":  # before the windows themselves take memory
            check_capacity(layout, len(batch), int(windows.amount), size, max_memory, workers)
        windows = windows.place(batch)
    cuts = windows
    shape = (len(batch), cuts.most, layout.size)
    check_capacity(layout, shape[0], shape[1], size, max_memory, workers)
    native = pick_engine(engine) == "native"
    if out is None:
        out = new_result(shape, dtype, not cuts.equal)
    else:
        check_out(out, shape, dtype)
        if not cuts.equal:
            out.fill(0)
    lifted = [layout.lifts[view] for view in layout.views]
    if not native or hold or context is not None or any(x.lags or x.counts for x in lifted):
        mask = dropping.mask(batch)
        thin = batch if mask is None else batch.drop_points(mask=mask)
        _write_padded(thin, cuts, layout, out, native, hold, context)
        check_finite(out, batch, layout, compute)
        return out
    # Gaps are filled between what is kept, so then the mask comes first; otherwise the kernel
    # skips dropped points by itself.
    drawn = dropping
    if dropping and (batch.missing or dropping.keep is not None):
        drawn = Dropping(keep=dropping.mask(batch))
    values = dense_values(batch, drawn.keep, threads)
    for call in _calls(batch, layout, values):
        library.forward(_request(call, cuts, layout, drawn, threads, compute), out)
    _write_clocks(batch, cuts, layout, dropping, out, threads, compute)
    check_finite(out, batch, layout, compute)
    return out


def check_finite(found: Any, batch: SeriesBatch, layout: Layout, compute: Any) -> None:
    """``InputError`` if words ``found (B, L, F)`` are beyond the range of their kind, or of the one
    that they were computed in.
    """
    kind = min(np.dtype(str(found.dtype).removeprefix("torch.")), np.dtype(compute))
    most = float(np.finfo(kind).max)
    start, end = batch.span
    lifted = [layout.lifts[view] for view in layout.views]
    units = [x.time.unit for x in lifted if x.time is not None and x.time.unit is not None]
    far = max(float((end - start).max(initial=0.0)) / min(units, default=np.inf), batch.largest)
    points = float(batch.lengths.max(initial=1))
    # No channel moves further than from one extreme to the other at every point, and counts of
    # observations no further than there are points; the rest is for sums on the way.
    reach = 2 * points * max(far, 1.0) * max(layout.dim(view) for view in layout.views)
    if layout.depth * np.log(reach) < np.log(most) - 10:
        return
    array = found.detach().cpu().numpy() if is_tensor(found) else found
    good = np.isfinite(array).all(axis=(1, 2))
    if not good.all():
        raise InputError(
            f"signatures of series {int(np.argmin(good))} are beyond the range of {kind}: the "
            f"series have values of up to {batch.largest:.3g}, the depth is {layout.depth}; divide "
            "the values by their scale, or take a lower depth or dtype=float64"
        )


def check_dropping(dropping: Dropping, windows: Windows) -> None:
    """``InputError`` for windows that dropping would move."""
    if dropping and windows.rule == "points":
        raise InputError(
            "windows by number of points cannot be combined with dropping points; thin the batch "
            "first with batch.drop_points(...), or cut by count or duration"
        )


def _write_padded(
    batch: SeriesBatch,
    cuts: Cuts,
    layout: Layout,
    out: npt.NDArray[Any],
    native: bool,
    hold: bool,
    context: int | None,
) -> None:
    """Tokens by way of padded tensors, a block of series at a time."""
    _check_torch("lags, counts and held paths are computed by way of torch")
    import torch

    from roughformer.signatures.operators import padded_tokens

    if batch.missing and not hold:
        batch.warn_unobserved(batch.unobserved().sum(axis=0, dtype=np.int64))
    placed = placed_of(cuts, batch.span[0])
    words = 4 * len(layout.channels) if native else layout.size
    size = max(1, _AT_ONCE // max(words * (int(batch.lengths.max(initial=1)) + cuts.most), 1))
    with torch.no_grad():
        for i in range(0, len(batch), size):
            part = slice(i, min(i + size, len(batch)))
            values, times, lengths = pad(batch[part])
            mask = None if placed.mask is None else placed.mask[part]
            here = placed._replace(edges=placed.edges[part], mask=mask)
            found = padded_tokens(
                values, times, lengths, here, layout, hold=hold, context=context, native=native
            )
            with np.errstate(over="ignore"):  # told by check_finite
                out[part] = found.numpy()


def placed_of(cuts: Cuts, start: npt.NDArray[np.float64]) -> "Placed":
    """Cuts of series that begin at ``start (B,)``, as tensors."""
    import torch

    from roughformer.signatures.torch_backend import Placed

    mask = None
    if not cuts.equal:
        mask = torch.from_numpy(np.arange(cuts.most)[None, :] < cuts.n_windows[:, None])
    return Placed(torch.from_numpy(cuts.since(start)), mask)


def pad(batch: SeriesBatch) -> "tuple[Tensor, Tensor, Tensor]":
    """``values (B, L, C)`` and ``times (B, L)`` in float64, and ``lengths (B,)``, as tensors."""
    import torch

    n, longest = len(batch), int(batch.lengths.max(initial=1))
    row = np.repeat(np.arange(n), batch.lengths)
    column = np.arange(batch.n_points) - np.repeat(batch.offsets[:-1], batch.lengths)
    values = np.full((n, longest, batch.n_channels), np.nan)
    times = np.zeros((n, longest))
    values[row, column], times[row, column] = batch.values, batch.times
    return torch.from_numpy(values), torch.from_numpy(times), torch.from_numpy(batch.lengths.copy())


def clock_path(batch: SeriesBatch, dropping: Dropping, threads: int | None) -> Path:
    """The path through the kept points that clock words are taken of."""
    mask = dropping.mask(batch)
    path = lift_path(batch, ViewLifts(), dense_values(batch, mask, threads))
    return path if mask is None else path.compact(mask)


def _write_clocks(
    batch: SeriesBatch,
    cuts: Cuts,
    layout: Layout,
    dropping: Dropping,
    out: npt.NDArray[Any],
    threads: int | None,
    compute: Any,
) -> None:
    clocked: Sequence[View] = [v for v in layout.views if layout.lifts[v].clock]
    if not clocked:
        return
    path = clock_path(batch, dropping, threads)
    for view in clocked:
        clock = layout.lifts[view].clock
        assert clock is not None
        at = layout.clock_at(view)
        part = out[..., at : at + layout.clock_size(view)]
        clock_words(path, cuts, clock, view, part, threads, compute)


# Public functions of the engine: multi-view signatures of whole batches.


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
