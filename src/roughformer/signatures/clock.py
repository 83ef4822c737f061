"""Words of harmonic clocks with the path, in closed form on its linear pieces.

Over an interval [s, e], with u measured from s, for each channel x and frequency ω:

    ∫ cos ω(u-s) dx(u) = Σ_pieces x' · [sin ω(u-s)] / ω,
    ∫ sin ω(u-s) dx(u) = Σ_pieces x' · [-cos ω(u-s)] / ω,

x' being the slope of the piece. They are, up to the increment of x, the level-2 signature words
(cos ω, x) and (sin ω, x) of the path lifted by the clock, exact for any sampling.
Here the native kernel computes them; ``clocks`` does so in torch.
"""

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.signatures import library
from roughformer.signatures.cutting import window_spans
from roughformer.signatures.lifts import Clock
from roughformer.signatures.path import Path
from roughformer.signatures.windows import Cuts

__all__ = ["clock_words"]


def clock_words(
    path: Path,
    cuts: Cuts,
    clock: Clock,
    view: str,
    out: npt.NDArray[Any],
    threads: int | None,
    compute: Any,
) -> None:
    """Write the clock words of a path without gradients into ``out (B, windows, C·count·2)``."""
    spans = window_spans(path, cuts)
    n_series, n_windows = spans.first.shape
    if n_series == 0 or n_windows == 0:
        return
    c = cuts.since(path.first_times)
    tokens = n_series * n_windows
    series = np.repeat(np.arange(n_series), n_windows)
    begin, finish = c[:, :-1].ravel(), c[:, 1:].ravel()
    origin = begin if view == "local" else c[series, 0]
    duration = finish - begin if view == "local" else (c[:, -1] - c[:, 0])[series]
    scale = np.ones(tokens)
    if clock.frequencies is not None:
        turns: npt.NDArray[np.floating[Any]] = np.asarray(clock.frequencies) / (2 * np.pi)
    else:
        turns = np.arange(1.0, clock.count + 1) * clock.spacing
        scale = np.where(duration > 0, 1.0 / np.where(duration > 0, duration, 1.0), 0.0)
    values = np.ascontiguousarray(path.values)
    item = out.itemsize
    where = np.arange(n_series)[:, None] * (out.strides[0] // item) + np.arange(n_windows)[
        None, :
    ] * (out.strides[1] // item)
    held: dict[str, npt.NDArray[Any]] = {
        "times": path.times,
        "row": path.starts[series] + spans.first.ravel(),
        "time_at": path.time_starts[series] + spans.first.ravel(),
        "end": spans.end.ravel(),
        "zero": path.first_times[series],
        "begin": begin,
        "finish": finish,
        "origin": origin,
        "scale": scale,
        "turns": np.concatenate([turns, np.zeros(16)]),
        "out_at": where.ravel(),
    }
    held = {name: np.ascontiguousarray(array) for name, array in held.items()}
    job = library.Clock(
        values=values.ctypes.data,
        **{name: array.ctypes.data for name, array in held.items()},
        out=out.ctypes.data,
        n_intervals=tokens,
        n_frequencies=clock.count,
        fastest=float(np.abs(turns).max()),
        value_dtype=int(values.dtype == np.float64),
        compute_dtype=int(np.dtype(compute) == np.float64),
        out_dtype=int(out.dtype == np.float64),
        channels=values.shape[1],
        threads=threads or library.default_threads(),
    )
    native = library.load()
    assert native is not None
    if native.rf_clock(ctypes.byref(job)):
        raise MemoryError("the native kernel could not allocate its scratch memory")
    if view == "global":
        out[...] = np.cumsum(out, axis=1, dtype=np.float64)
    if not cuts.equal:
        out[np.arange(n_windows)[None, :] >= cuts.n_windows[:, None]] = 0
