"""Ridge with leave-one-out choice of the penalty, in little memory.

The same as scikit-learn's ``RidgeCV`` and ``RidgeClassifierCV`` where there are more features than
series, but for their copies of the features in float64: with MultiRocket-Hydra's 50,000 features of
9,000 series these take 18 GB.
"""

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh
from sklearn.base import BaseEstimator
from sklearn.preprocessing import LabelBinarizer

__all__ = ["GramRidge", "GramRidgeClassifier"]

Floats = npt.NDArray[np.float64]
_COLUMNS = 2048  # at once


class GramRidge(BaseEstimator):
    """min |y - Xw - b|² + α|w|², α from ``alphas`` by the mean squared leave-one-out error."""

    def __init__(self, alphas: Any) -> None:
        self.alphas = alphas

    def fit(self, X: Any, y: Any) -> Self:
        """``X (N, F)``, ``y (N,)`` or ``(N, m)``."""
        mean, target_mean = X.mean(axis=0, dtype=np.float64), np.mean(y, axis=0)
        n, targets = len(X), np.asarray(y, np.float64).reshape(len(X), -1) - target_mean
        gram = np.zeros((n, n))
        for columns in _blocks(X):
            block = X[:, columns] - mean[columns]
            gram += block @ block.T
        values, vectors = eigh(gram, overwrite_a=True, check_finite=False)
        turned, ones, squares = vectors.T @ targets, vectors.sum(axis=0), vectors**2
        best = np.inf
        for alpha in self.alphas:
            inverse = 1 / (values + alpha)
            dual = vectors @ (inverse[:, None] * turned)
            # The diagonal of the inverse of (gram + α), less what the intercept takes.
            diagonal = squares @ inverse - vectors @ (inverse * ones) / n
            error = float(np.mean((dual / diagonal[:, None]) ** 2))
            if error < best:
                best, self.alpha_, chosen = error, alpha, dual
        self.coef_ = np.empty((X.shape[1], targets.shape[1]), np.float32)
        for columns in _blocks(X):
            self.coef_[columns] = (X[:, columns] - mean[columns]).T @ chosen
        self.intercept_ = target_mean - mean @ self.coef_
        self._flat = np.ndim(y) == 1
        return self

    def predict(self, X: Any) -> Floats:
        """``(N,)`` or ``(N, m)``."""
        numbers = np.asarray(X @ self.coef_ + self.intercept_, np.float64)
        return numbers[:, 0] if self._flat else numbers


class GramRidgeClassifier(GramRidge):
    """Ridge on ±1 for each class; of two classes one column."""

    def __init__(self, alphas: Any, class_weight: None = None) -> None:
        super().__init__(alphas)
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any) -> Self:
        """``X (N, F)``, labels ``y (N,)``."""
        self._labels = LabelBinarizer(neg_label=-1).fit(y)
        return super().fit(X, self._labels.transform(y))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Labels ``(N,)``."""
        return np.asarray(self._labels.inverse_transform(super().predict(X), threshold=0.0))


def _blocks(x: Any) -> list[slice]:
    return [slice(i, i + _COLUMNS) for i in range(0, x.shape[1], _COLUMNS)]
