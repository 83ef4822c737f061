"""What every trained regressor does, whatever its model."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from torch import Tensor

from roughformer.errors import InputError
from roughformer.estimators.fitting import TrainedEstimator
from roughformer.estimators.parameters import documented
from roughformer.inference import (
    NumberTargets,
    Predictor,
    check_numbers,
    conformal_bound,
    fit_deviation_factor,
)
from roughformer.model import OutputConfig, deviation_of, point_of
from roughformer.train import Inputs, regression_scores

__all__ = ["TrainedRegressor"]

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
        sample_weight: Any = None,
    ) -> Self:
        """Learn from series and their targets.

        Parameters
        ----------
        {X}
        y : array-like (B,), (B, m) or (B, L, m), optional
            Targets, NaN where unknown; those of each window need a causal model. Not given: the
            labels of ``X``.
        {times}
        {fit}
        sample_weight : array-like (B,), optional
            Weights of the series in the loss, the class prior and the validation scores. A series
            of weight 0 is left out.

        Returns
        -------
        self
        """
        return self._fit(
            X, y, times, lengths, layout, columns, groups, validation_data, sample_weight
        )

    def predict(
        self,
        X: Any,
        times: Any = None,
        lengths: Any = None,
        *,
        layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
        return_std: bool = False,
    ) -> Any:
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
        found = self._run("predict", X, times, lengths, layout, columns)
        point = self._shaped(found["point"])
        if not return_std:
            return point
        if "deviation" not in found:
            raise InputError(
                "standard deviations need uncertainty='gaussian' when fitting, or a RateRegressor"
            )
        return point, self._shaped(found["deviation"])

    def predict_quantiles(
        self,
        X: Any,
        times: Any = None,
        lengths: Any = None,
        *,
        layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> npt.NDArray[np.float64]:
        """Predict quantiles at the levels ``quantiles``.

        Parameters
        ----------
        {series}

        Returns
        -------
        ndarray (B, q) or (B, m, q)
            Quantiles, in the order of ``quantiles``.
        """
        found = self._run("predict", X, times, lengths, layout, columns)
        if "quantiles" not in found:
            raise InputError("quantiles need uncertainty='quantile' when fitting")
        levels: npt.NDArray[np.float64] = found["quantiles"]
        return levels[:, 0] if self._targets.flat else levels

    def calibrate(
        self,
        X: Any,
        y: Any = None,
        times: Any = None,
        lengths: Any = None,
        *,
        layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> Self:
        """Learn from held-out series how wide ``predict_interval`` must be.

        Split conformal prediction: the held-out errors, divided by the predicted deviation if the
        model has one.

        Parameters
        ----------
        X : SeriesBatch, array or list of arrays
            Series that the model was not fitted to.
        y : array-like (B,) or (B, m), optional
            Their targets, NaN where unknown. Not given: the labels of ``X``.
        {reading}

        Returns
        -------
        self
        """
        batch, y = self._labelled(X, y, times, lengths, layout, columns)
        found = self._run("predict", batch, None, None)
        true = check_numbers(y, len(batch))[0]
        if true.shape != found["point"].shape:
            raise InputError(
                f"calibrate takes targets of shape {found['point'].shape}, got {true.shape}"
            )
        error = np.abs(true - found["point"]) / found.get("deviation", 1.0)
        scores = [np.sort(column[~np.isnan(column)]).tolist() for column in error.T]
        self.predictor_.metadata["conformal"] = scores
        return self

    def predict_interval(
        self,
        X: Any,
        times: Any = None,
        lengths: Any = None,
        *,
        coverage: float = 0.9,
        layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Predict intervals that hold with the probability that is asked for.

        ``calibrate`` must have been called; series must be like those it was given.

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
        found = self._run("predict", X, times, lengths, layout, columns)
        scores = self.predictor_.metadata.get("conformal")
        if scores is None:
            raise InputError("intervals need calibrate(X, y) with held-out series first")
        bound = np.array([conformal_bound(np.array(column), coverage) for column in scores])
        reach = bound * found.get("deviation", np.ones_like(found["point"]))
        return self._shaped(found["point"] - reach), self._shaped(found["point"] + reach)

    def score(
        self,
        X: Any,
        y: Any = None,
        times: Any = None,
        lengths: Any = None,
        *,
        layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> float:
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
        predicted = self._run("predict", batch, None, None)["point"]
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

    def _fit_targets(self, target: Tensor, outputs: OutputConfig) -> None:
        rows = target.reshape(-1, target.shape[-1]).numpy()
        self._targets = NumberTargets.fit(rows, log=False, flat=self._flat)

    def _to_loss(self, target: Tensor) -> Tensor:
        return self._targets.to_model(target)

    def _class_weight(self, target: Tensor, sample_weight: Tensor | None = None) -> Tensor | None:
        return None

    def _scores(
        self, predictor: Predictor, output: Tensor, aim: Tensor, inputs: Inputs
    ) -> dict[str, float]:
        weight = self._weights_at(aim, inputs)
        output, aim = self._at_targets(output, aim, inputs)
        predicted = predictor.to_target_units(output)["point"]
        true = self._targets.to_units(aim).numpy()
        return regression_scores(predicted, true, None if weight is None else weight.numpy())

    def _calibrate(self, predictor: Predictor, inputs: Inputs, aim: Tensor) -> float:
        from roughformer.model import run_model

        output = run_model(predictor.model, inputs, predictor.device)
        weight = self._weights_at(aim, inputs)
        output, aim = self._at_targets(output, aim, inputs)
        deviation = deviation_of(output, predictor.outputs)
        if not self._train_config.calibrate or deviation is None:
            return 1.0
        return fit_deviation_factor(point_of(output, predictor.outputs), deviation, aim, weight)

    def _shaped(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return numbers[:, 0] if self._targets.flat else numbers

    def _readable(self, output: Tensor) -> npt.NDArray[np.float64]:
        point = self.predictor_.to_target_units(output)["point"]
        return point[..., 0] if self._targets.flat else point

    def _adopt(self, predictor: Predictor) -> None:
        super()._adopt(predictor)
        assert isinstance(predictor.targets, NumberTargets)
        self._targets = predictor.targets
