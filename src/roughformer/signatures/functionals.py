"""Random linear functionals of local signatures, thresholded and pooled over time.

The span of a path is cut into N even *cells*. The words of a cell are its level, the mean of the
path, and its increment: exact for the piecewise-linear path, whatever the times of its samples. By
Chen's relation they give those of any window of cells. A *functional* looks at a moving window of
``n_taps`` neighbouring blocks of ``width`` cells each,

    v(i) = Σ_j taps[j] · u(i + j · width),    u(i) = mean of a mixture of channels over a block,

and asks at each place whether it is above a threshold. It is pooled over the whole path: the
proportion of positive values (PPV), the mean of what is above the threshold (MPV) and where it is
on the average (MIPV). Eight functionals of the same mixture also compete: how strongly each of
them is when it is the largest, and how often it is the smallest.

Means u are rounded to multiples of 1/512 of their usual size and taps are whole numbers up to 8, so
that v is a whole number below 2^24: exact in single precision and in any order of summation. A
threshold lies half-way between two of them. Each backend and each device answers every comparison
alike.
"""

import ctypes
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.signatures.library import Cells as CellsJob
from roughformer.signatures.library import Functionals as FunctionalsJob
from roughformer.signatures.library import default_threads, load
from roughformer.signatures.points import pad
from roughformer.signatures.torch_backend import (
    Observed,
    at_rows,
    last_at_or_before,
    linear_points,
    observed,
    path_at,
    running_sum,
)

__all__ = ["COMPETING", "FINE", "N_TAPS", "Functionals", "Pooled", "padded_cells", "path_cells"]

COMPETING = 8  # functionals that share their mixture of channels and compete
N_TAPS = 9
_MOST_TAP = 8
_MOST = float(2**17 - 1)  # of a rounded mean: 9 taps · 8 · 2^17 < 2^24
FINE = 512.0  # steps of the usual size of a mean
_MOST_CHANNELS = 9  # of a mixture
_SAMPLE = 512  # places that thresholds are quantiles of
_LARGEST = 1e37  # of a value: models compute with float32


class Pooled(NamedTuple):
    """Features of each series: ``ppv``, ``mpv`` and ``mipv (B, K · Q)`` of K functionals with Q
    thresholds each, ``wins (B, 2 · K)``.
    """

    ppv: Tensor
    mpv: Tensor
    mipv: Tensor
    wins: Tensor


def path_cells(
    batch: SeriesBatch, n_cells: int, threads: int | None = None, *, least_span: float = 0.0
) -> npt.NDArray[np.float64]:
    """``(B, 2 · C, N)``: levels and then increments of the channels over even cells of each span,
    or of ``least_span`` from the start of a series where that is longer.

    A channel is constant before its first and after its last observation, and 0 without any.
    """
    library = load()
    channels = batch.n_channels
    large = np.abs(batch.values) > _LARGEST  # False for NaN
    if large.any():
        row = int(np.argmax(large.any(axis=1)))
        raise InputError(
            f"values must be at most {_LARGEST:g} in size, got {np.nanmax(np.abs(batch.values)):g} "
            f"(series {int(np.searchsorted(batch.offsets, row, side='right')) - 1}); rescale them"
        )
    out = np.zeros((len(batch), 2 * channels, n_cells))
    if library is None:
        for i in range(0, len(batch), 64):
            part = batch[i : i + 64]
            out[i : i + 64] = padded_cells(observed(*pad(part)), n_cells, least_span).numpy()
        return out
    grid, starts = batch.grid, np.ascontiguousarray(batch.offsets[:-1], np.int64)
    shared = grid is not None
    times = np.ascontiguousarray(grid if shared else batch.times, np.float64)
    time_starts = np.zeros_like(starts) if shared else starts
    values, lengths = np.ascontiguousarray(batch.values), np.ascontiguousarray(batch.lengths)
    job = CellsJob(
        values=values.ctypes.data,
        times=times.ctypes.data,
        starts=starts.ctypes.data,
        lengths=lengths.ctypes.data,
        time_starts=time_starts.ctypes.data,
        out=out.ctypes.data,
        n_series=len(batch),
        n_cells=n_cells,
        least_span=least_span,
        value_dtype=int(values.dtype == np.float64),
        channels=channels,
        threads=threads or default_threads(),
    )
    if library.rf_cells(ctypes.byref(job)):
        raise MemoryError("the native kernel could not allocate its scratch memory")
    return out


def padded_cells(data: Observed, n_cells: int, least_span: float = 0.0) -> Tensor:
    """``path_cells`` of padded series, in torch."""
    points = linear_points(data)
    shares = torch.arange(n_cells + 1, dtype=torch.float64, device=data.since.device) / n_cells
    span = data.span.clamp(min=least_span)
    edges = span.unsqueeze(1) * shares
    at = path_at(points, edges)
    x, times = points.x, points.times
    # To the next corner; of the last one there is no area. Slices would fix the length of a graph.
    after = (torch.arange(x.shape[1], device=x.device) + 1).clamp(max=x.shape[1] - 1)
    areas = (times[:, after] - times).unsqueeze(-1) * (x[:, after] + x) / 2
    before = last_at_or_before(times, edges)
    rest = (edges - times.gather(1, before)).unsqueeze(-1)
    integral = at_rows(running_sum(areas), before) + rest * (at_rows(x, before) + at) / 2
    cell = span.reshape(-1, 1, 1) / n_cells
    moving = cell > 0
    mean = (integral[:, 1:] - integral[:, :-1]) / torch.where(moving, cell, 1.0)
    levels = torch.where(moving, mean, at[:, 1:])
    return torch.cat([levels, at[:, 1:] - at[:, :-1]], dim=-1).transpose(1, 2)


class Functionals(nn.Module):
    """Functionals of cells ``(B, R, N)``: ``forward`` pools them over each path.

    Weights are drawn by ``draw``, kept in ``state_dict``, and are the same on every backend.

    Parameters
    ----------
    n_rows : int
        Words of a cell: of each kind (levels, increments) one for each channel.
    n_cells : int
        Cells of a path.
    n_functionals : int, default 3072
        About how many functionals, over all widths.
    n_features : int, default 10000
        About how many pairs of a functional and a threshold.
    n_kinds : int, default 2
        Kinds of words. A functional sees words of one kind.
    """

    mix: Tensor  # (S, G, R), divided by the step that means are rounded to
    taps: Tensor  # (S, G, 8, T)
    thresholds: Tensor  # (S, G, 8, Q)

    def __init__(
        self,
        n_rows: int,
        n_cells: int,
        n_functionals: int = 3072,
        n_features: int = 10_000,
        n_kinds: int = 2,
    ) -> None:
        """All weights are 0 until they are drawn or loaded."""
        super().__init__()
        self.n_rows, self.n_cells, self.n_kinds = n_rows, n_cells, n_kinds
        self.widths = _widths(n_cells)
        scales = len(self.widths)
        groups = n_kinds * max(1, round(n_functionals / (n_kinds * COMPETING * scales)))
        thresholds = max(1, round(n_features / (scales * groups * COMPETING)))
        self.register_buffer("mix", torch.zeros(scales, groups, n_rows, dtype=torch.float64))
        self.register_buffer("taps", torch.zeros(scales, groups, COMPETING, N_TAPS))
        self.register_buffer("thresholds", torch.zeros(scales, groups, COMPETING, thresholds))

    @property
    def n_features(self) -> int:
        """Features of PPV, and of each of the other poolings."""
        return self.thresholds.numel()

    @property
    def n_functionals(self) -> int:
        """Functionals, over all widths."""
        return self.thresholds[..., 0].numel()

    def groups(self, channels: tuple[str, ...], kinds: tuple[str, ...]) -> dict[str, Tensor]:
        """For each kind of word, channel and width, ``(K,)``: which functionals it is in."""
        found = {}
        for row in range(self.n_rows):
            kind, channel = kinds[row // len(channels)], channels[row % len(channels)]
            for scale, width in enumerate(self.widths):
                which = torch.zeros(self.mix.shape[:2], dtype=torch.bool)
                which[scale] = self.mix[scale, :, row].cpu() != 0
                share = N_TAPS * width / self.n_cells
                name = f"{kind} of {channel} over {share:.2g} of the span"
                found[name] = which.unsqueeze(-1).expand(*which.shape, COMPETING).flatten()
        return found

    def padded(self, scale: int) -> bool:
        """Whether windows of this scale reach over the ends of a path, where there is nothing."""
        return scale % 2 == 0 or N_TAPS * self.widths[scale] > self.n_cells

    def draw(self, cells: Tensor, seed: int) -> Self:
        """Draw weights; thresholds are quantiles over cells ``(B, R, N)`` of training series."""
        rng = np.random.default_rng(seed)
        scales, groups, rows = self.mix.shape
        sums = torch.nn.functional.pad(cells.double().cumsum(dim=-1), (1, 0))
        for scale in range(scales):
            taps = _whole_taps(groups * COMPETING, rng).reshape(groups, COMPETING, N_TAPS)
            mix = np.stack(
                [_mixture(rows, g % self.n_kinds, self.n_kinds, rng) for g in range(groups)]
            )
            series = rng.integers(0, len(cells), _SAMPLE)
            self.mix[scale] = torch.from_numpy(mix)
            self.taps[scale] = torch.from_numpy(taps)
            # A few series are enough for the usual size of the means.
            some = cells[torch.from_numpy(np.unique(series[:64]))]
            usual = _usual_size(self._means(some, scale, rounded=False))
            self.mix[scale] *= (FINE / usual).unsqueeze(-1)
            self.thresholds[scale] = self._quantiles(sums, scale, series, rng)
        return self

    def _quantiles(
        self, sums: Tensor, scale: int, series: npt.NDArray[np.int64], rng: np.random.Generator
    ) -> Tensor:
        """``(G, 8, Q)``: quantiles of the functionals at random places of these series."""
        width, low = self.widths[scale], self._first(scale)
        place = torch.from_numpy(rng.integers(0, self._places(scale), len(series)))
        begin = low + place.unsqueeze(1) + width * torch.arange(N_TAPS)
        rows = sums[torch.from_numpy(series)]  # (S, R, N + 1)
        ends = ((begin + shift).clamp(0, self.n_cells).unsqueeze(1) for shift in (0, width))
        start, end = (rows.gather(2, at.expand(-1, rows.shape[1], -1)) for at in ends)
        means = self._rounded(torch.einsum("gr,srt->sgt", self.mix[scale], (end - start) / width))
        sample = torch.einsum("gkt,sgt->sgk", self.taps[scale], means).sort(dim=0).values
        tail = len(sample) // 20
        which = rng.integers(tail, len(sample) - tail, (1, *self.thresholds.shape[1:]))
        chosen = sample.unsqueeze(-1).expand(*sample.shape, which.shape[-1])
        return chosen.gather(0, torch.from_numpy(which))[0].floor() + 0.5

    def _means(self, cells: Tensor, scale: int, rounded: bool = True) -> Tensor:
        """``(B, G, n + (T - 1) · width)``: means of the mixtures over blocks of cells."""
        width = self.widths[scale]
        mixed = torch.einsum("gr,brn->bgn", self.mix[scale], cells.double())
        sums = torch.nn.functional.pad(mixed.cumsum(dim=-1), (1, 0))
        low = self._first(scale)
        reach = self._places(scale) + (N_TAPS - 1) * width
        begin = torch.arange(low, low + reach, device=cells.device)
        ends = sums[..., (begin + width).clamp(0, self.n_cells)]
        means = (ends - sums[..., begin.clamp(0, self.n_cells)]) / width
        return self._rounded(means) if rounded else means

    def _rounded(self, means: Tensor) -> Tensor:
        return means.clamp(-_MOST, _MOST).round().float()

    def _first(self, scale: int) -> int:
        """The cell at which the first window of this scale begins."""
        return -(N_TAPS * self.widths[scale] // 2) if self.padded(scale) else 0

    def _places(self, scale: int) -> int:
        """Places that a functional of this scale is taken at."""
        if self.padded(scale):
            return self.n_cells
        return self.n_cells - N_TAPS * self.widths[scale] + 1

    def values(self, cells: Tensor, scale: int) -> Tensor:
        """``(B, G, 8, n)``: the functionals of one width at every place."""
        means, width, n = self._means(cells, scale), self.widths[scale], self._places(scale)
        taps = self.taps[scale]
        found = means.new_zeros(means.shape[0], *taps.shape[:2], n)
        for j in range(N_TAPS):
            found = found + taps[..., j, None] * means[:, :, None, j * width : j * width + n]
        return found

    def forward(self, cells: Tensor) -> Pooled:
        """Pool over the paths ``cells (B, R, N)``."""
        native = cells.device.type == "cpu" and load() is not None
        if native and not (torch.compiler.is_exporting() or cells.requires_grad):
            padded = [self.padded(scale) for scale in range(len(self.widths))]
            ppv, mpv, mipv, wins = _native(
                cells, self.mix, self.taps, self.thresholds, list(self.widths), padded
            )
            return Pooled(ppv, mpv, mipv, wins)
        return self.definition(cells)

    def definition(self, cells: Tensor) -> Pooled:
        """``forward`` in torch."""
        parts = [self._pooled(cells, scale) for scale in range(len(self.widths))]
        ppv, mpv, mipv, *wins = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
        return Pooled(ppv, mpv, mipv, torch.cat(wins, dim=1))

    def _pooled(self, cells: Tensor, scale: int) -> tuple[Tensor, ...]:
        """PPV, MPV, MIPV and both kinds of wins ``(B, ...)`` of one width."""
        v, bounds = self.values(cells, scale), self.thresholds[scale]
        n = v.shape[-1]
        place = torch.arange(n, dtype=v.dtype, device=v.device)
        shares, above, when = [], [], []
        for q in range(bounds.shape[-1]):
            over = v - bounds[..., q, None]
            positive = (over > 0).to(v.dtype)
            count = positive.sum(dim=-1)
            some = count.clamp(min=1)
            shares.append(count / n)
            above.append(over.clamp(min=0).sum(dim=-1) / some)
            middle = 2 * (positive * place).sum(dim=-1) / (some * n) - 1
            when.append(torch.where(count > 0, middle, 0.0))
        number = torch.arange(COMPETING, device=v.device).reshape(-1, 1)
        largest = (v.argmax(dim=2, keepdim=True) == number).to(v.dtype)
        smallest = (v.argmin(dim=2, keepdim=True) == number).to(v.dtype)
        wins = (largest * v).sum(dim=-1) / n, smallest.sum(dim=-1) / n
        pooled = [torch.stack(part, dim=-1) for part in (shares, above, when)]
        return tuple(part.flatten(1) for part in (*pooled, *wins))


def _widths(n_cells: int) -> tuple[int, ...]:
    """Widths of a tap from one cell to an eighth of the path, each at most about twice the one
    before it: eight up to 1,024 cells, ten of 4,096.
    """
    most = max(1, (n_cells - 1) // (N_TAPS - 1))
    count = max(8, most.bit_length() + 1)
    return tuple(np.unique(np.geomspace(1, most, count).round().astype(int)).tolist())


def _whole_taps(count: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Gaussian, as whole numbers; every second functional sums to 0 and is blind to the level."""
    taps = rng.normal(size=(count, N_TAPS))
    taps[::2] -= taps[::2].mean(axis=1, keepdims=True)
    whole = np.clip(np.round(3.0 * taps), -_MOST_TAP, _MOST_TAP)
    for row in whole[::2]:
        while total := np.sign(row.sum()):
            row[rng.choice(np.flatnonzero(row * total > -_MOST_TAP))] -= total
    whole[~whole.any(axis=1), :2] = [1.0, -1.0]
    return whole.astype(np.float32)


def _mixture(
    n_rows: int, kind: int, n_kinds: int, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """``(R,)``: words of one kind of a few channels, with random signs."""
    channels = n_rows // n_kinds
    most = min(channels, _MOST_CHANNELS)
    count = min(most, int(2 ** rng.uniform(0, np.log2(most + 1))))
    weights = np.zeros(n_rows)
    chosen = kind * channels + rng.permutation(channels)[:count]
    weights[chosen] = rng.choice([-1.0, 1.0], count) / np.sqrt(count)
    return weights


def _usual_size(means: Tensor) -> Tensor:
    """``(G,)``: median absolute value of what is not 0."""
    flat = means.abs().transpose(0, 1).flatten(1)
    usual = torch.where(flat > 0, flat, torch.nan).nanmedian(dim=1).values
    return torch.where(usual.isnan(), 1.0, usual)


@torch.library.custom_op("roughformer::functionals", mutates_args=(), device_types="cpu")
def _native(
    cells: Tensor,
    mix: Tensor,
    taps: Tensor,
    thresholds: Tensor,
    widths: list[int],
    padded: list[bool],
) -> list[Tensor]:
    """``Functionals.definition``, by the native kernel."""
    batch, rows, n_cells = cells.shape
    scales, groups, _, n_thresholds = thresholds.shape
    plain = cells.detach().double().contiguous().numpy()
    weights = mix.detach().reshape(-1, rows).numpy()
    group, row = np.nonzero(weights)
    held: dict[str, npt.NDArray[Any]] = {
        "widths": np.array(widths, np.int64),
        "padded": np.array(padded, np.uint8),
        "mix_at": np.searchsorted(group, np.arange(len(weights) + 1)).astype(np.int64),
        "mix_row": row.astype(np.int64),
        "mix": weights[group, row],
        "taps": taps.detach().float().contiguous().numpy(),
        "thresholds": thresholds.detach().float().contiguous().numpy(),
    }
    count = scales * groups * COMPETING
    sizes = (count * n_thresholds,) * 3 + (2 * count,)
    out = [torch.empty(batch, size) for size in sizes]
    job = FunctionalsJob(
        cells=plain.ctypes.data,
        **{name: array.ctypes.data for name, array in held.items()},
        **{name: x.data_ptr() for name, x in zip(Pooled._fields, out, strict=True)},
        n_series=batch,
        n_rows=rows,
        n_cells=n_cells,
        n_scales=scales,
        n_groups=groups,
        n_taps=taps.shape[-1],
        n_thresholds=n_thresholds,
        most=_MOST,
        threads=min(torch.get_num_threads(), default_threads()),
    )
    library = load()
    assert library is not None
    if library.rf_functionals(ctypes.byref(job)):
        raise MemoryError("the native kernel could not allocate its scratch memory")
    return out


@_native.register_fake
def _(
    cells: Tensor, mix: Tensor, taps: Tensor, thresholds: Tensor, widths: list[int],
    padded: list[bool],
) -> list[Tensor]:  # fmt: skip
    features, count = thresholds.numel(), thresholds[..., 0].numel()
    sizes = (features, features, features, 2 * count)
    return [thresholds.new_empty(cells.shape[0], size) for size in sizes]
