"""What can be said without learning, or nearly so: the honest bar beside every trained model.

The training mean, the nearest neighbour, the peak of the Lomb-Scargle periodogram, and the heart
rate by counting the R peaks of an ECG. All work on irregular, ragged, incomplete series.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from roughformer import InputError, fill_gaps, spectrum_words, values_at
from roughformer.series import SeriesBatch
from roughformer.tokens import thinned
from roughformer_paper.common import real_number, series_blocks, whole_number

__all__ = [
    "fourier_features",
    "lomb_scargle",
    "most_frequent",
    "nearest_neighbour",
    "periodogram",
    "r_peak_rate",
    "raw_features",
    "training_mean",
]

Floats = npt.NDArray[np.float64]


def training_mean(y: npt.ArrayLike, n: int) -> Floats:
    """The mean of the training targets ``(M,)`` or ``(M, m)``, NaN = not known, for each of n
    series: ``(n,)`` or ``(n, m)``.
    """
    targets = np.asarray(y, dtype=np.float64)
    if len(targets) == 0:
        raise InputError("a mean needs at least one training target, got none")
    mean = np.nanmean(targets, axis=0)
    return np.broadcast_to(mean, (n, *mean.shape)).copy()


def most_frequent(y: npt.ArrayLike, n: int) -> npt.NDArray[Any]:
    """The most frequent class of the training part ``(M,)``, the first of equals, for each of n
    series.
    """
    if np.size(y) == 0:
        raise InputError("the most frequent class needs at least one training label, got none")
    classes, counts = np.unique(np.asarray(y), return_counts=True)
    return np.full(n, classes[counts.argmax()])


def raw_features(batch: SeriesBatch, n_points: int) -> Floats:
    """``(B, n_points · C)``: the values themselves, at even times over each series' own span."""
    n = whole_number(n_points, "n_points", 1)
    start, end = batch.span
    values = values_at(batch, np.linspace(0, 1, n) * (end - start)[:, None])
    return values.reshape(len(batch), n * batch.n_channels)


def fourier_features(
    batch: SeriesBatch,
    frequencies: npt.ArrayLike,
    *,
    log: bool = True,
    drop: float = 0.0,
    seed: int = 0,
    series: Any = None,
) -> Floats:
    """``(B, C · J)``: log |∫ e^{iωu} dx(u)| of the linear paths at angular frequencies ω ``(J,)``,
    with a floor of 1e-6 of the largest of a series and channel. Dropping as in ``spectrum_words``.

    ``log=False``: |∫ e^{iωu} x(u) du|, by parts, over the root of its squares in a series and
    channel; x counts from its mean over the samples, frequencies must not be 0.
    """
    words = spectrum_words(batch, frequencies, drop=drop, seed=seed, series=series)
    size = np.hypot(words[..., 0], words[..., 1]).astype(np.float64)  # (B, C, J)
    if not log:
        size = np.abs(_transform(thinned(batch, drop, seed, series), words, frequencies))
        whole = np.sqrt((size**2).sum(axis=2, keepdims=True))
        scaled = size / np.where(whole > 0, whole, 1.0)
        return np.asarray(scaled).reshape(len(batch), np.prod(size.shape[1:]))
    top = size.max(axis=2, keepdims=True, initial=0.0)
    floor = np.where(top > 0, 1e-6 * top, 1.0)
    return np.asarray(np.log(np.maximum(size, floor))).reshape(len(batch), np.prod(size.shape[1:]))


def _transform(batch: SeriesBatch, words: Any, frequencies: npt.ArrayLike) -> Any:
    """∫ e^{iωu} x(u) du ``(B, C, J)``, u from each series' start, of its ``words``."""
    omega = np.asarray(frequencies, dtype=np.float64)
    values = fill_gaps(batch).astype(np.float64)
    first, last = batch.offsets[:-1], batch.offsets[1:] - 1
    mean = np.add.reduceat(values, first) / batch.lengths[:, None]
    start, end = batch.span
    turned = np.exp(1j * omega * (end - start)[:, None])[:, None, :]  # (B, 1, J)
    ends = (values[last] - mean)[..., None] * turned - (values[first] - mean)[..., None]
    return (ends - (words[..., 0] + 1j * words[..., 1])) / (1j * omega)


def nearest_neighbour(
    train: npt.ArrayLike, y: npt.ArrayLike, features: npt.ArrayLike
) -> npt.NDArray[Any]:
    """For each row of ``features (N, F)`` the target of the nearest row (Euclidean) of
    ``train (M, F)``, out of ``y (M, ...)``.
    """
    from sklearn.neighbors import NearestNeighbors

    known, targets, asked = np.asarray(train), np.asarray(y), np.asarray(features)
    if len(known) == 0 or len(known) != len(targets):
        raise InputError(
            "the nearest neighbour needs as many targets as training rows, at least one; got "
            f"{len(targets)} and {len(known)}"
        )
    if len(asked) == 0:
        return targets[:0]
    finder = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(known)
    return np.asarray(targets[finder.kneighbors(asked, return_distance=False)[:, 0]])


def periodogram(
    batch: SeriesBatch, frequencies: npt.ArrayLike, channel: int | str = 0
) -> npt.NDArray[np.int64]:
    """``(B,)``: which of the angular ``frequencies (J,)`` has the largest Lomb-Scargle power."""
    return np.asarray(lomb_scargle(batch, frequencies, channel).argmax(axis=1), dtype=np.int64)


def lomb_scargle(batch: SeriesBatch, frequencies: npt.ArrayLike, channel: int | str = 0) -> Floats:
    """The power ``(B, J)`` of a channel at angular frequencies ``(J,)``, from its own samples.

    With y = x - mean, and τ such that Σ sin 2ω(t_k - τ) = 0 over the observed samples,

        P(ω) = ½ [ (Σ y cos ω(t-τ))² / Σ cos² ω(t-τ)  +  (Σ y sin ω(t-τ))² / Σ sin² ω(t-τ) ],

    which is how much a sine of that frequency explains of Σ y², halved. Evenly spaced frequencies
    are several times faster.
    """
    omega = np.asarray(frequencies, dtype=np.float64)
    if omega.ndim != 1 or len(omega) == 0 or not np.isfinite(omega).all():
        raise InputError(
            f"frequencies must be finite numbers in one dimension, at least one, got {omega!r}"
        )
    c = _channel(batch, channel)
    power = np.zeros((len(batch), len(omega)))
    for b0, b1 in series_blocks(batch.lengths):
        power[b0:b1] = _lomb_scargle(*_padded(batch[b0:b1], c), omega).numpy()
    return power


def _padded(batch: SeriesBatch, c: int) -> tuple[Tensor, Tensor, Tensor]:
    """``(B, L)`` times from the first one, values less their mean, and 1 where observed."""
    row = np.repeat(np.arange(len(batch)), batch.lengths)
    column = np.arange(batch.n_points) - np.repeat(batch.offsets[:-1], batch.lengths)
    shape = (len(batch), int(batch.lengths.max(initial=1)))
    times, values = np.zeros(shape), np.full(shape, np.nan)
    times[row, column] = batch.times - batch.span[0][row]
    values[row, column] = batch.values[:, c]
    seen = ~np.isnan(values)
    values[~seen] = 0.0
    values -= values.sum(axis=1, keepdims=True) / np.maximum(seen.sum(axis=1, keepdims=True), 1)
    values[~seen] = 0.0
    return (
        torch.from_numpy(times),
        torch.from_numpy(values.astype(np.float32)),
        torch.from_numpy(seen.astype(np.float32)),
    )


def _lomb_scargle(times: Tensor, values: Tensor, seen: Tensor, omega: Floats) -> Tensor:
    """``(B, J)`` for padded series ``(B, L)``."""
    projection, double = _sums(times, values, seen, omega)
    turned = projection * torch.polar(torch.ones_like(double.real), -double.angle() / 2)
    count = seen.sum(dim=1, keepdim=True)
    cosines, sines = (count + double.abs()) / 2, (count - double.abs()) / 2
    tiny = 1e-5 * count.clamp(min=1)  # e.g. ω = 0: no sine at all
    sine_part = torch.where(sines > tiny, turned.imag.square() / sines.clamp(min=1e-30), 0.0)
    return (turned.real.square() / cosines.clamp(min=0.5) + sine_part).double() / 2


def _sums(times: Tensor, values: Tensor, seen: Tensor, omega: Floats) -> tuple[Tensor, Tensor]:
    """Σ y e^{iωt} and Σ e^{2iωt} over the observed samples, ``(B, J)`` each."""
    if bool((times == times[:1]).all()) and bool(seen.all()):  # one grid for all
        wave = _waves(times[:1], torch.from_numpy(omega))[0]  # (J, L)
        projection = torch.complex(values @ wave.real.T, values @ wave.imag.T)
        return projection, wave.square().sum(dim=1).expand(len(values), -1)
    # ω_{aK+b} = coarse_a + fine_b: J exponentials of each sample from few, by a matrix product.
    k = math.isqrt(len(omega)) if len(omega) > 3 and _even(omega) else 1
    first = _waves(times, torch.from_numpy(omega[::k].copy()))  # (B, A, L)
    second = _waves(times, torch.from_numpy(omega[:k] - omega[0])).transpose(1, 2)  # (B, L, K)
    projection = (first * values.unsqueeze(1)) @ second
    double = (first.square() * seen.unsqueeze(1)) @ second.square()
    return projection.flatten(1)[:, : len(omega)], double.flatten(1)[:, : len(omega)]


def _even(omega: Floats) -> bool:
    step = np.diff(omega)
    return bool(np.abs(step - step[0]).max() <= 1e-9 * np.abs(omega).max())


def _waves(times: Tensor, omega: Tensor) -> Tensor:
    """e^{iωt}, ``(B, J, L)``; turns are taken off in double precision."""
    turns = times.unsqueeze(1) * (omega / (2 * math.pi)).unsqueeze(1)
    angle = (2 * math.pi * (turns - turns.round())).float()
    return torch.complex(angle.cos(), angle.sin())


def r_peak_rate(batch: SeriesBatch, channel: int | str = "ECG", rate: float = 125.0) -> Floats:
    """Beats per minute ``(B,)`` by the R peaks of an ECG with times in seconds; NaN where fewer
    than three are found.

    After Elgendi (2013): the linear path on a grid of ``rate`` points per second, band-pass 8-20
    Hz, square, mean over 0.1 s; beats are the peaks that are largest within 0.3 s and above the
    mean over 0.6 s by 0.08 of the whole mean; the mean of the intervals between them that are 0.6
    to 1.6 times as long as their median: others have a beat that was missed or is none. Chosen on
    the training recordings of BIDMC, where the median alone has 1.6 times the error, and the slope
    of 5-15 Hz (Pan and Tompkins 1985) with a threshold at 0.3 of the usual peak is no better.
    """
    per_second = real_number(rate, "rate", "a positive number of points per second")
    c = _channel(batch, channel)
    start, end = batch.span
    n_points = np.floor((end - start) * per_second + 1e-6).astype(np.int64) + 1
    found = np.full(len(batch), np.nan)
    for b0, b1 in series_blocks(n_points):
        part = batch[b0:b1]
        one = SeriesBatch(part.times, part.values[:, c : c + 1], part.offsets)
        # A shorter series is held to the end of the longest, which has no energy.
        grid = np.arange(n_points[b0:b1].max()) / per_second
        path = torch.from_numpy(values_at(one, grid)[..., 0])
        energy = _beat_energy(path, per_second)
        peaks = _peaks(energy, per_second)
        peaks &= energy > 1e-20 * path.square().amax(dim=1, keepdim=True)  # not rounding
        peaks &= torch.arange(len(grid)) < torch.from_numpy(n_points[b0:b1, None])
        found[b0:b1] = _mean_rate(peaks.numpy(), energy.numpy(), per_second)
    return found


def _beat_energy(x: Tensor, rate: float) -> Tensor:
    """``(B, n)`` -> the mean square of its 8-20 Hz part over 0.1 s."""
    edge = min(int(2 * rate), x.shape[1] - 1)
    longer = F.pad(x.unsqueeze(1), (edge, edge), mode="reflect").squeeze(1)
    f = torch.fft.rfftfreq(longer.shape[1], 1 / rate, dtype=x.dtype)
    gain = 1 / (1 + (f / 20) ** 8) - 1 / (1 + (f / 8) ** 8)  # Butterworth's, of fourth order
    band = torch.fft.irfft(torch.fft.rfft(longer) * gain, n=longer.shape[1])
    return _mean_around(band[:, edge : edge + x.shape[1]].square(), 0.1 * rate)


def _mean_around(x: Tensor, width: float) -> Tensor:
    """``(B, n)``, the mean over about ``width`` points, fewer at the ends."""
    half = max(1, round(width / 2))
    pooled = F.avg_pool1d(x.unsqueeze(1), 2 * half + 1, 1, half, count_include_pad=False)
    return pooled.squeeze(1)


def _peaks(energy: Tensor, rate: float) -> Tensor:
    """``(B, n)`` True at beats."""
    apart = max(1, round(0.3 * rate))
    around = F.max_pool1d(energy.unsqueeze(1), 2 * apart + 1, 1, apart).squeeze(1)
    level = _mean_around(energy, 0.6 * rate) + 0.08 * energy.mean(dim=1, keepdim=True)
    return (energy == around) & (energy > level)


def _mean_rate(peaks: npt.NDArray[np.bool_], energy: Floats, rate: float) -> Floats:
    """``(B,)`` beats per minute; the top of a peak lies between samples, on a parabola."""
    row, at = np.nonzero(peaks)
    inner = (at > 0) & (at < energy.shape[1] - 1)
    row, at = row[inner], at[inner]
    left, top, right = energy[row, at - 1], energy[row, at], energy[row, at + 1]
    bend = np.minimum(left - 2 * top + right, -1e-300)
    exact = at + np.clip(0.5 * (left - right) / bend, -0.5, 0.5)
    bounds = np.searchsorted(row, np.arange(len(peaks) + 1))
    found = np.full(len(peaks), np.nan)
    for b in range(len(peaks)):
        beats = exact[bounds[b] : bounds[b + 1]]
        if len(beats) > 2:
            intervals = np.diff(beats)
            usual = intervals / np.median(intervals)
            found[b] = 60 * rate / intervals[(usual > 0.6) & (usual < 1.6)].mean()
    return found


def _channel(batch: SeriesBatch, channel: int | str) -> int:
    if isinstance(channel, str):
        if channel not in batch.channels:
            raise InputError(
                f"there is no channel {channel!r}; channels are {', '.join(batch.channels)}"
            )
        return batch.channels.index(channel)
    return whole_number(channel, "channel", 0, batch.n_channels - 1)
