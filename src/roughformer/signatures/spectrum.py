"""Whole-path clock words at many frequencies, fast: ∫ cos ω(u-t_0) dx(u) and ∫ sin ω(u-t_0) dx(u).

The plain sum (``clock.py``) costs L·J for L points and J frequencies. Here the native kernel
spreads the kept points over an even grid (``native/spectrum.h``), one FFT a channel does the rest
(``spectrum_plan.py``): L + n log n. Few points or few frequencies still go the plain way.
"""

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.signatures import library
from roughformer.signatures.buffers import new_result
from roughformer.signatures.clock import clock_words
from roughformer.signatures.engine import Engine, clock_path, dense_values, pad, pick_engine
from roughformer.signatures.lifts import Clock
from roughformer.signatures.spectrum_plan import Plan, plan_for
from roughformer.signatures.thinning import Dropping, check_series
from roughformer.signatures.windows import Windows
from roughformer.util.checks import whole_number

__all__ = ["spectrum_words"]

Floats = npt.NDArray[np.float64]
_CHUNK = 1 << 20  # bytes of grid at a time: kernel and FFT meet in the cache
_OUT_OF_MEMORY = "the native kernel could not allocate its scratch memory"
# Frequencies this far below the sampling rate are computed in double precision: their words may
# be so much smaller than those of the noise above them that single precision shows.
_SLOW = 1 / 16


def spectrum_words(
    batch: SeriesBatch,
    frequencies: Any,
    *,
    drop: float = 0.0,
    seed: int = 0,
    series: Any = None,
    threads: int | None = None,
    dtype: Any = np.float32,
    engine: Engine = "auto",
) -> npt.NDArray[Any]:
    """Clock words of whole paths: for each series, channel c and angular frequency ω_j

        ∫ cos ω_j(u - t_0) dx_c(u)   and   ∫ sin ω_j(u - t_0) dx_c(u)

    over the piecewise-linear path through its kept points, from its own first time t_0.

    Parameters
    ----------
    batch
        B series of C channels; gaps are filled linearly between a channel's own observations.
    frequencies
        ``(J,)`` radians per unit of time, any order and sign. Evenly spaced ones (multiples of
        their spacing, or of a half, third or quarter of it) are fastest.
    drop, seed, series
        The fraction of points of each series to leave out, chosen by ``seed`` and the numbers
        ``series (B,)``, as in ``multiview_signature``.
    threads, dtype, engine
        Threads of the native kernel (the FFT has torch's); float32 (to 1e-5 of the largest word
        of a series and channel, mostly 1e-6) or float64 (to 1e-9); ``"auto"``, ``"native"`` or
        ``"torch"`` (the plain sum, slow).

    Returns
    -------
    array (B, C, J, 2)
        The clock words of ``multiview_signature(batch, 1, 1, "local", ...)`` with
        ``lifts=Clock(frequencies=...)`` and the same ``drop``, ``seed`` and ``series``.
    """
    omega = _frequencies(frequencies)
    if threads is not None:
        threads = whole_number(threads, "threads", 1)
    kind = np.dtype(dtype)
    if kind not in (np.float32, np.float64):
        raise InputError(f"dtype must be float32 or float64, got {dtype!r}")
    dropping = Dropping(None, drop, seed, check_series(series, len(batch)))
    chosen = pick_engine(engine)
    shape = (len(batch), batch.n_channels, len(omega), 2)
    if 0 in shape:
        return np.zeros(shape, kind)
    if chosen == "torch":
        return _in_torch(batch, omega, dropping, kind)
    plan = _choose(batch, omega, drop, kind)
    if plan is None:
        return _plain(batch, omega, dropping, kind, threads)
    return _fast(batch, omega, dropping, kind, threads, plan)


def _frequencies(wish: Any) -> Floats:
    try:
        omega = np.asarray(wish, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"frequencies must be numbers, got {wish!r}") from None
    if omega.ndim != 1 or len(omega) == 0 or not np.isfinite(omega).all():
        raise InputError(
            "frequencies must be finite numbers in one dimension, at least one, got shape "
            f"{omega.shape}" + ("" if np.isfinite(omega).all() else " with NaN or infinity")
        )
    return omega


def _starts(batch: SeriesBatch) -> tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Times, where the first time of each series stands in them, and the lengths."""
    starts = np.ascontiguousarray(batch.offsets[:-1], np.int64)
    lengths = np.ascontiguousarray(batch.lengths, np.int64)
    if batch.grid is not None:
        return np.ascontiguousarray(batch.grid, np.float64), np.zeros_like(starts), lengths
    return np.ascontiguousarray(batch.times, np.float64), starts, lengths


def _choose(batch: SeriesBatch, omega: Floats, drop: float, kind: Any) -> Plan | None:
    """The grid to use, or None where the plain sum is cheaper."""
    times, starts, lengths = _starts(batch)
    duration = times[starts + lengths - 1] - times[starts]
    longest, fastest = float(duration.max()), float(np.abs(omega).max())
    if longest <= 0 or fastest <= 0:
        return None
    moving = duration > 0
    points = (lengths[moving] - 1) * (1 - drop)
    slow = fastest < _SLOW * np.pi * float((points / duration[moving]).max())
    plan = plan_for(np.abs(omega), longest, bool(kind == np.float64 or slow))
    if plan is None:
        return None
    # Nanoseconds a series on one thread, fitted to measurements; only the comparison counts. The
    # first number of each is what a call costs before its first series, shared by all of them.
    channels, double = batch.n_channels, plan.bump.width == 16
    kept = float(lengths.mean()) * (1 - drop)
    compact = 20 if drop else 5  # the plain sum copies the kept points first
    pair = (0.6 + 0.1 * channels) * (2 if kind == np.float64 else 1)
    plain = 4e5 / len(batch) + kept * (compact + len(omega) * pair)
    grid = plan.n_nodes + 0.17 * plan.n_grid * np.log2(plan.n_grid) + 10 * len(omega)
    fast = kept * (20 + 6 * channels) + channels * grid
    return plan if 2e5 / len(batch) + fast * (1.5 if double else 1) < plain else None


def _plain(
    batch: SeriesBatch, omega: Floats, dropping: Dropping, kind: Any, threads: Any
) -> npt.NDArray[Any]:
    """The sum over all points for all frequencies, by the kernel."""
    clock = Clock(frequencies=tuple(omega.tolist()))
    cuts = Windows.of(1).place(batch)
    path = clock_path(batch, dropping, threads)
    compute = np.result_type(path.values.dtype, kind)
    shape = (len(batch), batch.n_channels, len(omega), 2)
    out = new_result((len(batch), 1, shape[1] * shape[2] * 2), kind)
    clock_words(path, cuts, clock, "local", out, threads, compute)
    return out.reshape(shape)


def _in_torch(batch: SeriesBatch, omega: Floats, dropping: Dropping, kind: Any) -> npt.NDArray[Any]:
    """The same by the definition, a block of series at a time."""
    from roughformer.signatures.clocks import path_clock_words
    from roughformer.signatures.padded import linear_points, observed

    mask = dropping.mask(batch)
    thin = batch if mask is None else batch.drop_points(mask=mask)
    if thin.missing:
        thin.warn_unobserved(thin.unobserved().sum(axis=0, dtype=np.int64))
    out = np.empty((len(batch), batch.n_channels, len(omega), 2), kind)
    size = max(1, _CHUNK // (64 * int(thin.lengths.max())))
    for i in range(0, len(batch), size):
        points = linear_points(observed(*pad(thin[i : i + size])))
        out[i : i + size] = path_clock_words(points, omega.tolist()).numpy()
    return out


def _fast(
    batch: SeriesBatch, omega: Floats, dropping: Dropping, kind: Any, threads: Any, plan: Plan
) -> npt.NDArray[Any]:
    import torch

    # Gaps are filled between what is kept, so then the mask comes first.
    keep = dropping.mask(batch) if batch.missing else None
    values = np.ascontiguousarray(dense_values(batch, keep, threads))
    keys = dropping.keys(len(batch)) if dropping and keep is None else None
    times, time_starts, lengths = _starts(batch)
    starts = np.ascontiguousarray(batch.offsets[:-1], np.int64)
    n_series, channels = len(batch), batch.n_channels
    inner = np.dtype(np.float64 if plan.bump.width == 16 else np.float32)
    out = new_result((n_series, channels, len(omega), 2), inner)
    size = max(1, _CHUNK // (plan.n_grid * channels * inner.itemsize))
    grid = new_result((min(size, n_series), channels, plan.n_grid), inner)
    bytes_of_keep = None if keep is None else keep.view(np.uint8)
    workers = threads or library.default_threads()
    native = library.load()
    assert native is not None
    for first in range(0, n_series, size):
        count = min(size, n_series - first)
        job = library.Spread(
            values=values.ctypes.data,
            times=times.ctypes.data,
            starts=starts[first:].ctypes.data,
            lengths=lengths[first:].ctypes.data,
            time_starts=time_starts[first:].ctypes.data,
            keep=None if bytes_of_keep is None else bytes_of_keep.ctypes.data,
            keys=None if keys is None else keys[first:].ctypes.data,
            step=plan.bump.step.ctypes.data,
            bump=plan.bump.bump.ctypes.data,
            weight=None if plan.weight is None else plan.weight.ctypes.data,
            out=grid.ctypes.data,
            n_series=count,
            n_grid=plan.n_grid,
            n_nodes=plan.n_nodes,
            first=plan.first,
            drop=dropping.fraction,
            nodes_per_time=plan.per_time,
            degree=plan.bump.degree,
            width=plan.bump.width,
            value_dtype=int(values.dtype == np.float64),
            out_dtype=int(inner == np.float64),
            channels=channels,
            threads=workers,
        )
        if native.rf_spread(ctypes.byref(job)):
            raise MemoryError(_OUT_OF_MEMORY)
        spectrum = torch.fft.rfft(torch.from_numpy(grid[:count]))
        _read(plan, spectrum, out[first : first + count], workers)
    backwards = omega < 0
    if backwards.any():
        out[:, :, backwards, 1] *= -1
    still = omega == 0
    if still.any():
        last = values[starts + lengths - 1].astype(np.float64) - values[starts]
        out[:, :, still, 0] = last[:, :, None]
        out[:, :, still, 1] = 0
    return out.astype(kind, copy=False)


def _read(plan: Plan, spectrum: Any, out: npt.NDArray[Any], threads: int) -> None:
    """From the FFT of the grids ``(B, C, n/2 + 1)`` to the words ``(B, C, J, 2)``."""
    import torch

    if plan.between is None:
        number, count = plan.number, len(plan.number)
        if (np.diff(number) == 1).all():
            picked = spectrum[..., int(number[0]) : int(number[0]) + count]
        else:
            picked = spectrum[..., torch.from_numpy(number)]
        factor = torch.from_numpy(plan.factor[:, None].astype(out.dtype))
        torch.mul(torch.view_as_real(picked), factor, out=torch.from_numpy(out))
        return
    spectrum = spectrum.contiguous()
    twice = np.ascontiguousarray(np.repeat(plan.between, 2, axis=1))
    job = library.Between(
        spectrum=spectrum.data_ptr(),
        first=plan.number.ctypes.data,
        weights=twice.ctypes.data,
        factor=plan.factor.ctypes.data,
        out=out.ctypes.data,
        n_rows=out.shape[0] * out.shape[1],
        n_spectrum=spectrum.shape[-1],
        n_frequencies=len(plan.number),
        dtype=int(out.dtype == np.float64),
        width=plan.bump.width,
        threads=threads,
    )
    native = library.load()
    assert native is not None
    if native.rf_between(ctypes.byref(job)):
        raise MemoryError(_OUT_OF_MEMORY)
