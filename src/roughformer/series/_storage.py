"""The arrays and names of a batch: checked once, then read-only.

``SeriesBatch`` adds the ways in and what one can do with a batch.
"""

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import _combine, _validate
from roughformer.series._arrays import Extras, FloatTimes, Index, Parts, Values, frozen

__all__ = ["Storage"]


class Storage:
    """Flat ragged arrays and their names, seen through read-only properties."""

    _values: Values
    _offsets: Index
    _times: FloatTimes | None
    _grid: FloatTimes | None
    _channels: tuple[str, ...]
    _ids: npt.NDArray[Any] | None
    _static: npt.NDArray[np.float64] | None
    _static_names: tuple[str, ...]
    _labels: npt.NDArray[Any] | None
    _time_origin: np.datetime64 | None
    _missing: bool | None
    _largest: float | None = None

    def _adopt(self, parts: Parts, extras: Extras) -> None:
        """Check ``parts`` and ``extras`` and keep read-only views of them."""
        unknown = sorted(set(extras) - set(Extras.__annotations__))
        if unknown:
            raise TypeError(
                f"unknown argument {unknown[0]!r}; known are {', '.join(Extras.__annotations__)}"
            )
        values = parts.values
        n_points, n_channels = values.shape
        if n_channels == 0 and n_points:
            raise InputError(f"values must have at least one channel, got shape {values.shape}")
        offsets = _validate.check_offsets(parts.offsets, n_points)
        n_series = len(offsets) - 1
        channels = _validate.check_names(extras.get("channels"), n_channels, "x", "channels")
        ids = _validate.check_per_series(extras.get("ids"), n_series, "ids")
        if ids is not None and ids.ndim != 1:
            raise InputError(f"ids must have shape ({n_series},), got {ids.shape}")
        labels = _validate.check_per_series(extras.get("labels"), n_series, "labels")
        static, static_names = _validate.check_static(
            extras.get("static"), extras.get("static_names"), n_series, ids
        )
        _validate.check_lengths(offsets, ids)
        if parts.grid is not None:
            _validate.check_times(parts.grid, offsets[:0], None, parts.origin)
        elif parts.times is not None:
            _validate.check_times(parts.times, offsets, ids, parts.origin)
        missing = _validate.check_values(values, offsets, channels, ids)
        self._set(
            values=values,
            offsets=offsets,
            times=parts.times,
            grid=parts.grid,
            channels=channels,
            ids=ids,
            static=static,
            static_names=static_names,
            labels=labels,
            time_origin=parts.origin,
            missing=missing,
        )

    def _set(self, **fields: Any) -> None:
        for name, field in fields.items():
            setattr(self, f"_{name}", frozen(field) if isinstance(field, np.ndarray) else field)

    @classmethod
    def _trusted(cls, **fields: Any) -> Self:
        """A batch of fields that are known to be right: nothing is checked or converted."""
        batch = cls.__new__(cls)
        batch._set(**fields)
        return batch

    @classmethod
    def _from_parts(cls, parts: Parts, extras: Extras) -> Self:
        batch = cls.__new__(cls)
        batch._adopt(parts, extras)
        return batch

    def _fields(self) -> dict[str, Any]:
        own = {name.removeprefix("_"): value for name, value in self.__dict__.items()}
        own.pop("largest", None)  # others, made of these fields, may have other values
        return own

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickled and copied arrays are writable: lock them again."""
        self._set(**{name.removeprefix("_"): value for name, value in state.items()})

    @property
    def values(self) -> Values:
        """``(N, C)`` float32 or float64, C-contiguous; NaN = not observed."""
        return self._values

    @property
    def offsets(self) -> Index:
        """``(B+1,)``: series b is the points ``offsets[b]:offsets[b+1]``."""
        return self._offsets

    @property
    def lengths(self) -> Index:
        """``(B,)`` number of points of each series, at least 1."""
        return np.diff(self._offsets)

    @property
    def grid(self) -> FloatTimes | None:
        """``(L,)`` if the batch was built with times that all series share, else None."""
        return self._grid

    @property
    def times(self) -> FloatTimes:
        """``(N,)`` time of each point; a shared grid is repeated on first access, and kept."""
        if self._times is None:
            assert self._grid is not None
            self._times = frozen(np.tile(self._grid, len(self)))
        return self._times

    def _times_of(self, b0: int, b1: int) -> FloatTimes:
        """Times of the series ``b0 ... b1-1`` one after the other, without filling the cache."""
        if self._times is None:
            assert self._grid is not None
            return np.tile(self._grid, b1 - b0)
        return self._times[self._offsets[b0] : self._offsets[b1]]

    @property
    def channels(self) -> tuple[str, ...]:
        """C different names."""
        return self._channels

    @property
    def ids(self) -> npt.NDArray[Any] | None:
        """``(B,)`` numbers or texts that name the series, or None."""
        return self._ids

    @property
    def static(self) -> npt.NDArray[np.float64] | None:
        """``(B, S)`` covariates that do not change with time, NaN = unknown, or None."""
        return self._static

    @property
    def static_names(self) -> tuple[str, ...]:
        """S names; empty without static covariates."""
        return self._static_names

    @property
    def labels(self) -> npt.NDArray[Any] | None:
        """``(B, ...)`` or None."""
        return self._labels

    @property
    def time_origin(self) -> np.datetime64 | None:
        """The date (ns) that time 0 stands for, when times are seconds since it; else None."""
        return self._time_origin

    @property
    def missing(self) -> bool:
        """Whether any value is NaN."""
        if self._missing is None:
            self._missing = _validate.check_values(
                self._values, self._offsets, self._channels, self._ids
            )
        return self._missing

    @property
    def largest(self) -> float:
        """The largest absolute value; 0 if nothing was observed."""
        if self._largest is None:
            self._largest = _validate.largest(self._values)
        return self._largest

    @property
    def span(self) -> tuple[FloatTimes, FloatTimes]:
        """``(start (B,), end (B,))``: the first and last time of each series."""
        if self._times is None and self._grid is not None:
            grid, n_series = self._grid, len(self)
            if n_series == 0:
                return np.empty(0), np.empty(0)
            return np.full(n_series, grid[0]), np.full(n_series, grid[-1])
        return self.times[self._offsets[:-1]], self.times[self._offsets[1:] - 1]

    @property
    def n_channels(self) -> int:
        """C."""
        return int(self._values.shape[1])

    @property
    def n_points(self) -> int:
        """N, over all series."""
        return int(self._values.shape[0])

    def __len__(self) -> int:
        """B, the number of series."""
        return len(self._offsets) - 1

    def __repr__(self) -> str:
        """Sizes, dtype and what is there, in one line."""
        return _combine.describe(self._fields(), self.missing)

    def equals(self, other: object) -> bool:
        """Compare values (NaN = NaN), times, names, ids, labels, origin and dtypes.

        Parameters
        ----------
        other : object
            What to compare with. Whether times are stored once for all series does not count.

        Returns
        -------
        bool
        """
        if not isinstance(other, Storage) or len(self) != len(other):
            return False
        ours, theirs = self._fields(), other._fields()
        if self._grid is None or other._grid is None:
            ours, theirs = ours | {"times": self.times}, theirs | {"times": other.times}
            ignored = ["grid", "missing"]
        else:
            ignored = ["times", "missing"] if len(self) else ["times", "grid", "missing"]
        return _combine.same(ours, theirs, ignored)
