"""Whole-path clock words at many frequencies, fast: ∫ cos ω(u-t_0) dx(u) and ∫ sin ω(u-t_0) dx(u).

The plain sum costs L·J for L points and J frequencies. Here the native kernel spreads the kept
points over an even grid (``native/spectrum.h``), one FFT a channel does the rest: L + n log n. Few
points or few frequencies still go the plain way.
"""

import math
import warnings
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.polynomial import chebyshev
from scipy.fft import next_fast_len
from torch import Tensor

from roughformer.errors import InputError
from roughformer.series import SeriesBatch, UnobservedWarning
from roughformer.signatures import library, operators
from roughformer.signatures.library import Engine
from roughformer.signatures.lifts import Clock
from roughformer.signatures.paths import Floats, Ints
from roughformer.signatures.points import (
    Dropping,
    clock_path,
    dense_values,
    pad,
    path_of,
    series_numbers,
)
from roughformer.signatures.torch_backend import (
    inside_of,
    linear_points,
    observed,
    path_clock_words,
)
from roughformer.signatures.windows import Windows
from roughformer.util.checks import whole_number

# The bump that fast Fourier integrals smooth a path with: Kaiser and Bessel's, of unit area.
#
#     φ(x) = I_0(β √(1 - (2x/w)²)) / Z  for |x| ≤ w/2,  0 elsewhere,
#     φ^(θ) = ∫ φ(x) e^{iθx} dx = (β / sinh β) · sinh(s) / s,  s = √(β² - (wθ/2)²).
#
# x counts the steps of an even grid. Its transform is large for |θ| ≤ π/2, the half of the grid's
# band that is used, and less than ``error`` times that for all θ that fold onto it (|θ| ≥ 3π/2).


PAD = 8  # the longest vector of doubles; native/spectrum.h has it too
# Width -> degree of the polynomials that stand for the bump between the nodes.
_DEGREE = {8: 10, 16: 16}


@dataclass(frozen=True)
class Bump:
    """φ of one ``width``, and for each of the ``width`` nodes that a point at a distance z in
    [0, 1) before the first of them touches: polynomials in 2z - 1 of the smoothed ``step`` ∫ φ and
    of the ``bump`` φ, ``(degree + 1, 8 + width + 8)`` with 8 nodes before and behind.
    """

    width: int
    beta: float
    step: Floats
    bump: Floats

    @property
    def degree(self) -> int:
        """Degree of the polynomials."""
        return len(self.step) - 1

    def __call__(self, x: Floats) -> Floats:
        """φ(x)."""
        inside = np.clip(1 - (2 * x / self.width) ** 2, 0, None)
        area = self.width * np.sinh(self.beta) / self.beta
        value = np.i0(self.beta * np.sqrt(inside)) / area
        return np.where(np.abs(x) <= self.width / 2, value, 0.0)

    def transform(self, theta: Floats) -> Floats:
        """φ^(θ), for |θ| < 2β/w."""
        s = np.sqrt(self.beta**2 - (self.width * theta / 2) ** 2)
        return np.asarray(self.beta / np.sinh(self.beta) * np.sinh(s) / s)


@cache
def bump_of(width: int) -> Bump:
    """The bump of ``width`` 8 (error 2e-7) or 16 (1e-14)."""
    degree = _DEGREE[width]
    beta = 0.98 * np.pi * width * 0.75
    bare = Bump(width, beta, np.zeros((1, 1)), np.zeros((1, 1)))
    y = chebyshev.chebpts1(degree + 1)
    bump, step = np.zeros((2, degree + 1, width + 2 * PAD))
    step[0, PAD + width :] = 1.0
    passed = 0.0
    for k in range(width):
        cell = chebyshev.chebfit(y, bare((y + 1) / 2 + k - width / 2), degree)
        # One degree more than the cell's own is cut off: it is below the error.
        area = chebyshev.chebint(cell, scl=0.5, lbnd=-1)
        area[0] += passed
        passed = float(chebyshev.chebval(1.0, area))
        bump[:, PAD + k] = chebyshev.cheb2poly(cell)
        step[:, PAD + k] = chebyshev.cheb2poly(area[: degree + 1])
    return Bump(width, beta, step, bump)


# How Fourier integrals ∫ e^{iωu} dx(u) at given frequencies come from FFTs of an even grid.
#
# The path, smoothed by a bump φ and sampled at n nodes of step h, is g_m; then
#
#     ∫ e^{iωu} dx(u) = Σ_m g_m e^{iωhm} / φ^(ωh),  up to the bump's error for |ω| ≤ π/(2h).
#
# *Even* frequencies j·δ: the grid has the period 2π/δ, times wrap around it, and one FFT gives all
# sums. *Any* frequencies: the grid is at least twice as long as the path; its FFT is read between
# its frequencies k by the bump again, which the nodes are divided by beforehand:
#
#     Σ_m g_m e^{iκθ_m} = Σ_k φ(κ - k) Σ_m (g_m / φ^(θ_m)) e^{ikθ_m},  θ_m = 2πm/n, |θ_m| ≤ π/2.


_MOST_NODES = 1 << 26  # of a grid; beyond, the plain sum over points is always cheaper


@dataclass(frozen=True)
class Plan:
    """A grid and how to read its FFT; without ``between`` frequency j is number ``number[j]``."""

    bump: Bump
    n_grid: int
    n_nodes: int  # of the longest path before it wraps
    per_time: float  # nodes per unit of time
    first: int  # where on the grid node 0 goes
    number: Ints  # (J,) of the frequency, or of the first one that is read
    factor: Floats  # (J,), or (J, 2) real and imaginary if between
    weight: Floats | None = None  # (n_nodes,)
    between: Floats | None = None  # (J, width) weights of the frequencies read
    negative: Ints | None = None  # those frequencies that are; None if there are none
    still: Ints | None = None  # likewise 0

    @property
    def dtype(self) -> npt.DTypeLike:
        """Of the grid."""
        return np.float64 if self.bump.width == 16 else np.float32

    @cached_property
    def picked(self) -> slice | Tensor:
        """The frequencies of the FFT that are read as they are."""
        if (np.diff(self.number) == 1).all():
            return slice(int(self.number[0]), int(self.number[-1]) + 1)
        return torch.from_numpy(self.number)

    @cached_property
    def factors(self) -> Tensor:
        """Their factors ``(J, 1)``."""
        return torch.from_numpy(self.factor[:, None].astype(self.dtype))


def _fft_size(least: int) -> int:
    """The smallest even 2^a 3^b 5^c that is not below."""
    return 2 * int(next_fast_len(-(-least // 2), real=True))


def _common_step(omega: Floats, duration: float, tolerance: float) -> tuple[float, Ints] | None:
    """δ and whole j with ω = j·δ but for phases of ``tolerance`` at the end of the path."""
    levels = np.unique(np.concatenate([[0.0], omega]))
    gaps = np.diff(levels)
    top = float(levels[-1])
    # Rounding leaves gaps of nearly nothing between frequencies that are meant to be one.
    gaps = gaps[gaps * duration > tolerance]
    if not len(gaps):
        return None
    for part in range(1, 5):
        steps = round(top / float(gaps.min()) * part)
        if steps > _MOST_NODES:
            return None
        delta = top / steps
        number = np.rint(omega / delta)
        if (np.abs(omega - number * delta) * duration).max() <= tolerance:
            return delta, number.astype(np.int64)
    return None


def _even_plan(omega: Floats, duration: float, bump: Bump, tolerance: float) -> Plan | None:
    common = _common_step(omega, duration, tolerance)
    if common is None:
        return None
    delta, number = common
    n_grid = _fft_size(max(4 * int(number.max()), 2 * bump.width))
    per_time = n_grid * delta / (2 * np.pi)
    nodes = duration * per_time + bump.width + PAD + 3
    if max(nodes, n_grid) > _MOST_NODES:
        return None
    factor = 1 / bump.transform(2 * np.pi * number / n_grid)
    return Plan(bump, n_grid, int(nodes), per_time, bump.width // 2, number, factor)


def _any_plan(omega: Floats, duration: float, bump: Bump) -> Plan | None:
    per_time = 2 * float(omega.max()) / np.pi
    size = duration * per_time + bump.width + PAD + 3
    if size > _MOST_NODES // 2:
        return None
    nodes, half = int(size), bump.width // 2
    n_grid = _fft_size(max(2 * (nodes + 1), 8 * bump.width))
    # Nodes from the middle of the longest path, so that |θ_m| ≤ π/2.
    middle = nodes // 2
    weight = 1 / bump.transform(2 * np.pi * (np.arange(nodes) - middle) / n_grid)
    kappa = omega * n_grid / (2 * np.pi * per_time)
    number = np.ceil(kappa - half).astype(np.int64)
    between = bump(kappa[:, None] - number[:, None] - np.arange(bump.width)[None, :])
    theta = omega / per_time
    turned = np.exp(1j * theta * (middle - half)) / bump.transform(theta)
    factor = np.stack([turned.real, turned.imag], axis=-1)
    return Plan(bump, n_grid, nodes, per_time, middle, number, factor, weight, between)


def plan_for(omega: Floats, duration: float, wide: bool) -> Plan | None:
    """The smaller of the two grids for ``omega (J,)``, not all 0, and paths of at most this
    duration > 0; None if both would be huge. ``wide``: to 1e-13 instead of 1e-6.
    """
    # Durations of up to a twelfth more share a plan.
    longest = 2.0 ** (math.ceil(8 * math.log2(duration)) / 8)
    return _plan_for(np.ascontiguousarray(omega, np.float64).tobytes(), longest, wide)


@lru_cache(maxsize=64)  # training asks for the same grid with every batch
def _plan_for(frequencies: bytes, duration: float, wide: bool) -> Plan | None:
    signed = np.frombuffer(frequencies)
    omega = np.abs(signed)
    bump = bump_of(16 if wide else 8)
    even = _even_plan(omega, duration, bump, 1e-11 if wide else 1e-7)
    free = _any_plan(omega, duration, bump)
    plan = even or free
    if even and free and max(even.n_grid, even.n_nodes) > 1.5 * free.n_grid:
        plan = free
    negative, still = np.flatnonzero(signed < 0), np.flatnonzero(omega == 0)
    return plan and replace(
        plan, negative=negative if len(negative) else None, still=still if len(still) else None
    )


_CHUNK = 1 << 20  # bytes of grid at a time: kernel and FFT meet in the cache
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
    omega = _as_frequencies(frequencies)
    if threads is not None:
        threads = whole_number(threads, "threads", 1)
    kind = library.float_type(dtype)
    dropping = Dropping(None, drop, seed, series_numbers(series, len(batch)))
    chosen = library.pick_engine(engine)
    shape = (len(batch), batch.n_channels, len(omega), 2)
    if 0 in shape:
        return np.zeros(shape, kind)
    if chosen == "torch":
        return _in_torch(batch, omega, dropping, kind)
    plan = _choose(batch, omega, drop, kind)
    if plan is None:
        return _plain(batch, omega, dropping, kind, threads)
    return _fast(batch, omega, dropping, kind, threads, plan)


def _as_frequencies(frequencies: Any) -> Floats:
    try:
        omega = np.asarray(frequencies, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"frequencies must be numbers, got {frequencies!r}") from None
    if omega.ndim != 1 or len(omega) == 0 or not np.isfinite(omega).all():
        raise InputError(
            "frequencies must be finite numbers in one dimension, at least one, got shape "
            f"{omega.shape}" + ("" if np.isfinite(omega).all() else " with NaN or infinity")
        )
    return omega


def _choose(batch: SeriesBatch, omega: Floats, drop: float, kind: Any) -> Plan | None:
    """The grid to use, or None where the plain sum is cheaper."""
    start, end = batch.span
    lengths, duration = batch.lengths, end - start
    longest, fastest = float(duration.max()), float(np.abs(omega).max())
    if longest <= 0 or fastest <= 0:
        return None
    moving = duration > 0
    points = (lengths[moving] - 1) * (1 - drop)
    slow = fastest < _SLOW * np.pi * float((points / duration[moving]).max())
    plan = plan_for(omega, longest, bool(kind == np.float64 or slow))
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
    out = library.new_result((len(batch), 1, shape[1] * shape[2] * 2), kind)
    library.clock_words(path, cuts, clock, "local", out, threads, compute)
    return out.reshape(shape)


def _in_torch(batch: SeriesBatch, omega: Floats, dropping: Dropping, kind: Any) -> npt.NDArray[Any]:
    """The same by the definition, a block of series at a time."""
    thin = dropping.thinned(batch)
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
    # Gaps are filled between what is kept, so then the mask comes first.
    keep = dropping.mask(batch) if batch.missing else None
    path = path_of(batch, np.ascontiguousarray(dense_values(batch, keep, threads)))
    arrays = library.path_arrays(path) | {
        "keep": None if keep is None else keep.view(np.uint8),
        "keys": dropping.keys(len(batch)) if dropping and keep is None else None,
    }
    of_series = ("starts", "lengths", "time_starts", "keys")
    n_series, channels = len(batch), batch.n_channels
    inner = np.dtype(plan.dtype)
    out = library.new_result((n_series, channels, len(omega), 2), inner)
    size = max(1, _CHUNK // (plan.n_grid * channels * inner.itemsize))
    grid = library.new_result((min(size, n_series), channels, plan.n_grid), inner)
    workers = threads or library.default_threads()
    for first in range(0, n_series, size):
        count = min(size, n_series - first)
        chunk = {
            name: array[first:] if name in of_series and array is not None else array
            for name, array in arrays.items()
        }
        library.call(
            "rf_spread",
            chunk
            | {"step": plan.bump.step, "bump": plan.bump.bump, "weight": plan.weight, "out": grid},
            n_series=count,
            n_grid=plan.n_grid,
            n_nodes=plan.n_nodes,
            first=plan.first,
            drop=dropping.fraction,
            nodes_per_time=plan.per_time,
            degree=plan.bump.degree,
            width=plan.bump.width,
            value_dtype=library.is_double(path.values.dtype),
            out_dtype=library.is_double(inner),
            channels=channels,
            threads=workers,
        )
        spectrum = torch.fft.rfft(torch.from_numpy(grid[:count]))
        _read(plan, spectrum, out[first : first + count], workers)
    if plan.negative is not None:
        out[:, :, plan.negative, 1] *= -1
    if plan.still is not None:
        last = path.values[path.starts + path.lengths - 1].astype(np.float64)
        out[:, :, plan.still, 0] = (last - path.values[path.starts])[:, :, None]
        out[:, :, plan.still, 1] = 0
    return out.astype(kind, copy=False)


def _read(plan: Plan, spectrum: Tensor, out: npt.NDArray[Any], threads: int) -> None:
    """From the FFT of the grids ``(B, C, n/2 + 1)`` to the words ``(B, C, J, 2)``."""
    if plan.between is None:
        words = torch.view_as_real(spectrum[..., plan.picked])
        torch.mul(words, plan.factors, out=torch.from_numpy(out))
        return
    arrays = {
        "spectrum": spectrum.contiguous().numpy(),
        "first": plan.number,
        "weights": np.ascontiguousarray(np.repeat(plan.between, 2, axis=1)),
        "factor": plan.factor,
        "out": out,
    }
    library.call(
        "rf_between",
        arrays,
        n_rows=out.shape[0] * out.shape[1],
        n_spectrum=spectrum.shape[-1],
        n_frequencies=len(plan.number),
        dtype=library.is_double(out.dtype),
        width=plan.bump.width,
        threads=threads,
    )


# The same as an operator of torch, for padded series.


@torch.library.custom_op("roughformer::path_clock_words", mutates_args=(), device_types="cpu")
def _path_clock_words(
    values: Tensor, times: Tensor, lengths: Tensor, frequencies: list[float]
) -> Tensor:
    """Clock words ``(B, C, J, 2)`` of whole paths; see ``torch_backend.path_clock_words``."""
    inside = inside_of(lengths, values.shape[1])
    offsets = np.concatenate([[0], np.cumsum(lengths.numpy())])
    rows, stamps = values.detach()[inside].numpy(), times.detach()[inside].numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnobservedWarning)
        batch = SeriesBatch(stamps, rows, offsets)
        return torch.from_numpy(spectrum_words(batch, frequencies, dtype=rows.dtype.type))


@_path_clock_words.register_fake
def _(values: Tensor, times: Tensor, lengths: Tensor, frequencies: list[float]) -> Tensor:
    return values.new_empty(values.shape[0], values.shape[2], len(frequencies), 2)


_path_clock_words.register_vmap(operators.batched(_path_clock_words))


def spectrum_of(values: Tensor, times: Tensor, lengths: Tensor, omega: list[float]) -> Tensor:
    """Clock words ``(B, C, J, 2)`` of the whole paths of padded series."""
    wanted = torch.is_grad_enabled() and values.requires_grad
    if wanted or not operators.kernel_serves(values, times, times):
        return path_clock_words(linear_points(observed(values, times, lengths)), omega)
    words: Tensor = torch.ops.roughformer.path_clock_words(values, times, lengths, omega)
    return words
