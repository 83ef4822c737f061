"""Which seasons series have: candidates from the spectrum, chosen by errors of simple forecasts."""

from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.model import Drawn, Forecaster, ForecasterConfig, ScaledSeries, draw_forecasts
from roughformer.series import SeriesBatch

Array = npt.NDArray[Any]

_STARTS = 256  # moments that forecasts start from are compared at
_HARMONICS = 6  # of a season, at most
_SEASONS = 2  # periods, at most
_GAIN = 0.03  # share of the error of a channel that a season must save,
_CHANCE = 1.0  # and one of the spectrum so much more, over the root of the number of observations
_PEAKS = 4  # of the spectrum that are tried
_SERIES, _POINTS = 32, 512  # that the spectrum is of, at most


def drawn_to_start(data: ScaledSeries, horizon: float, rng: np.random.Generator) -> Drawn:
    """Draw forecasts that the start of a network is chosen by."""
    series = np.resize(rng.permutation(len(data.offsets) - 1), _STARTS)
    return draw_forecasts(data, series, horizon, np.zeros(0), rng)


def choose_seasons(
    config: ForecasterConfig,
    scaling: dict[str, Array],
    batch: SeriesBatch,
    static: Array,
    *,
    context: int,
    horizon: float,
    candidates: list[float],
    gap: float,
    guessed: bool,
    seed: int,
) -> tuple[dict[float, int], dict[float, Array]]:
    """Choose the periods whose seasons make simple forecasts of the training series better.

    ``gap`` is the usual one between observations; ``guessed`` candidates must save more than known
    ones.

    Returns
    -------
    dict
        Number of harmonics of each period.
    dict
        For each of them which channels have the season ``(C,)``, 1 or 0.
    """
    small = config.model_copy(update={"d_model": 4, "n_layers": 0})
    known = np.isin(np.arange(config.n_channels), config.known)
    drawn: Drawn | None = None

    def errors(periods: list[float]) -> Array:
        nonlocal drawn
        counts = tuple(_n_harmonics(p, gap) for p in periods)
        network = Forecaster(
            small.model_copy(update={"n_periods": len(periods), "harmonics": counts})
        )
        ones = np.ones((config.n_channels, len(periods)))
        network.fit_scaling(**scaling, periods=np.array(periods), seasonal=ones)
        if drawn is None:
            data = network.scaled(batch, static, context)
            drawn = drawn_to_start(data, horizon, np.random.default_rng(seed))
        return np.where(known, np.nan, network.start(drawn))

    chosen: list[float] = []
    seasonal: dict[float, Array] = {}
    before = errors([]) if candidates else np.zeros(0)
    told = before > 0  # neither NaN nor without error
    if not told.any():
        return {}, {}
    n = np.clip((~np.isnan(batch.values)).sum(axis=0), 1, _STARTS)
    while len(chosen) < _SEASONS:
        tried = {p: errors([*chosen, p]) for p in candidates if p not in chosen}
        saved = {
            p: np.where(told, 1 - after / np.where(told, before, 1), 0)
            for p, after in tried.items()
        }
        has = {
            p: share > _GAIN + guessed * (_CHANCE / np.sqrt(n) + 2 * _n_harmonics(p, gap) / n)
            for p, share in saved.items()
        }
        best = max(tried, key=lambda p: saved[p][has[p]].sum(), default=None)
        if best is None or not has[best].any():
            break
        chosen.append(best)
        seasonal[best] = has[best].astype(np.float64)
        before = np.where(has[best], tried[best], before)
    return {p: _n_harmonics(p, gap) for p in chosen}, seasonal


def _n_harmonics(period: float, gap: float) -> int:
    return int(np.clip(period / gap / 2 + 1e-3, 1, _HARMONICS))


def spectral_periods(batch: SeriesBatch, gap: float) -> list[float]:
    """Periods that may be those of seasons: peaks of the mean spectrum of the series, these in
    whole gaps, and twice and three times as much, as harmonics may be stronger than the season.
    """
    longest = max(np.ptp(batch.series(b)[0]) for b in range(min(len(batch), _SERIES)))
    span = min(float(longest), _POINTS * gap)
    frequency = np.arange(2 / span, 0.5 / gap, 0.25 / span) if span > 4 * gap else np.zeros(0)
    power = np.zeros(len(frequency))
    for b in range(min(len(batch), _SERIES)):
        times, values = batch.series(b)
        for column in values.T:
            seen = np.flatnonzero(~np.isnan(column))[-_POINTS:]
            if len(seen) < 8 or not len(frequency):
                continue
            t, x = times[seen] - times[seen[-1]], column[seen]
            x = x - np.polyval(np.polyfit(t, x, 1), t)
            if x.std() > 0:
                waves = np.exp(2j * np.pi * np.outer(frequency, t))
                power += np.abs(waves @ (x / x.std())) ** 2 / len(x)
    inner = np.flatnonzero((power[1:-1] >= power[:-2]) & (power[1:-1] > power[2:])) + 1
    peaks = 1 / frequency[inner[np.argsort(-power[inner])[:_PEAKS]]]
    periods = {float(n * p) for p in peaks for n in (1, 2, 3)}
    periods |= {float(round(p / gap) * gap) for p in periods}
    return sorted(p for p in periods if 3 * gap <= p <= (span + gap) / 3)
