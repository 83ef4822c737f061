"""Regressors: what each does whatever its model, the Rough Transformer's, and that of rates."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from torch import Tensor

from roughformer.errors import InputError
from roughformer.estimators.fitting import TrainedEstimator, warn_of_sparser
from roughformer.estimators.parameters import (
    RFORMER_GROUPS,
    RFORMER_SHORTCUTS,
    ModelConfig,
    RateModelConfig,
    documented,
)
from roughformer.inference import (
    NumberTargets,
    Predictor,
    check_numbers,
    check_rates,
    fit_deviation_factor,
    n_observed,
)
from roughformer.model import deviation_of, point_of
from roughformer.signatures import View
from roughformer.tokens import TokenConfig
from roughformer.train import TrainConfig, regression_scores
from roughformer.util.checks import real_number
from roughformer.util.groups import Group

_UNCERTAINTIES = ("none", "gaussian", "quantile")


@documented
class TrainedRegressor(RegressorMixin, TrainedEstimator):  # type: ignore[misc]
    """A regressor of series, whatever its model.

    Targets may be ``(B,)`` or ``(B, m)``; NaN, None, pandas.NA and what a masked array masks is
    not known and counts nowhere.
    """

    task = "regression"
    uncertainty: Any = "none"

    def __sklearn_tags__(self) -> Any:
        """Targets may be ``(B, m)``."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        layout: str | None = None, columns: Mapping[str, Any] | None = None,
        return_std: bool = False,
    ) -> Any:  # fmt: skip
        """Predict the targets of each series.

        Parameters
        ----------
        {series}
        return_std : bool, default False
            Also return standard deviations.

        Returns
        -------
        ndarray (B,) or (B, m)
            Predictions; with ``return_std`` a tuple of predictions and standard deviations.
        """
        predicted = self._run("predict", X, times, lengths, layout, columns)
        point = self._shaped(predicted["point"])
        if not return_std:
            return point
        if "deviation" not in predicted:
            raise InputError(
                "standard deviations need uncertainty='gaussian' when fitting, or a RateRegressor"
            )
        return point, self._shaped(predicted["deviation"])

    def predict_quantiles(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> npt.NDArray[np.float64]:  # fmt: skip
        """Predict quantiles at the levels ``quantiles``.

        Parameters
        ----------
        {series}

        Returns
        -------
        ndarray (B, q) or (B, m, q)
            Quantiles, in the order of ``quantiles``.
        """
        predicted = self._run("predict", X, times, lengths, layout, columns)
        if "quantiles" not in predicted:
            raise InputError("quantiles need uncertainty='quantile' when fitting")
        levels: npt.NDArray[np.float64] = predicted["quantiles"]
        return levels[:, 0] if self._targets.flat else levels

    def predict_interval(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        coverage: float = 0.9, layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:  # fmt: skip
        """Predict intervals that hold with the probability that is asked for.

        The ensemble calibrates them by out-of-fold predictions while it is fitted; of series with
        less than three quarters of the values of any of these they are infinite. After
        ``calibrate``, and for networks, it is the series given to that which new ones must be
        like.

        Parameters
        ----------
        {timed}
        coverage : float, default 0.9
            Share of new series whose target the intervals are to hold, for each target.
        {layout}

        Returns
        -------
        lower, upper : ndarray (B,) or (B, m)
            Ends of the intervals.
        """
        batch = self._series(X, times, lengths, layout, columns)
        predicted = self._run("predict", batch, None, None)
        ends = self.predictor_.intervals(predicted, n_observed(batch), coverage)
        warn_of_sparser(np.asarray(np.isinf(ends).any(axis=(1, 2))))
        return self._shaped(ends[..., 0]), self._shaped(ends[..., 1])

    def score(
        self, X: Any, y: Any = None, times: Any = None, lengths: Any = None, *,
        layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> float:  # fmt: skip
        """Compute R².

        Parameters
        ----------
        {X}
        y : array-like (B,) or (B, m), optional
            Targets, NaN where unknown. Not given: the labels of ``X``.
        {reading}

        Returns
        -------
        float
            R² of each target over the series where it is known, averaged over the targets.
        """
        batch, y = self._labelled(X, y, times, lengths, layout, columns)
        true = self._truth(y, len(batch))
        predicted = self._run("predict", batch, None, None)["point"]
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

    def _truth(self, y: Any, n: int) -> npt.NDArray[Any]:
        true, expected = check_numbers(y, n)[0], (n, self.predictor_.outputs.n_outputs)
        if true.shape != expected:
            raise InputError(
                f"expected targets of shape {expected}, got {true.shape}; targets of windows are "
                "held against predict_windows"
            )
        return true

    # What fitting asks for

    def _encode_targets(self, y: Any, n: int) -> Tensor:
        array, flat = check_numbers(y, n)
        self._check_axes(array)
        self._flat, self._n_targets = flat, array.shape[-1]
        return torch.from_numpy(array)

    def _validation_targets(self, y: Any, n: int) -> Tensor:
        array, _ = check_numbers(y, n)
        self._check_axes(array)
        if array.shape[-1] != self._n_targets:
            raise InputError(
                f"validation targets must be {self._n_targets} for each series, as those of "
                f"training, got shape {np.shape(y)}"
            )
        return torch.from_numpy(array)

    def _check_axes(self, y: npt.NDArray[np.float64]) -> None:
        if y.ndim > (3 if self.causal else 2):
            n = len(y)
            raise InputError(
                f"targets must have shape ({n},) or ({n}, m), got {y.shape}; targets for each "
                f"window, ({n}, L, m), need causal=True"
            )

    def _output_options(self, target: Tensor) -> dict[str, Any]:
        if self.uncertainty not in _UNCERTAINTIES:
            raise InputError(
                f"uncertainty must be one of {', '.join(_UNCERTAINTIES)}; got {self.uncertainty!r}"
            )
        return {"n_outputs": target.shape[-1], "uncertainty": self.uncertainty}

    def _fit_targets(self, target: Tensor) -> None:
        rows = target.reshape(-1, target.shape[-1]).numpy()
        self._targets = NumberTargets.fit(rows, log=False, flat=self._flat)

    def _to_loss(self, target: Tensor) -> Tensor:
        return self._targets.to_model(target)

    def _scores(
        self, predictor: Predictor, output: Tensor, target: Tensor, weight: Tensor | None
    ) -> dict[str, float]:
        predicted = predictor.answers(output)["point"].numpy()
        true = self._targets.to_units(target).numpy()
        return regression_scores(predicted, true, None if weight is None else weight.numpy())

    def _calibration(
        self, predictor: Predictor, output: Tensor, target: Tensor, weight: Tensor | None
    ) -> float:
        deviation = deviation_of(output, predictor.outputs)
        if deviation is None:
            return 1.0
        return fit_deviation_factor(point_of(output, predictor.outputs), deviation, target, weight)

    def _shaped(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return numbers[..., 0] if self._targets.flat else numbers

    def _readable(self, output: Tensor) -> npt.NDArray[np.float64]:
        return self._shaped(self.predictor_.answers(output)["point"].numpy())

    def _adopt(self, predictor: Predictor) -> None:
        super()._adopt(predictor)
        assert isinstance(predictor.targets, NumberTargets)
        self._targets = predictor.targets


@documented
class RFormerRegressor(TrainedRegressor):
    """Predict numbers from irregular, ragged, incomplete multichannel series.

    Targets may be ``(B,)`` or ``(B, m)``; NaN, None, pandas.NA and masked entries are unknown and
    count nowhere. For rates (a heart rate, a rotation speed) see ``RateRegressor``.

    Parameters
    ----------
    {recipe}
    {tokens}
    {parameters_of_series}
    {training}
    {numbers}
    {running}
    {token_group}
    model : ModelConfig or dict, optional
        Shape of the RFormer.
    {train_group}

    Attributes
    ----------
    {fitted}

    Examples
    --------
    >>> import roughformer as rf
    >>> model = rf.RFormerRegressor(windows=10, uncertainty="gaussian")
    >>> model.fit(X, y).predict(X_new, return_std=True)  # doctest: +SKIP
    """

    kind = "rformer"
    other_kinds = ("ensemble",)
    groups: ClassVar[dict[str, type[Group]]] = RFORMER_GROUPS
    shortcuts: ClassVar[dict[str, str]] = RFORMER_SHORTCUTS

    def __init__(
        self,
        *,
        recipe: Literal["auto", "ensemble", "attention"] = "auto",
        windows: Any = None,
        depth: int | Literal["auto"] | None = None,
        views: View | tuple[View, ...] | None = None,
        static: tuple[str, ...] = (),
        causal: bool = False,
        epochs: int | None = None,
        learning_rate: float | None = None,
        drop: float | tuple[float, float] | None = None,
        validation: float = 0.2,
        uncertainty: Literal["none", "gaussian", "quantile"] = "none",
        random_state: Any = None,
        device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
        n_jobs: int | None = None,
        run_dir: Any = None,
        verbose: int = 0,
        tokens: TokenConfig | dict[str, Any] | None = None,
        model: ModelConfig | dict[str, Any] | None = None,
        training: TrainConfig | dict[str, Any] | None = None,
    ) -> None:
        """Keep the parameters as given, as scikit-learn wants it; see the class."""
        self._keep(locals())


@documented
class RateRegressor(TrainedRegressor):
    """Predict a rate, per unit of time: a heart rate, a frequency, a rotation speed.

    A ``TempoFormer``: spectra of windows on a logarithmic axis, where another tempo is a shift,
    attention over the windows, and a histogram over rates, which gives a standard deviation too.
    ``TrainConfig(warp=...)`` plays the training series faster and slower, and scales the target
    along.

    Parameters
    ----------
    rate_unit : float, default 1.0
        Turns per unit of time of a target of 1, e.g. 1/60 for beats per minute and times in
        seconds.
    {training}
    {running}
    model : RateModelConfig or dict, optional
        Shape of the TempoFormer.
    {train_group}

    Attributes
    ----------
    {fitted}

    Examples
    --------
    >>> import roughformer as rf
    >>> model = rf.RateRegressor(rate_unit=1 / 60, training=rf.TrainConfig(warp=0.2))
    >>> model.fit(X, y).predict(X_new, return_std=True)  # doctest: +SKIP
    """

    kind = "tempo"
    groups: ClassVar[dict[str, type[Group]]] = {"model": RateModelConfig, "training": TrainConfig}
    shortcuts: ClassVar[dict[str, str]] = dict.fromkeys(
        ("epochs", "learning_rate", "drop"), "training"
    )
    rate_unit: Any
    _rate_like = True

    def __init__(
        self,
        *,
        rate_unit: float = 1.0,
        epochs: int | None = None,
        learning_rate: float | None = None,
        drop: float | tuple[float, float] | None = None,
        validation: float = 0.2,
        random_state: Any = None,
        device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
        n_jobs: int | None = None,
        run_dir: Any = None,
        verbose: int = 0,
        model: RateModelConfig | dict[str, Any] | None = None,
        training: TrainConfig | dict[str, Any] | None = None,
    ) -> None:
        """Keep the parameters as given, as scikit-learn wants it; see the class."""
        self._keep(locals())

    def __sklearn_tags__(self) -> Any:
        """There is one target, and it is positive."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        tags.target_tags.positive_only = True
        return tags

    def _rate_unit(self) -> float | None:
        return real_number(self.rate_unit, "rate_unit", "a positive number", positive=True)

    def _validation_targets(self, y: Any, n: int) -> Tensor:
        target = super()._validation_targets(y, n)
        check_rates(target.numpy())
        return target

    def _fit_targets(self, target: Tensor) -> None:
        # The bins of the histogram are places on the log axis itself.
        self._targets = NumberTargets(mean=(0.0,), scale=(1.0,), log=True, flat=self._flat)

    @classmethod
    def checked_metric(cls, name: str) -> str:
        """Check the name of a metric.

        Parameters
        ----------
        name : str
            A metric, or "auto": the loss of the histogram, since a mean may be right by luck.

        Returns
        -------
        str
        """
        return "loss" if name == "auto" else super().checked_metric(name)
