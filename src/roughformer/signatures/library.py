"""The native library: its C structures (``native/abi.h``), memory for results, and its calls."""

import ctypes
import math
import mmap
import os
import re
import warnings
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from roughformer.errors import EngineWarning, InputError
from roughformer.signatures import native
from roughformer.signatures.algebra import LogTable
from roughformer.signatures.lifts import Clock
from roughformer.signatures.paths import Cuts, Floats, Path

Engine = Literal["auto", "native", "torch"]
_ABI = 12
_P, _L = ctypes.c_void_p, ctypes.c_int64
_TYPES = {"int64_t": _L, "int32_t": ctypes.c_int32, "double": ctypes.c_double}
Arrays = Mapping[str, npt.NDArray[Any] | None]


def _structures() -> dict[str, Any]:
    """The structures of ``native/abi.h``, by their names without ``Rf``; pointers are addresses."""
    text, made = re.sub("//.*", "", native.INTERFACE.read_text()), {}
    for name, body in re.findall(r"struct Rf(\w+) \{([^()]*?)\};", text):
        fields: list[tuple[str, Any]] = []
        for kind, star, names in re.findall(r"(?:const )?(\w+)(\*?) ([^;]+);", body):
            for field in names.split(","):
                plain = field.strip().lstrip("*")
                fields.append((plain, _P if star or "*" in field else _TYPES[kind]))
        made[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return made


_STRUCTURES = _structures()
Job, Log, Step, Stream = (_STRUCTURES[name] for name in ("Job", "Log", "Step", "Stream"))
Cells, Functionals = _STRUCTURES["Cells"], _STRUCTURES["Functionals"]


def _open() -> ctypes.CDLL | str:
    """The library, or the reason why it cannot be used."""
    if os.environ.get("ROUGHFORMER_ENGINE", "").lower() == "torch":
        return "ROUGHFORMER_ENGINE asks for torch"
    path = native.library_path()
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
    for name, structure in _STRUCTURES.items():
        if hasattr(lib, f"rf_{name.lower()}"):
            getattr(lib, f"rf_{name.lower()}").argtypes = (ctypes.POINTER(structure),)
    lib.rf_forward.argtypes = lib.rf_backward.argtypes = (ctypes.POINTER(Job),)
    lib.rf_fill.restype, lib.rf_step.restype = None, _L
    lib.rf_runs.argtypes, lib.rf_runs.restype = (_P, _L, ctypes.c_int32, _P), _L
    stream = ctypes.POINTER(Stream)
    lib.rf_stream_bytes.argtypes, lib.rf_stream_bytes.restype = (stream,), _L
    lib.rf_stream_push.argtypes, lib.rf_stream_push.restype = (stream, _P, _P), _L
    lib.rf_stream_read.argtypes, lib.rf_stream_read.restype = (stream, ctypes.c_int, _P, _L), None
    lib.rf_stream_close.argtypes, lib.rf_stream_close.restype = (stream, _P), None
    return lib


@cache
def _opened() -> ctypes.CDLL | str:
    lib = _open()
    if isinstance(lib, str) and "ROUGHFORMER_ENGINE" not in lib:
        warnings.warn(
            f"roughformer uses its slower pure-torch engine: {lib}", EngineWarning, stacklevel=2
        )
    return lib


def load() -> ctypes.CDLL | None:
    """The native library, or None (with one warning per process) if the torch engine must serve."""
    lib = _opened()
    return None if isinstance(lib, str) else lib


def call(function: str, arrays: Arrays, **numbers: Any) -> None:
    """Run a function of the library, which must be there, on a job of pointers to ``arrays``, which
    are C-contiguous, and ``numbers``.
    """
    kernel = load()
    assert kernel is not None
    job = _STRUCTURES.get(function.removeprefix("rf_").capitalize(), Job)
    pointers = {name: None if x is None else x.ctypes.data for name, x in arrays.items()}
    if getattr(kernel, function)(ctypes.byref(job(**pointers, **numbers))):
        raise MemoryError("the native kernel could not allocate its scratch memory")


def default_threads() -> int:
    """ROUGHFORMER_NUM_THREADS, or the processors this process may use."""
    threads = os.environ.get("ROUGHFORMER_NUM_THREADS")
    if threads and threads.isdigit() and int(threads) > 0:
        return int(threads)
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
        lib = _opened()
    if isinstance(lib, str):
        return {"engine": "torch", "reason": lib, "threads": default_threads()}
    return {
        "engine": "native",
        "instruction_set": lib.rf_isa().decode(),
        "available": [lib.rf_isa_name(i).decode() for i in range(lib.rf_isa_count())],
        "library": str(native.library_path()),
        "threads": default_threads(),
    }


def pick_engine(engine: Engine, device: str = "cpu") -> str:
    """``native`` if it is there and the data are in main memory, else ``torch``."""
    if engine not in ("auto", "native", "torch"):
        raise InputError(f"engine must be 'auto', 'native' or 'torch', got {engine!r}")
    if engine == "native" and device != "cpu":
        raise InputError(f"the native engine works in main memory, the values are on {device}")
    if engine == "torch" or device != "cpu":
        return "torch"
    if load() is not None:
        return "native"
    reason = engine_info().get("reason")
    if engine == "native":
        raise InputError(f"the native engine is not available: {reason}")
    check_torch(f"there is neither the native kernel nor torch to compute signatures ({reason})")
    return "torch"


def check_torch(why: str) -> None:
    """``ImportError`` in words where torch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise ImportError(f"{why}; pip install torch") from None


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
    size = math.prod(shape) * np.dtype(dtype).itemsize
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
    limit = _limit(os.environ.get("ROUGHFORMER_BUFFER_MB", ""))
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


@cache
def _limit(megabytes: str) -> int:
    """Bytes that may be kept: what the environment says, by default an eighth of the memory."""
    with suppress(ValueError, OverflowError):
        if (limit := int(float(megabytes or "nan") * 2**20)) >= 0:
            return limit
    if megabytes:
        warnings.warn(
            f"ROUGHFORMER_BUFFER_MB must be a number of megabytes, 0 or more, got {megabytes!r}; "
            "an eighth of the main memory is used instead",
            UserWarning,
            stacklevel=1,
        )
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


# Calls: numpy arrays in, results written in place.


_VIEWS = {"global": 1, "local": 2}


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


def is_double(dtype: Any) -> int:
    """How the kernel names its types: 0 for float32, 1 for float64."""
    return int(np.dtype(dtype) == np.float64)


def float_type(dtype: Any) -> np.dtype[Any]:
    """``dtype`` of numpy or torch, or its name, or ``InputError`` unless the kernel has it."""
    given = dtype if isinstance(dtype, type) else str(dtype).removeprefix("torch.")
    with suppress(TypeError):
        kind = np.dtype(given)
        if kind in (np.float32, np.float64):
            return kind
    raise InputError(f"dtype must be float32 or float64, got {dtype!r}")


def contiguous(array: npt.NDArray[Any] | None, dtype: Any) -> npt.NDArray[Any] | None:
    """The array as the kernel reads it, copied if need be."""
    return None if array is None else np.ascontiguousarray(array, dtype=dtype)


def path_arrays(path: Path) -> dict[str, npt.NDArray[Any] | None]:
    """The arrays of a path, by the names that they have in jobs."""
    return {
        "values": path.values,
        "times": contiguous(path.times, np.float64),
        "starts": contiguous(path.starts, np.int64),
        "lengths": contiguous(path.lengths, np.int64),
        "time_starts": contiguous(path.time_starts, np.int64),
    }


def fill_rows(
    path: Path, keep: npt.NDArray[np.bool_] | None = None, threads: int | None = None
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Rows ``(N, C)`` of a path without gaps, and where a channel is never observed ``(B, C)``."""
    out = np.empty_like(path.values)
    channels = out.shape[1]
    never = np.zeros((path.n_series, channels), np.uint8)
    call(
        "rf_fill",
        path_arrays(path) | {"out": out, "never": never, "keep": contiguous(keep, np.uint8)},
        n_series=path.n_series,
        dtype=is_double(out.dtype),
        channels=channels,
        threads=threads or default_threads(),
    )
    return out, never


def thin(
    lengths: npt.NDArray[np.int64], fraction: float, keys: npt.NDArray[np.uint32]
) -> npt.NDArray[np.bool_]:
    """``series.keep_mask``, by the kernel, given the keys of the series."""
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    keep = np.empty(int(starts[-1]), np.uint8)
    arrays = {
        "keys": contiguous(keys, np.uint32),
        "starts": starts,
        "lengths": contiguous(lengths, np.int64),
        "keep": keep,
    }
    # One thread: it is too quick to share.
    call("rf_thin", arrays, n_series=len(lengths), drop=fraction, threads=1)
    return keep.view(np.bool_)


def forward(request: Request, out: npt.NDArray[Any]) -> None:
    """Write the views of ``request.at`` into ``out (B, windows, features)``."""
    _signatures("rf_forward", request, {"out": out})


def backward(
    request: Request, out: npt.NDArray[Any], grad_out: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """dL/d(values) ``(N, C)`` given dL/d(out), laid out like ``out``, which holds the result."""
    grad = np.zeros(request.path.values.shape, dtype=request.compute)
    _signatures("rf_backward", request, {"out": out, "grad_out": grad_out, "grad_values": grad})
    return grad


def _signatures(function: str, request: Request, results: dict[str, npt.NDArray[Any]]) -> None:
    path, cuts, out = request.path, request.cuts, results["out"]
    n_series = path.n_series
    if n_series == 0 or cuts.most == 0:
        return
    scale, keep, keys = (
        contiguous(array, dtype)
        for array, dtype in (
            (path.time_scale, np.float64),
            (request.keep, np.uint8),
            (request.keys, np.uint32),
        )
    )
    uniform = path.shared_times and cuts.shared and keep is None and keys is None
    if uniform and scale is not None:
        uniform = bool((scale == scale[0]).all())
    arrays = path_arrays(path) | {
        "cuts": contiguous(cuts.times, np.float64),
        "cut_starts": contiguous(cuts.starts, np.int64),
        "cut_shift": contiguous(cuts.shift(path.first_times), np.float64),
        "n_windows": contiguous(cuts.n_windows, np.int64),
        "time_scale": scale,
        "keep": keep,
        "keys": keys,
        "out_starts": np.arange(n_series, dtype=np.int64) * (out.strides[0] // out.itemsize),
    }
    table, log = request.log, None
    if table is not None:
        pointers = {name: array.ctypes.data for name, array in table._asdict().items()}
        log = Log(n_out=table.size, n_fix=len(table.fix_dst), **pointers)
    views = sum(_VIEWS[view] for view in request.at)
    call(
        function,
        arrays | results,
        log=None if log is None else ctypes.addressof(log),
        n_rows=len(path.values),
        n_times=len(path.times),
        n_series=n_series,
        token_stride=out.strides[1] // out.itemsize,
        global_at=request.at.get("global", 0),
        local_at=request.at.get("local", 0),
        drop=request.drop,
        value_dtype=is_double(path.values.dtype),
        compute_dtype=is_double(request.compute),
        out_dtype=is_double(out.dtype),
        channels=path.values.shape[1],
        depth=request.depth,
        views=views,
        basepoint=views if request.basepoint else 0,
        uniform=uniform,
        threads=request.threads or default_threads(),
    )


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
    since = cuts.since(path.first_times)
    n_series, n_windows = len(since), since.shape[1] - 1
    if n_series == 0 or n_windows == 0:
        return
    turns = _turns(clock)
    values = np.ascontiguousarray(path.values)
    series_stride, window_stride = (stride // out.itemsize for stride in out.strides[:2])
    call(
        "rf_clock",
        path_arrays(path) | {"values": values, "since": since, "turns": turns, "out": out},
        n_series=n_series,
        n_windows=n_windows,
        n_frequencies=clock.count,
        series_stride=series_stride,
        window_stride=window_stride,
        fastest=float(np.abs(turns).max()),
        local=view == "local",
        per_duration=clock.frequencies is None,
        value_dtype=is_double(values.dtype),
        compute_dtype=is_double(compute),
        out_dtype=is_double(out.dtype),
        channels=values.shape[1],
        threads=threads or default_threads(),
    )
    if view == "global":
        out[...] = np.cumsum(out, axis=1, dtype=np.float64)
    if not cuts.equal:
        out[np.arange(n_windows)[None, :] >= cuts.n_windows[:, None]] = 0


@lru_cache(maxsize=64)
def _turns(clock: Clock) -> Floats:
    """Turns of a clock, per unit of time or per duration, and 16 zeros for the kernel."""
    turns: npt.NDArray[Any] = np.arange(1.0, clock.count + 1) * clock.spacing
    if clock.frequencies is not None:
        turns = np.asarray(clock.frequencies) / (2 * np.pi)
    return np.concatenate([turns, np.zeros(16)])
