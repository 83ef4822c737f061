"""Memory for results: a pool of warm blocks.

The page faults of a large new array cost more time than the kernel that fills it, so the memory of
a result that nothing refers to any more is kept for the next one. ``ROUGHFORMER_BUFFER_MB`` limits
what is kept (default: an eighth of the main memory; 0: nothing).
"""

import mmap
import os
import warnings
import weakref
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError

__all__ = ["check_out", "new_result"]

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
