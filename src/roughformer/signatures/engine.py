"""One dispatch for signatures of ragged batches: dropping, native kernel or torch, memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch, blocks, check_mask, is_tensor
from roughformer.signatures import library, native_call
from roughformer.signatures.buffers import check_out, new_result
from roughformer.signatures.clock import clock_words
from roughformer.signatures.features import Layout, check_capacity, in_double
from roughformer.signatures.lifts import View, ViewLifts, lift_path
from roughformer.signatures.log_table import log_table
from roughformer.signatures.path import Path
from roughformer.signatures.thinning import Dropping
from roughformer.signatures.windows import Cuts, Windows

if TYPE_CHECKING:
    from torch import Tensor

    from roughformer.signatures.padded import Placed

__all__ = [
    "Engine",
    "check_dropping",
    "check_finite",
    "clock_path",
    "compute_tokens",
    "dense_values",
    "fill_gaps",
    "pad",
    "pick_engine",
    "placed_of",
    "values_at",
]

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
    if engine == "native":
        raise InputError(f"the native engine is not available: {library.engine_info()['reason']}")
    return "torch"


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
        out, unobserved = native_call.fill_rows(*rows, keep, threads)
    else:
        out, unobserved = _filled_by_definition(batch, keep)
    batch.warn_unobserved(unobserved.sum(axis=0, dtype=np.int64))
    return out


def _filled_by_definition(
    batch: SeriesBatch, keep: npt.NDArray[np.bool_] | None
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """``native_call.fill_rows`` without the kernel, a block of series at a time."""
    import torch

    from roughformer.signatures.padded import inside_of, linear_points, observed

    values = batch.values if keep is None else np.where(keep[:, None], batch.values, np.nan)
    out, never = np.empty_like(values), [np.zeros((0, batch.n_channels), bool)]
    for first, last in blocks(batch.offsets):
        offsets = batch.offsets[first : last + 1]
        rows = slice(offsets[0], offsets[-1])
        part = SeriesBatch(batch.times[rows], values[rows], offsets - rows.start)
        x = linear_points(observed(*pad(part))).x
        out[rows] = x[inside_of(torch.from_numpy(part.lengths), x.shape[1])].numpy()
        never.append(part.unobserved())
    return out, np.concatenate(never)


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
) -> native_call.Request:
    path = call.path
    keys = None
    if dropping.keep is None and dropping.fraction > 0:
        keys = dropping.keys(path.n_series)
    table = None
    if layout.transform == "logsignature":
        table = log_table(path.dim, layout.depth, layout.basis == "brackets")
    return native_call.Request(
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
        native_call.forward(_request(call, cuts, layout, drawn, threads, compute), out)
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

    from roughformer.signatures.padded import Placed

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
