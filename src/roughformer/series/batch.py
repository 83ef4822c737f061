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

from roughformer.dropping import keep_mask
from roughformer.errors import InputError
from roughformer.series import _combine, _fill, _parquet, _table, _validate
from roughformer.series._convert import (
    Extras,
    Parts,
    Values,
    as_array,
    as_values,
    is_tensor,
    parts_of_arrays,
    parts_of_block,
)
from roughformer.series._fill import UnobservedWarning
from roughformer.series._storage import Storage
from roughformer.series._times import FloatTimes, as_origin, to_seconds

__all__ = ["SeriesBatch", "UnobservedWarning"]


class SeriesBatch(Storage):
    """An immutable batch of B series over C channels with N points in all.

    ``times (N,)`` numbers, datetimes or durations, strictly increasing within each series;
    ``values (N, C)`` real numbers, NaN = not observed; ``offsets (B+1,)`` integers from 0 to N.
    The arrays are shared with the caller where no conversion is needed (so do not change them
    afterwards) and are read-only when seen through the batch.

    float32 and float16 values become float32, all others float64. Datetimes become seconds since
    ``time_origin``, by default the earliest stamp of the batch. Integer times beyond 2**53 are
    refused, because float64 would merge neighbours.

    Other layouts: ``from_numpy3d``, ``from_arrays``, ``from_tensor``, ``from_table``, or ``of``,
    which tells them apart. The keyword arguments of all of them are those of ``Extras``:
    ``channels``, ``ids``, ``static``, ``static_names``, ``labels``, ``time_origin``.
    """

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

    # Ways in

    @classmethod
    def from_numpy3d(cls, x: Any, times: Any = None, **extras: Unpack[Extras]) -> Self:
        """``x (B, C, L)`` as aeon and sktime have it; ``times`` None, ``(L,)`` or ``(B, L)``.

        Without times they are 0, 1, 2, ... One channel is taken over without a copy.
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
        """``x (B, L, C)``, torch or numpy; ``t`` None, ``(L,)`` or ``(B, L)``; ``lengths (B,)``.

        Series b is its first ``lengths[b]`` points; what stands in the padding does not matter.
        A contiguous float32 or float64 array in main memory without lengths is not copied.
        ``layout="channels_first"``: the array is ``(B, C, L)``; None: as in ``of``.
        """
        names = extras.get("channels")
        parts = parts_of_block(
            x,
            t,
            lengths,
            as_origin(extras.get("time_origin")),
            layout=layout,
            n_channels=None if names is None else len(names),
        )
        return cls._from_parts(parts, extras)

    @classmethod
    def from_arrays(
        cls,
        arrays: Sequence[Any],
        times: Any = None,
        *,
        layout: str | None = None,
        **extras: Unpack[Extras],
    ) -> Self:
        """A list of ``(L_i, C)`` arrays; ``times`` None, a list of ``(L_i,)`` or shared ``(L,)``.

        ``layout="channels_first"``: the arrays are ``(C, L_i)``, as aeon has lists; None: as in
        ``of``.
        """
        names = extras.get("channels")
        parts = parts_of_arrays(
            arrays,
            times,
            as_origin(extras.get("time_origin")),
            layout=layout,
            n_channels=None if names is None else len(names),
        )
        return cls._from_parts(parts, extras)

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
        """A pandas, polars or pyarrow table, or a dict of columns; arguments are column names.

        Long (one row per observation) if ``channel`` and ``value`` are given: rows of the same
        series and time make one point. Wide (one row per point) otherwise: each of ``channels``,
        by default every column with no other role, is a channel. A null is "not observed".

        A table has no order: rows are sorted by time within their series, series and channels come
        in order of first appearance (long ``channels`` choose and order). ``static`` and ``label``
        columns must not change within a series. ``series_id=None``: the table is one series.
        ``time_origin``: the date that dates count from, by default the earliest of the table.
        ``absent``: ``channels`` may name some that a long table has no row of; they are missing.
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
        """Whatever ``x`` is: a SeriesBatch (returned as is), a numpy array or torch tensor
        ``(B, L, C)``, a list of 2-D arrays ``(L_i, C)``, or a table.

        Parameters
        ----------
        times, lengths
            Times of the points and lengths of padded series, as in ``from_tensor`` and
            ``from_arrays``.
        layout
            ``"time_first"``, as above, or ``"channels_first"`` for ``(B, C, L)`` and ``(C, L_i)``.
            None is time first too, but refuses an array with more channels than points (series of
            different lengths: more than twice as many in each) unless ``times`` or ``channels``
            show that it is meant.
        **options
            Names, ids and labels as in ``Extras``, or the columns of a table as in ``from_table``.
            Columns of a table that are not named are guessed: ids and times by usual names
            (``id``, ``patient``, ``time``, ``timestamp``, ...), ``label`` is the label, ``channel``
            and ``value`` make a long table, and the others are channels. A pandas frame may have
            the index (id, time), or (id, time, channel) and one column of values.
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
        return self._trusted(**_combine.take(self._fields(), which))

    def series(self, i: int) -> tuple[FloatTimes, Values]:
        """``(times (L_i,), values (L_i, C))`` of series i."""
        one = self[i]
        return one.times, one.values

    @classmethod
    def concatenate(cls, batches: Sequence["SeriesBatch"]) -> Self:
        """One batch after the other: same channels, and ids, static and labels in all or in none.

        Dates are rebased to the earliest of the time origins.
        """
        return cls._trusted(**_combine.concatenate([b._fields() for b in batches]))

    def with_labels(self, labels: Any) -> Self:
        """The same batch with ``labels (B, ...)``, or with none; nothing else is copied."""
        checked = _validate.check_per_series(labels, len(self), "labels")
        return self._trusted(**(self._fields() | {"labels": checked}))

    def with_values(self, values: Any) -> Self:
        """The same batch with other ``values (N, C)`` of the same shape, NaN = not observed."""
        array = as_values(values)
        if array.shape != self._values.shape:
            raise InputError(f"values must have shape {self._values.shape}, got {array.shape}")
        missing = _validate.check_values(array, self._offsets, self._channels, self._ids)
        return self._trusted(**(self._fields() | {"values": array, "missing": missing}))

    def with_times(self, times: Any) -> Self:
        """The same batch at other ``times (N,)``, numbers that increase within each series."""
        stamps = np.asarray(as_array(times, "times"), dtype=np.float64)
        if stamps.shape != (self.n_points,):
            raise InputError(f"times must have shape ({self.n_points},), got {stamps.shape}")
        _validate.check_times(stamps, self._offsets, self._ids, self._time_origin)
        return self._trusted(**(self._fields() | {"times": stamps, "grid": None}))

    def drop_points(
        self, fraction: float | None = None, seed: int | None = None, mask: Any = None
    ) -> Self:
        """Thin each series: its first and last point stay, ``floor(fraction L + 1/2)`` of the
        others (at most L - 2) go, chosen by ``seed`` and the number of the series in the batch.

        Or give ``mask (N,)`` alone, True = keep, which must keep the ends of each series.
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
            keep = _validate.check_mask(mask, self._offsets, self._ids)
        return self._trusted(**_combine.compact(self._fields() | {"times": self.times}, keep))

    # Missing values

    def filled(self, keep: Any = None) -> Values:
        """``(N, C)`` without NaN: each channel linear in time between its own observations,
        constant outside of them; 0, with an ``UnobservedWarning``, where it has none.

        Points outside ``keep (N,)`` count as unobserved. Returns ``values`` itself if there is
        nothing to fill.
        """
        if keep is None and not self.missing:
            return self._values
        if keep is not None:
            keep = _validate.check_mask(keep, self._offsets, self._ids, ends=False)
        return _fill.fill(self._values, self._offsets, self._times_of, keep, self._channels)

    def warn_unobserved(self, never: npt.NDArray[np.int64]) -> None:
        """The warning of ``filled``, for one who fills by other means: ``never (C,)`` counts the
        series that never observe a channel.
        """
        _fill.warn_unobserved(never, len(self), self._channels)

    def unobserved(self) -> npt.NDArray[np.bool_]:
        """``(B, C)``: True where a channel is never observed in a series."""
        return _fill.unobserved(self._values, self._offsets)

    # Other forms, and on disk

    def to_pandas(
        self, *, series_id: str = "series_id", time: str = "time", label: str = "label"
    ) -> Any:
        """Return a pandas DataFrame with the index (``series_id``, ``time``).

        It has a row for each point and a column for each channel; static covariates and labels are
        columns too, repeated in each row of their series. Series without ids are numbered.
        ``SeriesBatch.of`` reads the frame back, with ``static=batch.static_names`` if it has any.
        """
        table = _table.to_table(self, series_id=series_id, time=time, label=label)
        return table.to_pandas().set_index([series_id, time])

    def save(self, path: str | os.PathLike[str]) -> None:
        """One Parquet file, a row per point: series number, time, then one column per channel.

        ``load`` gives the same batch bit for bit. Written aside, then moved into place.
        """
        _parquet.write(path, self._fields(), self._times_of)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """A batch that ``save`` wrote; checked like any other input."""
        parts, extras = _parquet.read(path)
        return cls._from_parts(parts, extras)
