"""ForecastPredictor: trained forecasters with the calibration of their quantiles, on disk too."""

import hashlib
import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from roughformer.errors import CheckpointError, InputError
from roughformer.inference.calibration import LevelCalibration, least_for, level_of, value_at
from roughformer.model import (
    QUANTILES,
    Drawn,
    Forecaster,
    ForecasterConfig,
    Moments,
    Queries,
    ScaledSeries,
    draw_forecasts,
    draw_interpolations,
)
from roughformer.series import SeriesBatch
from roughformer.util.checkpoint import load_checkpoint, save_checkpoint

__all__ = ["Answers", "Backtest", "ForecastPredictor"]

Array = npt.NDArray[Any]

_LEVELS = np.array(QUANTILES)
_ROWS = 256  # moments that are computed at once
_QUERIES = 16384  # answers that are computed at once
_CALIBRATED = 40_000  # held-out values that quantiles are calibrated on
_COMPARED = 2048  # moments at which baselines are compared
_ROUNDS = 20  # over the held-out series, at most, to get so many


class Answers(NamedTuple):
    """Q answers, flat.

    Attributes
    ----------
    series : ndarray (Q,)
        Number of the series.
    place : ndarray (Q,)
        Which of the times that the series was asked at.
    channel : ndarray (Q,)
        Number of the channel.
    point : ndarray (Q,)
        Predicted value, in units of the data.
    quantiles : ndarray (Q, 9)
        Quantiles of the networks, in scaled units, not calibrated.
    distance : ndarray (Q,)
        Time ahead of the end of the series, or to the nearest observation of the channel.
    inside : ndarray (Q,)
        Whether the time lies within the series.
    known : ndarray (Q,)
        The value that was observed at the time (or, in a known future, is given for it), or NaN.
    """

    series: Array
    place: Array
    channel: Array
    point: Array
    quantiles: Array
    distance: Array
    inside: Array
    known: Array


class Backtest(NamedTuple):
    """Forecasts of Q values that are known, flat.

    Attributes
    ----------
    series : ndarray (Q,)
        Number of the series.
    channel : ndarray (Q,)
        Number of the channel.
    time : ndarray (Q,)
        Time of the value.
    ahead : ndarray (Q,)
        How long after the end of what was given.
    true : ndarray (Q,)
        The value.
    value : ndarray (Q,)
        Its forecast.
    last : ndarray (Q,)
        The last value of the channel before; NaN if there was none.
    lower, upper : ndarray (Q,)
        Ends of its interval.
    scale : ndarray (Q,)
        Spread of the channel over the training series.
    coverage : float
        Share of the values that intervals are to cover.
    """

    series: Array
    channel: Array
    time: Array
    ahead: Array
    true: Array
    value: Array
    last: Array
    lower: Array
    upper: Array
    scale: Array
    coverage: float

    @property
    def covered(self) -> Array:
        """Which values lie in their intervals ``(Q,)``."""
        return np.asarray((self.lower <= self.true) & (self.true <= self.upper))

    @property
    def error(self) -> Array:
        """Errors in spreads of the channels ``(Q,)``."""
        return np.asarray((self.value - self.true) / self.scale)


@dataclass
class ForecastPredictor:
    """Trained networks that answer together.

    Parameters
    ----------
    networks : list of Forecaster
        Of the same configuration and scaling.
    channels : tuple of str
        Names of the channels.
    never : ndarray of bool (C,)
        Channels without a training value; they are predicted as NaN.
    horizon : float
        How far ahead the networks were trained.
    context : int
        Number of points on each side of a moment that are looked at.
    interpolation : bool
        Whether the networks were trained to answer within series.
    dated : bool
        Whether times are seconds from an origin of dates.
    calibration : dict of LevelCalibration
        For "forecast" and "interpolation".
    metadata : dict
        What else is kept with the model.
    """

    networks: list[Forecaster]
    channels: tuple[str, ...]
    never: Array
    horizon: float
    context: int
    interpolation: bool
    dated: bool
    calibration: dict[str, LevelCalibration] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def n_static(self) -> int:
        """Number of static covariates."""
        return self.networks[0].config.n_static

    @property
    def known_future(self) -> tuple[int, ...]:
        """Numbers of the channels whose future is known."""
        return self.networks[0].config.known

    def ends(self, batch: SeriesBatch) -> Array:
        """Where forecasts of each series begin ``(B,)``.

        The last point, or the last one that is more than the known future of a channel; before the
        first one, if there is nothing but a known future.
        """
        begin, last = batch.offsets[:-1], batch.offsets[1:] - 1
        if not self.known_future or not len(batch):
            return np.asarray(batch.times[last])
        others = np.delete(batch.values, self.known_future, axis=1)
        point = np.where(~np.isnan(others).all(axis=1), np.arange(len(batch.values)), -1)
        last = np.maximum.reduceat(point, begin)
        first = batch.times[begin]
        # As little before as can be told, so that all of the plan lies ahead.
        before = first - 1e-9 * self.horizon - 1e-15 * np.abs(first)
        return np.where(last >= 0, batch.times[last], before)

    def kept(self, batch: SeriesBatch) -> Array:
        """Numbers of the points of one series that forecasts look at, now or when it goes on."""
        data = self._scaled(batch, np.full((1, self.n_static), np.nan))
        at = np.append(self.ends(batch), batch.times[-1])
        numbers = np.unique(data.moments(np.zeros(2, int), at, both_sides=False)[1])
        return numbers[numbers >= 0]

    def run(self, moments: Moments, queries: Queries) -> tuple[Array, Array]:
        """Mean ``(Q,)`` and quantiles ``(Q, 9)`` of all networks together, in scaled units."""
        with torch.no_grad():
            answers = [network(moments, queries) for network in self.networks]
        mean = torch.stack([m for m, _ in answers]).double().mean(dim=0)
        quantiles = torch.stack([q for _, q in answers]).double().mean(dim=0)
        return mean.numpy(), quantiles.numpy()

    def ask(
        self,
        batch: SeriesBatch,
        static: Array,
        query_times: list[Array],
        wanted: Array,
        *,
        warn: bool = True,
    ) -> Answers:
        """Answer for all series.

        Parameters
        ----------
        batch : SeriesBatch
            What is known.
        static : ndarray (B, S)
            Static covariates.
        query_times : list of B arrays (M_b,)
            Times of each series.
        wanted : ndarray of int (n,)
            Numbers of the channels.
        warn : bool, default True
            Whether to warn about times beyond the horizon.

        Returns
        -------
        Answers
            M_0 n + M_1 n + ... of them; the channels of a time stand together.
        """
        series = np.repeat(np.arange(len(batch)), [len(a) for a in query_times])
        time = np.concatenate([np.zeros(0), *query_times])
        place = np.concatenate([np.zeros(0, int), *(np.arange(len(a)) for a in query_times)])
        end = self.ends(batch)[series]
        inside = time <= end
        self._check_times(inside, time - end, warn)
        data = self._scaled(batch, static)
        n = len(wanted)
        known_future = self.known_future
        size = max(1, _QUERIES // max(n, 1) // (8 if len(known_future) else 1))
        none = np.zeros(0)
        parts = [(np.zeros(0, int), none, np.zeros((0, len(QUANTILES))), none, none)]
        for which in _in_parts(~inside, size):
            # One moment for each series: its end.
            _, first, row = np.unique(series[which], return_index=True, return_inverse=True)
            moments, _ = data.moments(series[which][first], end[which][first], both_sides=False)
            answer = self._answer(data, moments, end[which][first], row, time[which], wanted)
            known = np.full((len(which), n), np.nan)
            for column in np.flatnonzero(np.isin(wanted, known_future)):
                known[:, column] = _between(batch, wanted[column], series[which], time[which])
            parts.append((np.repeat(which, n), *answer, known.ravel()))
        for which in _in_parts(inside, min(size, _ROWS)):
            # One moment for each time, with both sides.
            moments, number = data.moments(series[which], time[which], both_sides=True)
            row = np.arange(len(which))
            answer = self._answer(data, moments, time[which], row, time[which], wanted)
            known = np.full((len(which), n), np.nan)
            at_point, column = np.nonzero(moments.times.numpy() == 0)
            known[at_point] = batch.values[number[at_point, column]][:, wanted]
            parts.append((np.repeat(which, n), *answer, known.ravel()))
        q, point, quantiles, distance, known = (np.concatenate(x) for x in zip(*parts, strict=True))
        channel = np.tile(wanted, len(q) // max(n, 1))
        value = np.where(np.isnan(known), self._in_units(point, channel), known)
        return Answers(series[q], place[q], channel, value, quantiles, distance, inside[q], known)

    def quantile(self, answers: Answers, level: float) -> Array:
        """Compute the calibrated quantile of each answer, in units of the data."""
        forecast = self.calibration["forecast"].level(level, answers.distance)
        within = self.calibration["interpolation"].level(level, answers.distance)
        scaled = value_at(np.where(answers.inside, within, forecast), answers.quantiles, _LEVELS)
        value = self._in_units(scaled, answers.channel)
        return np.where(np.isnan(answers.known), value, answers.known)

    @property
    def _varies(self) -> Array:
        """Which channels vary: of the others the level of a value is unknown."""
        return np.array([s > 0 for s in self.networks[0].varies.tolist()])

    def in_words(self, duration: float) -> str:
        """A duration, as text: of dates such as "7 days" or "12:00:00"."""
        if not self.dated:
            return f"{duration:g}"
        return str(timedelta(seconds=round(duration))).removesuffix(", 0:00:00")

    def coverage_note(self, coverage: float) -> str | None:
        """What to say where intervals were calibrated on too few series for a coverage."""
        n, least = self.calibration["forecast"].n_groups, least_for(coverage)
        if not 0 < n < least:
            return None
        return (
            f"intervals were calibrated on {n} held-out series (or groups, or horizons of fewer "
            f"than ten series), and a coverage of {coverage:g} cannot be promised by fewer than "
            f"{least}: give more series or a shorter horizon to fit, or calibrate on others"
        )

    def horizon_note(self, ahead: Array) -> str | None:
        """What to say where times so long ``ahead`` of the ends are beyond the horizon."""
        most = float(ahead.max(initial=0.0))
        if most <= self.horizon * (1 + 1e-6):
            return None
        return (
            f"the model was trained for up to {self.horizon:.6g} ahead, and is asked for "
            f"{most:.6g}: beyond its horizon the forecast stays as it is there, and intervals do "
            "not grow; fit with a longer horizon"
        )

    def backtest(self, batch: SeriesBatch, static: Array, coverage: float = 0.9) -> Backtest:
        """Forecast the last part of each series from the part before it.

        The last part is as long as the horizon, or the second half of a shorter series.
        """
        start, end = batch.times[batch.offsets[:-1]], self.ends(batch)
        cut = np.maximum(end - self.horizon, (start + end) / 2)
        of_point = np.repeat(np.arange(len(batch)), batch.lengths)
        before = batch.times <= cut[of_point]
        counts = np.bincount(of_point[before], minlength=len(batch))
        origin = batch.times[batch.offsets[:-1] + counts - 1]
        after = ~before & (batch.times <= origin[of_point] + self.horizon)
        if not after.any():
            raise InputError("forecasts can be scored on series of at least two points only")
        known_future = list(self.known_future)
        values, kept = np.where(before[:, None], batch.values, np.nan), before
        if known_future:
            kept = np.ones_like(before)
            values[:, known_future] = batch.values[:, known_future]
        past = SeriesBatch(
            batch.times[kept],
            values[kept],
            np.r_[0, np.cumsum(np.bincount(of_point[kept], minlength=len(batch)))],
            channels=batch.channels,
            time_origin=batch.time_origin,
        )
        query_times = [batch.times[after & (of_point == b)] for b in range(len(batch))]
        answers = self.ask(past, static, query_times, np.arange(batch.n_channels), warn=False)
        first = np.cumsum([0, *(len(a) for a in query_times)])
        point = np.flatnonzero(after)[first[answers.series] + answers.place]
        true = batch.values[point, answers.channel]
        scored = ~np.isnan(true) & ~np.isin(answers.channel, known_future)
        scored &= ~self.never[answers.channel]
        lower, upper = (
            self.quantile(answers, level) for level in ((1 - coverage) / 2, (1 + coverage) / 2)
        )
        last = _last(past)
        series, channel = answers.series[scored], answers.channel[scored]
        return Backtest(
            series, channel, batch.times[point][scored],
            batch.times[point][scored] - self.ends(past)[series], true[scored],
            answers.point[scored], last[series, channel], lower[scored], upper[scored],
            self.networks[0].spread.numpy()[channel], coverage,
        )  # fmt: skip

    def calibrate(
        self,
        held: SeriesBatch,
        static: Array,
        seed: int,
        groups: Array | None = None,
        since: Array | None = None,
    ) -> None:
        """Learn how far quantiles are off, on series that the networks were not trained on.

        ``groups (B,)``: series of one group are alike; not given: each is its own. ``since (B,)``:
        the networks were not trained on what comes after these times, and are asked for that only;
        then each horizon of a series is a group.
        """
        n = len(held)
        if groups is None:
            groups = np.arange(n)
        groups = np.unique(groups, return_inverse=True)[1]
        data, rng = self._scaled(held, static), np.random.default_rng(seed)
        periods = self.networks[0].periods.numpy()
        begin, end = held.offsets[:-1], held.offsets[1:]
        first = begin
        if since is not None and n:
            later = held.times > np.repeat(since, held.lengths)
            first = np.minimum(end - np.add.reduceat(later, begin), end - 1)

        def owner(drawn: Drawn, series: Array) -> Array:
            """Number the independent group, or the block of one horizon, of each answer."""
            of_group: Array = groups[series]
            if since is None:
                return of_group
            at = held.times[begin[series]] + drawn.moments.elapsed.numpy()[drawn.queries.row]
            place: Array = of_group + n * ((at - since[series]) // self.horizon).clip(0)
            return place

        def forecast(series: Array) -> Drawn:
            return draw_forecasts(data, series, self.horizon, periods, rng, since=first[series])

        def within(series: Array) -> Drawn:
            return draw_interpolations(data, series, periods, rng, since=first[series])

        # Few long series have several moments each in a round.
        order = np.arange(n) if since is None else np.resize(np.arange(n), max(n, _ROWS))
        self.calibration = {
            "forecast": self._calibrated(order, owner, forecast),
            "interpolation": self._calibrated(
                order[: None if self.interpolation else 0], owner, within
            ),
        }
        self.metadata["held_out"] = self._compared(
            np.resize(np.arange(n), min(n, 1) * _COMPARED), forecast
        )

    def _compared(
        self, series: Array, draw: Callable[[Array], Drawn]
    ) -> dict[str, dict[str, float]]:
        """Errors of forecasts and of simple baselines at the same moments, drawn in these series,
        in spreads of the channels.
        """
        errors: dict[str, list[Array]] = {}
        for i in range(0, len(series), _ROWS):
            drawn = draw(series[i : i + _ROWS])
            moments, queries = drawn.moments, drawn.queries
            last = _before(moments, queries, torch.zeros_like(queries.ahead))
            known = np.isfinite(last) & self._varies[queries.channel.numpy()]
            mean, quantiles = self.run(moments, queries)
            guesses = {"model": _point(mean, quantiles), "last value": last}
            for period in self.networks[0].periods.float():
                back = period * torch.ceil(queries.ahead / period).clamp(min=1)
                name = f"value {self.in_words(float(period))} before"
                guesses[name] = _before(moments, queries, queries.ahead - back)
            guesses["training mean"] = self.networks[0].mean.numpy()[queries.channel.numpy()]
            for name, guess in guesses.items():
                errors.setdefault(name, []).append((guess - drawn.target.numpy())[known])
        if not sum(len(part) for part in errors.get("model", [])):
            return {}
        both = {name: np.concatenate(parts) for name, parts in errors.items()}
        return {
            name: {"mae": float(np.abs(e).mean()), "rmse": float(np.sqrt((e**2).mean()))}
            for name, e in both.items()
        }

    def _calibrated(
        self,
        order: Array,
        owner: Callable[[Drawn, Array], Array],
        draw: Callable[[Array], Drawn],
    ) -> LevelCalibration:
        levels: list[Array] = [np.zeros(0)]
        distances: list[Array] = [np.zeros(0)]
        owners: list[Array] = [np.zeros(0)]
        n = 0
        for _ in range(_ROUNDS):
            for i in range(0, len(order), _ROWS):
                series = order[i : i + _ROWS]
                drawn = draw(series)
                counts = self._varies[drawn.queries.channel.numpy()]
                if not counts.any():
                    continue
                _, quantiles = self.run(drawn.moments, drawn.queries)
                level = level_of(drawn.target.double().numpy(), quantiles, _LEVELS)
                levels.append(level[counts])
                distances.append(_distance(drawn.moments, drawn.queries)[counts])
                owners.append(owner(drawn, series[drawn.queries.row.numpy()])[counts])
                n += int(counts.sum())
            if n >= _CALIBRATED:
                break
        level, distance, owned = (np.concatenate(x) for x in (levels, distances, owners))
        return LevelCalibration.fit(level, distance, owned)

    def _scaled(self, batch: SeriesBatch, static: Array) -> ScaledSeries:
        return self.networks[0].scaled(batch, static, self.context)

    def _answer(
        self,
        data: ScaledSeries,
        moments: Moments,
        at: Array,
        row: Array,
        time: Array,
        wanted: Array,
    ) -> tuple[Array, Array, Array]:
        """Point, quantiles and distance for all wanted channels at each time, in scaled units."""
        n = len(wanted)
        row, channel = np.repeat(row, n), np.tile(wanted, len(time))
        time = np.repeat(time, n)
        queries = data.queries(row, channel, time, at, self.networks[0].periods.numpy())
        mean, quantiles = self.run(moments, queries)
        return _point(mean, quantiles), quantiles, _distance(moments, queries)

    def _in_units(self, scaled: Array, channel: Array) -> Array:
        """Scaled values ``(Q,)`` in units of the data."""
        network = self.networks[0]
        value = scaled * network.spread.numpy()[channel] + network.centre.numpy()[channel]
        return np.where(self.never[channel], np.nan, value)

    def _check_times(self, inside: Array, ahead: Array, warn: bool) -> None:
        if inside.any() and not self.interpolation:
            raise InputError(
                "a time within a series was asked for, but the model was fitted for forecasts "
                "only; fit with interpolation=True"
            )
        note = self.horizon_note(ahead)
        if warn and note is not None:
            warnings.warn(note, UserWarning, stacklevel=4)

    # On disk

    def key(self) -> str:
        """A hash of everything that answers depend on but for the calibration."""
        total = hashlib.sha256()
        about = [self.networks[0].config.model_dump(mode="json"), self.channels, self.horizon]
        total.update(json.dumps([*about, self.context, self.dated]).encode())
        for network in self.networks:
            for name, tensor in sorted(network.state_dict().items()):
                total.update(name.encode())
                total.update(np.ascontiguousarray(tensor.cpu().numpy()).tobytes())
        return total.hexdigest()

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write a checkpoint; complete or not at all."""
        config = {
            "kind": "forecaster",
            "network": self.networks[0].config.model_dump(mode="json"),
            "members": len(self.networks),
            "channels": list(self.channels),
            "never": self.never.tolist(),
            "horizon": self.horizon,
            "context": self.context,
            "interpolation": self.interpolation,
            "dated": self.dated,
            "calibration": {name: x.to_plain() for name, x in self.calibration.items()},
            "facts": self.metadata,
        }
        tensors = {f"member{i}": dict(x.state_dict()) for i, x in enumerate(self.networks)}
        save_checkpoint(directory, config, tensors)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> "ForecastPredictor":
        """Read what ``save`` wrote; ``CheckpointError`` on any damage."""
        saved = load_checkpoint(directory)
        config = saved.config
        if config.get("kind") != "forecaster":
            raise InputError(
                f"{os.fspath(directory)} holds a model of the kind {config.get('kind')!r}, not a "
                "forecaster; load it with the estimator that saved it"
            )
        try:
            networks = []
            for i in range(config["members"]):
                network = Forecaster(ForecasterConfig(**config["network"]))
                network.load_state_dict(saved.tensors[f"member{i}"])
                networks.append(network.eval())
            calibration = {
                name: LevelCalibration.from_plain(plain)
                for name, plain in config["calibration"].items()
            }
            return cls(
                networks,
                tuple(config["channels"]),
                np.array(config["never"], dtype=bool),
                float(config["horizon"]),
                int(config["context"]),
                bool(config["interpolation"]),
                bool(config["dated"]),
                calibration,
                dict(config["facts"]),
            )
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            first = str(error).splitlines()[0] if str(error) else repr(error)
            raise CheckpointError(
                f"{os.fspath(directory)} is complete but is no forecaster that this version of "
                f"roughformer can read: {first}"
            ) from error


def _in_parts(mask: Array, size: int) -> list[Array]:
    """Places of a mask, at most ``size`` at once."""
    places = np.flatnonzero(mask)
    return [places[i : i + size] for i in range(0, len(places), size)]


def _last(batch: SeriesBatch) -> Array:
    """Last observation of each channel of each series ``(B, C)``; NaN if there is none."""
    last = np.full((len(batch), batch.n_channels), np.nan)
    for b in range(len(batch)):
        values = batch.series(b)[1]
        seen = ~np.isnan(values)
        place = np.where(seen, np.arange(len(values))[:, None], -1).max(axis=0)
        last[b] = np.where(place >= 0, values[place, np.arange(batch.n_channels)], np.nan)
    return last


def _between(batch: SeriesBatch, channel: int, series: Array, time: Array) -> Array:
    """Values of a channel at times ``(Q,)``, linear between observations; NaN after the last."""
    filled = np.full(len(time), np.nan)
    for b in np.unique(series):
        times, values = batch.series(int(b))
        seen, mine = ~np.isnan(values[:, channel]), series == b
        if seen.any():
            filled[mine] = np.interp(
                time[mine], times[seen], values[seen, channel], left=np.nan, right=np.nan
            )
    return filled


def _point(mean: Array, quantiles: Array) -> Array:
    """Halfway between mean and median: near the best by squared and by absolute error."""
    return np.asarray((mean + quantiles[:, QUANTILES.index(0.5)]) / 2)


def _before(moments: Moments, queries: Queries, time: torch.Tensor) -> Array:
    """The observation of each channel asked for that is nearest to ``time (Q,)``, among those up to
    the moment; NaN if there is none.
    """
    values = moments.values[queries.row, :, queries.channel]  # (Q, L)
    times = moments.times[queries.row]
    apart = (times - time.unsqueeze(1)).abs()
    apart = torch.where(values.isnan() | ~(times <= 0), torch.inf, apart)
    distance, place = apart.min(dim=1)
    nearest = values.gather(1, place.unsqueeze(1))[:, 0]
    return torch.where(distance.isfinite(), nearest, torch.nan).double().numpy()


def _distance(moments: Moments, queries: Queries) -> Array:
    """Time ahead of a forecast, or to the nearest observation of the channel ``(Q,)``."""
    if not moments.both_sides:
        return queries.ahead.double().numpy()
    seen = ~moments.values.isnan()
    apart = torch.where(seen, moments.times.abs().unsqueeze(-1), torch.inf).amin(dim=1)
    return apart[queries.row, queries.channel].double().numpy()
