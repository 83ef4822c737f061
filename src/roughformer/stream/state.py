"""What streams remember: named arrays with a row for each stream, and snapshots of them."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from roughformer.errors import CheckpointError

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


class State:
    """Arrays ``(n, ...)`` by name. A stream that begins anew gets the entries it began with.

    Everything that a stream remembers is here, so that a snapshot is some rows of it.
    """

    def __init__(self, n: int) -> None:
        """Of ``n`` streams, without arrays yet."""
        self.n = n
        self.arrays: dict[str, Array] = {}
        self._fresh: dict[str, float] = {}

    def add(self, name: str, shape: tuple[int, ...], dtype: Any, fresh: float = 0) -> Array:
        """An array ``(n, *shape)``, filled with ``fresh``."""
        assert name not in self.arrays
        array = np.full((self.n, *shape), fresh, dtype=dtype)
        self.arrays[name], self._fresh[name] = array, fresh
        return array

    def reset(self, slots: Ints) -> None:
        """These streams begin anew."""
        for name, array in self.arrays.items():
            array[slots] = self._fresh[name]

    def rows(self, slots: Ints) -> dict[str, Array]:
        """A copy of what these streams remember."""
        return {name: array[slots] for name, array in self.arrays.items()}

    def check(
        self, slots: Ints, rows: dict[str, Array], refuse: Callable[[str], Exception]
    ) -> None:
        """Raise ``refuse(why)`` if ``rows`` are those of other streams."""
        if set(rows) != set(self.arrays):
            raise refuse("it holds other arrays")
        for name, array in self.arrays.items():
            if rows[name].shape != (len(slots), *array.shape[1:]):
                raise refuse(f"{name} has shape {rows[name].shape}")
            if rows[name].dtype != array.dtype:
                raise refuse(f"{name} has type {rows[name].dtype}")

    def put(self, slots: Ints, rows: dict[str, Array]) -> None:
        """Write rows back."""
        for name, array in self.arrays.items():
            array[slots] = rows[name]

    @property
    def bytes_each(self) -> int:
        """Memory of one stream."""
        return sum(array[:1].nbytes for array in self.arrays.values()) if self.n else 0


_MARK, _VERSION = b"roughformer stream", 4
_SEAL = 32  # bytes of SHA-256


def write_snapshot(key: str, rows: dict[str, npt.NDArray[Any]]) -> bytes:
    """A mark, a seal (SHA-256 of the rest), the model's key and the arrays (safetensors)."""
    plain = {name: np.ascontiguousarray(a) for name, a in rows.items()}
    # One entry: the order of several is not the same every time.
    about = json.dumps({"model": key, "version": _VERSION}, sort_keys=True)
    body = safetensors.numpy.save(plain, {"stream": about})
    return _MARK + hashlib.sha256(body).digest() + body


def read_snapshot(key: str, blob: bytes) -> dict[str, npt.NDArray[Any]]:
    """The arrays, or ``CheckpointError``: damaged, no snapshot, or of another model."""
    if not isinstance(blob, bytes | bytearray | memoryview):
        raise CheckpointError(f"a snapshot is bytes, got {type(blob).__name__}")
    blob = bytes(blob)
    if not blob.startswith(_MARK):
        raise CheckpointError("these bytes are not a snapshot of a stream")
    seal = blob[len(_MARK) : len(_MARK) + _SEAL]
    body = blob[len(_MARK) + _SEAL :]
    if hashlib.sha256(body).digest() != seal:
        raise CheckpointError("the snapshot is damaged: its checksum does not match")
    try:
        size = int.from_bytes(body[:8], "little")
        about = json.loads(json.loads(body[8 : 8 + size])["__metadata__"]["stream"])
        rows: dict[str, npt.NDArray[Any]] = safetensors.numpy.load(body)
    except (KeyError, ValueError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"the snapshot cannot be read: {error}") from None
    if about.get("version") != _VERSION:
        raise CheckpointError("the snapshot is of another version of roughformer")
    if about.get("model") != key:
        raise CheckpointError(
            "the snapshot is of another model, or of streams with other options; restore it with "
            "the model that it was taken with"
        )
    return rows
