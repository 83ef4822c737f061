"""A forecaster as a graph: raw padded series and the times asked for -> calibrated forecasts."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from roughformer.errors import InputError
from roughformer.export.check import Arrays, Run, padded
from roughformer.export.graphs import Exportable
from roughformer.inference import ForecastPredictor
from roughformer.model import QUANTILES, Moments, Queries
from roughformer.series import SeriesBatch


class ForecastGraph(Exportable):
    """A forecaster from raw samples to calibrated forecasts, for any sizes.

    ``values (B, L, C)`` with NaN = not observed, ``times (B, L)``, ``lengths (B,)``, ``at (B, M)``
    and, if the model has covariates, ``static (B, S)`` -> ``value (B, M, C)`` and
    ``quantiles (B, M, C, 9)``. Times at or before the end of a series have NaN, and so have
    channels whose future is known. Times of a model of dates are seconds since 1970.
    """

    centre: Tensor
    spread: Tensor
    never: Tensor
    edges: Tensor
    weights: Tensor
    periods: Tensor
    static_centre: Tensor
    static_spread: Tensor

    def __init__(self, predictor: ForecastPredictor) -> None:
        """Take the networks and the calibration of a fitted forecaster."""
        super().__init__()
        self.networks = nn.ModuleList(predictor.networks).eval()
        self.horizon, self.context = predictor.horizon, predictor.context
        self.config = predictor.networks[0].config
        calibration = predictor.calibration["forecast"]
        never = predictor.never | np.isin(np.arange(self.config.n_channels), self.config.known)
        levels = np.array(QUANTILES)
        scaling = ("centre", "spread", "periods", "static_centre", "static_spread")
        for name, value in (
            *((name, getattr(predictor.networks[0], name).numpy()) for name in scaling),
            ("never", never),
            ("edges", calibration.edges),
            ("weights", calibration.weights(levels)),
        ):
            self.register_buffer(name, torch.tensor(value))
        static = ("static",) if self.config.n_static else ()
        self.name_inputs(("values", "times", "lengths", "at", *static), "points", "series")
        self.dynamic["at"][1] = "queries"
        self.outputs = ("value", "quantiles")

    def forward(
        self,
        values: Tensor,
        times: Tensor,
        lengths: Tensor,
        at: Tensor,
        static: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See the class."""
        moments, end = self._moments(values, times, lengths, static)
        asked = at.shape[1]
        at = torch.cat([at, end], dim=1)  # one time more, as a graph cannot attend for none
        n, m, c = values.shape[0], asked + 1, self.config.n_channels
        ahead = at - end
        phase = torch.remainder(at.unsqueeze(-1) / self.periods, 1.0).float()  # (B, M, P)
        queries = Queries(
            torch.arange(n).view(n, 1, 1).expand(n, m, c).reshape(-1),
            torch.arange(c).view(1, 1, c).expand(n, m, c).reshape(-1),
            ahead.float().clamp(min=0.0).unsqueeze(-1).expand(n, m, c).reshape(-1),
            phase.unsqueeze(2).expand(n, m, c, phase.shape[2]).reshape(n * m * c, phase.shape[2]),
            even=True,
        )
        answers = [network(moments, queries) for network in self.networks]
        mean = torch.stack([a for a, _ in answers]).double().mean(dim=0)
        quantiles = torch.stack([q for _, q in answers]).double().mean(dim=0)
        point = (mean + quantiles[:, QUANTILES.index(0.5)]) / 2
        weights = self.weights
        if len(self.edges):  # ONNX counts no edges as one; then there is one range
            weights = weights[(self.edges < queries.ahead.double().unsqueeze(-1)).sum(dim=-1)]
        quantiles = (weights @ quantiles.unsqueeze(-1)).squeeze(-1)
        spread, centre = self.spread[queries.channel], self.centre[queries.channel]
        nothing = self.never | (ahead <= 0).unsqueeze(-1)  # (B, M, C)
        point = (point * spread + centre).view(n, m, c)
        quantiles = (quantiles * spread.unsqueeze(-1) + centre.unsqueeze(-1)).view(
            n, m, c, len(QUANTILES)
        )
        return (
            torch.where(nothing, torch.nan, point)[:, :asked],
            torch.where(nothing.unsqueeze(-1), torch.nan, quantiles)[:, :asked],
        )

    def _moments(
        self, values: Tensor, times: Tensor, lengths: Tensor, static: Tensor | None
    ) -> tuple[Moments, Tensor]:
        """What is known at the end of each series, and the times of the ends ``(B, 1)``."""
        # So that there are as many points as a memory keeps, whatever comes in.
        more = self.config.n_recent
        values = nn.functional.pad(values.double(), (0, 0, 0, more), value=torch.nan)
        times = nn.functional.pad(times, (0, more))
        place = torch.arange(values.shape[1])
        last = lengths.unsqueeze(-1) - 1
        inside = place <= last  # (B, L)
        if self.config.known:
            known = torch.zeros(self.config.n_channels, dtype=torch.bool)
            known[list(self.config.known)] = True
            others = inside & (~values.isnan() & ~known).any(dim=-1)
            last = torch.where(others, place, -1).amax(dim=1, keepdim=True)
            future = (place > last) & (place <= last + self.context)
            seen = (place <= last).unsqueeze(-1) | (future.unsqueeze(-1) & known)
        else:
            seen = (place <= last).unsqueeze(-1)
        past = (place <= last).unsqueeze(-1) & ~values.isnan()
        # How many observations of a channel there are from each on.
        rank = past.flip(1).long().cumsum(dim=1).flip(1)
        near = (past & (rank <= self.config.n_recent)).any(dim=-1)
        recent = (inside & ((place > last - self.context) | near)).unsqueeze(-1)
        begin = times[:, :1]
        # As ``ForecastPredictor.ends`` has it for a plan alone.
        before = begin - 1e-9 * self.horizon - 1e-15 * begin.abs()
        end = torch.where(last < 0, before, times.gather(1, last.clamp(min=0)))
        scaled = ((values - self.centre) / self.spread).float()
        covariates = values.new_zeros(values.shape[0], 0).float()
        if static is not None:
            covariates = (static.double() - self.static_centre) / self.static_spread
            covariates = covariates.clamp(-4.0, 4.0).float()
        return (
            Moments(
                torch.where(seen & recent, scaled, torch.nan),
                torch.where(recent.squeeze(-1), (times - end).float(), torch.nan),
                (end - begin).squeeze(1).float().clamp(min=0),
                covariates,
                False,
            ),
            end,
        )


def forecast_description(predictor: ForecastPredictor) -> dict[str, Any]:
    """What the numbers of a forecaster mean, as plain data."""
    known = predictor.networks[0].config.known
    return {
        "task": "forecast",
        "channels": list(predictor.channels),
        "known_future": [predictor.channels[c] for c in known],
        "n_static": predictor.n_static,
        "horizon": predictor.horizon,
        "times": "seconds since 1970" if predictor.dated else "numbers, as in training",
        "quantiles": list(QUANTILES),
    }


def synthetic_series(predictor: ForecastPredictor, n: int, longest: int, seed: int) -> SeriesBatch:
    """Ragged series of the size that the model was trained on, a third of the values missing."""
    rng = np.random.default_rng(seed)
    network = predictor.networks[0]
    lengths = np.r_[longest, rng.integers(1, longest + 1, n - 1)]
    scales = network.scales.numpy()
    times = [np.cumsum(rng.exponential(scales[0], k)) for k in lengths]
    values = rng.normal(size=(lengths.sum(), len(predictor.channels)))
    values = values * network.spread.numpy() + network.centre.numpy()
    values[rng.random(values.shape) < 1 / 3] = np.nan
    return SeriesBatch(
        np.concatenate(times), values, np.r_[0, np.cumsum(lengths)], channels=predictor.channels,
        static=rng.normal(size=(n, predictor.n_static)) if predictor.n_static else None,
        time_origin=np.datetime64(1_700_000_000, "s") if predictor.dated else None,
    )  # fmt: skip


def query_inputs(
    graph: ForecastGraph, batch: SeriesBatch, kind: np.dtype[Any], extra: int, n_times: int
) -> Arrays:
    """Padded series, and ``n_times`` times up to a little beyond the horizon."""
    inputs = padded(batch, kind, extra=extra)
    if batch.time_origin is not None:
        inputs["times"] += float(batch.time_origin.astype("datetime64[ns]").astype(np.int64)) / 1e9
    last = inputs["times"][np.arange(len(batch)), batch.lengths - 1]
    inputs["at"] = last[:, None] + graph.horizon * np.linspace(0.01, 1.05, n_times)
    if graph.config.n_static:
        static = batch.static
        if static is None or static.shape[1] != graph.config.n_static:
            raise InputError(f"the series need {graph.config.n_static} static covariates")
        inputs["static"] = np.array(static, dtype=np.float64)
    return inputs


def forecast_differences(
    predictor: ForecastPredictor,
    graph: ForecastGraph,
    kind: np.dtype[Any],
    run: Run,
    batch: SeriesBatch,
    extra: int,
) -> dict[str, float]:
    """Largest differences between file and model, in spreads of the channels."""
    inputs = query_inputs(graph, batch, kind, extra, 2 + extra)
    same = batch.with_values(batch.values.astype(kind).astype(np.float64))
    epoch = inputs["times"][0, 0] - batch.times[0]
    asked = [at - epoch for at in inputs["at"]]
    static = np.zeros((len(batch), 0)) if batch.static is None else batch.static
    wanted = np.arange(batch.n_channels)
    answers = predictor.ask(same, static, asked, wanted, warn=False)
    late = (
        np.concatenate(asked)[:, None]
        > predictor.ends(batch).repeat([len(a) for a in asked])[:, None]
    )
    keep = (late & ~graph.never.numpy()).reshape(-1)
    expected = {
        "value": answers.point,
        "quantiles": np.stack([predictor.quantile(answers, p) for p in QUANTILES], axis=-1),
    }
    outputs = run(inputs)
    spread = predictor.networks[0].spread.numpy()[answers.channel[keep]]
    worst = {}
    for name, wanted_values in expected.items():
        answer = outputs[name].reshape(wanted_values.shape)[keep]
        gap = np.abs(answer - wanted_values[keep]).reshape(len(spread), -1) / spread[:, None]
        worst[name] = float(gap.max(initial=0.0)) if not np.isnan(gap).any() else np.inf
    return worst
