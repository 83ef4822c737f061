"""Which points a random thinning keeps: one rule for the batch, the native kernel and torch.

A series of L points loses exactly ``floor(fraction * L + 1/2)`` of them (at most L - 2): its first
and last point always stay, the others are chosen without replacement by selection sampling
(Knuth, TAOCP 2, algorithm S). The random numbers are a hash of (seed, series number, point
number), so a series' mask depends on nothing but these: not on threads, batches or order.
"""

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.util.checks import real_number, whole_number

__all__ = ["check_fraction", "keep_mask"]

_U32 = np.uint32
_GOLDEN = _U32(0x9E3779B9)


def check_fraction(fraction: float) -> float:
    """Return ``fraction`` as a float in [0, 1), or raise ``InputError``."""
    what = "in [0, 1)"
    number = real_number(fraction, "the fraction of points to drop", what)
    if not 0.0 <= number < 1.0:
        raise InputError(f"the fraction of points to drop must be {what}, got {fraction!r}")
    return number


def _mix(x: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The "lowbias32" avalanche: a bijection of 32-bit words whose output bits look independent."""
    x = x ^ (x >> _U32(16))
    x = x * _U32(0x7FEB352D)
    x = x ^ (x >> _U32(15))
    x = x * _U32(0x846CA68B)
    return x ^ (x >> _U32(16))


def series_keys(seed: int, series: npt.NDArray[np.integer[npt.NBitBase]]) -> npt.NDArray[np.uint32]:
    """One 32-bit key for each series number: the start of its stream of random words."""
    seed = whole_number(seed, "the seed", -(2**63), 2**64)
    low, high = _U32(seed & 0xFFFFFFFF), _U32((seed >> 32) & 0xFFFFFFFF)
    with np.errstate(over="ignore"):
        key = _mix(np.asarray(series).astype(np.uint32) * _GOLDEN + low)
        return np.asarray(_mix(key ^ high))


def keep_mask(
    lengths: npt.ArrayLike, fraction: float, seed: int, series: npt.ArrayLike | None = None
) -> npt.NDArray[np.bool_]:
    """Points that stay when ``fraction`` of each series is dropped.

    ``lengths (B,)`` -> ``(sum(lengths),)`` bool, series after series. ``series (B,)`` are the
    numbers that the random words are drawn for (default 0 ... B-1): give the original numbers to
    thin a part of a larger batch exactly as the whole would be.
    """
    length = np.asarray(lengths, dtype=np.int64)
    check_fraction(fraction)
    numbers = np.arange(len(length)) if series is None else np.asarray(series)
    keys = series_keys(seed, numbers)
    start = np.concatenate([[0], np.cumsum(length)])
    keep = np.ones(int(start[-1]), dtype=bool)
    drop = np.minimum(np.floor(fraction * length + 0.5), np.maximum(length - 2, 0)).astype(np.int64)
    interior = np.maximum(length - 2, 0)
    need = interior - drop  # interior points still to be kept
    left = interior.copy()  # interior points still to be seen
    # One pass over the positions, all series at once: position i of every series that has it.
    order = np.argsort(-interior, kind="stable")
    alive = len(order)
    with np.errstate(over="ignore"):
        for i in range(1, int(interior.max(initial=0)) + 1):
            while alive and interior[order[alive - 1]] < i:
                alive -= 1
            now = order[:alive]
            word = _mix(keys[now] + _U32(i & 0xFFFFFFFF) * _GOLDEN)
            # 23 bits and float32, as the kernel does it: u <= 1 - 2^-23 makes u · left < left even
            # after rounding, so that exactly `need` points are kept whatever comes.
            u = (word >> _U32(9)).astype(np.float32) * np.float32(2.0**-23)
            chosen = u * left[now].astype(np.float32) < need[now].astype(np.float32)
            keep[start[now] + i] = chosen
            need[now] -= chosen
            left[now] -= 1
    return keep
