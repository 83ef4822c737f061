"""ROCKET features and ridge: the cheap yardstick that a user would try first today.

Random convolutions of aeon (MiniRocket: Dempster, Schmidt, Webb 2021; MultiRocket: Tan et al. 2022)
need equally spaced samples: each series is resampled by its linear path.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.linear_model import RidgeClassifierCV, RidgeCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from roughformer import InputError, SeriesBatch, values_at
from roughformer.tokens import check_series
from roughformer_paper.common import whole_number

__all__ = ["RocketClassifier", "RocketRegressor"]

_SHORTEST = 9  # the convolutions have nine weights
_AT_ONCE = 256  # series resampled or transformed together
_PENALTIES = np.logspace(-3, 3, 10)
_DIGITS = 1e4  # a level so many times what varies around it leaves float32 too few digits for it


class _Rocket(BaseEstimator):  # type: ignore[misc]
    """What both share: series -> even grid -> convolutions -> ridge.

    The penalty is chosen by leave-one-out on the training part.

    Parameters
    ----------
    kernels : {"mini", "multi"}, default "mini"
        MiniRocket, or MultiRocket: differences and more statistics; aeon compiles it for about a
        minute in each process.
    n_kernels : int, default 10000
        About how many convolutions; MultiRocket makes 8 features of each.
    n_points : int or "median", default "median"
        Length of the even grid that each series is resampled to over its own span; ``"median"``: of
        the training lengths, at least 9.
    n_jobs : int, default 1
        Threads of the convolutions.
    random_state : int, RandomState or None, default None
        The same integer gives the same model.
    """

    ridge_: Pipeline

    def __init__(
        self,
        *,
        kernels: Literal["mini", "multi"] = "mini",
        n_kernels: int = 10_000,
        n_points: int | Literal["median"] = "median",
        n_jobs: int = 1,
        random_state: Any = None,
    ) -> None:
        """Keep the parameters as given, as scikit-learn wants it; see the class."""
        self.kernels = kernels
        self.n_kernels = n_kernels
        self.n_points = n_points
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _fit(self, batch: SeriesBatch, y: Any, ridge: Any) -> Self:
        """Choose grid and convolutions by the training part, and fit ``ridge`` to its features."""
        if len(batch) == 0:
            raise InputError("there is nothing to learn from: no series were given")
        usual = max(_SHORTEST, int(np.median(batch.lengths)))
        self.n_points_ = (
            usual
            if self.n_points == "median"
            else whole_number(self.n_points, "n_points", _SHORTEST)
        )
        self._channels = batch.channels
        self._level = _levels(batch)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.transform_ = _transform(self.kernels, self.n_kernels, self.n_jobs, seed)
        x = self._on_grid(batch)
        with _others_left_alone():
            self.transform_.fit(x)
        self.ridge_ = make_pipeline(StandardScaler(), ridge).fit(self._convolved(x), y)
        return self

    def predict(self, X: SeriesBatch) -> npt.NDArray[Any]:
        """Predict the class, or the target, of each series."""
        return np.asarray(self.ridge_.predict(self._features(X)))

    def _features(self, batch: SeriesBatch) -> npt.NDArray[np.float32]:
        check_is_fitted(self, "ridge_")
        check_series(batch, self._channels, ())
        if len(batch) == 0:
            raise InputError("there is nothing to predict: no series were given")
        return self._convolved(self._on_grid(batch))

    def _on_grid(self, batch: SeriesBatch) -> npt.NDArray[np.float32]:
        """``(B, C, n_points_)``: each series at even times over its own span."""
        start, end = batch.span
        since = np.linspace(0, 1, self.n_points_) * (end - start)[:, None]
        out = np.empty((len(batch), batch.n_channels, self.n_points_), np.float32)
        for i in range(0, len(batch), _AT_ONCE):
            part = slice(i, i + _AT_ONCE)
            out[part] = (values_at(batch[part], since[part]) - self._level).transpose(0, 2, 1)
        return out

    def _convolved(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        with _others_left_alone():
            return np.concatenate(
                [
                    np.asarray(self.transform_.transform(x[i : i + _AT_ONCE]), np.float32)
                    for i in range(0, len(x), _AT_ONCE)
                ]
            )


class RocketClassifier(ClassifierMixin, _Rocket):  # type: ignore[misc]
    """Classify series by ROCKET features and a ridge classifier; parameters as in ``_Rocket``."""

    def fit(self, X: SeriesBatch, y: Any = None) -> Self:
        """Learn from labelled series; ``y`` is by default the labels of ``X``."""
        labels = _targets(X, y)
        if len(np.unique(labels)) < 2:
            raise InputError("a classifier needs at least two classes, got labels of one class")
        self._fit(X, labels, RidgeClassifierCV(alphas=_PENALTIES))
        self.classes_ = self.ridge_.classes_
        return self

    def decision_function(self, X: SeriesBatch) -> npt.NDArray[np.float64]:
        """Scores ``(B, K)`` of the classes, of two ``(B,)`` for the second; no probabilities."""
        return np.asarray(self.ridge_.decision_function(self._features(X)))


class RocketRegressor(RegressorMixin, _Rocket):  # type: ignore[misc]
    """Predict numbers by ROCKET features and ridge regression; parameters as in ``_Rocket``."""

    def fit(self, X: SeriesBatch, y: Any = None) -> Self:
        """Learn from series with targets ``(B,)`` or ``(B, m)``, by default the labels of ``X``."""
        numbers = np.asarray(_targets(X, y), np.float64)
        if not np.isfinite(numbers).all():
            raise InputError("targets must be finite; leave out the series without one")
        return self._fit(X, numbers, RidgeCV(alphas=_PENALTIES))


def _targets(batch: SeriesBatch, y: Any) -> npt.NDArray[Any]:
    given = batch.labels if y is None else np.asarray(y)
    if given is None:
        raise InputError("the target y is None; give y, or series with labels")
    if len(given) != len(batch):
        raise InputError(f"expected a target for each of {len(batch)} series, got {len(given)}")
    return np.asarray(given)


def _levels(batch: SeriesBatch) -> npt.NDArray[np.float64]:
    """``(C,)``: means of channels that vary little around them, 0 for the others. Convolutions do
    not see a level, but for their padding, and float32 would keep little else.
    """
    seen = ~np.isnan(batch.values)
    number = np.maximum(seen.sum(axis=0), 1)
    mean = np.nansum(batch.values, axis=0, dtype=np.float64) / number
    apart = np.nansum((batch.values - mean) ** 2, axis=0, dtype=np.float64) / number
    return np.where(np.abs(mean) > _DIGITS * np.sqrt(apart), mean, 0.0)


@contextlib.contextmanager
def _others_left_alone() -> Iterator[None]:
    """aeon seeds numpy's global generator, and numba's threads, when it sets their number, are
    those of torch's OpenMP: both are put back.
    """
    drawn, threads = np.random.get_state(), torch.get_num_threads()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(drawn)  # noqa: NPY002
        torch.set_num_threads(threads)


def _transform(kernels: str, n_kernels: int, n_jobs: int, seed: int) -> Any:
    """aeon's transformation, not fitted."""
    from aeon.transformations.collection.convolution_based import MiniRocket, MultiRocket

    if kernels not in ("mini", "multi"):
        raise InputError(f"kernels must be 'mini' or 'multi', got {kernels!r}")
    kind = MiniRocket if kernels == "mini" else MultiRocket
    return kind(
        n_kernels=whole_number(n_kernels, "n_kernels", 84), n_jobs=n_jobs, random_state=seed
    )
