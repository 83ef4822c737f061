"""Quantiles of a path, of its increments and of its spectrum over dyadic intervals."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_MOST_FEATURES = 6000
_SMOOTHED = 5  # cells that an increment is the mean over
_LARGEST = 1e30
_MOST_CELLS = 1024  # that trees and spectra see of a path
# Levels of halving, and values for each quantile: the first that fits is taken.
_PLANS = ((6, 4), (5, 4), (5, 8), (4, 16), (3, 32), (2, 64), (1, 64))


def n_coarser(n_cells: int) -> int:
    """How many neighbouring cells trees and spectra see as one."""
    return -(-n_cells // _MOST_CELLS)


def coarser(cells: Tensor) -> Tensor:
    """Cells ``(B, R, N)`` as at most 1,024 means of neighbours."""
    together = n_coarser(cells.shape[-1])
    if together == 1:
        return cells
    return cells.reshape(*cells.shape[:-1], -1, together).mean(dim=-1)


class IntervalQuantiles:
    """Sorted values of cells ``(B, 2 · C, N)`` read off at even ranks, interval by interval.

    Of each channel: levels, increments over five cells, differences of increments, and magnitudes
    of the discrete Fourier transform of the levels. An interval of n values has about n / 4
    quantiles, fewer if the paths have many channels; every second is taken relative to the
    interval's mean.
    """

    def __init__(self, n_channels: int, n_cells: int) -> None:
        """As many quantiles as fit into 6000 features, and at least one for each interval."""
        n_cells //= n_coarser(n_cells)
        sizes = n_cells, n_cells // 2 + 1
        for depth, share in _PLANS:
            self.levels, self.of_spectrum = (
                [_level(size, k, share) for k in range(depth)] for size in sizes
            )
            counts = [3 * len(x.low) for x in self.levels] + [len(x.low) for x in self.of_spectrum]
            self.n_features = n_channels * sum(counts)
            if self.n_features <= _MOST_FEATURES:
                break
        self.n_channels = n_channels
        around = np.arange(n_cells)[:, None] + np.arange(_SMOOTHED) - _SMOOTHED // 2
        self._after = torch.arange(1, n_cells + 1).clamp(max=n_cells - 1)
        self._around = torch.from_numpy(around.clip(0, n_cells - 1))
        turns = np.outer(np.arange(n_cells), np.arange(n_cells // 2 + 1)) / n_cells
        self._waves = [torch.from_numpy(f(2 * np.pi * turns)) for f in (np.cos, np.sin)]

    def __call__(self, cells: Tensor) -> Tensor:
        """``(B, n_features)``, float32."""
        cells = coarser(cells)
        levels, increments = cells[:, : self.n_channels], cells[:, self.n_channels :]
        bend = increments[..., self._after.to(cells.device)] - increments
        smooth = increments[..., self._around.to(cells.device)].mean(dim=-1)
        centred = levels - levels.mean(dim=-1, keepdim=True)
        re, im = (centred @ wave.to(cells.device) for wave in self._waves)
        paths = torch.cat([levels, smooth, bend], dim=1)
        spectrum = (re.square() + im.square()).sqrt()
        quantiles = [level(paths) for level in self.levels]
        quantiles += [level(spectrum) for level in self.of_spectrum]
        return torch.cat(quantiles, dim=1).clamp(-_LARGEST, _LARGEST).float()


@dataclass(frozen=True)
class _Level:
    """Intervals of one length but for rounding, in one table: places ``(I, n)`` of their values,
    with ``pad`` True behind the shorter ones, if there are any; where in it, sorted, quantiles are
    read ``(Q,)``, between which two values, and of which interval; ``second``: relative to its
    mean.
    """

    places: Tensor
    pad: Tensor | None
    low: Tensor
    high: Tensor
    share: Tensor
    interval: Tensor
    second: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """``x (B, C, N)`` -> ``(B, C · Q)``."""
        places, low, high, share, interval, second = (
            part.to(x.device)
            for part in (self.places, self.low, self.high, self.share, self.interval, self.second)
        )
        values = x[..., places]
        if self.pad is None:
            mean = values.mean(dim=-1)
        else:
            pad = self.pad.to(x.device)
            mean = torch.where(pad, 0.0, values).sum(dim=-1) / (~pad).sum(dim=-1)
            values = torch.where(pad, torch.inf, values)
        ordered = values.sort(dim=-1).values.flatten(-2)
        chosen = ordered[..., low] * (1 - share) + ordered[..., high] * share
        return (chosen - second * mean[..., interval]).flatten(1)


def _level(size: int, level: int, share: int) -> _Level:
    """Halves, quarters, ... of ``size`` values, and those shifted by half of their length."""
    count = 2**level
    shifts = (0.0, 0.5) if level and size // count >= 2 else (0.0,)
    ends = [
        tuple(round(size * (k + shift + more) / count) for more in (0, 1))
        for shift in shifts
        for k in range(count)
    ]
    ends = [(begin, end) for begin, end in ends if begin < end <= size]
    longest = max(end - begin for begin, end in ends)
    column = np.arange(longest)
    begins, lengths = (np.array(x) for x in zip(*((a, b - a) for a, b in ends), strict=True))
    ranks = [_ranks(int(n), share) for n in lengths]
    interval = np.repeat(np.arange(len(ends)), [len(r) for r in ranks])
    rank = np.concatenate(ranks)
    low = np.floor(rank).astype(np.int64)
    high = np.minimum(low + 1, lengths[interval] - 1)
    second = np.concatenate([np.arange(len(r)) % 2 for r in ranks])
    pad = torch.from_numpy(column >= lengths[:, None])
    places = torch.from_numpy(np.minimum(begins[:, None] + column, size - 1))
    parts = (
        interval * longest + low,
        interval * longest + high,
        rank - low,
        interval,
        second.astype(np.float64),
    )
    of_quantiles = (torch.from_numpy(part) for part in parts)
    return _Level(places, pad if pad.any() else None, *of_quantiles)


def _ranks(n: int, share: int) -> npt.NDArray[np.float64]:
    """Even ranks of n sorted values; the middle one if there is one quantile only."""
    count = max(1, n // share)
    return np.linspace(0, n - 1, count) if count > 1 else np.array([(n - 1) / 2])
