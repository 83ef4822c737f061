"""Signatures of ragged batches: the public functions, and the choice of native kernel or torch."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch, check_mask, is_tensor
from roughformer.signatures import library
from roughformer.signatures.algebra import log_table
from roughformer.signatures.library import Engine
from roughformer.signatures.lifts import (
    Basis,
    Layout,
    Lifts,
    Transform,
    View,
    check_capacity,
    in_double,
    layout_of,
)
from roughformer.signatures.paths import Cuts
from roughformer.signatures.points import (
    Dropping,
    clock_path,
    dense_values,
    pad,
    path_of,
    series_numbers,
)
from roughformer.signatures.windows import Windows
from roughformer.util.checks import whole_number

if TYPE_CHECKING:
    from torch import Tensor


_AT_ONCE = 1 << 22  # numbers of a padded block: points x words
_FEW = 1 << 14  # numbers that are looked at sooner than bounded


def _requests(
    batch: SeriesBatch, cuts: Cuts, layout: Layout, dropping: Dropping, threads: int | None,
    compute: Any,
) -> Iterator[library.Request]:  # fmt: skip
    """One pass of the kernel over the points for all views that share a path."""
    # Gaps are filled between what is kept, so then the mask comes first; otherwise the kernel
    # skips dropped points by itself.
    if dropping and (batch.missing or dropping.keep is not None):
        dropping = Dropping(keep=dropping.mask(batch))
    values = dense_values(batch, dropping.keep, threads)
    keys = dropping.keys(len(batch)) if dropping and dropping.keep is None else None
    for time, basepoint, views in layout.passes:
        path = path_of(batch, values, time)
        table = None
        if layout.transform == "logsignature":
            table = log_table(path.dim, layout.depth, layout.basis == "brackets")
        yield library.Request(
            path=path,
            cuts=cuts,
            depth=layout.depth,
            at={view: layout.at(view) for view in views},
            basepoint=basepoint,
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
    ``torch_backend.signature_tokens``.
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
    native = library.pick_engine(engine) == "native"
    if out is None:
        out = library.new_result(shape, dtype, not cuts.equal)
    else:
        library.check_out(out, shape, dtype)
        if not cuts.equal:
            out.fill(0)
    if not native or hold or context is not None or layout.has_corners:
        _write_padded(dropping.thinned(batch), cuts, layout, out, native, hold, context)
    else:
        for request in _requests(batch, cuts, layout, dropping, threads, compute):
            library.forward(request, out)
        _write_clocks(batch, cuts, layout, dropping, out, threads, compute)
    _check_finite(out, batch, layout, compute)
    return out


def _check_finite(tokens: Any, batch: SeriesBatch, layout: Layout, compute: Any) -> None:
    """``InputError`` if ``tokens (B, L, F)`` are beyond the range of their kind, or of the one
    that they were computed in.
    """
    if not is_tensor(tokens) and tokens.size < _FEW and np.isfinite(tokens).all():
        return
    kind = min(np.dtype(str(tokens.dtype).removeprefix("torch.")), np.dtype(compute))
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
    array = tokens.detach().cpu().numpy() if is_tensor(tokens) else tokens
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
    library.check_torch("lags, counts and held paths are computed by way of torch")
    import torch

    from roughformer.signatures.operators import padded_tokens
    from roughformer.signatures.torch_backend import Placed

    if batch.missing and not hold:
        batch.warn_unobserved(batch.unobserved().sum(axis=0, dtype=np.int64))
    placed = Placed.of(cuts, batch.span[0])
    words = 4 * len(layout.channels) if native else layout.size
    size = max(1, _AT_ONCE // max(words * (int(batch.lengths.max(initial=1)) + cuts.most), 1))
    with torch.no_grad():
        for i in range(0, len(batch), size):
            part = slice(i, i + size)
            tokens = padded_tokens(
                *pad(batch[part]),
                placed.rows(part),
                layout,
                hold=hold,
                context=context,
                native=native,
            )
            with np.errstate(over="ignore"):  # _check_finite says so
                out[part] = tokens.numpy()


def _write_clocks(
    batch: SeriesBatch,
    cuts: Cuts,
    layout: Layout,
    dropping: Dropping,
    out: npt.NDArray[Any],
    threads: int | None,
    compute: Any,
) -> None:
    clocks = {view: layout.lifts[view].clock for view in layout.views}
    if not any(clocks.values()):
        return
    path = clock_path(batch, dropping, threads)
    for view, clock in clocks.items():
        if clock is not None:
            part = out[..., layout.clock_part(view)]
            library.clock_words(path, cuts, clock, view, part, threads, compute)


# Public functions of the engine: multi-view signatures of whole batches.


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
    x : SeriesBatch, array or tensor (B, L, C), list of arrays (L_i, C), or table
        Series, as in ``SeriesBatch.of``.
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
    # Gradients flow through the tensor itself, not through the batch.
    batch = SeriesBatch.of(x.detach() if is_tensor(x) else x, times, lengths, layout=layout)
    if layout == "channels_first" and is_tensor(x):
        x = x.transpose(1, 2)  # gradients flow back through it
    features = layout_of(batch.channels, depth, views, lifts, transform, basis)
    rule = Windows.of(windows)
    if threads is not None:
        threads = whole_number(threads, "threads", 1)
    if keep is not None:
        if drop:
            raise InputError("give keep= or drop=, not both")
        keep = check_mask(keep, batch.offsets, batch.ids)
    kind = batch.values.dtype
    result = library.float_type(kind if dtype is None else dtype).type
    wide = precise or kind == np.float64 or result is np.float64 or in_double(features)
    dropping = Dropping(keep, drop, seed, series_numbers(series, len(batch)))
    if is_tensor(x) and (x.requires_grad or x.device.type != "cpu"):
        if out is not None:
            raise InputError(
                "out= cannot be given with a tensor that requires a gradient or is not in main "
                "memory; leave it out, or pass x.detach()"
            )
        return _tensor_tokens(x, batch, rule, features, dropping, result, wide, engine, max_memory)
    tokens = compute_tokens(
        batch,
        rule,
        features,
        dropping=dropping,
        dtype=result,
        compute=np.float64 if wide else np.float32,
        out=out,
        threads=threads,
        engine=engine,
        max_memory=max_memory,
    )
    if not is_tensor(x):
        return tokens
    import torch

    return torch.from_numpy(tokens)


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
    from roughformer.signatures.torch_backend import Placed, inside_of

    check_dropping(dropping, windows)
    native = library.pick_engine(engine, x.device.type) == "native"
    cuts = windows.place(batch)
    check_capacity(layout, len(batch), cuts.most, np.dtype(dtype).itemsize, max_memory, 1)
    mask = dropping.mask(batch)
    thin = batch if mask is None else batch.drop_points(mask=mask)
    _, times, lengths = pad(thin)
    points = x[inside_of(torch.from_numpy(batch.lengths), x.shape[1]).to(x.device)]
    points = points if mask is None else points[torch.from_numpy(mask).to(x.device)]
    values = points.new_zeros(*times.shape, x.shape[2])
    values[inside_of(lengths, times.shape[1]).to(x.device)] = points
    tokens = padded_tokens(
        values.double() if wide else values,
        times.to(x.device),
        lengths.to(x.device),
        Placed.of(cuts, batch.span[0], x.device),
        layout,
        native=native,
    )
    tokens = tokens.to(torch.float64 if dtype is np.float64 else torch.float32)
    _check_finite(tokens, batch, layout, np.float64 if wide else np.float32)
    return tokens


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
