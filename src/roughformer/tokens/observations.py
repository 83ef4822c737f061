"""Words of each channel on the clock of its own observations, for series that are mostly missing.

A channel c of a series is observed at t_1 < ... < t_n in an interval, with values x_1 ... x_n. Its
path is (N, x): N counts the observations, x jumps to x_i at the i-th. Words of that path, of its
running extremes and of time,

    log(1 + n),   mean = (x, N) / (N),   min x_i,   max x_i,   first x_1,   last x_n,
    sd of x_i,   slope of x_i over t_i,   rise x_n - x_1,   since = time from t_n to the end,

and some of them over the last windows up to now (recent) and the last half of those (latest),
say what was seen, and how often, without inventing values between observations. What nothing tells
is NaN. Each can be updated by one observation at a time.
"""

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from roughformer.lifts import View
from roughformer.path import locate
from roughformer.series import SeriesBatch
from roughformer.windows import Cuts

__all__ = ["WORDS", "ValueRange", "observation_words"]

WORDS: dict[View, tuple[str, ...]] = {
    "global": (
        "log n", "mean", "min", "max", "first", "last", "sd", "slope", "rise", "since",
        "recent log n", "recent mean", "recent min", "recent max", "latest mean",
    ),
    "local": ("log n", "mean", "min", "max"),
}  # fmt: skip
_SERIES_AT_ONCE = 2048

Floats = npt.NDArray[np.float64]


class ValueRange(BaseModel):
    """x -> (clip(x, low, high) - mean) / scale, for each channel.

    The range is from the 0.1 % to the 99.9 % quantile of the training part: beyond it are mostly
    errors of recording.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: tuple[float, ...]
    high: tuple[float, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]

    @classmethod
    def fit(cls, batch: SeriesBatch) -> Self:
        """Quantiles, mean and standard deviation of each channel; 0 and 1 without observations."""
        rows = [_range_of(batch.values[:, c]) for c in range(batch.n_channels)]
        low, high, mean, scale = zip(*rows, strict=True)
        return cls(low=low, high=high, mean=mean, scale=scale)

    def __call__(self, x: Floats, channel: npt.NDArray[np.int64]) -> Floats:
        """Values ``(M,)`` of the given channels ``(M,)``, scaled."""
        low, high, mean, scale = (
            np.array(part)[channel] for part in (self.low, self.high, self.mean, self.scale)
        )
        return np.asarray((x.clip(low, high) - mean) / scale)


def _range_of(column: npt.NDArray[Any]) -> tuple[float, float, float, float]:
    seen = column[~np.isnan(column)].astype(np.float64)
    if len(seen) == 0:
        return 0.0, 0.0, 0.0, 1.0
    low, high = np.quantile(seen, [0.001, 0.999])
    inside = seen.clip(low, high)
    return float(low), float(high), float(inside.mean()), float(inside.std()) or 1.0


def observation_words(
    batch: SeriesBatch,
    cuts: Cuts,
    views: tuple[View, ...],
    values: ValueRange,
    recent: int,
    unit: float,
) -> npt.NDArray[np.float32]:
    """``(B, L, Σ_views C · words)``: for each view, channel by channel, its ``WORDS``.

    local: observations in (t_{k-1}, t_k], the first window closed; global: in [t_0, t_k].
    ``recent``: so many windows back count as recent, half of them as latest. ``unit`` of time of
    slopes and of time since the last observation.
    """
    size = sum(len(WORDS[view]) for view in views) * batch.n_channels
    out = np.empty((len(batch), cuts.most, size), dtype=np.float32)
    if cuts.most == 0:
        return out
    for i in range(0, len(batch), _SERIES_AT_ONCE):
        part = np.arange(i, min(i + _SERIES_AT_ONCE, len(batch)))
        found = _words(batch[part], cuts, part, values, recent, unit)
        out[part] = np.concatenate(
            [
                np.stack([found[view][word] for word in WORDS[view]], axis=-1)
                .transpose(0, 2, 1, 3)
                .reshape(len(part), cuts.most, -1)
                for view in views
            ],
            axis=-1,
        )
    if not cuts.equal:
        out[np.arange(cuts.most)[None, :] >= cuts.n_windows[:, None]] = 0.0
    return out


def _words(
    batch: SeriesBatch,
    cuts: Cuts,
    numbers: npt.NDArray[np.int64],
    values: ValueRange,
    half: int,
    unit: float,
) -> dict[str, dict[str, Floats]]:
    """Words ``(B, C, L)`` of each view."""
    n, c, length = len(batch), batch.n_channels, cuts.most
    row, channel = np.nonzero(~np.isnan(batch.values))
    series = np.repeat(np.arange(n), batch.lengths)[row]
    when = batch.times[row] - cuts.origin[numbers][series]
    window, inside = _window_of(cuts, numbers, series, when)
    series, channel, window = series[inside], channel[inside], window[inside]
    z = values(batch.values[row[inside], channel].astype(np.float64), channel)
    edges = cuts.since(cuts.origin)[numbers]  # (B, L + 1)
    when = when[inside] - edges[series, 0]
    key = (series * c + channel) * length + window
    order = np.argsort(key, kind="stable")  # stable: observations stay in the order of time
    key, z, when = key[order], z[order], when[order]
    start = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
    end = np.append(start[1:], len(key)) if len(start) else start

    def grid(entries: Any, empty: float) -> Floats:
        filled = np.full(n * c * length, empty)
        if len(start):
            filled[key[start]] = entries
        return filled.reshape(n, c, length)

    def reduced(how: np.ufunc, what: Floats) -> Any:
        return how.reduceat(what, start) if len(start) else what

    def added(what: Floats) -> Floats:
        return grid(reduced(np.add, what), 0.0)

    count, total = grid(end - start, 0.0), added(z)
    low = grid(reduced(np.minimum, z), np.inf)
    high = grid(reduced(np.maximum, z), -np.inf)
    first, last, latest = grid(z[start], 0.0), grid(z[end - 1], 0.0), grid(when[end - 1], 0.0)
    seen = count > 0
    n_all, x_all, xx_all, t_all, tt_all, tx_all = (
        part.cumsum(axis=-1)
        for part in (count, total, added(z * z), added(when), added(when**2), added(when * z))
    )
    ever, some = n_all > 0, np.maximum(n_all, 1)
    newest = np.maximum.accumulate(np.where(seen, np.arange(length), 0), axis=-1)
    oldest = np.broadcast_to(np.argmax(seen, axis=-1)[..., None], seen.shape)
    begin, final = (
        np.take_along_axis(what, at, axis=-1) for what, at in ((first, oldest), (last, newest))
    )
    variance = np.maximum(xx_all / some - (x_all / some) ** 2, 0.0)
    time_variance = tt_all / some - (t_all / some) ** 2
    covariance = tx_all / some - (t_all / some) * (x_all / some)
    # A slope over less than a hundredth of the unit says nothing but noise.
    apart = time_variance > (0.01 * unit) ** 2
    ends = (edges[:, 1:] - edges[:, :1])[:, None, :]

    quarter = max(half // 2, 1)
    recent, latest_n = _trailing(count, half, np.add), _trailing(count, quarter, np.add)

    def known(what: Floats, where: npt.NDArray[np.bool_]) -> Floats:
        return np.where(where, what, np.nan)

    local = {
        "log n": np.log1p(count),
        "mean": known(total / np.maximum(count, 1), seen),
        "min": known(low, seen),
        "max": known(high, seen),
    }
    whole = {
        "log n": np.log1p(n_all),
        "mean": known(x_all / some, ever),
        "min": known(np.minimum.accumulate(low, axis=-1), ever),
        "max": known(np.maximum.accumulate(high, axis=-1), ever),
        "first": known(begin, ever),
        "last": known(final, ever),
        "sd": known(np.sqrt(variance), n_all > 1),
        "slope": known(covariance / np.where(apart, time_variance, 1.0) * unit, apart),
        "rise": known(final - begin, n_all > 1),
        "recent log n": np.log1p(recent),
        "recent mean": known(_trailing(total, half, np.add) / np.maximum(recent, 1), recent > 0),
        "recent min": known(_trailing(low, half, np.minimum), recent > 0),
        "recent max": known(_trailing(high, half, np.maximum), recent > 0),
        "latest mean": known(
            _trailing(total, quarter, np.add) / np.maximum(latest_n, 1), latest_n > 0
        ),
        "since": known((ends - np.take_along_axis(latest, newest, axis=-1)) / unit, ever),
    }
    return {"local": local, "global": whole}


def _trailing(what: Floats, size: int, how: np.ufunc) -> Floats:
    """``how`` over the last ``size`` windows up to each, fewer at the beginning; ``(B, C, L)``."""
    found = what.copy()
    for back in range(1, min(size, what.shape[-1])):
        found[..., back:] = how(found[..., back:], what[..., :-back])
    return found


def _window_of(
    cuts: Cuts, numbers: npt.NDArray[np.int64], series: npt.NDArray[np.int64], when: Floats
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The window of each observation, and whether it lies in any."""
    begin, sizes = cuts.starts[numbers][series], cuts.n_windows[numbers][series] + 1
    first = cuts.times[begin]
    at = locate(cuts.times, begin, sizes, when - first)
    on_cut = (cuts.times[begin + at] == when) & (at > 0)
    inside = (when >= first) & (when <= cuts.times[begin + sizes - 1])
    return np.minimum(at - on_cut, sizes - 2), inside
