"""Signatures that grow point by point, for many streams at once, in constant memory."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import CapacityError, InputError
from roughformer.signatures import library
from roughformer.signatures.algebra import exponential, multiply
from roughformer.signatures.library import Engine, check_out, new_result, pick_engine
from roughformer.signatures.lifts import MAX_DEPTH, View, over_limit, readable
from roughformer.signatures.words import word_count
from roughformer.util.checks import whole_number

_BITS = {"global": 1, "local": 2}


def _mask(which: Any, n: int, name: str) -> npt.NDArray[np.bool_] | None:
    if which is None:
        return None
    mask = np.asarray(which)
    if mask.dtype != bool or mask.shape != (n,):
        raise InputError(
            f"{name} must be a boolean array of shape ({n},), one entry for each stream, got "
            f"{mask.dtype} {mask.shape}"
        )
    return np.ascontiguousarray(mask)


class RunningSignatures:
    """Local and global signatures of streams that receive one point at a time.

    ``push`` appends a segment from a stream's last point to a new one; ``close`` ends the window of
    a stream: what was local is multiplied into the global signature and the local one starts anew.
    Cost and memory do not depend on how many points have been pushed. The same signatures come
    from ``multiview_signature`` when windows end at the points where ``close`` was called.

    Parameters
    ----------
    n_streams : int
        Number of streams. They start without a point: the first ``push`` only says where.
    dim : int
        Number of channels.
    depth : int
        Truncation level.
    dtype : {float32, float64}, default float32
        Type of the signatures, in which differences of neighbouring points are taken too: use
        float64 for values far from zero compared to their movement.
    engine : {"auto", "native", "torch"}, default "auto"
        "auto": native if it is available.

    Attributes
    ----------
    n_words : int
        Coordinates of one signature: dim + ... + dim^depth.
    """

    def __init__(
        self,
        n_streams: int,
        dim: int,
        depth: int,
        *,
        dtype: Any = np.float32,
        engine: Engine = "auto",
    ) -> None:
        """Check the options and reserve the memory; see the class."""
        self.n_streams = whole_number(n_streams, "n_streams", 0)
        self.dim = whole_number(dim, "dim", 1)
        self.depth = whole_number(depth, "depth", 1, MAX_DEPTH)
        self.dtype = library.float_type(dtype)
        self.engine = pick_engine(engine)
        self.n_words = word_count(self.dim, self.depth)
        # Per stream: last point, local and global signature, and as much again to read them out.
        need = self.n_streams * (1 + self.dim + 4 * self.n_words) * self.dtype.itemsize
        over = over_limit(need, None)
        if over is not None:
            raise CapacityError(
                f"{n_streams} streams of dimension {dim} at depth {depth} need {readable(need)}, "
                f"more than the {readable(over)} allowed; lower the depth, or keep fewer streams "
                "in one object"
            )
        store = _NativeStore if self.engine == "native" else _PlainStore
        self._store = store(self.n_streams, self.dim, self.depth, self.dtype)

    def push(self, points: npt.ArrayLike, active: Any = None) -> None:
        """Move streams to their next points.

        Parameters
        ----------
        points : array-like (n_streams, dim)
            Points, finite for each active stream.
        active : array-like of bool (n_streams,), optional
            Streams to move; not given: all.

        Raises
        ------
        InputError
            If a point is not finite; then no stream has moved.
        """
        array = np.ascontiguousarray(points, dtype=self.dtype)
        if array.shape != (self.n_streams, self.dim):
            raise InputError(
                f"points must have shape ({self.n_streams}, {self.dim}), got {array.shape}"
            )
        chosen = _mask(active, self.n_streams, "active")
        bad = self._store.push(array, chosen)
        if bad >= 0:
            raise InputError(
                f"point of stream {bad} must be finite, got {array[bad]}; fill missing channels "
                "with their last value, or leave the stream out with active="
            )

    def read(
        self,
        views: Sequence[View] | View = ("global", "local"),
        out: npt.NDArray[Any] | None = None,
    ) -> npt.NDArray[Any]:
        """Return the signatures so far.

        Parameters
        ----------
        views : {"global", "local"} or sequence of them, default ("global", "local")
            Which views; global always stands before local.
        out : ndarray, optional
            Array to write into, of the shape and dtype of the result.

        Returns
        -------
        ndarray (n_streams, n_words · number of views)
        """
        names = {views} if isinstance(views, str) else set(views)
        if not names or names - set(_BITS):
            raise InputError(f"views must be 'global', 'local' or both, got {views!r}")
        shape = (self.n_streams, self.n_words * len(names))
        if out is None:
            out = new_result(shape, self.dtype)
        else:
            check_out(out, shape, self.dtype)
        self._store.read(sum(_BITS[v] for v in names), out)
        return out

    def close(self, which: Any = None) -> None:
        """End the window of streams.

        Parameters
        ----------
        which : array-like of bool (n_streams,), optional
            Streams whose window ends; not given: all.
        """
        self._store.close(_mask(which, self.n_streams, "which"))


class _NativeStore:
    """State in the kernel's own layout: groups of lanes, word by word."""

    def __init__(self, n: int, dim: int, depth: int, dtype: np.dtype[Any]) -> None:
        lib = library.load()
        assert lib is not None
        self._lib = lib
        self._stream = library.Stream(None, n, dim, depth, int(dtype == np.float64))
        self._ref = ctypes.byref(self._stream)
        self._raw = np.zeros(lib.rf_stream_bytes(self._ref) + 64, np.uint8)
        self._stream.state = -(-self._raw.ctypes.data // 64) * 64

    @property
    def _words(self) -> npt.NDArray[np.uint8]:
        """What the kernel looks at: a view of the memory from its first aligned byte on."""
        at = self._stream.state - self._raw.ctypes.data
        return self._raw[at : at + len(self._raw) - 64]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle what the streams hold, not where it stands in memory."""
        own = self._stream
        dtype = np.dtype(np.float64 if own.dtype else np.float32)
        size = own.n_streams, own.dim, own.depth, dtype
        return _stored, (size, self._lib.rf_isa(), self._words.tobytes())

    def push(self, points: npt.NDArray[Any], active: npt.NDArray[np.bool_] | None) -> int:
        """-1, or the first active stream whose point is not finite (then nothing has changed)."""
        pointer = None if active is None else active.ctypes.data
        return int(self._lib.rf_stream_push(self._ref, points.ctypes.data, pointer))

    def read(self, views: int, out: npt.NDArray[Any]) -> None:
        self._lib.rf_stream_read(self._ref, views, out.ctypes.data, out.shape[1])

    def close(self, which: npt.NDArray[np.bool_] | None) -> None:
        self._lib.rf_stream_close(self._ref, None if which is None else which.ctypes.data)


def _stored(size: tuple[int, int, int, Any], instruction_set: bytes, held: bytes) -> _NativeStore:
    lib = library.load()
    # Groups of streams are as wide as the registers.
    if lib is None or lib.rf_isa() != instruction_set:
        name = instruction_set.decode()
        raise InputError(
            f"these running signatures were pickled by the native engine on {name}; unpickle them "
            f"where it runs, with ROUGHFORMER_ISA={name} if the processor can do more"
        )
    store = _NativeStore(*size)
    store._words[:] = np.frombuffer(held, np.uint8)
    return store


class _PlainStore:
    """The same in numpy, in float64."""

    def __init__(self, n: int, dim: int, depth: int, dtype: np.dtype[Any]) -> None:
        self._size = dim, depth
        self._open, self._last = np.zeros((n, 1), bool), np.zeros((n, dim))
        self._local, self._global = np.zeros((2, n, word_count(dim, depth)))

    def push(self, points: npt.NDArray[Any], active: npt.NDArray[np.bool_] | None) -> int:
        here = np.ones(len(points), bool) if active is None else active
        wrong = here & ~np.isfinite(points).all(axis=1)
        if wrong.any():
            return int(np.argmax(wrong))
        moved = np.zeros(points.shape)
        np.subtract(points, self._last, out=moved, where=self._open & here[:, None])
        self._local = multiply(self._local, exponential(moved, *self._size), *self._size)
        self._last[here], self._open[here] = points[here], True
        return -1

    def read(self, views: int, out: npt.NDArray[Any]) -> None:
        parts = []
        if views & _BITS["global"]:
            parts.append(multiply(self._global, self._local, *self._size))
        if views & _BITS["local"]:
            parts.append(self._local)
        out[...] = np.concatenate(parts, axis=1)

    def close(self, which: npt.NDArray[np.bool_] | None) -> None:
        chosen = slice(None) if which is None else which
        self._global[chosen] = multiply(self._global[chosen], self._local[chosen], *self._size)
        self._local[chosen] = 0
