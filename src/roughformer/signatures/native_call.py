"""Hands a path and its cuts to the native kernel: numpy arrays in, tokens written in place."""

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.signatures.library import Fill, Job, Log, Thin, default_threads, load
from roughformer.signatures.log_table import LogTable
from roughformer.signatures.path import Path
from roughformer.signatures.windows import Cuts

__all__ = ["Request", "backward", "fill_rows", "forward", "thin"]

_GLOBAL, _LOCAL = 1, 2
_DTYPES = {np.dtype(np.float32): 0, np.dtype(np.float64): 1}


@dataclass(frozen=True)
class Request:
    """Everything of one kernel call but its arrays of values and results."""

    path: Path  # its values are numpy, C-contiguous, float32 or float64
    cuts: Cuts
    depth: int
    at: dict[str, int]  # view -> where it stands in the token
    basepoint: bool = False
    log: LogTable | None = None
    keep: npt.NDArray[np.bool_] | None = None
    keys: npt.NDArray[np.uint32] | None = None
    drop: float = 0.0
    threads: int | None = None
    compute: Any = np.float32


def fill_rows(
    values: npt.NDArray[Any],
    times: npt.NDArray[np.float64],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    time_starts: npt.NDArray[np.int64],
    keep: npt.NDArray[np.bool_] | None = None,
    threads: int | None = None,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Rows ``(N, C)`` without gaps, and where a channel is never observed ``(B, C)``; series as in
    ``Path``.
    """
    out = np.empty_like(values)
    never = np.zeros((len(starts), values.shape[1]), np.uint8)
    held = {
        "times": _c(times, np.float64),
        "starts": _c(starts, np.int64),
        "lengths": _c(lengths, np.int64),
        "time_starts": _c(time_starts, np.int64),
        "keep": None if keep is None else _c(keep, np.uint8),
    }
    job = Fill(
        values=values.ctypes.data,
        out=out.ctypes.data,
        never=never.ctypes.data,
        **{name: _address(array) for name, array in held.items()},
        n_series=len(starts),
        dtype=_DTYPES[values.dtype],
        channels=values.shape[1],
        threads=threads or default_threads(),
    )
    library = load()
    assert library is not None
    library.rf_fill(ctypes.byref(job))
    return out, never


def thin(
    lengths: npt.NDArray[np.int64], fraction: float, keys: npt.NDArray[np.uint32]
) -> npt.NDArray[np.bool_]:
    """``dropping.keep_mask``, by the kernel, given the keys of the series."""
    length = _c(lengths, np.int64)
    starts = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    keep = np.empty(int(starts[-1]), np.uint8)
    keys = _c(keys, np.uint32)
    job = Thin(
        keys=keys.ctypes.data,
        starts=starts.ctypes.data,
        lengths=length.ctypes.data,
        keep=keep.ctypes.data,
        n_series=len(length),
        drop=fraction,
        threads=1,  # too quick to share
    )
    library = load()
    assert library is not None
    if library.rf_thin(ctypes.byref(job)):
        raise MemoryError("the native kernel could not allocate its scratch memory")
    return keep.view(np.bool_)


def _address(array: npt.NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data


def _c(array: npt.NDArray[Any], dtype: Any) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array, dtype=dtype)


def _log_struct(table: LogTable) -> Log:
    pointers = {name: _address(getattr(table, name)) for name in table._fields}
    return Log(n_out=table.size, n_fix=len(table.fix_dst), **pointers)


def _call(
    request: Request,
    out: npt.NDArray[Any],
    grad_out: npt.NDArray[Any] | None,
    grad_values: npt.NDArray[Any] | None,
) -> None:
    path, cuts = request.path, request.cuts
    values: npt.NDArray[Any] = path.values
    n = path.n_series
    if n == 0 or cuts.most == 0:
        return
    token = out.strides[1] // out.itemsize
    out_starts = np.arange(n, dtype=np.int64) * (out.strides[0] // out.itemsize)
    held = [
        _c(path.times, np.float64),
        _c(path.starts, np.int64),
        _c(path.lengths, np.int64),
        _c(path.time_starts, np.int64),
        _c(cuts.times, np.float64),
        _c(cuts.starts, np.int64),
        _c(cuts.n_windows, np.int64),
        _c(cuts.shift(path.first_times), np.float64),
    ]
    names = (
        *("times", "starts", "lengths", "time_starts", "cuts", "cut_starts", "n_windows"),
        "cut_shift",
    )
    scale = None if path.time_scale is None else _c(path.time_scale, np.float64)
    keep = None if request.keep is None else _c(request.keep, np.uint8)
    keys = None if request.keys is None else _c(request.keys, np.uint32)
    uniform = path.shared_times and cuts.shared and keep is None and keys is None
    if uniform and scale is not None:
        uniform = bool((scale == scale[0]).all())
    views = sum({"global": _GLOBAL, "local": _LOCAL}[v] for v in request.at)
    struct = None if request.log is None else _log_struct(request.log)
    job = Job(
        values=values.ctypes.data,
        **{name: array.ctypes.data for name, array in zip(names, held, strict=True)},
        time_scale=_address(scale),
        keep=_address(keep),
        keys=_address(keys),
        out=out.ctypes.data,
        out_starts=out_starts.ctypes.data,
        grad_out=_address(grad_out),
        grad_values=_address(grad_values),
        log=None if struct is None else ctypes.pointer(struct),
        n_rows=len(values),
        n_times=len(held[0]),
        n_series=n,
        token_stride=token,
        global_at=request.at.get("global", 0),
        local_at=request.at.get("local", 0),
        drop=request.drop,
        value_dtype=_DTYPES[values.dtype],
        compute_dtype=_DTYPES[np.dtype(request.compute)],
        out_dtype=_DTYPES[out.dtype],
        channels=values.shape[1],
        depth=request.depth,
        views=views,
        basepoint=views if request.basepoint else 0,
        uniform=uniform,
        threads=request.threads or default_threads(),
    )
    library = load()
    assert library is not None
    if (library.rf_forward if grad_out is None else library.rf_backward)(ctypes.byref(job)):
        raise MemoryError("the native kernel could not allocate its scratch memory")


def forward(request: Request, out: npt.NDArray[Any]) -> None:
    """Write the views of ``request.at`` into ``out (B, windows, features)``."""
    _call(request, out, None, None)


def backward(
    request: Request, out: npt.NDArray[Any], grad_out: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """dL/d(values) ``(N, C)`` given dL/d(out), laid out like ``out``, which holds the result."""
    grad = np.zeros(request.path.values.shape, dtype=request.compute)
    _call(request, out, grad_out, grad)
    return grad
