"""What every trained classifier does, whatever its model."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import column_or_1d
from torch import Tensor
from torch.nn import functional as F

from roughformer.errors import InputError
from roughformer.estimators.fitting import TrainedEstimator, class_counts
from roughformer.estimators.parameters import documented
from roughformer.inference import (
    ClassTargets,
    Predictor,
    check_all_known,
    conformal_bound,
    fit_temperature,
    known_labels,
    share_equal,
)
from roughformer.model import OutputConfig
from roughformer.train import Inputs, classification_scores

__all__ = ["TrainedClassifier"]


@documented
class TrainedClassifier(ClassifierMixin, TrainedEstimator):  # type: ignore[misc]
    """A classifier of series, whatever its model."""

    task = "classification"
    class_weight: Any

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
        """Learn from labelled series.

        Parameters
        ----------
        {X}
        y : array-like (B,) or (B, L), optional
            Labels; a causal model also takes one for each window, where NaN, None, pandas.NA and
            masked entries are unknown and count nowhere. Not given: the labels of ``X``.
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

    def predict_proba(
        self,
        X: Any,
        times: Any = None,
        lengths: Any = None,
        *,
        layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> npt.NDArray[np.float64]:
        """Predict calibrated probabilities.

        Parameters
        ----------
        {series}

        Returns
        -------
        ndarray (B, K)
            Probabilities, in the order of ``classes_``.
        """
        found: npt.NDArray[np.float64] = self._run(
            "probabilities", X, times, lengths, layout, columns
        )
        return found

    def predict(
        self,
        X: Any,
        times: Any = None,
        lengths: Any = None,
        *,
        layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> npt.NDArray[Any]:
        """Predict the most probable class of each series.

        Parameters
        ----------
        {series}

        Returns
        -------
        ndarray (B,)
            Class labels.
        """
        best = self.predict_proba(X, times, lengths, layout=layout, columns=columns).argmax(axis=1)
        return np.asarray(self.classes_[best])

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
        """Learn from held-out series how large ``predict_set`` must be.

        Split conformal prediction: one minus the probability of the true class.

        Parameters
        ----------
        X : SeriesBatch, array or list of arrays
            Series that the model was not fitted to.
        y : array-like (B,), optional
            Their labels. Not given: the labels of ``X``.
        {reading}

        Returns
        -------
        self
        """
        batch, y = self._labelled(X, y, times, lengths, layout, columns)
        labels, known = known_labels(y)
        if labels.shape not in ((len(batch),), (len(batch), 1)):
            raise InputError(
                f"calibrate takes one label for each of {len(batch)} series, got shape "
                f"{labels.shape}"
            )
        check_all_known(known)
        # A class that training did not have is in no set.
        shares = self.predict_proba(batch)
        is_class = labels.reshape(-1)[:, None] == self.classes_[None]
        scores = 1 - np.where(is_class, shares, 0.0).sum(axis=1)
        self.predictor_.metadata["conformal"] = np.sort(scores).tolist()
        return self

    def predict_set(
        self,
        X: Any,
        times: Any = None,
        lengths: Any = None,
        *,
        coverage: float = 0.9,
        layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> npt.NDArray[np.bool_]:
        """Predict sets of classes that hold the true one with the probability that is asked for.

        ``calibrate`` must have been called; series must be like those it was given.

        Parameters
        ----------
        {timed}
        coverage : float, default 0.9
            Share of new series whose class the sets are to hold.
        {layout}

        Returns
        -------
        ndarray of bool (B, K)
            Whether each class, in the order of ``classes_``, is in the set; the most probable one
            always is.
        """
        shares = self.predict_proba(X, times, lengths, layout=layout, columns=columns)
        scores = self.predictor_.metadata.get("conformal")
        if scores is None:
            raise InputError("prediction sets need calibrate(X, y) with held-out series first")
        bound = conformal_bound(np.array(scores), coverage)
        best = shares == shares.max(axis=1, keepdims=True)
        return np.asarray((1 - shares <= bound) | best)

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
        """Compute the accuracy.

        Parameters
        ----------
        {X}
        y : array-like (B,), optional
            Labels. Not given: the labels of ``X``.
        {reading}

        Returns
        -------
        float
            Share of the series whose class is predicted right.
        """
        batch, y = self._labelled(X, y, times, lengths, layout, columns)
        predicted = self.predict(batch)
        labels, known = known_labels(y)
        if labels.shape not in (predicted.shape, (len(predicted), 1)):
            raise InputError(
                f"score takes one label for each of {len(predicted)} series, got shape "
                f"{labels.shape}; labels of windows are held against predict_windows"
            )
        check_all_known(known)
        return share_equal(labels.reshape(-1), predicted)

    # What the base asks for

    def _encode_targets(self, y: Any, n: int) -> Tensor:
        y = self._shaped_labels(y, n, "series")
        labels, known = known_labels(y)
        if labels.ndim > 1:
            labels = labels[known]
            if not len(labels):
                raise InputError("there is nothing to learn from: no window has a known label")
        else:
            check_all_known(known)
        floats = [x for x in labels.ravel().tolist() if isinstance(x, float)]
        if not np.isfinite(floats).all():
            raise InputError("labels must not be NaN or infinite; leave such series out")
        if (np.array(floats) != np.round(floats)).any():
            raise InputError(
                "Unknown label type: continuous numbers are no classes; use a regressor"
            )
        self._targets = ClassTargets.fit(labels)
        self.classes_ = self._targets.labels
        return self._targets.numbers(y)

    def _aim(self, y: Any, n: int) -> Tensor:
        return self._targets.numbers(self._shaped_labels(y, n, "validation series"))

    def _shaped_labels(self, y: Any, n: int, what: str) -> Any:
        """``y`` if its shape is ``(n,)``, or ``(n, L)`` for a causal model; a column is flat."""
        labels, known = known_labels(y)
        shape = labels.shape
        if not shape or shape[0] != n:
            raise InputError(f"there are {n} {what} but labels of shape {shape}")
        if len(shape) == 2 and shape[1] == 1 and (known.all() or not self.causal):
            check_all_known(known)
            return column_or_1d(labels, warn=True)
        if len(shape) > (2 if self.causal else 1):
            raise InputError(
                f"labels must have shape ({n},), got {shape}; a label for each window, ({n}, L), "
                "needs causal=True"
            )
        return y

    def _output_options(self, target: Tensor) -> dict[str, Any]:
        return {"n_outputs": len(self.classes_)}

    def _fit_targets(self, target: Tensor, outputs: OutputConfig) -> None:
        """Classes have no scale."""

    def _to_loss(self, target: Tensor) -> Tensor:
        return target

    def _class_weight(self, target: Tensor, sample_weight: Tensor | None = None) -> Tensor | None:
        class_weight = self.class_weight
        if class_weight is None:
            return None
        k = len(self.classes_)
        if class_weight == "balanced":
            counts = class_counts(target, k, sample_weight).double()
            return (counts.sum() / (k * counts.clamp(min=1))).float()
        if not isinstance(class_weight, dict):
            raise InputError(
                f"class_weight must be None, 'balanced' or a dict, got {class_weight!r}"
            )
        unknown = [label for label in class_weight if label not in list(self.classes_)]
        if unknown:
            raise InputError(f"class_weight names {unknown}, the classes are {self.classes_}")
        return torch.tensor(
            [float(class_weight.get(label, 1.0)) for label in self.classes_.tolist()]
        )

    def _scores(
        self, predictor: Predictor, output: Tensor, aim: Tensor, inputs: Inputs
    ) -> dict[str, float]:
        weight = self._weights_at(aim, inputs)
        output, aim = self._at_targets(output, aim, inputs)
        known = aim >= 0
        weight = None if weight is None else weight[known]
        output, aim = output[known], aim[known]
        scores = classification_scores(
            output.double().softmax(dim=-1).numpy(),
            aim.numpy(),
            None if weight is None else weight.numpy(),
        )
        if self._weight is not None:
            # Weights decide which model is kept as they decide what is learned.
            classes = self._weight.double()
            loss = F.cross_entropy(output.double(), aim, classes, reduction="none")
            each = classes[aim] if weight is None else classes[aim] * weight
            loss = loss if weight is None else loss * weight
            scores["log_loss"] = float(loss.sum() / each.sum())
        return scores

    def _calibrate(self, predictor: Predictor, inputs: Inputs, aim: Tensor) -> float:
        if not self._train_config.calibrate:
            return 1.0
        from roughformer.model import run_model

        output = run_model(predictor.model, inputs, predictor.device)
        weight = self._weights_at(aim, inputs)
        return fit_temperature(*self._at_targets(output, aim, inputs), self._weight, weight)

    def _readable(self, output: Tensor) -> npt.NDArray[np.float64]:
        found = (output / self.predictor_.calibration).double().softmax(dim=-1)
        return np.asarray(found.numpy())

    def _adopt(self, predictor: Predictor) -> None:
        super()._adopt(predictor)
        assert isinstance(predictor.targets, ClassTargets)
        self._targets = predictor.targets
        self.classes_ = predictor.targets.labels
