"""SeriesBatch: ragged, timestamped, incomplete multichannel series, stored flat.

Series b has the points ``offsets[b]:offsets[b+1]`` of ``times (N,)`` and ``values (N, C)``; NaN is
"channel not observed at that time". Everything that enters the package is converted and checked
here, once; what is behind may trust it.
"""

import os
from collections.abc import Sequence
from typing import Any, Self, Unpack

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import _arrays, _fields, _table
from roughformer.series._arrays import (
    Extras,
    FloatTimes,
    Index,
    Parts,
    Values,
    as_array,
    as_origin,
    as_values,
    frozen,
    is_tensor,
    parts_of_arrays,
    parts_of_block,
    to_seconds,
)
from roughformer.series._fields import keep_mask


class SeriesBatch:
    """An immutable batch of B series over C channels with N points in all.

    Series b has the points ``offsets[b]:offsets[b+1]``. Other layouts: ``from_numpy3d``,
    ``from_arrays``, ``from_tensor``, ``from_table``, or ``of``, which tells them apart.

    The arrays are shared with the caller where no conversion is needed (so do not change them
    afterwards) and are read-only when seen through the batch.

    Parameters
    ----------
    times : array-like (N,)
        Numbers, datetimes or durations, strictly increasing within each series. Datetimes become
        seconds since ``time_origin``. Integers beyond 2**53 are refused, because float64 would
        merge neighbours.
    values : array-like (N, C)
        Real numbers, NaN = not observed. float32 and float16 become float32, all others float64.
    offsets : array-like of int (B+1,)
        Increasing from 0 to N.
    **extras
        All optional, and the same in the other constructors for arrays: ``channels`` (C names,
        default "x0", "x1", ...), ``ids (B,)``, ``static (B, S)`` (numbers that do not change with
        time, NaN = unknown), ``static_names`` (S names, default "s0", "s1", ...),
        ``labels (B, ...)`` and ``time_origin`` (the date of time 0, default the earliest one).
    """

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

    def __init__(self, times: Any, values: Any, offsets: Any, **extras: Unpack[Extras]) -> None:
        """Build from the flat parts; see the class."""
        array = as_values(values)
        if array.ndim != 2:
            raise InputError(
                f"values must have 2 dimensions (N, C), got shape {array.shape}; "
                "see SeriesBatch.from_numpy3d, from_arrays and from_tensor for other layouts"
            )
        stamps, origin = to_seconds(as_array(times, "times"), as_origin(extras.get("time_origin")))
        if stamps.shape != (len(array),):
            raise InputError(
                f"times must have shape ({len(array)},), one time for each row of values, "
                f"got {stamps.shape}"
            )
        bounds = as_array(offsets, "offsets")
        self._adopt(Parts(np.ascontiguousarray(array), bounds, stamps, None, origin), extras)

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
        offsets = _arrays.check_offsets(parts.offsets, n_points)
        n_series = len(offsets) - 1
        channels = _arrays.check_names(extras.get("channels"), n_channels, "x", "channels")
        ids = _arrays.check_per_series(extras.get("ids"), n_series, "ids")
        if ids is not None and ids.ndim != 1:
            raise InputError(f"ids must have shape ({n_series},), got {ids.shape}")
        labels = _arrays.check_per_series(extras.get("labels"), n_series, "labels")
        static, static_names = _arrays.check_static(
            extras.get("static"), extras.get("static_names"), n_series, ids
        )
        _arrays.check_lengths(offsets, ids)
        if parts.grid is not None:
            _arrays.check_times(parts.grid, offsets[:0], None, parts.origin)
        elif parts.times is not None:
            _arrays.check_times(parts.times, offsets, ids, parts.origin)
        missing = _arrays.check_values(values, offsets, channels, ids)
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
        return self._offsets[1:] - self._offsets[:-1]

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
            self._missing = _arrays.check_values(
                self._values, self._offsets, self._channels, self._ids
            )
        return self._missing

    @property
    def largest(self) -> float:
        """The largest absolute value; 0 if nothing was observed."""
        if self._largest is None:
            self._largest = _arrays.largest(self._values)
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
        return _fields.describe(self._fields(), self.missing)

    def _repr_html_(self) -> str:
        """Sizes, and a row for each of the first channels."""
        from html import escape

        rows = []
        for name, column in list(zip(self.channels, self.values.T, strict=True))[:20]:
            seen = column[~np.isnan(column)]
            low, mean, high = (
                (f"{f(seen):.4g}" for f in (np.min, np.mean, np.max)) if len(seen) else "–––"
            )
            missing = 1 - len(seen) / max(len(column), 1)
            cells = (escape(name), f"{missing:.0%}", low, mean, high)
            rows.append("".join(f"<td>{cell}</td>" for cell in cells))
        head = "".join(f"<th>{x}</th>" for x in ("channel", "missing", "min", "mean", "max"))
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<p>{escape(repr(self))}</p><table><tr>{head}</tr>{body}</table>"

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
        if not isinstance(other, SeriesBatch) or len(self) != len(other):
            return False
        ours, theirs = self._fields(), other._fields()
        if self._grid is None or other._grid is None:
            ours, theirs = ours | {"times": self.times}, theirs | {"times": other.times}
            ignored = ["grid", "missing"]
        else:
            ignored = ["times", "missing"] if len(self) else ["times", "grid", "missing"]
        return _fields.same(ours, theirs, ignored)

    # Ways in

    @classmethod
    def from_numpy3d(cls, x: Any, times: Any = None, **extras: Unpack[Extras]) -> Self:
        """Build a batch from an array ``(B, C, L)``, as aeon and sktime have it.

        Parameters
        ----------
        x : array-like (B, C, L)
            Values, NaN = not observed. One channel is taken over without a copy.
        times : array-like (L,) or (B, L), optional
            Times of the points; not given: 0, 1, 2, ...
        **extras
            Names, ids and labels, as in the class.

        Returns
        -------
        SeriesBatch
        """
        return cls.from_tensor(x, times, layout="channels_first", **extras)

    @classmethod
    def from_tensor(
        cls,
        x: Any,
        t: Any = None,
        lengths: Any = None,
        *,
        layout: str | None = None,
        **extras: Unpack[Extras],
    ) -> Self:
        """Build a batch from a padded tensor or array ``(B, L, C)``.

        Parameters
        ----------
        x : Tensor or array-like (B, L, C)
            Values, NaN = not observed. A contiguous float32 or float64 array in main memory without
            lengths is not copied.
        t : array-like (L,) or (B, L), optional
            Times of the points; not given: 0, 1, 2, ...
        lengths : array-like of int (B,), optional
            Series b is its first ``lengths[b]`` points; the padding may hold anything.
        layout : {"time_first", "channels_first"}, optional
            Whether ``x`` is ``(B, L, C)`` or ``(B, C, L)``; not given: as in ``of``.
        **extras
            Names, ids and labels, as in the class.

        Returns
        -------
        SeriesBatch
        """
        return cls._from_parts(parts_of_block(x, t, lengths, layout, extras), extras)

    @classmethod
    def from_arrays(
        cls,
        arrays: Sequence[Any],
        times: Any = None,
        *,
        layout: str | None = None,
        **extras: Unpack[Extras],
    ) -> Self:
        """Build a batch from one array for each series.

        Parameters
        ----------
        arrays : sequence of array-like (L_i, C)
            Values, NaN = not observed.
        times : sequence of array-like (L_i,) or array-like (L,), optional
            Times of each series, or shared by all; not given: 0, 1, 2, ...
        layout : {"time_first", "channels_first"}, optional
            Whether the arrays are ``(L_i, C)`` or, as in aeon's lists, ``(C, L_i)``; not given: as
            in ``of``.
        **extras
            Names, ids and labels, as in the class.

        Returns
        -------
        SeriesBatch
        """
        if _table.is_table(arrays):
            raise InputError("a table is not a list of arrays; SeriesBatch.of(table) reads it")
        return cls._from_parts(parts_of_arrays(arrays, times, layout, extras), extras)

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        series_id: str | None,
        time: str,
        channel: str | None = None,
        value: str | None = None,
        channels: Sequence[str] | None = None,
        static: Sequence[str] = (),
        label: str | None = None,
        time_origin: Any = None,
        absent: bool = False,
    ) -> Self:
        """Build a batch from a long or wide table.

        Long (one row per observation) if ``channel`` and ``value`` are given: rows of the same
        series and time make one point. Wide (one row per point) otherwise. A null is "not
        observed". A table has no order: rows are sorted by time within their series, series and
        channels come in order of first appearance.

        Parameters
        ----------
        table : pandas, polars or pyarrow table, or dict of columns
            The other arguments name its columns.
        series_id : str or None
            Column of the ids; None: the table is one series.
        time : str
            Column of the times: numbers, dates or durations.
        channel : str, optional
            Column of the channel names of a long table.
        value : str, optional
            Column of the values of a long table.
        channels : sequence of str, optional
            Channels to take, in this order; not given: all those of a long table, every column with
            no other role of a wide one.
        static : sequence of str, default ()
            Columns of numbers that do not change within a series.
        label : str, optional
            Column of the label, which must not change within a series.
        time_origin : datetime-like, optional
            The date that dates count from; not given: the earliest of the table.
        absent : bool, default False
            Whether ``channels`` may name some that a long table has no row of; they are missing.

        Returns
        -------
        SeriesBatch
        """
        parts, extras = _table.read(
            table, series_id, time, channel, value, channels, static, label, time_origin, absent
        )
        return cls._from_parts(parts, extras)

    @classmethod
    def of(
        cls,
        x: Any,
        times: Any = None,
        lengths: Any = None,
        *,
        layout: str | None = None,
        **options: Any,
    ) -> "SeriesBatch":
        """Build a batch from anything that holds series.

        Parameters
        ----------
        x : SeriesBatch, array or tensor (B, L, C), list of arrays (L_i, C), or table
            A ``SeriesBatch`` is returned as is.
        times : array-like, optional
            Times of the points, as in ``from_tensor`` and ``from_arrays``.
        lengths : array-like of int (B,), optional
            Lengths of padded series, as in ``from_tensor``.
        layout : {"time_first", "channels_first"}, optional
            Whether arrays are ``(B, L, C)`` and ``(L_i, C)``, or ``(B, C, L)`` and ``(C, L_i)``.
            Not given: time first, but an array with more channels than points (series of different
            lengths: more than twice as many in each) is refused unless ``times`` or ``channels``
            show that it is meant.
        **options
            Names, ids and labels as in the class, or the columns of a table as in ``from_table``.
            Columns of a table that are not named are guessed: ids and times by usual names
            (``id``, ``patient``, ``time``, ``timestamp``, ...), ``label`` is the label, ``channel``
            and ``value`` make a long table, and the others are channels. A pandas frame may have
            the index (id, time), or (id, time, channel) and one column of values.

        Returns
        -------
        SeriesBatch
        """
        if isinstance(x, SeriesBatch):
            if times is not None or lengths is not None or layout is not None or options:
                raise InputError(
                    "a SeriesBatch already has its times, layout and names; give it alone, or "
                    "build a new one from its arrays"
                )
            return x
        if isinstance(x, np.ndarray) and x.dtype == object and x.ndim == 1:
            x = list(x)  # sktime and aeon keep unequal series so
        if isinstance(x, np.ndarray) or is_tensor(x):
            if x.ndim != 3:
                raise InputError(
                    f"an array of series must be (B, L, C), got shape {tuple(x.shape)}; for B "
                    "series of one channel give x[:, :, None], for one series of shape (L, C) "
                    "give [x]"
                )
            return cls.from_tensor(x, times, lengths, layout=layout, **options)
        if isinstance(x, Sequence) and not isinstance(x, str | bytes):
            if lengths is not None:
                raise InputError("arrays in a list have their own lengths; leave lengths= out")
            return cls.from_arrays(x, times, layout=layout, **options)
        if _table.is_table(x):
            if times is not None or lengths is not None:
                raise InputError("the times of a table are a column: give its name as time=")
            if layout is not None:
                raise InputError("layout= is for arrays: a table has a row for each point")
            data, roles = _table.with_roles(x, options)
            return cls.from_table(data, **roles)
        raise InputError(
            "expected a SeriesBatch, an array (B, L, C), a list of 2-D arrays (L, C) or a table, "
            f"got {type(x).__name__}"
        )

    # Parts and sums of it

    def __getitem__(self, which: Any) -> Self:
        """Number, slice, list or array of numbers, or mask ``(B,)`` -> always a batch.

        A number or a slice of step 1 shares memory with this batch.
        """
        return self._trusted(**_fields.take(self._fields(), which))

    def series(self, i: int) -> tuple[FloatTimes, Values]:
        """Return the times and values of one series.

        Parameters
        ----------
        i : int
            Its number in the batch.

        Returns
        -------
        times : ndarray (L_i,)
        values : ndarray (L_i, C)
        """
        one = self[i]
        return one.times, one.values

    @classmethod
    def concatenate(cls, batches: Sequence["SeriesBatch"]) -> Self:
        """Join batches one after the other.

        Parameters
        ----------
        batches : sequence of SeriesBatch
            Of the same channels, with ids, static and labels in all or in none.

        Returns
        -------
        SeriesBatch
            Its dates count from the earliest of the time origins.
        """
        return cls._trusted(**_fields.concatenate([b._fields() for b in batches]))

    def with_labels(self, labels: Any) -> Self:
        """Return the same batch with other labels; nothing else is copied.

        Parameters
        ----------
        labels : array-like (B, ...) or None
            Numbers, texts or dates; None: no labels.

        Returns
        -------
        SeriesBatch
        """
        checked = _arrays.check_per_series(labels, len(self), "labels")
        return self._trusted(**(self._fields() | {"labels": checked}))

    def with_values(self, values: Any) -> Self:
        """Return the same batch with other values.

        Parameters
        ----------
        values : array-like (N, C)
            Of the shape of the old ones, NaN = not observed.

        Returns
        -------
        SeriesBatch
        """
        array = as_values(values)
        if array.shape != self._values.shape:
            raise InputError(f"values must have shape {self._values.shape}, got {array.shape}")
        missing = _arrays.check_values(array, self._offsets, self._channels, self._ids)
        return self._trusted(**(self._fields() | {"values": array, "missing": missing}))

    def with_times(self, times: Any) -> Self:
        """Return the same batch at other times.

        Parameters
        ----------
        times : array-like (N,)
            Numbers that increase within each series.

        Returns
        -------
        SeriesBatch
        """
        stamps = np.asarray(as_array(times, "times"), dtype=np.float64)
        if stamps.shape != (self.n_points,):
            raise InputError(f"times must have shape ({self.n_points},), got {stamps.shape}")
        _arrays.check_times(stamps, self._offsets, self._ids, self._time_origin)
        return self._trusted(**(self._fields() | {"times": stamps, "grid": None}))

    def drop_points(
        self, fraction: float | None = None, seed: int | None = None, mask: Any = None
    ) -> Self:
        """Thin each series at random, or by a mask; its first and last point stay.

        Parameters
        ----------
        fraction : float in [0, 1), optional
            ``floor(fraction L + 1/2)`` of the L points of a series go (at most L - 2).
        seed : int, optional
            Chooses them, with the number of the series in the batch.
        mask : array-like of bool (N,), optional
            True = keep, instead of a fraction and a seed; must keep the ends of each series.

        Returns
        -------
        SeriesBatch
        """
        if mask is None:
            if fraction is None or seed is None:
                raise InputError(
                    "drop_points needs a fraction and a seed, e.g. drop_points(0.5, seed=0), "
                    "or a mask"
                )
            keep = keep_mask(self.lengths, fraction, seed)
        else:
            if fraction is not None or seed is not None:
                raise InputError("drop_points takes a fraction and a seed, or a mask, not both")
            keep = _arrays.check_mask(mask, self._offsets, self._ids)
        return self._trusted(**_fields.compact(self._fields() | {"times": self.times}, keep))

    # Missing values

    def warn_unobserved(self, never: npt.NDArray[np.int64]) -> None:
        """Warn that channels are taken as constant 0 where they are never observed.

        Parameters
        ----------
        never : ndarray of int (C,)
            Number of series that never observe each channel.
        """
        _arrays.warn_unobserved(never, len(self), self._channels)

    def unobserved(self) -> npt.NDArray[np.bool_]:
        """Return ``(B, C)``, True where a channel is never observed in a series."""
        return _arrays.unobserved(self._values, self._offsets)

    # Other forms, and on disk

    def to_pandas(
        self, *, series_id: str = "series_id", time: str = "time", label: str = "label"
    ) -> Any:
        """Convert to pandas: a row for each point, a column for each channel.

        ``SeriesBatch.of`` reads the frame back, with ``static=batch.static_names`` if it has any.

        Parameters
        ----------
        series_id : str, default "series_id"
            Name of the index level of the ids; series without ids are numbered.
        time : str, default "time"
            Name of the index level of the times.
        label : str, default "label"
            Name of the column of the labels, if there are any.

        Returns
        -------
        pandas.DataFrame
            With the index (``series_id``, ``time``). Static covariates and labels are columns too,
            repeated in each row of their series.
        """
        table = _table.to_table(self, series_id=series_id, time=time, label=label)
        return table.to_pandas().set_index([series_id, time])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the batch to one Parquet file.

        A row per point: series number, time, then one column per channel. ``load`` gives the same
        batch bit for bit. Written aside, then moved into place.

        Parameters
        ----------
        path : path-like
            File to write or replace.
        """
        _fields.write_parquet(path, self._fields(), self._times_of)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a batch that ``save`` wrote; it is checked like any other input.

        Parameters
        ----------
        path : path-like
            File to read.

        Returns
        -------
        SeriesBatch
        """
        parts, extras = _fields.read_parquet(path)
        return cls._from_parts(parts, extras)
