"""Made-up ECG and PPG of a heart whose rate is known at every moment."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch

Floats = npt.NDArray[np.float64]
CHANNELS = ("PPG", "ECG")
_RATE = 125.0  # samples per second
# Waves of a beat in the ECG: height, seconds after the R peak and width, at one beat a second.
_ECG_WAVES = {
    "P": (0.14, -0.17, 0.024),
    "Q": (-0.12, -0.030, 0.010),
    "R": (1.0, 0.0, 0.012),
    "S": (-0.22, 0.030, 0.011),
    "T": (0.28, 0.26, 0.045),
}
# Of the PPG, in shares of a beat: the pulse that arrives, and its echo.
_PPG_WAVES = ((1.0, 0.20, 0.085), (0.42, 0.47, 0.12))
_PPG_DELAY = 0.18  # seconds from the R peak to the finger


@dataclass(frozen=True)
class Disturbance:
    """What happens to one channel from ``start`` to ``end``: "motion" (noise as large as the
    signal, slow and fast) or "off" (nothing is observed).
    """

    channel: str
    start: float
    end: float
    kind: str = "motion"


def pulse_signal(
    times: npt.ArrayLike,
    rate: npt.ArrayLike,
    seed: int,
    disturbances: tuple[Disturbance, ...] = (),
) -> npt.NDArray[np.float32]:
    """``(L, 2)``: PPG and ECG at ``times (L,)`` seconds of a heart with ``rate (L,)`` beats a
    minute at these times.

    The phase is φ(t) = φ_0 + ∫ rate / 60 dt, in beats. A wave of a beat that comes δ(T) seconds
    after the R peak and is w seconds wide adds a exp(-(d T)² / 2w²), where T = 60 / rate and d is
    φ - δ / T less the nearest whole number. Waves of the ECG keep to √T, as the QT time does; those
    of the PPG fill the beat. The seed draws the person (heights, widths, breathing) and the noise.
    """
    t, bpm = np.asarray(times, dtype=np.float64), np.asarray(rate, dtype=np.float64)
    if t.ndim != 1 or t.shape != bpm.shape:
        raise InputError(f"times and rate must have one shape (L,), got {t.shape} and {bpm.shape}")
    if not (np.isfinite(bpm).all() and (bpm > 0).all()):
        raise InputError("rate must be positive and finite beats per minute")
    rng = np.random.default_rng(seed)
    step = np.diff(t, prepend=t[:1])
    phase = rng.random() + np.cumsum(bpm / 60 * step)
    period = 60 / bpm
    breath = 2 * np.pi * (rng.uniform(0.18, 0.35) * t + rng.random())
    ecg = np.zeros(len(t))
    for height, after, width in _ECG_WAVES.values():
        stretch = np.sqrt(period)
        size = height * rng.uniform(0.6, 1.4)
        wide = width * rng.uniform(0.85, 1.2)
        late = after * rng.uniform(0.9, 1.1) * stretch / period
        ecg += _bumps(phase - late, wide * (stretch if wide > 0.02 else 1.0) / period, size)
    ppg = np.zeros(len(t))
    delay = _PPG_DELAY * rng.uniform(0.8, 1.3) / period
    for height, after, width in _PPG_WAVES:
        size, wide = height * rng.uniform(0.7, 1.3), width * rng.uniform(0.9, 1.15)
        ppg += _bumps(phase - delay - after, np.full(len(t), wide), size)
    ppg *= 1 + rng.uniform(0.02, 0.15) * np.sin(breath)
    ppg += rng.uniform(0.0, 0.25) * np.sin(breath + 1.0)
    ecg += rng.uniform(0.0, 0.15) * np.sin(breath - 0.5)
    values = np.stack([ppg, ecg], axis=1)
    values += rng.uniform(0.01, 0.06, 2) * rng.standard_normal(values.shape)
    for event in disturbances:
        _disturb(values, t, event, rng)
    return values.astype(np.float32)


def _bumps(phase: Floats, width: Floats, height: float) -> Floats:
    """A bell at every whole number of ``phase (L,)``, ``width (L,)`` wide in units of it."""
    distance = phase - np.rint(phase)
    bells: Floats = height * np.exp(-0.5 * (distance / width) ** 2)
    return bells


def _disturb(values: Floats, t: Floats, event: Disturbance, rng: np.random.Generator) -> None:
    if event.channel not in CHANNELS or event.kind not in ("motion", "off"):
        raise InputError(
            f"a disturbance is 'motion' or 'off' of {' or '.join(CHANNELS)}, got {event}"
        )
    c = CHANNELS.index(event.channel)
    inside = (t >= event.start) & (t < event.end)
    if event.kind == "off":
        values[inside, c] = np.nan
        return
    n = int(inside.sum())
    if n == 0:
        return
    # A few slow swings at odd frequencies, and fast noise; it begins and ends softly.
    since = t[inside] - t[inside][0]
    turns, angles = rng.uniform(0.3, 7.0, 6), rng.uniform(0, 2 * np.pi, 6)
    swings = np.sin(2 * np.pi * turns * since[:, None] + angles) @ rng.normal(0.0, 0.6, 6)
    edge = np.minimum(np.arange(n), np.arange(n)[::-1])
    soft = np.minimum(edge / (0.5 * _RATE), 1.0)
    values[inside, c] += soft * (swings + 0.25 * rng.standard_normal(n))


def make_pulse(
    n_samples: int = 400,
    seconds: float = 32.0,
    seed: int = 0,
    *,
    low: float = 40.0,
    high: float = 180.0,
    shortest: float | None = None,
    disturbed: float = 0.5,
) -> SeriesBatch:
    """Recordings of PPG and ECG (float32, NaN where off) at 125 samples a second, each of a person
    of its own; see ``pulse_signal``. Labels are the mean rates, in beats a minute.

    The rate starts anywhere between ``low`` and ``high`` (even on a logarithmic scale), drifts,
    breathes and sometimes jumps. A third of the series are cut to between ``shortest`` and
    ``seconds``; in a share ``disturbed`` a channel moves, or is off, for a part of the time.
    """
    if n_samples < 1:
        raise InputError(f"n_samples must be at least 1, got {n_samples}")
    least = seconds if shortest is None else shortest
    if not 1 <= least <= seconds < np.inf:
        raise InputError(
            f"1 <= shortest <= seconds must hold, got {shortest} and {seconds} seconds"
        )
    if not 0 < low <= high < np.inf:
        raise InputError(f"0 < low <= high must hold, got {low} and {high}")
    if not 0 <= disturbed <= 1:
        raise InputError(f"disturbed must be a share from 0 to 1, got {disturbed}")
    series, stamps, labels = [], [], []
    for number in range(n_samples):
        rng = np.random.default_rng([seed, number])
        cut = rng.random() < 1 / 3
        # Whole seconds: few durations make spectra of windows cheap.
        lasting = float(np.floor(rng.uniform(least, seconds + 1))) if cut else seconds
        lasting = float(np.clip(lasting, least, seconds))
        t = np.arange(round(lasting * _RATE) + 1) / _RATE
        rate = _wandering(t, np.exp(rng.uniform(np.log(low), np.log(high))), rng)
        events: tuple[Disturbance, ...] = ()
        if rng.random() < disturbed:
            start = rng.uniform(0.0, 0.7) * lasting
            end = start + rng.uniform(0.2, 0.8) * lasting
            kind = "motion" if rng.random() < 0.7 else "off"
            events = (Disturbance(CHANNELS[int(rng.integers(2))], start, end, kind),)
        series.append(pulse_signal(t, rate, int(rng.integers(2**62)), events))
        stamps.append(t)
        labels.append(float(rate.mean()))
    return SeriesBatch.from_arrays(series, stamps, channels=list(CHANNELS), labels=np.array(labels))


def _wandering(t: Floats, start: float, rng: np.random.Generator) -> Floats:
    """Rates ``(L,)`` around ``start``: a drift, breathing, and for one in five a jump."""
    share = t / max(float(t[-1]), 1.0)
    log = rng.normal(0.0, 0.06) * (share - 0.5)
    log = log + rng.uniform(0.0, 0.03) * np.sin(2 * np.pi * (rng.uniform(0.15, 0.4) * t))
    if rng.random() < 0.2:
        log = log + rng.normal(0.0, 0.15) * (share > rng.random())
    rates: Floats = start * np.exp(log)
    return rates
