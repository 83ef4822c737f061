"""The estimators as aeon's: ``pip install 'roughformer[aeon]'``.

aeon's collections have no times: samples are taken to be equally spaced. Use ``RFormerClassifier``
and ``RFormerRegressor`` themselves where times are known.
"""

from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from roughformer.estimators import RFormerClassifier, RFormerRegressor
from roughformer.series import SeriesBatch

try:
    from aeon.classification import BaseClassifier
    from aeon.regression import BaseRegressor
    from aeon.utils.validation import check_n_jobs
except ImportError as error:
    raise ImportError(
        "roughformer.aeon needs the package aeon: pip install 'roughformer[aeon]'"
    ) from error

# What aeon's checks train, some fifty times.
_TINY: dict[str, Any] = {
    "windows": 3, "depth": 1, "epochs": 1, "tokens": {"clock": 0, "spectrum": None},
    "model": {"d_model": 8, "n_heads": 2},
}  # fmt: skip


class _AeonEstimator:
    """What the classifier and the regressor share; it stands before aeon's own base class."""

    _tags: ClassVar[dict[str, Any]] = {
        "X_inner_type": ["np-list", "numpy3D"],
        "capability:multivariate": True,
        "capability:unequal_length": True,
        "capability:missing_values": True,
        "capability:multithreading": True,
        "algorithm_type": "deeplearning",
    }
    _estimator_class: ClassVar[type[RFormerClassifier | RFormerRegressor]]

    def __init__(self, estimator: Any = None, random_state: Any = None, n_jobs: int = 1) -> None:
        self.estimator = estimator
        self.random_state = random_state
        self.n_jobs = n_jobs
        super().__init__()

    def _fit(self, X: Any, y: Any) -> Self:
        self._n_jobs = check_n_jobs(self.n_jobs)
        estimator = self._estimator_class() if self.estimator is None else clone(self.estimator)
        estimator.set_params(n_jobs=self._n_jobs)
        if self.random_state is not None:
            estimator.set_params(random_state=self.random_state)
        self.estimator_ = estimator.fit(_series(X), y)
        return self

    def _predict(self, X: Any) -> npt.NDArray[Any]:
        return np.asarray(self.estimator_.predict(_series(X)))

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        return {"estimator": cls._estimator_class(**_TINY)}


def _series(x: Any) -> SeriesBatch:
    """aeon's ``(B, C, L)``, or its list of ``(C, L_i)``."""
    return SeriesBatch.of(x, layout="channels_first")


class RFormerAeonClassifier(_AeonEstimator, BaseClassifier):  # type: ignore[misc]
    """``RFormerClassifier`` in aeon's frame: unequal lengths, missing values, many channels.

    Parameters
    ----------
    estimator : RFormerClassifier, optional
        With the wanted parameters; it is not changed. By default ``RFormerClassifier()``.
    random_state : int, RandomState or None, default None
        Replaces that of the estimator, unless None.
    n_jobs : int, default 1
        Threads; replaces that of the estimator.

    Attributes
    ----------
    estimator_ : RFormerClassifier
        The fitted estimator.

    Examples
    --------
    >>> RFormerAeonClassifier(RFormerClassifier(epochs=30))  # doctest: +SKIP
    """

    _estimator_class = RFormerClassifier

    def _predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        return np.asarray(self.estimator_.predict_proba(_series(X)))


class RFormerAeonRegressor(_AeonEstimator, BaseRegressor):  # type: ignore[misc]
    """``RFormerRegressor`` in aeon's frame: unequal lengths, missing values, many channels.

    Parameters
    ----------
    estimator : RFormerRegressor, optional
        With the wanted parameters; it is not changed. By default ``RFormerRegressor()``.
    random_state : int, RandomState or None, default None
        Replaces that of the estimator, unless None.
    n_jobs : int, default 1
        Threads; replaces that of the estimator.

    Attributes
    ----------
    estimator_ : RFormerRegressor
        The fitted estimator.
    """

    _estimator_class = RFormerRegressor
