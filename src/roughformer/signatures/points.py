"""The points that paths go through: which are kept, what fills their gaps, and paths of batches."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import (
    SeriesBatch,
    blocks,
    check_fraction,
    check_mask,
    keep_mask,
    series_keys,
)
from roughformer.signatures import library
from roughformer.signatures.lifts import Time
from roughformer.signatures.paths import Floats, Path, locate

if TYPE_CHECKING:
    from torch import Tensor


def series_numbers(series: npt.ArrayLike | None, n_series: int) -> npt.NDArray[np.int64] | None:
    """``series`` as whole numbers ``(B,)`` from 0 to 2^32 - 1, or None, or raise ``InputError``."""
    if series is None:
        return None
    numbers = np.asarray(series)
    whole = np.issubdtype(numbers.dtype, np.integer) or numbers.size == 0
    if not whole or numbers.shape != (n_series,):
        raise InputError(
            f"series must be {n_series} whole numbers, one for each series of the batch, got "
            f"{numbers.dtype} of shape {numbers.shape}"
        )
    if numbers.size and not (int(numbers.min()) >= 0 and int(numbers.max()) < 2**32):
        raise InputError(
            f"series must be numbers from 0 to 2**32 - 1, got {numbers.min()} ... {numbers.max()}"
        )
    return numbers.astype(np.int64)


@dataclass(frozen=True)
class Dropping:
    """Points to leave out: a mask (True = keep), or a fraction of each series and a seed.

    ``series (B,)`` are the numbers that the random words are drawn for (default 0 ... B-1).
    """

    keep: npt.NDArray[np.bool_] | None = None
    fraction: float = 0.0
    seed: int = 0
    series: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        """Refuse what is no fraction."""
        check_fraction(self.fraction)

    def __bool__(self) -> bool:
        """Whether anything is dropped."""
        return self.keep is not None or self.fraction > 0

    def mask(self, batch: SeriesBatch) -> npt.NDArray[np.bool_] | None:
        """The mask ``(N,)``, or None if all points stay."""
        if self.keep is not None or not self.fraction > 0:
            return self.keep
        if library.load() is None:
            return keep_mask(batch.lengths, self.fraction, self.seed, self.series)
        return library.thin(batch.lengths, self.fraction, self.keys(len(batch)))

    def thinned(self, batch: SeriesBatch) -> SeriesBatch:
        """The batch without what is dropped."""
        mask = self.mask(batch)
        return batch if mask is None else batch.drop_points(mask=mask)

    def keys(self, n_series: int) -> npt.NDArray[np.uint32]:
        """``(B,)`` keys of the random thinning."""
        numbers: Any = np.arange(n_series) if self.series is None else self.series
        return series_keys(self.seed, numbers)


def fill_gaps(batch: SeriesBatch, keep: Any = None, threads: int | None = None) -> npt.NDArray[Any]:
    """Return the values of series without NaN.

    Each channel is linear in time between its own observations and constant outside of them; 0,
    with an ``UnobservedWarning``, where it has none.

    Parameters
    ----------
    batch : SeriesBatch
        Series.
    keep : array-like of bool (N,), optional
        Points outside of it count as unobserved.
    threads : int, optional
        Threads of the native engine; not given: all.

    Returns
    -------
    ndarray (N, C)
        ``batch.values`` itself if there is nothing to fill.
    """
    if keep is None and not batch.missing:
        return batch.values
    if keep is not None:
        keep = check_mask(keep, batch.offsets, batch.ids, ends=False)
    if library.load() is not None:
        out, unobserved = library.fill_rows(path_of(batch, batch.values), keep, threads)
    else:
        library.pick_engine("auto")  # or says what is missing
        out, unobserved = _filled_by_definition(batch, keep)
    batch.warn_unobserved(unobserved.sum(axis=0, dtype=np.int64))
    return out


def _filled_by_definition(
    batch: SeriesBatch, keep: npt.NDArray[np.bool_] | None
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """``library.fill_rows`` without the kernel, a block of series at a time."""
    import torch

    from roughformer.signatures.torch_backend import inside_of, linear_points, observed

    values = batch.values if keep is None else np.where(keep[:, None], batch.values, np.nan)
    out, never = np.empty_like(values), [np.zeros((0, batch.n_channels), bool)]
    for first, last in blocks(batch.offsets):
        offsets = batch.offsets[first : last + 1]
        rows = slice(offsets[0], offsets[-1])
        part = SeriesBatch(batch.times[rows], values[rows], offsets - rows.start)
        x = linear_points(observed(*pad(part))).x
        out[rows] = x[inside_of(torch.from_numpy(part.lengths), x.shape[1])].numpy()
        never.append(part.unobserved())
    return out, np.concatenate(never).view(np.uint8)


def values_at(batch: SeriesBatch, since: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Interpolate series linearly, each channel between its own observations.

    Parameters
    ----------
    batch : SeriesBatch
        Series.
    since : array-like (n,) or (B, n)
        Increasing times, counted from each series' first point.

    Returns
    -------
    ndarray (B, n, C)
        Constant before a channel's first observation and after its last one.
    """
    values, first, sizes = fill_gaps(batch), batch.offsets[:-1], batch.lengths
    n_times = np.shape(since)[-1]
    when = np.broadcast_to(np.asarray(since, dtype=np.float64), (len(batch), n_times)).ravel()
    first, sizes = np.repeat(first, n_times), np.repeat(sizes, n_times)
    low = first + locate(batch.times, first, sizes, when)
    high = np.minimum(low + 1, first + sizes - 1)
    left = batch.times[low] - batch.times[first]
    gap = batch.times[high] - batch.times[low]
    share = np.divide(when - left, gap, out=np.zeros(len(when)), where=gap > 0).clip(0, 1)
    mixed = values[low] + share[:, None] * (values[high].astype(np.float64) - values[low])
    return np.asarray(mixed.reshape(len(batch), n_times, values.shape[1]))


def dense_values(
    batch: SeriesBatch, keep: npt.NDArray[np.bool_] | None, threads: int | None
) -> npt.NDArray[Any]:
    """Values ``(N, C)`` without gaps, for the kernel."""
    return fill_gaps(batch, keep, threads) if batch.missing else batch.values


def path_of(batch: SeriesBatch, values: npt.NDArray[Any], time: Time | None = None) -> Path:
    """The path of a batch through ``values (N, C)``, which have no gaps, lifted by ``time``."""
    grid, starts = batch.grid, batch.offsets[:-1]
    return Path(
        values=values,
        times=batch.times if grid is None else grid,
        starts=starts,
        lengths=batch.lengths,
        time_starts=starts if grid is None else np.zeros_like(starts),
        time_scale=None if time is None else _time_scale(batch, time),
        shared_times=grid is not None,
    )


def _time_scale(batch: SeriesBatch, time: Time) -> Floats:
    if time.unit is not None:
        return np.full(len(batch), 1.0 / time.unit)
    start, end = batch.span
    span = end - start
    return np.divide(1.0, span, out=np.zeros(len(span)), where=span > 0)


def clock_path(batch: SeriesBatch, dropping: Dropping, threads: int | None) -> Path:
    """The path through the kept points that clock words are taken of."""
    mask = dropping.mask(batch)
    path = path_of(batch, dense_values(batch, mask, threads))
    return path if mask is None else path.compact(mask)


def pad(batch: SeriesBatch) -> "tuple[Tensor, Tensor, Tensor]":
    """``values (B, L, C)`` and ``times (B, L)`` in float64, and ``lengths (B,)``, as tensors."""
    import torch

    n, longest = len(batch), int(batch.lengths.max(initial=1))
    row = np.repeat(np.arange(n), batch.lengths)
    column = np.arange(batch.n_points) - np.repeat(batch.offsets[:-1], batch.lengths)
    values = np.full((n, longest, batch.n_channels), np.nan)
    times = np.zeros((n, longest))
    values[row, column], times[row, column] = batch.values, batch.times
    return torch.from_numpy(values), torch.from_numpy(times), torch.from_numpy(batch.lengths.copy())
