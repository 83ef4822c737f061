"""RFormerForecaster: values of any channel at any time, with intervals."""

import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from roughformer.errors import InputError
from roughformer.estimators.inputs import SeriesEstimator, aligned, as_series, series_to_fit
from roughformer.estimators.parameters import documented, to_plain, with_saved_parameters
from roughformer.inference import Answers, Backtest, ForecastPredictor
from roughformer.model import (
    Drawn,
    Forecaster,
    ForecasterConfig,
    ScaledSeries,
    draw_forecasts,
    draw_interpolations,
)
from roughformer.series import SeriesBatch, to_seconds
from roughformer.tokens import check_series
from roughformer.train import (
    check_device,
    choose_seasons,
    drawn_to_start,
    spectral_periods,
    train_forecaster,
)
from roughformer.util.checks import real_number, using_threads

__all__ = ["RFormerForecaster"]

Array = npt.NDArray[Any]

_FEW = 10  # of fewer series the ends are held out,
_ENDS = 3  # if one of them has this many points
_FAR = 100  # the default horizon is at most this many usual gaps between observations
_TAIL = 0.005  # share of a channel's values on each side that its scale does not look at
_ASKED = 256  # moments of the ends of few series that training is ended by
_FEWEST = 3  # usual gaps in a season
_TO_TELL, _DIFFERENT = 8, 20.0  # values that tell the size of a series; ratio of sizes
_CYCLES = 1.5  # of a season in a usual series
_DAY, _WEEK, _YEAR = 86400.0, 604800.0, 365.2425 * 86400.0
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": _DAY}


@documented
class RFormerForecaster(SeriesEstimator):
    """Forecast and interpolate irregular, ragged, incomplete multichannel series.

    ``fit`` learns from the series alone: it draws moments in them and asks for what was observed
    after (forecasts) or at them (interpolation). ``predict`` answers for any channel at any time:
    after the end of a series from its past, within it from both sides. Nothing is resampled.

    Parameters
    ----------
    horizon : float, timedelta or str, optional
        How far ahead forecasts are learned, in the unit of the times. For dates: seconds, a
        duration, or text such as "90min", "12h" or "2d". Not given: half of the median duration of
        the training series, but at most 100 usual gaps between observations. Beyond it, forecasts
        stay as they are at the horizon, but for seasons, and a warning says so.
    periods : "auto" or sequence of float, default "auto"
        Periods of seasons, in the unit of the times. "auto": for dates a day, a week and a year;
        for numbers peaks of the spectrum; a year and these only if they make simple forecasts of
        the training series better.
    known_future : sequence of str or int, default ()
        Names or numbers of channels whose future is known when forecasts are asked for, such as a
        weather forecast or a plan. Their future values are points of the series after its end, with
        NaN in all other channels: forecasts begin after the last point where another channel was
        observed. Where they are not given, forecasts do without.
    interpolation : bool, default True
        Also learn to answer within series. False trains faster, and for forecasts only.
    context : int, default 512
        Number of points before (and after) a moment that are looked at, besides the 16 nearest
        observations of each channel.
    steps : int, default 3000
        Steps of training. Of fewer than ten series, at most: training ends when their held-out
        ends have not been forecast better for long, and the best weights are kept.
    batch_size : int, default 64
        Series in a step.
    learning_rate : float, default 2e-3
        Highest rate of the schedule.
    weight_decay : float, default 0.05
        Of AdamW.
    d_model : int, default 64
        Width of tokens.
    n_layers : int, default 2
        Attention blocks across channels.
    dropout : float, default 0.1
        Share of activations dropped in training.
    n_estimators : int, default 1
        Number of networks, trained from different seeds, whose answers are averaged.
    validation : float, default 0.2
        Share of the series that is held out to calibrate intervals; of fewer than ten series,
        share of the time of each, at its end (if three points are in it, and no ``groups`` are
        given), which ends training, too.
        0: intervals are the network's own.
    random_state : int, RandomState or None, default None
        Seed of the split, the weights and the moments.
    device : {"auto", "cpu", "cuda", "mps"}, default "auto"
        Where to train.
    n_jobs : int, optional
        Number of threads of torch; -1: all processors.
    verbose : int, default 0
        1: print the loss every 100 steps.

    Attributes
    ----------
    channels_ : tuple of str
        Names of the channels.
    horizon_ : float
        Horizon that forecasts were learned for.
    history_ : list of dict
        Loss every 100 steps.
    n_features_in_ : int
        Number of channels.
    predictor_ : ForecastPredictor
        The networks with their calibration.

    Notes
    -----
    The point that ``predict`` gives lies halfway between the predicted mean and the predicted
    median, which is close to the best by squared and by absolute error alike.

    Intervals are calibrated by split conformal prediction, by ranges of the horizon: at 90 % asked,
    90 % of the values of new series like the training series are covered, over all channels. Values
    of one series (or group) count as fewer the more alike their errors are, so that intervals
    calibrated on few series are wider. Fewer than nine held-out series do not promise 90 %, which
    ``predict_interval`` says. Of fewer than ten training series the ends calibrate, so intervals
    are for how these series go on, and may be too narrow for other ones.

    Examples
    --------
    >>> import numpy as np
    >>> import roughformer as rf
    >>> rng = np.random.default_rng(0)
    >>> times = [np.sort(rng.uniform(0, 20, 30)) for _ in range(64)]
    >>> X = [np.sin(t + rng.uniform(0, 6))[:, None] for t in times]
    >>> model = rf.RFormerForecaster(steps=20, random_state=0).fit(X, times)
    >>> model.predict(X[:2], times[:2], at=[21.0, 22.5]).shape
    (2, 2, 1)
    """

    predictor_: ForecastPredictor
    history_: list[dict[str, Any]]

    def __init__(
        self,
        *,
        horizon: float | timedelta | np.timedelta64 | str | None = None,
        periods: Literal["auto"] | Sequence[float] = "auto",
        known_future: Sequence[str | int] = (),
        interpolation: bool = True,
        context: int = 512,
        steps: int = 3000,
        batch_size: int = 64,
        learning_rate: float = 2e-3,
        weight_decay: float = 0.05,
        d_model: int = 64,
        n_layers: int = 2,
        dropout: float = 0.1,
        n_estimators: int = 1,
        validation: float = 0.2,
        random_state: Any = None,
        device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        """Keep the parameters as given, as scikit-learn wants it; see the class."""
        self._keep(locals())

    # Fitting

    def fit(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        static: Any = None, layout: str | None = None, columns: Mapping[str, Any] | None = None,
        groups: Any = None, validation_data: SeriesBatch | None = None,
    ) -> Self:  # fmt: skip
        """Learn from series.

        Parameters
        ----------
        {timed}
        static : array-like (B, S), optional
            Covariates that do not change with time, NaN = unknown; not given: those of the series.
        {fit_layout}
        groups : array-like (B,), optional
            Series of one group are held out together. Give one where series are alike, such as
            several of one patient, or of one week at many stations: intervals calibrated on series
            that the network has nearly seen are too narrow for new ones.
        validation_data : SeriesBatch, optional
            Series to calibrate intervals on, instead of a share of the training series.

        Returns
        -------
        self
        """
        self._check_parameters()
        batch, about = series_to_fit(X, None, times, lengths, layout, columns, one_series=True)
        covariates = _static_of(batch, static)
        if len(batch) == 0:
            raise InputError("there is nothing to learn from: no series were given")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        groups = aligned(groups, batch, "groups")
        with using_threads(self.n_jobs):
            if validation_data is not None:
                check_series(validation_data, batch.channels, ())
                predictor = self._train(batch, covariates, seed)
                predictor.calibrate(validation_data, _static_of(validation_data, None), seed)
            elif (cut := self._cut(batch, groups)) is not None:
                since, before = cut
                predictor = self._train(before, covariates, seed, (batch, since))
                predictor.calibrate(batch, covariates, seed, since=since)
            else:
                n_held = int(self.validation * len(batch))
                held, used = _held_out(n_held, len(batch), groups, seed)
                predictor = self._train(batch[used], covariates[used], seed)
                of_held = None if groups is None else np.asarray(groups)[held]
                predictor.calibrate(batch[held], covariates[held], seed, of_held)
        if predictor.calibration["forecast"].n_held == 0 and self.validation:
            warnings.warn(
                "too few values are held out to calibrate intervals, which are the network's own; "
                "give more series, or validation_data",
                UserWarning,
                stacklevel=2,
            )
        predictor.metadata["data"] = about
        self._adopt(predictor)
        return self

    def calibrate(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        static: Any = None, layout: str | None = None, columns: Mapping[str, Any] | None = None,
        groups: Any = None,
    ) -> Self:  # fmt: skip
        """Calibrate intervals on other series than those held out by ``fit``.

        For instance on recent ones, if the series have changed since the model was fitted. They
        must not be among the training series.

        Parameters
        ----------
        {timed}
        {static}
        {layout}
        groups : array-like (B,), optional
            Which series are alike, as in ``fit``.

        Returns
        -------
        self
        """
        batch, covariates = self._series(X, times, lengths, static, layout, columns)
        groups = aligned(groups, batch, "groups")
        predictor = self.predictor_
        before = dict(predictor.calibration), dict(predictor.metadata)
        with using_threads(self.n_jobs):
            self.predictor_.calibrate(batch, covariates, seed=0, groups=groups)
        if self.predictor_.calibration["forecast"].n_held == 0:
            predictor.calibration, predictor.metadata = before
            raise InputError(
                "the series hold too few values to calibrate intervals on; give more series"
            )
        return self

    def _cut(self, batch: SeriesBatch, groups: Any) -> tuple[Array, SeriesBatch] | None:
        """Return the times ``(B,)`` at which the held-out ends of few series begin, and the series
        up to there. None if there are enough series to hold out whole ones, if the ends are too
        short, or if a channel is observed nowhere else.
        """
        if groups is not None or len(batch) >= _FEW:
            return None
        known = _numbers_of(self.known_future, batch.channels)
        others = ~np.isnan(np.delete(batch.values, known, axis=1)).all(axis=1)
        of_point = np.repeat(np.arange(len(batch)), batch.lengths)
        end = np.full(len(batch), -np.inf)
        np.maximum.at(end, of_point[others], batch.times[others])
        start = batch.span[0]
        end = np.maximum(end, start)
        since = end - self.validation * (end - start)
        later = others & (batch.times > since[of_point])
        if np.bincount(of_point[later], minlength=len(batch)).max() < _ENDS:
            return None
        before = _until(batch, since)
        seen, seen_before = (~np.isnan(x.values).all(axis=0) for x in (batch, before))
        return None if (seen & ~seen_before).any() else (since, before)

    def _check_parameters(self) -> None:
        for name, least in (("context", 2), ("steps", 1), ("batch_size", 1), ("n_estimators", 1)):
            value = getattr(self, name)
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if not whole or value < least:
                raise InputError(f"{name} must be a whole number from {least} on, got {value!r}")
        for name in ("learning_rate", "weight_decay"):
            value = real_number(getattr(self, name), name, "a number from 0 on")
            if value < 0:
                raise InputError(f"{name} must be a number from 0 on, got {value!r}")
        if not 0 <= real_number(self.validation, "validation", "a number in [0, 1)") < 1:
            raise InputError(f"validation must be in [0, 1), got {self.validation!r}")
        if isinstance(self.periods, str) or np.ndim(self.periods) != 1:
            if not isinstance(self.periods, str) or self.periods != "auto":
                raise InputError(
                    f"periods must be 'auto' or a list of numbers, got {self.periods!r}"
                )
        elif not all(0 < p < np.inf for p in self.periods):
            raise InputError(f"periods must be positive numbers, got {self.periods!r}")
        check_device(self.device)

    def _train(
        self, batch: SeriesBatch, static: Array, seed: int,
        ends: tuple[SeriesBatch, Array] | None = None,
    ) -> ForecastPredictor:  # fmt: skip
        """Networks that know the data's scales, trained from different seeds.

        Of few series, which can be learned by heart, from the simple forecast that is best, and as
        long as their ``ends`` are forecast better: the whole series, and the times ``(B,)`` after
        which they are held out.
        """
        span = batch.times[batch.offsets[1:] - 1] - batch.times[batch.offsets[:-1]]
        if not (span > 0).any():
            raise InputError(
                "no series has two points, so there is nothing to forecast from; give longer series"
            )
        usual = float(np.median(span[span > 0]))
        dated = batch.time_origin is not None
        horizon = min(0.5 * usual, _FAR * _usual_gap(batch))
        if self.horizon is not None:
            horizon = duration_of(self.horizon, "horizon", dated=dated)
        config = ForecasterConfig(
            n_channels=batch.n_channels,
            n_static=static.shape[1],
            known=tuple(_numbers_of(self.known_future, batch.channels).tolist()),
            d_model=self.d_model,
            n_layers=self.n_layers,
            dropout=self.dropout,
        )
        relative, smallest = _of_different_sizes(batch)
        relative[list(config.known)] = False
        config = config.model_copy(update={"relative": tuple(np.flatnonzero(relative).tolist())})
        if len(config.known) == batch.n_channels:
            raise InputError("known_future names all channels, so there is nothing to forecast")
        gap = _usual_gap(batch)
        scaling: dict[str, Array] = {"horizon": np.array([horizon])}
        scaling["scales"] = np.geomspace(gap, max(usual, horizon, 4 * gap), config.n_scales)
        scaling["centre"], scaling["spread"], scaling["varies"] = _scale(batch.values)
        mean = np.where(relative, scaling["centre"], 0)  # small series must not be rounded away
        scaling["centre"], scaling["mean"] = scaling["centre"] - mean, mean / scaling["spread"]
        scaling["smallest"] = smallest / scaling["spread"]
        for name, extreme in (("lowest", np.fmin), ("highest", np.fmax)):
            scaling[name] = np.nan_to_num(extreme.reduce(batch.values, axis=0))
        scaling["static_centre"], scaling["static_spread"], _ = _scale(static)
        auto = isinstance(self.periods, str)
        periods = [] if isinstance(self.periods, str) else list(self.periods)
        candidates = periods
        if auto and dated:
            periods = [p for p in (_DAY, _WEEK) if p >= 2 * gap]
            candidates = [*periods, _YEAR]
        elif auto:
            candidates = spectral_periods(batch, gap)
        with torch.random.fork_rng():
            harmonics, seasonal = choose_seasons(
                config, scaling, batch, static, context=self.context, horizon=horizon,
                candidates=[p for p in candidates if _FEWEST * gap <= p <= usual / _CYCLES],
                gap=gap, guessed=auto and not dated, seed=seed,
            )  # fmt: skip
        periods += [p for p in harmonics if p not in periods]
        config = config.model_copy(
            update={
                "n_periods": len(periods),
                "harmonics": tuple(harmonics.get(p, 0) for p in periods),
            }
        )
        scaling["periods"] = np.array(periods, dtype=np.float64)
        none = np.zeros(batch.n_channels)
        scaling["seasonal"] = np.array([seasonal.get(p, none) for p in periods]).T
        device = torch.device("cpu")
        if self.device != "cpu":
            device = torch.accelerator.current_accelerator(check_available=True) or device
        networks = []
        self.history_ = []
        for number in range(self.n_estimators):
            with torch.random.fork_rng():
                torch.manual_seed(seed + number)
                network = Forecaster(config)
                network.fit_scaling(**scaling)
                data = network.scaled(batch, static, self.context)
                rng = np.random.default_rng(seed + number)
                drawn = []
                if ends is not None:
                    network.start(drawn_to_start(data, horizon, rng))
                    whole = network.scaled(ends[0], static, self.context)
                    drawn = self._drawn_ends(whole, ends[1], horizon, scaling["periods"], rng)
                history = train_forecaster(
                    network, data, horizon=horizon, steps=self.steps, batch_size=self.batch_size,
                    learning_rate=self.learning_rate, weight_decay=self.weight_decay,
                    interpolation=bool(self.interpolation), seed=seed + number, device=device,
                    held=drawn, callback=print if self.verbose else None,
                )  # fmt: skip
            networks.append(network.cpu())
            self.history_ += [record | {"member": number + 1} for record in history]
        never = np.asarray(np.isnan(batch.values).all(axis=0))
        if never.any():
            names = ", ".join(np.array(batch.channels)[never])
            warnings.warn(
                f"never observed in the training series, so predicted as NaN: {names}",
                UserWarning,
                stacklevel=3,
            )
        return ForecastPredictor(
            networks, batch.channels, never, horizon, self.context, bool(self.interpolation), dated
        )

    def _drawn_ends(
        self,
        data: ScaledSeries,
        since: Array,
        horizon: float,
        periods: Array,
        rng: np.random.Generator,
    ) -> list[Drawn]:
        """Questions about what comes after ``since (B,)``."""
        begin, end = data.offsets[:-1], data.offsets[1:]
        later = data.times > np.repeat(since, end - begin)
        first = np.minimum(end - np.add.reduceat(later, begin), end - 1)
        series = np.resize(np.arange(len(begin)), _ASKED)
        drawn = [draw_forecasts(data, series, horizon, periods, rng, since=first[series])]
        if self.interpolation:
            drawn.append(draw_interpolations(data, series, periods, rng, since=first[series]))
        return [each for each in drawn if len(each.target)]

    def _adopt(self, predictor: ForecastPredictor) -> None:
        self.predictor_, self.channels_ = predictor, predictor.channels
        self.horizon_, self.n_features_in_ = predictor.horizon, len(predictor.channels)

    # Predicting

    def predict(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        at: Any, channels: Sequence[str | int] | None = None, static: Any = None,
        layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Predict values at the times that are asked for.

        Parameters
        ----------
        {timed}
        at : array-like (M,), (B, M) or list of B arrays
            Times to predict at, of the kind that the series have: the same for all series, or for
            each its own. After the end of a series: forecasts. Within it: interpolation; a value
            that was observed at that time is returned as it is.
        {channels}
        {static}
        {layout}

        Returns
        -------
        ndarray (B, M, C), or list of ndarray (M_i, C)
            A list if each series was asked at its own number of times.
        """
        batch, covariates = self._series(X, times, lengths, static, layout, columns)
        return self._asked(batch, covariates, at, channels, lambda answers: answers.point)

    def predict_quantiles(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        at: Any, levels: Sequence[float] = (0.1, 0.5, 0.9),
        channels: Sequence[str | int] | None = None, static: Any = None, layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Predict calibrated quantiles at the times that are asked for.

        Parameters
        ----------
        {timed}
        {at}
        levels : sequence of float, default (0.1, 0.5, 0.9)
            Levels of the quantiles, between 0 and 1.
        {channels}
        {static}
        {layout}

        Returns
        -------
        ndarray (B, M, C, n), or list of ndarray (M_i, C, n)
            A quantile for each of the n levels.
        """
        if np.ndim(levels) != 1 or not all(0 < level < 1 for level in levels):
            raise InputError(f"levels must be a list of numbers between 0 and 1, got {levels!r}")
        batch, covariates = self._series(X, times, lengths, static, layout, columns)

        def quantiles(answers: Answers) -> Array:
            return np.stack([self.predictor_.quantile(answers, p) for p in levels], axis=1)

        return self._asked(batch, covariates, at, channels, quantiles)

    def predict_interval(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        at: Any, coverage: float = 0.9, channels: Sequence[str | int] | None = None,
        static: Any = None, layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Predict intervals that hold with the probability that is asked for.

        Parameters
        ----------
        {timed}
        {at}
        coverage : float, default 0.9
            Share of new values that the intervals are to cover.
        {channels}
        {static}
        {layout}

        Returns
        -------
        lower, upper : ndarray (B, M, C), or list of ndarray (M_i, C)
            Ends of the intervals.
        """
        if not 0 < coverage < 1:
            raise InputError(f"coverage must lie between 0 and 1, got {coverage!r}")
        check_is_fitted(self, "predictor_")
        note = self.predictor_.coverage_note(coverage)
        if note is not None:
            warnings.warn(note, UserWarning, stacklevel=2)
        both = self.predict_quantiles(
            X, times, lengths, at=at, levels=((1 - coverage) / 2, (1 + coverage) / 2),
            channels=channels, static=static, layout=layout, columns=columns,
        )  # fmt: skip
        if isinstance(both, list):
            return [x[..., 0] for x in both], [x[..., 1] for x in both]
        return both[..., 0], both[..., 1]

    def impute(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        static: Any = None, layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> SeriesBatch:  # fmt: skip
        """Fill what was not observed; what was observed stays as it is.

        Parameters
        ----------
        {timed}
        {static}
        {layout}

        Returns
        -------
        SeriesBatch
            The same points without NaN.
        """
        batch, covariates = self._series(X, times, lengths, static, layout, columns)
        rows = [np.isnan(batch.series(b)[1]).any(axis=1) for b in range(len(batch))]
        query_times = [batch.series(b)[0][rows[b]] for b in range(len(batch))]
        with using_threads(self.n_jobs):
            answer = self.predictor_.ask(
                batch, covariates, query_times, np.arange(batch.n_channels)
            )
        values = np.array(batch.values, dtype=np.float64)
        point = np.flatnonzero(np.concatenate([np.zeros(0, bool), *rows]))
        first = np.cumsum([0, *(len(a) for a in query_times)])
        values[point[first[answer.series] + answer.place], answer.channel] = answer.point
        return batch.with_values(values)

    def summary(self) -> str:
        """Describe the fitted model, and its errors beside those of simple baselines.

        Returns
        -------
        str
            Several lines. Forecasts are of what was held out, at random moments and horizons;
            errors are in spreads of the channels. The last line says whether the model is ahead.
        """
        check_is_fitted(self, "predictor_")
        channels = len(self.channels_)
        lines = [
            f"RFormerForecaster of {channels} channel{'s' if channels != 1 else ''}, for up to "
            f"{self.predictor_.in_words(self.horizon_)} ahead"
        ]
        scores = self.predictor_.metadata.get("held_out")
        if not scores:
            return lines[0]
        width = max(map(len, scores)) + 2
        lines.append("  forecasts of what was held out, errors in spreads of the channels:")
        lines.append(" " * (width + 4) + f"{'mae':>10}{'rmse':>10}")
        for name, row in scores.items():
            numbers = "".join(f"{row[metric]:>10.4g}" for metric in ("mae", "rmse"))
            lines.append(f"    {name:<{width}}{numbers}")
        best = min((name for name in scores if name != "model"), key=lambda n: scores[n]["mae"])
        ahead = scores["model"]["mae"] < scores[best]["mae"]
        lines.append(
            f"  The model has a smaller mae than every baseline; the best of them is the {best}."
            if ahead
            else f"  The model is not better than the {best}, which alone would do as well here."
        )
        return "\n".join(lines)

    def score(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        static: Any = None, layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> float:  # fmt: skip
        """Score forecasts of the last part of each series from the part before it.

        The last part is as long as the horizon, or the second half of a shorter series.

        Parameters
        ----------
        {timed}
        {static}
        {layout}

        Returns
        -------
        float
            Share of the variance of each channel that is explained, averaged over channels; 1 is
            perfect, 0 as good as the training mean.
        """
        batch, covariates = self._series(X, times, lengths, static, layout, columns)
        with using_threads(self.n_jobs):
            result = self.predictor_.backtest(batch, covariates)
        centre = self.predictor_.networks[0].usual.numpy()[result.channel]
        error = np.bincount(result.channel, (result.true - result.value) ** 2, batch.n_channels)
        total = np.bincount(result.channel, (result.true - centre) ** 2, batch.n_channels)
        return float(np.mean(1 - error[total > 0] / total[total > 0])) if total.any() else 0.0

    def backtest(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        coverage: float = 0.9, static: Any = None, layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> Backtest:  # fmt: skip
        """Forecast the last part of each series from the part before it, as ``score`` does.

        Parameters
        ----------
        X : SeriesBatch, array, list of arrays or table
            Series, as in ``fit``; not those of the training, of course.
        {times}
        coverage : float, default 0.9
            Of the intervals.
        {static}
        {layout}

        Returns
        -------
        Backtest
            What was forecast beside what came, for ``plot_forecast`` and ``plot_horizon``.
        """
        if not 0 < coverage < 1:
            raise InputError(f"coverage must lie between 0 and 1, got {coverage!r}")
        batch, covariates = self._series(X, times, lengths, static, layout, columns)
        with using_threads(self.n_jobs):
            return self.predictor_.backtest(batch, covariates, coverage)

    def _series(
        self, x: Any, times: Any, lengths: Any, static: Any, layout: Any, columns: Any
    ) -> tuple[SeriesBatch, Array]:
        check_is_fitted(self, "predictor_")
        known = {"channels": self.channels_} | self.predictor_.metadata["data"]
        batch = as_series(
            x, times, lengths, layout=layout, columns=columns, n_channels=self.n_features_in_,
            known=known, one_series=True,
        )  # fmt: skip
        check_series(batch, self.channels_, ())
        dated = self.predictor_.dated
        if len(batch) and (batch.time_origin is not None) != dated:
            kinds = ("dates", "numbers") if dated else ("numbers", "dates")
            raise InputError(f"the model was fitted to times that are {kinds[0]}, got {kinds[1]}")
        covariates = _static_of(batch, static)
        if covariates.shape[1] != self.predictor_.n_static:
            raise InputError(
                f"the model takes {self.predictor_.n_static} static covariates, got "
                f"{covariates.shape[1]}"
            )
        return batch, covariates

    def _asked(
        self, batch: SeriesBatch, covariates: Array, at: Any,
        channels: Sequence[str | int] | None, values: Callable[[Answers], Array],
    ) -> Any:  # fmt: skip
        """``values`` of the answers at the times ``at``, laid out by series, time and channel."""
        query_times, alone = _times_asked(at, batch)
        wanted = np.arange(len(self.channels_))
        if channels is not None:
            wanted = _numbers_of(channels, self.channels_)
        with using_threads(self.n_jobs):
            answers = self.predictor_.ask(batch, covariates, query_times, wanted)
        return _laid_out(answers, values(answers), query_times, len(wanted), alone)

    # On disk

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Save the fitted model; ``load`` reads it, no pickle is involved.

        Parameters
        ----------
        directory : path-like
            Directory to write.
        """
        check_is_fitted(self, "predictor_")
        self.predictor_.metadata["parameters"] = to_plain(self.get_params(deep=False))
        self.predictor_.save(directory)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Self:
        """Load a fitted forecaster.

        Parameters
        ----------
        directory : path-like
            Directory that ``save`` wrote.

        Returns
        -------
        RFormerForecaster
            Fitted, with the parameters that it was saved with.
        """
        predictor = ForecastPredictor.load(directory)
        model = with_saved_parameters(cls, predictor.metadata, directory)
        model._adopt(predictor)
        model.history_ = []
        return model


def duration_of(value: Any, name: str, *, dated: bool) -> float:
    """A positive time in the unit of the series: a number; for dates a duration or text, too."""
    expected = "a positive number" + (', a duration or text such as "12h"' if dated else "")
    seconds = value
    text = re.fullmatch(r"([0-9.]+) *(s|min|h|d)", value) if isinstance(value, str) else None
    if dated and isinstance(value, timedelta | np.timedelta64):
        seconds = np.timedelta64(value) / np.timedelta64(1, "s")
    elif dated and text is not None:
        with suppress(ValueError):
            seconds = float(text[1]) * _SECONDS[text[2]]
    return float(real_number(seconds, name, expected, positive=True))


def _numbers_of(channels: str | int | Sequence[str | int], names: tuple[str, ...]) -> Array:
    """Numbers of channels that are named, or numbered."""
    numbers = []
    for name in [channels] if isinstance(channels, str | int) else channels:
        if isinstance(name, str) and name in names:
            numbers.append(names.index(name))
        elif isinstance(name, int | np.integer) and 0 <= name < len(names):
            numbers.append(int(name))
        else:
            raise InputError(f"unknown channel {name!r}; the model knows {', '.join(names)}")
    return np.array(numbers, dtype=np.int64)


def _held_out(n_held: int, n: int, groups: Any, seed: int) -> tuple[Array, Array]:
    """Numbers of the series that are held out, and of the others; groups stay together."""
    rng = np.random.default_rng(seed)
    if groups is None:
        order = rng.permutation(n)
        return order[:n_held], np.sort(order[n_held:])
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise InputError(f"groups must have shape ({n},), got {labels.shape}")
    _, group, size = np.unique(labels, return_inverse=True, return_counts=True)
    if n_held and len(size) < 2:
        raise InputError("groups must hold at least two groups, so that one can be held out")
    order = rng.permutation(len(size))
    # At least one group is held out, and at least one is not.
    count = int(np.clip((np.cumsum(size[order]) <= n_held).sum(), 1, len(size) - 1))
    held = np.isin(group, order[: count if n_held else 0])
    return np.flatnonzero(held), np.flatnonzero(~held)


def _until(batch: SeriesBatch, times: Array) -> SeriesBatch:
    """Keep the points of each series up to a time ``(B,)``, which is not before its first."""
    kept = batch.times <= np.repeat(times, batch.lengths)
    offsets = np.concatenate([[0], np.cumsum(np.add.reduceat(kept, batch.offsets[:-1]))])
    return SeriesBatch(
        batch.times[kept], batch.values[kept], offsets, channels=batch.channels,
        time_origin=batch.time_origin,
    )  # fmt: skip


def _static_of(batch: SeriesBatch, static: Any) -> Array:
    """Covariates ``(B, S)`` that are given, or those of the series; S may be 0."""
    if static is None:
        return np.zeros((len(batch), 0)) if batch.static is None else batch.static
    covariates = np.asarray(aligned(static, batch, "static"), dtype=np.float64)
    if covariates.ndim != 2 or len(covariates) != len(batch):
        raise InputError(f"static must have shape ({len(batch)}, S), got {covariates.shape}")
    if np.isinf(covariates).any():
        raise InputError("static must be finite or NaN, got infinity")
    return covariates


def _scale(values: Array) -> tuple[Array, Array, Array]:
    """Mean and deviation of each column ``(N, C)``, the furthest values drawn in to quantiles, and
    whether it varies (1 or 0).
    """
    centre, spread, varies = (np.zeros(values.shape[1]) for _ in range(3))
    for c, column in enumerate(values.T.astype(np.float64)):
        known = column[~np.isnan(column)]
        if len(known):
            inner = np.clip(known, *np.quantile(known, [_TAIL, 1 - _TAIL]))
            centre[c], varies[c] = inner.mean(), np.ptp(known) > 0
            spread[c] = (inner.std() or known.std()) * varies[c]  # of equal values: rounding
    return centre, np.where(spread > 0, spread, np.maximum(np.abs(centre), 1.0)), varies


def _of_different_sizes(batch: SeriesBatch) -> tuple[npt.NDArray[np.bool_], Array]:
    """For which channels ``(C,)`` a usual large series is so many times a usual small one, in its
    level and in its deviation; and the smallest deviation there is.

    Of most series there must be enough values to tell, and the deviation less than the level: a dry
    week does not tell how much rain may fall.
    """
    counts, sizes = [], []
    for b in range(len(batch)):
        values = batch.series(b)[1].astype(np.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of channels without values
            sizes.append([np.abs(np.nanmean(values, axis=0)), np.nanstd(values, axis=0)])
        counts.append((~np.isnan(values)).sum(axis=0))
    count, size = np.stack(counts), np.stack(sizes)
    different, smallest = np.zeros(batch.n_channels, dtype=np.bool_), np.zeros(batch.n_channels)
    for c in range(batch.n_channels):
        told = (count[:, c] >= _TO_TELL) & (size[:, :, c] > 0).all(axis=1)
        if told.sum() >= max(3, (count[:, c] > 0).sum() / 2):
            log_level, log_deviation = np.log(size[told, :, c]).T
            low, high = np.quantile([log_level, log_deviation], [0.1, 0.9], axis=1)
            steady = np.median(log_deviation - log_level) < 0
            different[c] = steady and (high - low > np.log(_DIFFERENT)).all()
            smallest[c] = np.exp(log_deviation.min())
    return different, smallest


def _usual_gap(batch: SeriesBatch) -> float:
    """Median over channels of the median time between observations of a channel."""
    of_point = np.repeat(np.arange(len(batch)), batch.lengths)
    gaps = []
    for column in batch.values.T:
        seen = ~np.isnan(column)
        step, same = np.diff(batch.times[seen]), np.diff(of_point[seen]) == 0
        if same.any():
            gaps.append(float(np.median(step[same])))
    if not gaps:  # each channel once: the time between points of any
        step, same = np.diff(batch.times), np.diff(of_point) == 0
        gaps = [float(np.median(step[same]))]
    return float(np.median(gaps))


def _times_asked(at: Any, batch: SeriesBatch) -> tuple[list[Array], bool]:
    """Times in the unit of the series, one array for each; and whether each was asked alone."""
    alone = isinstance(at, list | tuple) and any(np.ndim(x) > 0 for x in at)
    each = alone or np.ndim(at) == 2
    given = [np.atleast_1d(np.asarray(x)) for x in (at if each else [at])]
    if each and len(given) != len(batch):
        raise InputError(f"at has times for {len(given)} series, but there are {len(batch)}")
    seconds = [_seconds(stamps, batch) for stamps in given]
    return seconds if each else seconds * len(batch), alone


def _seconds(stamps: Array, batch: SeriesBatch) -> Array:
    """Times that are asked for, as the times of the series are."""
    if stamps.ndim != 1:
        raise InputError(f"at must be times (M,) of each series, got shape {stamps.shape}")
    if not len(stamps):
        return np.zeros(0)
    dated = stamps.dtype.kind == "M" or (stamps.dtype.kind == "O" and hasattr(stamps[0], "year"))
    if dated != (batch.time_origin is not None):
        kind = "numbers" if dated else "dates"
        raise InputError(f"the times of the series are {kind}, so at must be {kind}, too")
    seconds, _ = to_seconds(stamps, batch.time_origin, "at")
    if not np.isfinite(seconds).all():
        raise InputError("at must be finite times")
    return seconds


def _laid_out(answer: Answers, values: Array, query_times: list[Array], n: int, alone: bool) -> Any:
    """Answers ``(Q, ...)`` as ``(B, M, C, ...)``, or as a list if each series was asked alone."""
    first = np.cumsum([0, *(len(a) for a in query_times)])
    out = np.full((first[-1], n, *values.shape[1:]), np.nan)
    where = first[answer.series] + answer.place
    out[where, np.tile(np.arange(n), len(where) // max(n, 1))] = values
    if alone:
        return [out[a:b] for a, b in pairwise(first)]
    return out.reshape(
        len(query_times), len(query_times[0]) if query_times else 0, n, *values.shape[1:]
    )
