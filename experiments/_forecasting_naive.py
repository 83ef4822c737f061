"""Forecasts and fillings that need no sequence model, to hold a forecaster against."""

import warnings

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import roughformer as rf


class Observed:
    """Observations of each channel of each series before a time: last, mean, extremes, ..."""

    def __init__(self, batch: rf.SeriesBatch, end: float) -> None:
        shape = (len(batch), batch.n_channels)
        names = ("last", "mean", "low", "high", "age", "before", "age_before")
        self.found = {name: np.full(shape, np.nan) for name in names}
        self.count = np.zeros(shape)
        for b in range(len(batch)):
            t, x = batch.series(b)
            x, t = x[t < end], t[t < end]
            seen = ~np.isnan(x)
            for c in np.flatnonzero(seen.any(axis=0)):
                v, s = x[seen[:, c], c].astype(float), t[seen[:, c]]
                each = (v[-1], v.mean(), v.min(), v.max(), end - s[-1])
                each += (v[-2], end - s[-2]) if len(v) > 1 else (np.nan, np.nan)
                for name, value in zip(names, each, strict=True):
                    self.found[name][b, c] = value
                self.count[b, c] = len(v)


def by_boosting(
    observed: Observed,
    static: np.ndarray,
    queries: tuple[np.ndarray, np.ndarray, np.ndarray],
    target: np.ndarray,
    train: np.ndarray,
) -> np.ndarray:
    """Gradient boosting for each channel, on what is known of it, the last and mean values of the
    others, the static covariates and the time; ``queries``: series, channel, time; ``train``: mask.
    """
    series, channel, time = queries
    answer = np.zeros(len(target))
    found = observed.found
    for c in np.unique(channel):
        i = np.flatnonzero(channel == c)
        own = [found[name][series[i], c] for name in ("low", "high", "age")]
        x = np.column_stack(
            [found["last"][series[i]], found["mean"][series[i]], *own, observed.count[series[i], c],
             static[series[i]], time[i]]
        )  # fmt: skip
        fit = train[i]
        x[:, np.isnan(x[fit]).all(axis=0)] = 0.0  # scikit-learn does not take such a column
        y = target[i]
        if np.ptp(y[fit]) == 0:
            answer[i] = y[fit][0]
        else:
            model = HistGradientBoostingRegressor(random_state=0).fit(x[fit], y[fit])
            answer[i] = model.predict(x)
    return answer


def on_hours(batch: rf.SeriesBatch, n: int) -> np.ndarray:
    """Values at the hours 0 ... n-1, linear between observations ``(B, n, C)``."""
    grid = np.arange(n, dtype=float)
    found = np.zeros((len(batch), n, batch.n_channels))
    for b in range(len(batch)):
        t, x = batch.series(b)
        for c in range(batch.n_channels):
            seen = ~np.isnan(x[:, c])
            found[b, :, c] = np.interp(grid, t[seen], x[seen, c]) if seen.any() else np.nan
    return found


def lag_features(past: np.ndarray, channel: int, ahead: np.ndarray) -> np.ndarray:
    """Rows for each series and horizon: a day of lags, the same hour of the days before, the last
    values of all channels, the horizon; ``past (B, n, C)``.
    """
    n = past.shape[1]
    own = past[:, :, channel]
    day = own[:, n - 24 :]
    last = past[:, -1]
    rows = []
    for h in ahead:
        same = np.column_stack([own[:, n - 1 + int(h) - 24 * k] for k in range(1, 4)])
        mean = np.column_stack([day.mean(axis=1), own.mean(axis=1)])
        hour = np.full((len(past), 1), (n - 1 + h) % 24)
        rows.append(np.hstack([day, same, mean, last, hour, np.full((len(past), 1), h)]))
    return np.stack(rows, axis=1)


def by_line(times: np.ndarray, values: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Linear interpolation, constant outside."""
    return np.interp(asked, times, values)


def by_gaussian_process(times: np.ndarray, values: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """A Gaussian process with a squared-exponential kernel and noise, fitted to this channel."""
    centre, spread = values.mean(), values.std() or 1.0
    kernel = ConstantKernel(1.0, (0.05, 20)) * RBF(5.0, (0.3, 100)) + WhiteKernel(0.1, (1e-4, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = GaussianProcessRegressor(kernel, random_state=0)
        model.fit(times[:, None], (values - centre) / spread)
        return centre + spread * model.predict(asked[:, None])
