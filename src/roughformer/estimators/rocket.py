"""ROCKET features and ridge: the cheap yardstick that a user would try first today.

Random convolutions of aeon (MiniRocket: Dempster, Schmidt, Webb 2021; MultiRocket: Tan et al. 2022)
need equally spaced samples: each series is resampled by its linear path.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.linear_model import RidgeClassifierCV, RidgeCV
from sklearn.metrics import r2_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from roughformer.checks import whole_number
from roughformer.errors import InputError
from roughformer.estimators.inputs import aligned, as_series, series_to_fit
from roughformer.path import values_at
from roughformer.series import SeriesBatch
from roughformer.targets import check_all_known, check_numbers, known_labels, share_equal
from roughformer.tokens.tokenizer import check_series

__all__ = ["RocketClassifier", "RocketRegressor"]

_SHORTEST = 9  # the convolutions have nine weights
_AT_ONCE = 256  # series resampled or transformed together
_PENALTIES = np.logspace(-3, 3, 10)
_DIGITS = 1e4  # a level so many times what varies around it leaves float32 too few digits for it


class _Rocket(BaseEstimator):  # type: ignore[misc]
    """What both share: series -> even grid -> convolutions."""

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

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn may expect: missing values, and arrays ``(B, L)`` and ``(B, L, C)``."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.two_d_array = True
        tags.input_tags.three_d_array = True
        return tags

    def _fit_features(self, batch: SeriesBatch) -> npt.NDArray[np.float32]:
        """Choose grid and convolutions by the training part -> its features ``(B, F)``."""
        wish = self.n_points
        usual = max(_SHORTEST, int(np.median(batch.lengths)))
        self.n_points_ = usual if wish == "median" else whole_number(wish, "n_points", _SHORTEST)
        self.n_features_in_ = batch.n_channels
        self._channels = batch.channels
        self._level = _levels(batch)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.transform_ = _transform(self.kernels, self.n_kernels, self.n_jobs, seed)
        x = self._on_grid(batch)
        with _others_left_alone():
            self.transform_.fit(x)
        return self._convolved(x)

    def _series(
        self,
        x: Any,
        times: Any,
        lengths: Any,
        layout: str | None,
        columns: Mapping[str, Any] | None,
    ) -> SeriesBatch:
        check_is_fitted(self, "ridge_")
        return as_series(
            x, times, lengths, layout=layout, columns=columns, n_channels=self.n_features_in_,
            known={"channels": self._channels} | self._known,
        )  # fmt: skip

    def _features(
        self,
        x: Any,
        times: Any,
        lengths: Any,
        layout: str | None,
        columns: Mapping[str, Any] | None,
    ) -> npt.NDArray[np.float32]:
        batch = self._series(x, times, lengths, layout, columns)
        check_series(batch, self._channels, ())
        return self._convolved(self._on_grid(batch))

    def _on_grid(self, batch: SeriesBatch) -> npt.NDArray[np.float32]:
        """``(B, C, n_points_)``: each series at even times over its own span."""
        start, end = batch.span
        since = np.linspace(0, 1, self.n_points_) * (end - start)[:, None]
        out = np.empty((len(batch), batch.n_channels, self.n_points_), np.float32)
        for i in range(0, len(batch), _AT_ONCE):
            part = slice(i, i + _AT_ONCE)
            found = values_at(batch[part], since[part]) - self._level
            out[part] = found.transpose(0, 2, 1)
        return out

    def _convolved(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        with _others_left_alone():
            parts = [
                np.asarray(self.transform_.transform(x[i : i + _AT_ONCE]), np.float32)
                for i in range(0, len(x), _AT_ONCE)
            ]
        if not parts:
            return np.zeros((0, self.ridge_[0].n_features_in_), np.float32)
        return np.concatenate(parts)


class RocketClassifier(ClassifierMixin, _Rocket):  # type: ignore[misc]
    """Classify series by ROCKET features and ridge; needs ``pip install 'roughformer[aeon]'``.

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

    Attributes
    ----------
    classes_ : ndarray (K,)
        Class labels.
    """

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        times: Any = None,
        lengths: Any = None,
        layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> Self:
        """Learn from labelled series.

        Parameters
        ----------
        X : SeriesBatch, array or list of arrays
            Series: anything ``SeriesBatch.of`` takes.
        y : array-like (B,), optional
            Labels; by default those of ``X``.
        times : array-like, optional
            Times of the samples; one unit apart if not given.
        lengths : array-like of int, optional
            Lengths of padded series.
        layout : {"time_first", "channels_first"}, optional
            Whether arrays are ``(B, L, C)`` or ``(B, C, L)``; if not given, time first where that
            is no guess.
        columns : mapping, optional
            What the columns of a table mean, by the argument names of ``SeriesBatch.from_table``.

        Returns
        -------
        self
        """
        batch, self._known = _some_series(X, y, times, lengths, layout, columns)
        labels = _labels(y, batch)
        if len(np.unique(labels)) < 2:
            raise InputError("a classifier needs at least two classes, got labels of one class")
        ridge = RidgeClassifierCV(alphas=_PENALTIES)
        self.ridge_ = make_pipeline(StandardScaler(), ridge).fit(self._fit_features(batch), labels)
        self.classes_ = self.ridge_.classes_
        return self

    def decision_function(
        self,
        X: Any,
        times: Any = None,
        lengths: Any = None,
        *,
        layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> npt.NDArray[np.float64]:
        """Compute scores of the classes; they are no probabilities.

        Parameters
        ----------
        X : SeriesBatch, array or list of arrays
            Series: anything ``SeriesBatch.of`` takes.
        times : array-like, optional
            Times of the samples; one unit apart if not given.
        lengths : array-like of int, optional
            Lengths of padded series.
        layout : {"time_first", "channels_first"}, optional
            Whether arrays are ``(B, L, C)`` or ``(B, C, L)``; if not given, as in ``fit``.
        columns : mapping, optional
            What the columns of a table mean; if not given, as in ``fit``.

        Returns
        -------
        ndarray (B, K)
            Of two classes ``(B,)``, for the second.
        """
        features = self._features(X, times, lengths, layout, columns)
        if len(features) == 0:
            return np.zeros((0, len(self.classes_)) if len(self.classes_) > 2 else 0)
        return np.asarray(self.ridge_.decision_function(features))

    def predict(
        self,
        X: Any,
        times: Any = None,
        lengths: Any = None,
        *,
        layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> npt.NDArray[Any]:
        """Predict the class of each series.

        Parameters
        ----------
        X : SeriesBatch, array or list of arrays
            Series: anything ``SeriesBatch.of`` takes.
        times : array-like, optional
            Times of the samples; one unit apart if not given.
        lengths : array-like of int, optional
            Lengths of padded series.
        layout : {"time_first", "channels_first"}, optional
            Whether arrays are ``(B, L, C)`` or ``(B, C, L)``; if not given, as in ``fit``.
        columns : mapping, optional
            What the columns of a table mean; if not given, as in ``fit``.

        Returns
        -------
        ndarray (B,)
            Class labels.
        """
        features = self._features(X, times, lengths, layout, columns)
        return np.asarray(self.ridge_.predict(features)) if len(features) else self.classes_[:0]

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
        X : SeriesBatch, array or list of arrays
            Series: anything ``SeriesBatch.of`` takes.
        y : array-like (B,), optional
            Labels; by default those of ``X``.
        times : array-like, optional
            Times of the samples; one unit apart if not given.
        lengths : array-like of int, optional
            Lengths of padded series.
        layout : {"time_first", "channels_first"}, optional
            Whether arrays are ``(B, L, C)`` or ``(B, C, L)``; if not given, as in ``fit``.
        columns : mapping, optional
            What the columns of a table mean; if not given, as in ``fit``.

        Returns
        -------
        float
            Share of the series whose class is predicted right.
        """
        batch = self._series(X, times, lengths, layout, columns)
        return share_equal(_labels(y, batch), self.predict(batch))


class RocketRegressor(RegressorMixin, _Rocket):  # type: ignore[misc]
    """Predict numbers from series by ROCKET features and ridge regression.

    Needs ``pip install 'roughformer[aeon]'``. The penalty is chosen by leave-one-out on the
    training part.

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
    ) -> Self:
        """Learn from series with known targets.

        Parameters
        ----------
        X : SeriesBatch, array or list of arrays
            Series: anything ``SeriesBatch.of`` takes.
        y : array-like (B,) or (B, m), optional
            Targets; by default the labels of ``X``.
        times : array-like, optional
            Times of the samples; one unit apart if not given.
        lengths : array-like of int, optional
            Lengths of padded series.
        layout : {"time_first", "channels_first"}, optional
            Whether arrays are ``(B, L, C)`` or ``(B, C, L)``; if not given, time first where that
            is no guess.
        columns : mapping, optional
            What the columns of a table mean, by the argument names of ``SeriesBatch.from_table``.

        Returns
        -------
        self
        """
        batch, self._known = _some_series(X, y, times, lengths, layout, columns)
        numbers = _numbers(y, batch)
        ridge = RidgeCV(alphas=_PENALTIES)
        self.ridge_ = make_pipeline(StandardScaler(), ridge).fit(self._fit_features(batch), numbers)
        self._shape = numbers.shape[1:]
        return self

    def predict(
        self,
        X: Any,
        times: Any = None,
        lengths: Any = None,
        *,
        layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> npt.NDArray[np.float64]:
        """Predict the targets of each series.

        Parameters
        ----------
        X : SeriesBatch, array or list of arrays
            Series: anything ``SeriesBatch.of`` takes.
        times : array-like, optional
            Times of the samples; one unit apart if not given.
        lengths : array-like of int, optional
            Lengths of padded series.
        layout : {"time_first", "channels_first"}, optional
            Whether arrays are ``(B, L, C)`` or ``(B, C, L)``; if not given, as in ``fit``.
        columns : mapping, optional
            What the columns of a table mean; if not given, as in ``fit``.

        Returns
        -------
        ndarray (B,) or (B, m)
        """
        features = self._features(X, times, lengths, layout, columns)
        if len(features) == 0:
            return np.zeros((0, *self._shape))
        return np.asarray(self.ridge_.predict(features), dtype=np.float64)

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
        X : SeriesBatch, array or list of arrays
            Series: anything ``SeriesBatch.of`` takes.
        y : array-like (B,) or (B, m), optional
            Targets; by default the labels of ``X``.
        times : array-like, optional
            Times of the samples; one unit apart if not given.
        lengths : array-like of int, optional
            Lengths of padded series.
        layout : {"time_first", "channels_first"}, optional
            Whether arrays are ``(B, L, C)`` or ``(B, C, L)``; if not given, as in ``fit``.
        columns : mapping, optional
            What the columns of a table mean; if not given, as in ``fit``.

        Returns
        -------
        float
        """
        batch = self._series(X, times, lengths, layout, columns)
        return float(r2_score(_numbers(y, batch), self.predict(batch)))


def _some_series(*given: Any) -> tuple[SeriesBatch, dict[str, Any]]:
    batch, known = series_to_fit(*given)
    if len(batch) == 0:
        raise InputError("there is nothing to learn from: no series were given")
    return batch, known


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


def _given(y: Any, batch: SeriesBatch) -> Any:
    given = batch.labels if y is None else aligned(y, batch)
    if given is None:
        raise InputError("the target y is None; give y, or series with labels")
    shape = np.shape(given)
    if not shape or shape[0] != len(batch):
        raise InputError(f"expected a target for each of {len(batch)} series, got {shape}")
    return given


def _labels(y: Any, batch: SeriesBatch) -> npt.NDArray[Any]:
    """``(B,)``, all known."""
    labels, known = known_labels(_given(y, batch))
    if labels.ndim != 1:
        raise InputError(f"labels must have shape ({len(batch)},), got {labels.shape}")
    check_all_known(known)
    return labels


def _numbers(y: Any, batch: SeriesBatch) -> npt.NDArray[np.float64]:
    """``(B,)`` or ``(B, m)``, all known."""
    numbers, flat = check_numbers(_given(y, batch), len(batch))
    if np.isnan(numbers).any():
        raise InputError(
            "targets must be finite: ridge regression has no use for a series without one; "
            "leave these series out"
        )
    return numbers[:, 0] if flat else numbers


def _transform(kernels: str, n_kernels: int, n_jobs: int, seed: int) -> Any:
    """aeon's transformation, not fitted."""
    if kernels not in ("mini", "multi"):
        raise InputError(f"kernels must be 'mini' or 'multi', got {kernels!r}")
    count = whole_number(n_kernels, "n_kernels", 84)
    try:
        from aeon.transformations.collection.convolution_based import MiniRocket, MultiRocket
    except ImportError as error:
        raise InputError(
            f"ROCKET features need the package aeon, which cannot be imported ({error}); install "
            "it with: pip install 'roughformer[aeon]'"
        ) from error
    kind = MiniRocket if kernels == "mini" else MultiRocket
    return kind(n_kernels=count, n_jobs=n_jobs, random_state=seed)
