"""Hashes of series ids, the same on every machine and in every version."""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["buckets_of", "hash_ids", "numbers_of"]

Hashes = npt.NDArray[np.uint64]


def hash_ids(ids: npt.NDArray[Any]) -> Hashes:
    """``(n,)`` whole numbers or texts -> 64 bits each: splitmix64, or BLAKE2b of UTF-8."""
    if ids.dtype.kind in "iu":
        return _mix(ids.astype(np.uint64))
    raw = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in ids.tolist())
    return np.frombuffer(b"".join(raw), "<u8").astype(np.uint64)


def numbers_of(ids: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Numbers below 2^32 that stand for series where points are dropped at random."""
    return (hash_ids(ids) >> np.uint64(32)).astype(np.int64)


def buckets_of(column: pa.ChunkedArray, count: int) -> npt.NDArray[np.uint16]:
    """The bucket, 0 ... count - 1, of each row by its id; at most 2^16 of them."""
    found = [np.zeros(0, np.uint16)]
    for chunk in column.chunks:
        if pa.types.is_integer(chunk.type):
            found.append(_bucket(hash_ids(chunk.to_numpy()), count))
        else:
            coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
            entries = np.array(coded.dictionary.to_pylist(), dtype=str)
            found.append(_bucket(hash_ids(entries), count)[coded.indices.to_numpy()])
    return np.concatenate(found)


def _bucket(hashes: Hashes, count: int) -> npt.NDArray[np.uint16]:
    high = hashes >> np.uint64(32)
    return ((high * np.uint64(count)) >> np.uint64(32)).astype(np.uint16)


def _mix(x: Hashes) -> Hashes:
    """splitmix64: a bijection of 64-bit words whose output bits look independent."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
