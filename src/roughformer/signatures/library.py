"""The native library: its C structures (``native/abi.h``), memory for results, and its calls."""

import ctypes
import mmap
import os
import pathlib
import warnings
import weakref
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from roughformer.errors import EngineWarning, InputError
from roughformer.signatures.lifts import Clock
from roughformer.signatures.windows import Cuts, Path, locate
from roughformer.signatures.words import bracket, lyndon_words, word_index

__all__ = [
    "Between",
    "Cells",
    "Clock",
    "Fill",
    "Functionals",
    "Job",
    "Lay",
    "Log",
    "LogTable",
    "Request",
    "Spans",
    "Spread",
    "Step",
    "Stream",
    "Thin",
    "backward",
    "check_out",
    "clock_words",
    "default_threads",
    "engine_info",
    "fill_rows",
    "forward",
    "load",
    "log_table",
    "new_result",
    "thin",
    "window_spans",
]


_ABI = 11
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


class ClockWords(ctypes.Structure):
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


def _library_file() -> pathlib.Path:
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
    lib.rf_clock.argtypes = (ctypes.POINTER(ClockWords),)
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


def call(function: str, job: ctypes.Structure) -> None:
    """Run a function of the library, which must be there, on its job."""
    native = load()
    assert native is not None
    if getattr(native, function)(ctypes.byref(job)):
        raise MemoryError("the native kernel could not allocate its scratch memory")


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


# Memory for results: a pool of warm blocks.
#
# The page faults of a large new array cost more time than the kernel that fills it, so the memory
# of a result that nothing refers to any more is kept for the next one. ``ROUGHFORMER_BUFFER_MB``
# limits what is kept (default: an eighth of the main memory; 0: nothing).


_HUGE_PAGE = 1 << 21  # smaller results are left to malloc, which recycles them well

# Free blocks, oldest first. There is no lock: a thread claims a block by removing it, which is
# atomic. The garbage collector may return a block in the middle of any step here, and a process may
# fork there, where a lock would stay locked for ever.
_free: list[mmap.mmap] = []

if hasattr(os, "register_at_fork"):
    # A child shares these pages with its parent and would have to copy them: worse than new ones.
    os.register_at_fork(after_in_child=_free.clear)


def new_result(shape: tuple[int, ...], dtype: Any, zero: bool = False) -> npt.NDArray[Any]:
    """Return an array to write a result into, recycled if large, zeroed only if asked for.

    It starts at a cache line, so no store straddles two.
    """
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if size < _HUGE_PAGE:
        raw = np.zeros(size + 64, np.uint8) if zero else np.empty(size + 64, np.uint8)
        start = -raw.ctypes.data % 64
        return np.asarray(raw[start : start + size].view(dtype).reshape(shape))
    recycled = _claim(size)
    block = _allocate(size) if recycled is None else recycled
    # The base of all views of the result, so it lives until the last of them is gone.
    owner = np.frombuffer(block, np.uint8)
    weakref.finalize(owner, _release, block).atexit = False
    result: npt.NDArray[Any] = owner[:size].view(dtype).reshape(shape)
    if zero and recycled is not None:
        result.fill(0)
    return result


def _claim(size: int) -> mmap.mmap | None:
    """Take the smallest free block that fits without wasting more than half of it."""
    fitting = [block for block in tuple(_free) if size <= len(block) <= 2 * size]
    for block in sorted(fitting, key=len):
        with suppress(ValueError):  # another thread was faster
            _free.remove(block)
            return block
    return None


def _allocate(size: int) -> mmap.mmap:
    # Private, so that a forked child writes to pages of its own; Windows knows neither.
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if os.name == "posix" else {}
    length = -(-size // _HUGE_PAGE) * _HUGE_PAGE
    try:
        block = mmap.mmap(-1, length, **private)
    except OSError as error:
        raise MemoryError(f"could not allocate {length} bytes for a result") from error
    _advise(block, "MADV_HUGEPAGE")
    return block


def _release(block: mmap.mmap) -> None:
    """Keep a block for later; drop the oldest ones beyond the limit."""
    limit = _limit()
    if len(block) > limit:
        return
    _advise(block, "MADV_FREE")  # the system may take the pages back when memory is short
    _free.append(block)
    while sum(map(len, tuple(_free))) > limit:
        with suppress(IndexError):  # claimed meanwhile
            del _free[0]


def _advise(block: mmap.mmap, advice: str) -> None:
    with suppress(AttributeError, OSError):  # not every system knows it
        block.madvise(getattr(mmap, advice))


def _limit() -> int:
    megabytes = os.environ.get("ROUGHFORMER_BUFFER_MB", "")
    return _bytes_of(megabytes) if megabytes else _eighth_of_memory()


@cache
def _bytes_of(megabytes: str) -> int:
    """The limit that the environment sets; what is no size is told once and sets none."""
    with suppress(ValueError, OverflowError):
        limit = int(float(megabytes) * 2**20)
        if limit >= 0:
            return limit
    warnings.warn(
        f"ROUGHFORMER_BUFFER_MB must be a number of megabytes, 0 or more, got {megabytes!r}; an "
        "eighth of the main memory is used instead",
        UserWarning,
        stacklevel=1,
    )
    return _eighth_of_memory()


@cache
def _eighth_of_memory() -> int:
    if not hasattr(os, "sysconf"):
        return 1 << 30
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8


def check_out(out: Any, shape: tuple[int, ...], dtype: Any) -> None:
    """``InputError`` unless the kernel may write a result of this shape into ``out``."""
    good = isinstance(out, np.ndarray) and out.shape == shape and out.dtype == dtype
    if not good or not out.flags.c_contiguous or not out.flags.writeable:
        raise InputError(
            f"out must be a writeable C-contiguous {np.dtype(dtype).name} array of shape {shape}, "
            f"got {getattr(out, 'dtype', type(out).__name__)} {getattr(out, 'shape', '')}"
        )


# The logarithm of a signature in Lyndon coordinates, as a table that any engine can run.
#
# log S at a word w is Σ over the ways to cut w into j pieces of (-1)^{j+1}/j · Π S(piece). Only
# Lyndon words are wanted; the bracket basis follows by a unitriangular substitution with integers.


class LogTable(NamedTuple):
    """out[i] = Σ_q coef[q] Π S[factor]; then out[fix_dst] += fix_coef · out[fix_src], in order."""

    term_ptr: npt.NDArray[np.int64]
    coef: npt.NDArray[np.float64]
    factor_ptr: npt.NDArray[np.int64]
    factor: npt.NDArray[np.int32]
    fix_dst: npt.NDArray[np.int32]
    fix_src: npt.NDArray[np.int32]
    fix_coef: npt.NDArray[np.float64]

    @property
    def size(self) -> int:
        """Number of Lyndon words."""
        return len(self.term_ptr) - 1


@lru_cache(maxsize=32)
def log_table(d: int, n: int, brackets: bool) -> LogTable:
    """Table for dimension d and depth n; ``brackets`` chooses the basis of Lyndon brackets."""
    words = lyndon_words(d, n)
    term_ptr, coef, factor_ptr, factor = [0], [], [0], []
    for w in words:
        for pieces in range(1, len(w) + 1):
            for cuts in combinations(range(1, len(w)), pieces - 1):
                ends = (0, *cuts, len(w))
                coef.append((-1.0) ** (pieces + 1) / pieces)
                factor += [word_index(w[a:b], d) for a, b in pairwise(ends)]
                factor_ptr.append(len(factor))
        term_ptr.append(len(coef))
    fixes: list[tuple[int, int, int]] = []
    if brackets:
        # The bracket of w is w + larger words: solve by forward substitution, smallest w first.
        place = {w: i for i, w in enumerate(words)}
        for w in sorted(words):
            fixes += [
                (place[t], place[w], -c) for t, c in bracket(w).items() if t != w and t in place
            ]
    dst, src, value = zip(*fixes, strict=True) if fixes else ((), (), ())
    return LogTable(
        np.array(term_ptr, np.int64),
        np.array(coef, np.float64),
        np.array(factor_ptr, np.int64),
        np.array(factor, np.int32),
        np.array(dst, np.int32),
        np.array(src, np.int32),
        np.array(value, np.float64),
    )


# Hands a path and its cuts to the native kernel: numpy arrays in, tokens written in place.


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
    call("rf_fill", job)
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
    call("rf_thin", job)
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
    call("rf_forward" if grad_out is None else "rf_backward", job)


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


# Where cut times fall between the points of a path (the signature kernel has its own).


Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Spans(NamedTuple):
    """One entry per window of every series, ``(B, most)``.

    A window runs from point ``first``, at fraction ``alpha_start`` of the segment after it, to
    point ``first + end``, at fraction ``alpha_end`` of the segment before it (``end = 0``: the path
    does not move).
    """

    first: Ints
    end: Ints
    alpha_start: Floats
    alpha_end: Floats

    def windows(self, part: slice) -> "Spans":
        """Only these windows of every series."""
        return Spans(
            self.first[:, part],
            self.end[:, part],
            self.alpha_start[:, part],
            self.alpha_end[:, part],
        )


def window_spans(path: Path, cuts: Cuts) -> Spans:
    """Place each cut at a segment and a fraction of it; outside the points the path is constant."""
    zero = path.first_times
    c = cuts.since(zero)
    shape = c.shape
    starts = np.broadcast_to(path.time_starts[:, None], shape).ravel()
    lengths = np.broadcast_to(path.lengths[:, None], shape).ravel()
    when = c.ravel()
    a = _locate(path.times, starts, lengths, when)
    b = np.minimum(a + 1, lengths - 1)
    left, right = (
        path.times[starts + a] - path.times[starts],
        path.times[starts + b] - path.times[starts],
    )
    inside = (when > left) & (b > a)
    gap = np.where(inside, right - left, 1.0)
    alpha = np.where(inside, (when - left) / gap, 0.0).reshape(shape)
    b = np.where(inside, b, a).reshape(shape)
    a = a.reshape(shape)
    first, end = a[:, :-1], b[:, 1:] - a[:, :-1]
    still = c[:, 1:] <= c[:, :-1]  # padding
    end = np.where(still, 0, end)
    alpha_end = np.where(alpha[:, 1:] > 0, alpha[:, 1:], 1.0)
    return Spans(first, end, alpha[:, :-1], alpha_end)


def _locate(times: Floats, starts: Ints, lengths: Ints, since: Floats) -> Ints:
    """``path.locate``, by the kernel if there is one."""
    native = load()
    if native is None:
        return locate(times, starts, lengths, since)
    held = [np.ascontiguousarray(a, np.float64) for a in (times, since)]
    found = np.empty(len(since), np.int64)
    native.rf_locate(
        held[0].ctypes.data, starts.ctypes.data, lengths.ctypes.data, held[1].ctypes.data,
        len(found), found.ctypes.data,
    )  # fmt: skip
    return found


# Words of harmonic clocks with the path, in closed form on its linear pieces.
#
# Over an interval [s, e], with u measured from s, for each channel x and frequency ω:
#
#     ∫ cos ω(u-s) dx(u) = Σ_pieces x' · [sin ω(u-s)] / ω,
#     ∫ sin ω(u-s) dx(u) = Σ_pieces x' · [-cos ω(u-s)] / ω,
#
# x' being the slope of the piece. They are, up to the increment of x, the level-2 signature words
# (cos ω, x) and (sin ω, x) of the path lifted by the clock, exact for any sampling.
# ``torch_backend`` has them in torch.


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
    job = ClockWords(
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
        threads=threads or default_threads(),
    )
    call("rf_clock", job)
    if view == "global":
        out[...] = np.cumsum(out, axis=1, dtype=np.float64)
    if not cuts.equal:
        out[np.arange(n_windows)[None, :] >= cuts.n_windows[:, None]] = 0
