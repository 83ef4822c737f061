"""TempoEncoder: spectra of windows on a logarithmic frequency axis, where tempo is a shift.

A target that is a rate (a heart rate, a rotation speed) scales with time: play the series faster
by a factor f and the rate is multiplied by f. On the axis log ω the spectrum moves by log f and
nothing else changes, so a model that treats all places of the axis alike carries over to tempos,
and to patients, that it has not seen.
"""

import math
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.signatures import fill_gaps, locate, spectrum_words, values_at
from roughformer.signatures.torch_backend import (
    Observed,
    linear_points,
    number,
    path_at,
    place_knots,
    sinc,
    waves,
)
from roughformer.tokens.fitted import check_series, thinned
from roughformer.tokens.padded import PaddedInputs

Floats = npt.NDArray[np.float64]


def pieces_between(batch: SeriesBatch, cuts: Floats) -> SeriesBatch:
    """``B · W`` series: that of (b, w) is the path of b over [cuts[b, w], cuts[b, w + 1]].

    ``cuts (B, W + 1)`` increase and lie within the spans. The path is interpolated at the cuts,
    which are the first and last point of each piece. Values must have no gaps.
    """
    n, w = len(batch), cuts.shape[1] - 1
    start = batch.span[0]
    series = np.repeat(np.arange(n), batch.lengths)
    since = batch.times - start[series]
    relative = cuts - start[:, None]
    at_cuts = values_at(batch, relative)  # (B, W + 1, C)
    flat = np.ascontiguousarray(relative).ravel()
    begin = series * (w + 1)
    sizes = np.full(len(series), w + 1)
    # Points that lie on a cut are there already, as the cut itself.
    place = locate(flat, begin, sizes, since - flat[begin])
    inside = (since > flat[begin + place]) & (place < w)
    owner = series[inside] * w + place[inside]
    inner = np.bincount(owner, minlength=n * w)
    offsets = np.concatenate([[0], np.cumsum(inner + 2)])
    first = np.cumsum(inner) - inner
    rank = np.arange(len(owner)) - first[owner]
    row = offsets[owner] + 1 + rank
    times = np.empty(offsets[-1])
    values = np.empty((offsets[-1], batch.n_channels), dtype=batch.values.dtype)
    times[row], values[row] = batch.times[inside], batch.values[inside]
    times[offsets[:-1]], values[offsets[:-1]] = cuts[:, :-1].ravel(), _rows(at_cuts[:, :-1])
    times[offsets[1:] - 1], values[offsets[1:] - 1] = cuts[:, 1:].ravel(), _rows(at_cuts[:, 1:])
    return SeriesBatch(times, values, offsets, channels=batch.channels)


def _rows(block: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    return block.reshape(-1, block.shape[-1])


_FLOOR = 1e-3  # of the mean power: below it is noise
_SERIES_AT_ONCE = 512
_FREQUENCIES_AT_ONCE = 64
_MARGIN = 0.35  # the axis goes on by e^0.35 = 1.4 beyond the rates of the training part


class TempoEncoder(BaseModel):
    """Series -> ``spectra (B, K, 2C, J)``: log power of K windows for J frequencies.

    Windows: ``n_windows`` of equal duration over the span of a series, those that lie half a window
    later, and the whole span: K = 2 n_windows (1 if n_windows is 0). Each is tapered by a Hann
    window, which is a sum of clock words: h(u) = 1/2 - 1/2 cos(2πu/T), so that
    ∫ h e^{iωu} dx takes the words at ω and ω ± 2π/T. Channels: x, and its variation ∫ |dx|, whose
    spectrum has the rhythm of what is fast in x. The chord of x over the window is taken off, so
    that drift has no spectrum. Frequencies: ``low`` e^{step·j} turns per unit of time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    channels: tuple[str, ...] = Field(min_length=1)
    static: tuple[str, ...] = ()
    n_windows: int = Field(4, ge=0)
    low: float = Field(gt=0, description="Lowest rate, in turns per unit of time.")
    step: float = Field(0.02, gt=0, description="Ratio of neighbouring frequencies, its logarithm.")
    n_rates: int = Field(ge=2, description="Rates that a model may answer with.")
    harmonics: int = Field(4, ge=1, description="Multiples of a rate that are looked at.")

    @classmethod
    def fit(
        cls,
        batch: SeriesBatch,
        rates: npt.NDArray[np.float64],
        static: tuple[str, ...] = (),
        **options: Any,
    ) -> Self:
        """``rates``: those of the training part, in turns per unit of time."""
        check_series(batch, batch.channels, static)
        known = rates[np.isfinite(rates)]
        if len(known) == 0 or not (known > 0).all():
            raise InputError("rate-like targets must be positive numbers, and at least one known")
        step = float(options.pop("step", 0.02))
        low = float(known.min()) * np.exp(-_MARGIN)
        high = float(known.max()) * np.exp(_MARGIN)
        n_rates = int(np.ceil(np.log(high / low) / step)) + 1
        span = batch.span[1] - batch.span[0]
        turns = float(np.median(span)) * float(np.median(known))
        if turns < 2:
            raise InputError(
                f"the median series lasts {turns:.2g} turns of the median rate; a rate needs at "
                "least two. Is rate_unit right (turns per unit of time of a target of 1)?"
            )
        return cls(
            channels=batch.channels, static=static, low=low, step=step, n_rates=n_rates, **options
        )

    @property
    def n_spectra(self) -> int:
        """K."""
        return max(2 * self.n_windows, 1)

    @property
    def n_frequencies(self) -> int:
        """J: the rates and their harmonics."""
        return self.n_rates + int(np.ceil(np.log(self.harmonics) / self.step))

    def encode(
        self,
        batch: SeriesBatch,
        *,
        drop: float = 0.0,
        seed: int = 0,
        series: Any = None,
        threads: int | None = None,
    ) -> dict[str, Tensor]:
        """``spectra (B, K, 2C, J)``, ``times (B, K)`` (ends of the windows as shares of the span),
        and ``static (B, S)`` if there are covariates.
        """
        check_series(batch, self.channels, self.static)
        shape = (len(batch), self.n_spectra, 2 * len(self.channels), self.n_frequencies)
        spectra = torch.empty(shape)
        batch = thinned(batch, drop, seed, series)
        for i in range(0, len(batch), _SERIES_AT_ONCE):
            part = slice(i, min(i + _SERIES_AT_ONCE, len(batch)))
            spectra[part] = _log_share(torch.from_numpy(self._powers(batch[part], threads)))
        ends = np.array([1.0])
        if self.n_windows:
            k = np.arange(1, self.n_windows + 1) / self.n_windows
            ends = np.concatenate([k, k[:-1] + 0.5 / self.n_windows, [1.0]])
        inputs = {
            "spectra": spectra,
            "times": torch.from_numpy(np.tile(ends, (len(batch), 1)).astype(np.float32)),
        }
        if self.static:
            assert batch.static is not None
            at = [batch.static_names.index(name) for name in self.static]
            inputs["static"] = torch.from_numpy(batch.static[:, at].astype(np.float32))
        return inputs

    def padded(self, data: Observed, static: Tensor | None) -> PaddedInputs:
        """``encode`` for padded series."""
        alive = (data.span > 0)[:, None, None, None]
        power = torch.where(alive, _padded_power(self, data), 0.0)
        return {"spectra": _log_share(power)}, None

    def warp(
        self, inputs: dict[str, Tensor], faster: npt.NDArray[np.float64]
    ) -> tuple[dict[str, Tensor], npt.NDArray[np.float64]]:
        """Inputs of the series played faster by the given factors ``(B,)``, rounded to whole steps
        of the axis, and the factors as rounded. What comes in from beyond the axis is its mean.
        """
        shift = np.round(np.log(faster) / self.step).astype(np.int64)
        spectra = inputs["spectra"]
        n, k, c, j = spectra.shape
        at = torch.arange(j)[None, :] - torch.from_numpy(shift)[:, None]
        inside = (at >= 0) & (at < j)
        index = at.clamp(0, j - 1)[:, None, None, :].expand(n, k, c, j)
        moved = torch.gather(spectra, 3, index)
        mean = spectra.mean(dim=-1, keepdim=True)
        moved = torch.where(inside[:, None, None, :], moved, mean)
        return inputs | {"spectra": moved}, np.exp(shift * self.step)

    def _powers(self, batch: SeriesBatch, threads: int | None) -> npt.NDArray[np.float64]:
        """Power ``(B, K, 2C, J)`` of all windows, by the kernel's spectra of their pieces."""
        lifted = with_variation(batch)
        start, end = lifted.span
        span = end - start
        n = self.n_windows
        shares = [np.array([0.0, 1.0])]
        if n:
            whole = np.arange(n + 1) / n
            shares = [whole, whole[:-1] + 0.5 / n, *shares] if n > 1 else [whole, *shares]
        powers = []
        # Without duration there are no windows, and no spectrum.
        alive = span > 0
        safe = np.where(alive, span, 1.0)
        for cuts in shares:
            power = self._power(lifted, start[:, None] + safe[:, None] * cuts[None, :], threads)
            powers.append(np.where(alive[:, None, None, None], power, 0.0))
        return np.concatenate(powers, axis=1)

    def _power(
        self, batch: SeriesBatch, cuts: npt.NDArray[np.float64], threads: int | None
    ) -> npt.NDArray[np.float64]:
        """|∫ h e^{iωu} d(x - chord)|² over windows between ``cuts (B, W + 1)``: (B, W, C, J)."""
        n, c, j = len(batch), batch.n_channels, self.n_frequencies
        duration = np.diff(cuts, axis=1)
        omega = 2 * np.pi * self.low * np.exp(self.step * np.arange(j))
        # Windows have the duration of their series: series of one duration share a call.
        power = np.empty((n, duration.shape[1], c, j))
        longest = duration.max(initial=0.0) or 1.0
        shares, group = np.unique((duration[:, 0] / longest).round(9), return_inverse=True)
        lasting = shares * longest
        for i, value in enumerate(lasting):
            which = np.flatnonzero(group == i)
            delta = 2 * np.pi / value
            used = np.stack([omega, omega + delta, omega - delta])  # (3, J)
            pieces = pieces_between(batch[which], cuts[which])
            pairs = spectrum_words(pieces, used.ravel(), threads=threads)
            pairs = pairs.reshape(len(which), -1, c, 3, j, 2)
            ends = pieces.values[pieces.offsets[1:] - 1] - pieces.values[pieces.offsets[:-1]]
            rise = ends.reshape(len(which), -1, c).astype(np.float64)
            z = pairs[..., 0] + 1j * pairs[..., 1]
            flat = (np.exp(1j * used * value) - 1) / (1j * used)  # ∫ e^{iωu} du
            z = z - (rise / value)[..., None, None] * flat
            tapered = 0.5 * z[..., 0, :] - 0.25 * (z[..., 1, :] + z[..., 2, :])
            power[which] = tapered.real**2 + tapered.imag**2
        return power


def _log_share(power: Tensor) -> Tensor:
    """Log of the power ``(..., J)`` relative to its mean over the axis; 0 where nothing moves."""
    mean = power.mean(dim=-1, keepdim=True)
    moving = mean > 0
    share = power / torch.where(moving, mean, 1.0)
    return torch.where(moving, (share + number(_FLOOR, share)).log(), 0.0).float()


def with_variation(batch: SeriesBatch) -> SeriesBatch:
    """The series, gaps filled, and the variation ∫ |dx| of each channel as further channels."""
    values = fill_gaps(batch).astype(np.float64)
    values -= np.repeat(values[batch.offsets[:-1]], batch.lengths, axis=0)  # float32 below
    rise = np.abs(np.diff(values, axis=0, prepend=values[:1]))
    rise[batch.offsets[:-1]] = 0.0
    total = np.cumsum(rise, axis=0)
    total -= np.repeat(total[batch.offsets[:-1]], batch.lengths, axis=0)
    return SeriesBatch(
        batch.times,
        np.concatenate([values, total], axis=1).astype(np.float32),
        batch.offsets,
        channels=[*batch.channels, *(f"variation of {c}" for c in batch.channels)],
    )


# The same for padded series, in torch. Words of all windows are sums over half windows; their clock
# starts at the series' first point, which changes the phase of a spectrum and not its power. A Hann
# window that begins at s is h(u) = 1/2 - 1/4 (e^{iδ(u-s)} + e^{-iδ(u-s)}), δ = 2π/T.


def _half_windows(data: Observed, halves: int) -> tuple[Tensor, Tensor, Tensor]:
    """``middle, length (B, N)`` of the pieces between knots, and the increments of channels and of
    their variations in each half window ``(B, halves · 2C, N)``.
    """
    points = linear_points(data)
    shares = torch.arange(halves + 1, dtype=torch.float64, device=data.since.device) / halves
    knots = place_knots(points.times, data.span.unsqueeze(1) * shares)
    x = path_at(points, knots.times)
    step = x[:, 1:] - x[:, :-1]
    both = torch.cat([step, step.abs()], dim=-1)  # on a linear piece the variation is |Δ|
    half = torch.arange(halves, device=x.device)
    mine = (knots.window.unsqueeze(-1) == half).to(both.dtype)  # (B, N, halves)
    parted = mine.unsqueeze(-1) * both.unsqueeze(-2)  # (B, N, halves, 2C)
    batch, n = parted.shape[:2]
    times = knots.times
    return (
        0.5 * (times[:, 1:] + times[:, :-1]),
        times[:, 1:] - times[:, :-1],
        parted.reshape(batch, n, halves * both.shape[-1]).transpose(1, 2),
    )


def _merge(halves: Tensor, n_windows: int) -> Tensor:
    """Sums over half windows ``(B, 2n, ...)`` -> over the n windows and the n - 1 between them."""
    if n_windows == 0:
        return halves
    pairs = halves[:, 1:] + halves[:, :-1]  # (B, 2n - 1, ...)
    return torch.cat([pairs[:, 0::2], pairs[:, 1::2]], dim=1)


def _padded_power(encoder: TempoEncoder, data: Observed) -> Tensor:
    """|∫ h e^{iωu} d(x - chord)|² of all windows: ``(B, K, 2C, J)``."""
    n = encoder.n_windows
    halves = max(2 * n, 1)
    middle, length, parted = _half_windows(data, halves)
    batch, device = middle.shape[0], middle.device
    width = 2 * len(encoder.channels)
    span = torch.where(data.span > 0, data.span, 1.0)
    # Of each window: its duration as a share of the span, its middle, and e^{iδs}, which is ±1.
    spots = [(1 / n, (k + 0.5) / n, 1.0) for k in range(n)]
    spots += [(1 / n, (k + 1) / n, -1.0) for k in range(n - 1)]
    spots += [(1.0, 0.5, 1.0)]
    share, centre, sign = (
        torch.tensor(column, dtype=torch.float64, device=device)
        for column in zip(*spots, strict=True)
    )
    lasting, around = span.unsqueeze(1) * share, span.unsqueeze(1) * centre  # (B, K)
    delta = number(2 * math.pi, span) / lasting

    def words(step: Tensor) -> Tensor:
        """Of half windows ``(B, halves · 2C, J)`` -> of windows and the whole ``(B, K, 2C, J)``."""
        parts = step.reshape(batch, halves, width, step.shape[-1])
        whole = parts.sum(dim=1, keepdim=True)
        return torch.cat([_merge(parts, n), whole], dim=1) if n else whole

    rise = words(parted.sum(dim=-1, keepdim=True))  # (B, K, 2C, 1)
    slope = rise / lasting[:, :, None, None]
    # One window or all: δ is the same for all windows but the last, which is the whole span.
    deltas = [delta[:, -1:]] if n <= 1 else [delta[:, :1], delta[:, -1:]]
    last = torch.arange(len(spots), device=device) == len(spots) - 1

    def transformed(omega: Tensor, shift: float) -> tuple[Tensor, Tensor]:
        """∫ e^{i(ω + shift·δ)u} d(x - chord), real and imaginary part ``(B, K, 2C, J)``."""
        real, imaginary = [], []
        for own in deltas if shift else deltas[:1]:
            used = omega + shift * own.unsqueeze(-1)  # (B, 1, J)
            cosine, sine = waves(middle, length, used)
            real.append(words(parted @ cosine))
            imaginary.append(words(parted @ sine))
        pick = last[None, :, None, None]
        re = real[0] if len(real) == 1 else torch.where(pick, real[1], real[0])
        im = imaginary[0] if len(real) == 1 else torch.where(pick, imaginary[1], imaginary[0])
        every = omega + shift * delta.unsqueeze(-1)  # (B, K, J)
        flat = lasting.unsqueeze(-1) * sinc(every * lasting.unsqueeze(-1) / 2)
        angle = every * around.unsqueeze(-1)
        re = re - slope * (flat * angle.cos()).unsqueeze(2)
        return re, im - slope * (flat * angle.sin()).unsqueeze(2)

    powers = []
    turn = sign[None, :, None, None]
    for i in range(0, encoder.n_frequencies, _FREQUENCIES_AT_ONCE):
        chunk = range(i, min(i + _FREQUENCIES_AT_ONCE, encoder.n_frequencies))
        turns = [2 * math.pi * encoder.low * math.exp(encoder.step * j) for j in chunk]
        omega = torch.tensor(turns, dtype=torch.float64, device=device)
        re, im = transformed(omega, 0.0)
        up, down = transformed(omega, 1.0), transformed(omega, -1.0)
        re = 0.5 * re - 0.25 * turn * (up[0] + down[0])
        im = 0.5 * im - 0.25 * turn * (up[1] + down[1])
        powers.append(re.square() + im.square())
    return torch.cat(powers, dim=-1)
