"""One dispatch for all signatures: lifts, dropping, native kernel or twin, gradients, memory."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from roughformer.dropping import keep_mask
from roughformer.errors import InputError
from roughformer.lifts import View, lift_path
from roughformer.path import Path
from roughformer.series import SeriesBatch
from roughformer.signatures import library, native_call
from roughformer.signatures.buffers import check_out, new_result
from roughformer.signatures.clock import clock_words
from roughformer.signatures.features import Layout, check_capacity
from roughformer.signatures.log_table import log_table
from roughformer.signatures.thinning import Dropping
from roughformer.windows import Cuts, Windows

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Engine",
    "clock_path",
    "compute_tokens",
    "dense_values",
    "pick_engine",
]

Engine = Literal["auto", "native", "torch"]


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
    """Views that share a lifted path and so one pass over it."""

    path: Path
    views: tuple[View, ...]
    basepoint: bool
    dropping: Dropping


def dense_values(
    batch: SeriesBatch, keep: npt.NDArray[np.bool_] | None, values: Any, threads: int | None
) -> Any:
    """Values ``(N, C)`` without gaps: of the batch, or of a tensor in its place."""
    if not batch.missing:
        return batch.values if values is None else values
    if values is not None:
        return batch.filled_tensor(values, keep)
    return batch.filled(keep) if library.load() is None else native_call.fill(batch, keep, threads)


def _calls(
    batch: SeriesBatch, layout: Layout, dropping: Dropping, values: Any, threads: int | None
) -> list[_Call]:
    # A dropped observation must not show through where gaps are filled or delayed copies made,
    # so these work on what is kept; otherwise the kernel skips dropped points by itself.
    drawn = dropping
    if dropping and (batch.missing or dropping.keep is not None):
        drawn = Dropping(keep=dropping.mask(batch))
    values = dense_values(batch, drawn.keep, values, threads)
    groups: dict[Any, list[View]] = {}
    for view in layout.views:
        lifts = layout.lifts[view]
        key = (lifts.path, view) if lifts.basepoint else (lifts.path, None)
        groups.setdefault(key, []).append(view)
    calls = []
    for (lifts, _), views in groups.items():
        if dropping and (lifts.lags or lifts.counts):
            mask = dropping.mask(batch)
            assert mask is not None
            thinned = batch.drop_points(mask=mask)
            path = lift_path(thinned, lifts, values[np.flatnonzero(mask)])
            calls.append(_Call(path, tuple(views), False, Dropping()))
        else:
            path = lift_path(batch, lifts, values)
            calls.append(_Call(path, tuple(views), False, drawn))
    return [replace(c, basepoint=layout.lifts[c.views[0]].basepoint) for c in calls]


def _request(
    call: _Call, cuts: Cuts, layout: Layout, threads: int | None, compute: Any
) -> native_call.Request:
    path, dropping = call.path, call.dropping
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


def _twin(call: _Call, cuts: Cuts, layout: Layout, values: "Tensor") -> dict[View, "Tensor"]:
    from roughformer.signatures.twin import lyndon_logarithm, twin_views

    path, dropping = call.path, call.dropping
    keep = dropping.keep
    if keep is None and dropping.fraction > 0:
        keep = keep_mask(path.lengths, dropping.fraction, dropping.seed, dropping.series)
    path = replace(path, values=values)
    if keep is not None:
        path = path.compact(keep)
    found = twin_views(path, cuts, layout.depth, path.values, call.views, call.basepoint)
    if layout.transform == "logsignature":
        brackets = layout.basis == "brackets"
        found = {v: lyndon_logarithm(s, path.dim, layout.depth, brackets) for v, s in found.items()}
    return found  # type: ignore[return-value]


def _native_with_gradient(
    call: _Call, cuts: Cuts, layout: Layout, values: "Tensor", threads: int | None, dtype: Any
) -> dict[View, "Tensor"]:
    """Native forward and backward; the logarithm, if asked for, is torch's."""
    from roughformer.signatures.autograd import native_signature
    from roughformer.signatures.twin import lyndon_logarithm

    plain = replace(layout, views=call.views, transform="signature")
    request = _request(call, cuts, plain, threads, dtype)
    joint = native_signature(values, request, plain.size - sum(map(plain.clock_size, plain.views)))
    found: dict[View, Tensor] = {}
    for view in call.views:
        part = joint[..., plain.at(view) : plain.at(view) + plain.signature_size(view)]
        if layout.transform == "logsignature":
            part = lyndon_logarithm(part, call.path.dim, layout.depth, layout.basis == "brackets")
        found[view] = part
    return found


def compute_tokens(
    batch: SeriesBatch,
    windows: Windows,
    layout: Layout,
    *,
    dropping: Dropping,
    dtype: Any,
    compute: Any,
    out: npt.NDArray[Any] | None,
    threads: int | None,
    engine: Engine,
    max_memory: int | None,
    values: "Tensor | None" = None,
) -> Any:
    """Tokens ``(B, windows, features)`` of a batch: a numpy array, or a tensor if ``values`` (the
    batch's values as a tensor ``(N, C)``) are given.
    """
    if dropping and windows.rule == "points":
        raise InputError(
            "windows by number of points cannot be combined with dropping points; thin the batch "
            "first with batch.drop_points(...), or cut by count or duration"
        )
    cuts = windows.place(batch)
    shape = (len(batch), cuts.most, layout.size)
    workers = threads or library.default_threads()
    check_capacity(layout, shape[0], shape[1], np.dtype(dtype).itemsize, max_memory, workers)
    calls = _calls(batch, layout, dropping, values, threads)
    chosen = pick_engine(engine, "cpu" if values is None else values.device.type)
    if values is None and chosen == "native":
        if out is None:
            out = new_result(shape, dtype, not cuts.equal)
        else:
            check_out(out, shape, dtype)
            if not cuts.equal:
                out.fill(0)
        for call in calls:
            native_call.forward(_request(call, cuts, layout, threads, compute), out)
        _write_clocks(batch, cuts, layout, dropping, out, threads, compute)
        return out
    import torch

    kind = {4: torch.float32, 8: torch.float64}[np.dtype(compute).itemsize]
    found: dict[View, Tensor] = {}
    for call in calls:
        tensor = _tensor(call.path.values).to(kind)
        if chosen == "native":
            found |= _native_with_gradient(call, cuts, layout, tensor, threads, compute)
        else:
            found |= _twin(call, cuts, layout, tensor)
    parts = [found[view] for view in layout.views]
    parts += _clock_parts(batch, cuts, layout, dropping, values, kind, threads)
    joint = torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
    joint = joint.to({4: torch.float32, 8: torch.float64}[np.dtype(dtype).itemsize])
    if values is not None:
        return joint
    if out is None:
        return joint.numpy()
    check_out(out, shape, dtype)
    out[...] = joint.numpy()
    return out


def _tensor(values: Any) -> "Tensor":
    """numpy or torch -> torch, sharing memory; nothing here writes to values, so say so."""
    import torch

    if isinstance(values, torch.Tensor):
        return values
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(values)


def clock_path(batch: SeriesBatch, dropping: Dropping, values: Any, threads: int | None) -> Path:
    """The path through the kept points that clock words are taken of."""
    from roughformer.lifts import ViewLifts

    mask = dropping.mask(batch)
    path = lift_path(batch, ViewLifts(), dense_values(batch, mask, values, threads))
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
    path = clock_path(batch, dropping, None, threads)
    for view in clocked:
        clock = layout.lifts[view].clock
        assert clock is not None
        at = layout.clock_at(view)
        part = out[..., at : at + layout.clock_size(view)]
        clock_words(path, cuts, clock, view, part, threads, compute)


def _clock_parts(
    batch: SeriesBatch,
    cuts: Cuts,
    layout: Layout,
    dropping: Dropping,
    values: Any,
    dtype: Any,
    threads: int | None,
) -> list["Tensor"]:
    clocked: Sequence[View] = [v for v in layout.views if layout.lifts[v].clock]
    if not clocked:
        return []
    from roughformer.signatures.clock_torch import clock_words_torch

    path = clock_path(batch, dropping, values, threads)
    found = []
    for view in clocked:
        clock = layout.lifts[view].clock
        assert clock is not None
        found.append(clock_words_torch(path, cuts, clock, view, dtype))
    return found
