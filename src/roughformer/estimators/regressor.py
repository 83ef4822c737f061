"""RFormerRegressor."""

from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from torch import Tensor

from roughformer.calibration import fit_deviation_factor
from roughformer.checks import real_number
from roughformer.errors import InputError
from roughformer.estimators.base import RFormerEstimator
from roughformer.lifts import View
from roughformer.model.outputs import OutputConfig, deviation_of, point_of
from roughformer.predictor import Predictor
from roughformer.targets import NumberTargets, check_numbers, check_rates
from roughformer.train.metrics import check_metric, regression_scores
from roughformer.train.source import Inputs

__all__ = ["RFormerRegressor"]


class RFormerRegressor(RegressorMixin, RFormerEstimator):  # type: ignore[misc]
    """Predict numbers from irregular, ragged, incomplete multichannel series.

    Parameters are those of ``RFormerClassifier`` without those of classes, and

    uncertainty
        ``"gaussian"``: ``predict(X, return_std=True)``; ``"quantile"``: ``predict_quantiles(X)``
        at the levels ``quantiles``.
    rate_like, rate_unit
        The target is a rate, per unit of time (a heart rate, a frequency), and ``warp`` scales it
        along with time. ``model="rformer"`` is then a ``TempoFormer``: spectra of windows on a
        logarithmic axis, where another tempo is a shift, attention over the windows, and a
        histogram over rates, which tells a standard deviation too. ``rate_unit``: turns per unit
        of time of a target of 1, e.g. 1/60 for beats per minute and times in seconds.
    calibrate
        Standard deviations are scaled to fit the validation part.

    Targets may be ``(B,)`` or ``(B, m)``; NaN, None, pandas.NA and what a masked array masks is
    not known and counts nowhere.
    """

    _task = "regression"

    def __init__(
        self,
        *,
        model: str = "rformer",
        model_options: dict[str, Any] | None = None,
        windows: Any = "auto",
        depth: int | Literal["auto"] = "auto",
        views: tuple[View, ...] = ("global", "local"),
        logsignature: bool = False,
        time: Literal["unit", "span", "none"] = "unit",
        lags: float | tuple[float, ...] = (),
        counts: bool = False,
        basepoint: bool | Literal["auto"] = "auto",
        clock: int | Literal["auto"] = "auto",
        observations: bool | Literal["auto"] = "auto",
        spectrum: Any = "auto",
        static: tuple[str, ...] = (),
        d_model: int = 64,
        n_heads: int = 4,
        n_layers: int = 1,
        dropout: float = 0.1,
        input_dropout: float = 0.0,
        wide: int | Literal["auto"] = "auto",
        wide_dropout: float = 0.5,
        scaling: Literal["auto", "standard", "rank", "none"] = "auto",
        pooling: Literal["mean", "attention", "last"] = "mean",
        causal: bool = False,
        context: int | Literal["auto"] | None = "auto",
        epochs: int = 60,
        batch_size: int = 32,
        learning_rate: float = 2e-3,
        weight_decay: float = 0.01,
        schedule: Literal["onecycle", "cosine", "constant"] = "onecycle",
        patience: int | None = 20,
        max_seconds: float | None = None,
        validation: float = 0.2,
        members: int = 1,
        metric: str = "auto",
        drop: float | tuple[float, float] = 0.0,
        jitter: float = 0.0,
        channel_dropout: float = 0.0,
        warp: float = 0.0,
        draws: int = 0,
        uncertainty: Literal["none", "gaussian", "quantile"] = "none",
        quantiles: tuple[float, ...] = (0.1, 0.5, 0.9),
        rate_like: bool = False,
        rate_unit: float = 1.0,
        calibrate: bool = True,
        precision: Literal["float32", "bfloat16"] = "float32",
        compile: bool = False,
        device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
        n_jobs: int | None = None,
        readers: int = 0,
        random_state: Any = None,
        run_dir: Any = None,
        resume: bool = False,
        tensorboard: bool = False,
        verbose: int = 0,
    ) -> None:
        """Keep the parameters as given, as scikit-learn wants it; see the class."""
        self.model = model
        self.model_options = model_options
        self.windows = windows
        self.depth = depth
        self.views = views
        self.logsignature = logsignature
        self.time = time
        self.lags = lags
        self.counts = counts
        self.basepoint = basepoint
        self.clock = clock
        self.observations = observations
        self.spectrum = spectrum
        self.static = static
        self.d_model = d_model
        self.n_heads = n_heads
        self.n_layers = n_layers
        self.dropout = dropout
        self.input_dropout = input_dropout
        self.wide = wide
        self.wide_dropout = wide_dropout
        self.scaling = scaling
        self.pooling = pooling
        self.causal = causal
        self.context = context
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.patience = patience
        self.max_seconds = max_seconds
        self.validation = validation
        self.members = members
        self.metric = metric
        self.drop = drop
        self.jitter = jitter
        self.channel_dropout = channel_dropout
        self.warp = warp
        self.draws = draws
        self.uncertainty = uncertainty
        self.quantiles = quantiles
        self.rate_like = rate_like
        self.rate_unit = rate_unit
        self.calibrate = calibrate
        self.precision = precision
        self.compile = compile
        self.device = device
        self.n_jobs = n_jobs
        self.readers = readers
        self.random_state = random_state
        self.run_dir = run_dir
        self.resume = resume
        self.tensorboard = tensorboard
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        """Targets may be ``(B, m)``."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @property
    def _rate_like(self) -> bool:
        return bool(self.rate_like)

    def _kind_name(self) -> str:
        return "tempo" if self._rate_like and self.model == "rformer" else str(self.model)

    def _rate_unit(self) -> float | None:
        if not self._rate_like:
            return None
        if self._kind_name() == "tempo" and self.uncertainty == "quantile":
            raise InputError(
                "a model of rates tells a standard deviation, no quantiles; leave uncertainty out"
            )
        return real_number(self.rate_unit, "rate_unit", "a positive number", positive=True)

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        times: Any = None,
        lengths: Any = None,
        layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
        groups: Any = None,
        validation_data: tuple[Any, ...] | None = None,
    ) -> Self:
        """Learn from series ``X`` (anything ``SeriesBatch.of`` takes) and ``y (B,)`` or ``(B, m)``.

        A causal model also takes ``y (B, L, m)``: targets for each window. ``groups (B,)``: no
        group is both trained on and validated on. ``validation_data``: ``(X, y)`` or
        ``(X, y, times)`` instead of a part of the training series. ``layout``: ``"time_first"``,
        arrays are ``(B, L, C)``, or ``"channels_first"``, ``(B, C, L)``; None is time first where
        that is no guess. ``columns``: what the columns of a table mean, by the argument names of
        ``SeriesBatch.from_table``; others are guessed as by ``SeriesBatch.of``, and ``predict``
        reads tables in the same way. ``y`` and ``groups`` of pandas are aligned by their index with
        the ids of the series.
        """
        return self._fit(X, y, times, lengths, layout, columns, groups, validation_data)

    def predict(
        self,
        X: Any,
        times: Any = None,
        lengths: Any = None,
        *,
        layout: str | None = None,
        return_std: bool = False,
    ) -> Any:
        """Points ``(B,)`` or ``(B, m)``; with ``return_std`` also their standard deviations."""
        found = self._run("numbers", X, times, lengths, layout)
        point = self._shaped(found["point"])
        if not return_std:
            return point
        if "deviation" not in found:
            raise InputError(
                "standard deviations need uncertainty='gaussian' or rate_like=True when fitting"
            )
        return point, self._shaped(found["deviation"])

    def predict_quantiles(
        self,
        X: Any,
        times: Any = None,
        lengths: Any = None,
        *,
        layout: str | None = None,
    ) -> npt.NDArray[np.float64]:
        """``(B, q)`` or ``(B, m, q)`` at the levels ``quantiles``."""
        found = self._run("numbers", X, times, lengths, layout)
        if "quantiles" not in found:
            raise InputError("quantiles need uncertainty='quantile' when fitting")
        levels: npt.NDArray[np.float64] = found["quantiles"]
        return levels[:, 0] if self._targets.flat else levels

    def score(
        self,
        X: Any,
        y: Any = None,
        times: Any = None,
        lengths: Any = None,
        *,
        layout: str | None = None,
    ) -> float:
        """R², of each target by the series where it is known, then their mean; ``y=None``: the
        targets are the labels of the series.
        """
        batch, y = self._labelled(X, y, times, lengths, layout)
        predicted = self._run("numbers", batch, None, None)["point"]
        true = check_numbers(y, len(predicted))[0]
        if true.shape != predicted.shape:
            raise InputError(
                f"score takes targets of shape {predicted.shape}, got {true.shape}; targets of "
                "windows are held against predict_windows"
            )
        known = ~np.isnan(true)
        count = known.sum(axis=0)
        if (count < 2).any():
            which = int(np.argmin(count))
            raise InputError(
                f"target {which} is known for {'one' if count[which] else 'no'} series, and R² "
                "needs at least two; leave its column out, or give series where it is known"
            )
        each = [
            r2_score(true[known[:, k], k], predicted[known[:, k], k]) for k in range(true.shape[1])
        ]
        return float(np.mean(each))

    # What the base asks for

    def _encode_targets(self, y: Any, n: int) -> Tensor:
        array, flat = check_numbers(y, n)
        self._check_axes(array)
        self._flat, self._n_targets = flat, array.shape[-1]
        return torch.from_numpy(array)

    def _aim(self, y: Any, n: int) -> Tensor:
        array, _ = check_numbers(y, n)
        self._check_axes(array)
        if array.shape[-1] != self._n_targets:
            raise InputError(
                f"validation targets must be {self._n_targets} for each series, as those of "
                f"training, got shape {np.shape(y)}"
            )
        if self._rate_like:
            check_rates(array)
        return torch.from_numpy(array)

    def _check_axes(self, y: npt.NDArray[np.float64]) -> None:
        if y.ndim > (3 if self.causal else 2):
            n = len(y)
            raise InputError(
                f"targets must have shape ({n},) or ({n}, m), got {y.shape}; targets for each "
                f"window, ({n}, L, m), need causal=True"
            )

    def _output_options(self, target: Tensor) -> dict[str, Any]:
        return {
            "n_outputs": target.shape[-1],
            "uncertainty": self.uncertainty,
            "quantiles": _levels(self.quantiles),
        }

    def _fit_targets(self, target: Tensor, outputs: OutputConfig) -> None:
        rows = target.reshape(-1, target.shape[-1]).numpy()
        if outputs.uncertainty == "histogram":  # its bins are places on the log axis itself
            self._targets = NumberTargets(mean=(0.0,), scale=(1.0,), log=True, flat=self._flat)
            return
        self._targets = NumberTargets.fit(rows, log=self._rate_like, flat=self._flat)

    def _to_loss(self, target: Tensor) -> Tensor:
        return self._targets.to_model(target)

    def _metric(self) -> str:
        if self.metric == "auto" and self._kind_name() == "tempo":
            return "loss"  # of the whole histogram: a mean may be right by luck
        return check_metric(self.metric, self._task)

    def _class_weight(self, target: Tensor) -> Tensor | None:
        return None

    def _scores(
        self, predictor: Predictor, output: Tensor, aim: Tensor, valid: tuple[Inputs, Tensor] | None
    ) -> dict[str, float]:
        output, aim = self._at_targets(output, aim, valid)
        predicted = predictor.in_world(output)["point"]
        return regression_scores(predicted, self._targets.to_world(aim).numpy())

    def _calibrate(self, predictor: Predictor, inputs: Inputs, aim: Tensor) -> float:
        from roughformer.model.inference import run_model

        output = run_model(predictor.model, inputs, predictor.device)
        output, aim = self._at_targets(output, aim, (inputs, aim))
        deviation = deviation_of(output, predictor.outputs)
        if not self.calibrate or deviation is None:
            return 1.0
        return fit_deviation_factor(point_of(output, predictor.outputs), deviation, aim)

    def _shaped(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return numbers[:, 0] if self._targets.flat else numbers

    def _readable(self, output: Tensor) -> npt.NDArray[np.float64]:
        point = self.predictor_.in_world(output)["point"]
        return point[..., 0] if self._targets.flat else point

    def _adopt(self, predictor: Predictor) -> None:
        super()._adopt(predictor)
        assert isinstance(predictor.targets, NumberTargets)
        self._targets = predictor.targets


def _levels(quantiles: Any) -> tuple[Any, ...]:
    """The levels of quantiles; what they must be is checked with the other options."""
    if isinstance(quantiles, str) or not np.iterable(quantiles):
        raise InputError(f"quantiles must be levels such as (0.1, 0.5, 0.9), got {quantiles!r}")
    return tuple(quantiles)
