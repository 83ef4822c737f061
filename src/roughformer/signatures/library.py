"""Loads the native kernel, if it is there, and mirrors its C structures (``native/abi.h``)."""

import ctypes
import os
import warnings
from functools import cache
from pathlib import Path

from roughformer.errors import EngineWarning

__all__ = [
    "Between",
    "Cells",
    "Clock",
    "Fill",
    "Functionals",
    "Job",
    "Lay",
    "Log",
    "Spread",
    "Step",
    "Stream",
    "Thin",
    "default_threads",
    "engine_info",
    "load",
]

_ABI = 10
_P, _L, _I, _D = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_double


class Log(ctypes.Structure):
    """``RfLog``."""

    _fields_ = (
        ("n_out", _L),
        *((name, _P) for name in ("term_ptr", "coef", "factor_ptr", "factor")),
        ("n_fix", _L),
        *((name, _P) for name in ("fix_dst", "fix_src", "fix_coef")),
    )


class Job(ctypes.Structure):
    """``RfJob``."""

    _fields_ = (
        *((name, _P) for name in ("values", "times", "starts", "lengths", "time_starts")),
        *((name, _P) for name in ("cuts", "cut_starts", "cut_shift", "n_windows")),
        *((name, _P) for name in ("time_scale", "keep", "keys")),
        *((name, _P) for name in ("out", "out_starts", "grad_out", "grad_values")),
        ("log", ctypes.POINTER(Log)),
        *((name, _L) for name in ("n_rows", "n_times", "n_series")),
        *((name, _L) for name in ("token_stride", "global_at", "local_at")),
        ("drop", _D),
        *((name, _I) for name in ("value_dtype", "compute_dtype", "out_dtype")),
        *((name, _I) for name in ("channels", "depth", "views", "basepoint", "uniform", "threads")),
    )


class Clock(ctypes.Structure):
    """``RfClock``."""

    _fields_ = (
        *((name, _P) for name in ("values", "times", "row", "time_at", "end", "zero", "begin")),
        *((name, _P) for name in ("finish", "origin", "scale", "turns", "out", "out_at")),
        *((name, _L) for name in ("n_intervals", "n_frequencies")),
        ("fastest", _D),
        *((name, _I) for name in ("value_dtype", "compute_dtype", "out_dtype")),
        *((name, _I) for name in ("channels", "threads")),
    )


class Fill(ctypes.Structure):
    """``RfFill``."""

    _fields_ = (
        *((name, _P) for name in ("values", "out", "never", "times", "starts", "lengths")),
        *((name, _P) for name in ("time_starts", "keep")),
        ("n_series", _L),
        *((name, _I) for name in ("dtype", "channels", "threads")),
    )


class Thin(ctypes.Structure):
    """``RfThin``."""

    _fields_ = (
        *((name, _P) for name in ("keys", "starts", "lengths", "keep")),
        ("n_series", _L),
        ("drop", _D),
        ("threads", _I),
    )


class Lay(ctypes.Structure):
    """``RfLay``."""

    _fields_ = (
        *((name, _P) for name in ("times", "columns", "times_out", "values_out")),
        *((name, _L) for name in ("n_rows", "falls")),
        *((name, _I) for name in ("missing", "infinite", "unbounded", "dtype", "channels")),
    )


class Spread(ctypes.Structure):
    """``RfSpread``."""

    _fields_ = (
        *((name, _P) for name in ("values", "times", "starts", "lengths", "time_starts")),
        *((name, _P) for name in ("keep", "keys", "step", "bump", "weight", "out")),
        *((name, _L) for name in ("n_series", "n_grid", "n_nodes", "first")),
        *((name, _D) for name in ("drop", "nodes_per_time")),
        *((name, _I) for name in ("degree", "width")),
        *((name, _I) for name in ("value_dtype", "out_dtype", "channels", "threads")),
    )


class Between(ctypes.Structure):
    """``RfBetween``."""

    _fields_ = (
        *((name, _P) for name in ("spectrum", "first", "weights", "factor", "out")),
        *((name, _L) for name in ("n_rows", "n_spectrum", "n_frequencies")),
        *((name, _I) for name in ("dtype", "width", "threads")),
    )


class Cells(ctypes.Structure):
    """``RfCells``."""

    _fields_ = (
        *((name, _P) for name in ("values", "times", "starts", "lengths", "time_starts", "out")),
        *((name, _L) for name in ("n_series", "n_cells")),
        ("least_span", ctypes.c_double),
        *((name, _I) for name in ("value_dtype", "channels", "threads")),
    )


class Functionals(ctypes.Structure):
    """``RfFunctionals``."""

    _fields_ = (
        *((name, _P) for name in ("cells", "widths", "padded", "mix_at", "mix_row", "mix")),
        *((name, _P) for name in ("taps", "thresholds", "ppv", "mpv", "mipv", "wins")),
        *((name, _L) for name in ("n_series", "n_rows", "n_cells", "n_scales", "n_groups")),
        *((name, _L) for name in ("n_taps", "n_thresholds")),
        ("most", _D),
        ("threads", _I),
    )


class Step(ctypes.Structure):
    """``RfStep``."""

    _fields_ = (
        *((name, _P) for name in ("start", "time", "opened", "window", "points", "held")),
        *((name, _P) for name in ("local", "begin", "clocks", "whole", "first", "rings", "starts")),
        *((name, _P) for name in ("seen", "past", "recent", "turns", "range")),
        *((name, _P) for name in ("slots", "offsets", "times", "values", "out", "ends")),
        *((name, _L) for name in ("n_slots", "room", "width", "next", "next_row")),
        *((name, _L) for name in ("global_at", "local_at", "clock_at")),
        *((name, _L) for name in ("seen_global_at", "seen_local_at")),
        *((name, _L) for name in ("n_frequencies", "context", "ring", "recent_windows")),
        ("points_each", _L),
        *((name, _D) for name in ("duration", "time_scale", "time_unit", "fastest")),
        *((name, _I) for name in ("channels", "depth", "basepoint")),
    )


class Stream(ctypes.Structure):
    """``RfStream``."""

    _fields_ = (("state", _P), ("n_streams", _L), *((n, _I) for n in ("dim", "depth", "dtype")))


def _library_file() -> Path:
    from roughformer.signatures.native.build import library_path

    return library_path()


def _open() -> ctypes.CDLL | str:
    """The library, or the reason why it cannot be used."""
    if os.environ.get("ROUGHFORMER_ENGINE", "").lower() == "torch":
        return "ROUGHFORMER_ENGINE asks for torch"
    path = _library_file()
    if not path.exists():
        return (
            "the native kernel was not built; install a C++ compiler and run "
            "`python -m roughformer.signatures.native.build`"
        )
    try:
        lib = ctypes.CDLL(str(path))
    except OSError as error:
        return f"the native kernel cannot be loaded ({error}); build it again or reinstall"
    if lib.rf_abi_version() != _ABI:
        return "the native kernel is of another version; run make or reinstall roughformer"
    lib.rf_isa.restype = lib.rf_isa_name.restype = ctypes.c_char_p
    lib.rf_set_isa.argtypes = (ctypes.c_char_p,)
    lib.rf_forward.argtypes = lib.rf_backward.argtypes = (ctypes.POINTER(Job),)
    lib.rf_clock.argtypes = (ctypes.POINTER(Clock),)
    lib.rf_fill.argtypes, lib.rf_fill.restype = (ctypes.POINTER(Fill),), None
    lib.rf_thin.argtypes = (ctypes.POINTER(Thin),)
    lib.rf_lay.argtypes, lib.rf_lay.restype = (ctypes.POINTER(Lay),), None
    lib.rf_runs.argtypes, lib.rf_runs.restype = (_P, _L, _I, _P), _L
    lib.rf_locate.argtypes, lib.rf_locate.restype = (_P, _P, _P, _P, _L, _P), None
    lib.rf_spread.argtypes = (ctypes.POINTER(Spread),)
    lib.rf_cells.argtypes = (ctypes.POINTER(Cells),)
    lib.rf_functionals.argtypes = (ctypes.POINTER(Functionals),)
    lib.rf_between.argtypes = (ctypes.POINTER(Between),)
    lib.rf_step.argtypes, lib.rf_step.restype = (ctypes.POINTER(Step),), _L
    stream = ctypes.POINTER(Stream)
    lib.rf_stream_bytes.argtypes, lib.rf_stream_bytes.restype = (stream,), _L
    lib.rf_stream_push.argtypes, lib.rf_stream_push.restype = (stream, _P, _P), _L
    lib.rf_stream_read.argtypes, lib.rf_stream_read.restype = (stream, ctypes.c_int, _P, _L), None
    lib.rf_stream_close.argtypes, lib.rf_stream_close.restype = (stream, _P), None
    return lib


@cache
def _opened() -> ctypes.CDLL | str:
    found = _open()
    if isinstance(found, str) and "ROUGHFORMER_ENGINE" not in found:
        warnings.warn(
            f"roughformer uses its slower pure-torch engine: {found}", EngineWarning, stacklevel=2
        )
    return found


def load() -> ctypes.CDLL | None:
    """The native library, or None (with one warning per process) if the torch engine must serve."""
    found = _opened()
    return None if isinstance(found, str) else found


def default_threads() -> int:
    """ROUGHFORMER_NUM_THREADS, or the processors this process may use."""
    wish = os.environ.get("ROUGHFORMER_NUM_THREADS")
    if wish and wish.isdigit() and int(wish) > 0:
        return int(wish)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def engine_info() -> dict[str, str | int | list[str]]:
    """Tell which engine computes signatures.

    Returns
    -------
    dict
        ``engine`` ("native" or "torch") and ``threads``; with the native engine also its
        ``instruction_set``, those ``available`` and the file of the ``library``, otherwise the
        ``reason`` why it is not used.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EngineWarning)
        found = _opened()
    if isinstance(found, str):
        return {"engine": "torch", "reason": found, "threads": default_threads()}
    names = [found.rf_isa_name(i).decode() for i in range(found.rf_isa_count())]
    return {
        "engine": "native",
        "instruction_set": found.rf_isa().decode(),
        "available": names,
        "library": str(_library_file()),
        "threads": default_threads(),
    }
