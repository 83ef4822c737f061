"""Classifiers: what each does whatever its model, and that of the Rough Transformer."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import column_or_1d
from torch import Tensor
from torch.nn import functional as F

from roughformer.errors import InputError
from roughformer.estimators.fitting import TrainedEstimator, class_counts, warn_of_sparser
from roughformer.estimators.parameters import (
    RFORMER_GROUPS,
    RFORMER_SHORTCUTS,
    ModelConfig,
    documented,
)
from roughformer.inference import (
    NOT_CALIBRATED,
    ClassTargets,
    Predictor,
    check_all_known,
    fit_temperature,
    known_labels,
    n_observed,
    share_equal,
)
from roughformer.signatures import View
from roughformer.tokens import TokenConfig
from roughformer.train import TrainConfig, classification_scores
from roughformer.util.groups import Group


@documented
class TrainedClassifier(ClassifierMixin, TrainedEstimator):  # type: ignore[misc]
    """A classifier of series, whatever its model."""

    task = "classification"
    class_weight: Any

    def predict_proba(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> npt.NDArray[np.float64]:  # fmt: skip
        """Predict calibrated probabilities.

        Parameters
        ----------
        {series}

        Returns
        -------
        ndarray (B, K)
            Probabilities, in the order of ``classes_``.
        """
        return np.asarray(self._run("probabilities", X, times, lengths, layout, columns))

    def predict(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> npt.NDArray[Any]:  # fmt: skip
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

    def predict_set(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        coverage: float = 0.9, layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> npt.NDArray[np.bool_]:  # fmt: skip
        """Predict sets of classes that hold the true one with the probability that is asked for.

        The ensemble calibrates them by out-of-fold predictions while it is fitted; of series with
        less than three quarters of the values of any of these they hold all classes. After
        ``calibrate``, and for networks, it is the series given to that which new ones must be
        like.

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
        batch = self._series(X, times, lengths, layout, columns)
        shares = self._run("probabilities", batch, None, None)
        if (conformal := self.predictor_.conformal) is None:
            raise InputError(NOT_CALIBRATED.format("prediction sets"))
        bound = conformal[0].bound(coverage, n_observed(batch))[:, None]
        warn_of_sparser(bound[:, 0] == 1)
        best = shares == shares.max(axis=1, keepdims=True)
        return np.asarray((1 - shares <= bound) | best)

    def score(
        self, X: Any, y: Any = None, times: Any = None, lengths: Any = None, *,
        layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> float:  # fmt: skip
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
        return share_equal(self._labels_of(y, len(batch), "score"), self.predict(batch))

    def _labels_of(self, y: Any, n: int, method: str) -> npt.NDArray[Any]:
        """The label of each of n series, all known."""
        labels, known = known_labels(y)
        if labels.shape not in ((n,), (n, 1)):
            raise InputError(
                f"{method} takes one label for each of {n} series, got shape {labels.shape}; "
                "labels of windows are held against predict_windows"
            )
        check_all_known(known)
        return labels.reshape(-1)

    def _truth(self, y: Any, n: int) -> npt.NDArray[Any]:
        # A class that training did not have is in no set.
        return np.asarray(self._labels_of(y, n, "calibrate")[:, None] == self.classes_[None])

    # What fitting asks for

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

    def _validation_targets(self, y: Any, n: int) -> Tensor:
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
        self, predictor: Predictor, output: Tensor, target: Tensor, weight: Tensor | None
    ) -> dict[str, float]:
        known = target >= 0
        weight = None if weight is None else weight[known]
        output, target = output[known].double(), target[known]
        scores = classification_scores(
            output.softmax(dim=-1).numpy(),
            target.numpy(),
            None if weight is None else weight.numpy(),
        )
        if self._weight is not None:
            # Weights decide which model is kept as they decide what is learned.
            classes = self._weight.double()
            loss = F.cross_entropy(output, target, classes, reduction="none")
            each = classes[target]
            if weight is not None:
                loss, each = loss * weight, each * weight
            scores["log_loss"] = float(loss.sum() / each.sum())
        return scores

    def _calibration(
        self, predictor: Predictor, output: Tensor, target: Tensor, weight: Tensor | None
    ) -> float:
        return fit_temperature(output, target, self._weight, weight)

    def _readable(self, output: Tensor) -> npt.NDArray[np.float64]:
        return np.asarray(self.predictor_.answers(output)["probabilities"])

    def _adopt(self, predictor: Predictor) -> None:
        super()._adopt(predictor)
        assert isinstance(predictor.targets, ClassTargets)
        self._targets = predictor.targets
        self.classes_ = predictor.targets.labels


@documented
class RFormerClassifier(TrainedClassifier):
    """Classify irregular, ragged, incomplete multichannel series with a Rough Transformer.

    The parameters that are changed most are flat; the others are in the groups ``tokens``,
    ``model`` and ``training``. A parameter that is given twice with different values is refused.

    Parameters
    ----------
    {recipe}
    {tokens}
    {parameters_of_series}
    {training}
    {classes}
    {running}
    {token_group}
    model : ModelConfig or dict, optional
        Shape of the RFormer.
    {train_group}

    Attributes
    ----------
    classes_ : ndarray
        Class labels, in the order of the columns of ``predict_proba``.
    {fitted}

    Examples
    --------
    >>> import roughformer as rf
    >>> model = rf.RFormerClassifier(
    ...     drop=(0.0, 0.8), tokens=rf.TokenConfig(clock=8), model=rf.ModelConfig(d_model=128)
    ... )
    >>> model.fit(X, y, times=times).predict_proba(X_new, times=times_new)  # doctest: +SKIP
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
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
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
