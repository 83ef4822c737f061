"""SignatureTransformer: signatures of windows as features for scikit-learn pipelines."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from roughformer.errors import InputError
from roughformer.estimators.inputs import SeriesEstimator, as_series, series_to_fit
from roughformer.estimators.parameters import documented
from roughformer.signatures import (
    Layout,
    Lifts,
    Transform,
    View,
    Windows,
    layout_of,
    multiview_signature,
)
from roughformer.tokens import check_series


@documented
class SignatureTransformer(TransformerMixin, SeriesEstimator):  # type: ignore[misc]
    """Turn irregular, ragged, incomplete series into one row of signature features each.

    Time is cut into windows; the features of a series are the words of the signatures over each
    window (local view) and from the start to its end (global view), window by window.

    Parameters
    ----------
    windows : int, Windows or cut times, default=5
        Number of windows over each series' own span, or as in ``multiview_signature``. Where it
        leads to different numbers of windows, a row ends with zeros.
    depth : int, default=3
        Length of the longest words.
    views : {"global", "local"} or a tuple of both, default=("global", "local")
        Signatures from the start of a series, of each window, or both.
    lifts : lifts or mapping from view to lifts, default=("time",)
        Channels added to the path, as in ``multiview_signature``.
    logsignature : bool, default=False
        Use log-signatures: the same information in fewer coordinates.

    Attributes
    ----------
    n_features_in_ : int
        Number of channels.
    n_windows_ : int
        Number of windows of a row.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import RidgeClassifierCV
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X = np.random.default_rng(0).normal(size=(40, 30, 2)).cumsum(axis=1)
    >>> y = X[:, -1, 0] > 0
    >>> model = make_pipeline(SignatureTransformer(), StandardScaler(), RidgeClassifierCV())
    >>> model.fit(X[:30], y[:30]).predict(X[30:]).shape
    (10,)
    """

    _layout: Layout
    _known: dict[str, Any]  # the meaning of the columns of a table, or the layout of arrays

    def __init__(
        self, *,
        windows: Any = 5, depth: int = 3, views: tuple[View, ...] | View = ("global", "local"),
        lifts: Lifts = ("time",), logsignature: bool = False,
    ) -> None:  # fmt: skip
        """Keep the parameters as given, as scikit-learn wants it; see the class."""
        self._keep(locals())

    def __sklearn_tags__(self) -> Any:
        """float32 stays float32."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(
        self, X: Any, y: Any = None, *,
        times: Any = None, lengths: Any = None, layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> Self:  # fmt: skip
        """Learn the channels and the number of windows.

        Parameters
        ----------
        X : SeriesBatch, array, list of arrays or table
            Anything that ``SeriesBatch.of`` takes, also ``(B, L)`` for series of one channel.
        y : array-like (B,), optional
            Not used, but a column of a table that has its name is no channel. A pandas object
            with the ids of the series as its index must be in their order, because the next step
            of a pipeline matches rows by position.
        {times}
        {fit_layout}

        Returns
        -------
        self
        """
        batch, self._known = series_to_fit(X, y, times, lengths, layout, columns)
        if len(batch) == 0:
            raise InputError("there is nothing to learn from: no series were given")
        if hasattr(y, "iloc") and batch.ids is not None and _is_permuted(y.index, batch.ids):
            raise InputError(
                "y must be in the order of the series, because a pipeline matches them by "
                "position; give y.loc[batch.ids] with batch = rf.SeriesBatch.of(X)"
            )
        self._layout = self._layout_of(batch.channels)
        self.n_features_in_ = batch.n_channels
        self.n_windows_ = Windows.of(self.windows).place(batch).most
        return self

    def transform(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Compute the features of series.

        Parameters
        ----------
        {timed}
        {layout}

        Returns
        -------
        ndarray or DataFrame (B, windows · features of a window)
            Of a pandas DataFrame, a DataFrame with the ids of the series as its index.
        """
        check_is_fitted(self, "n_windows_")
        batch = as_series(
            X, times, lengths, layout=layout, columns=columns, n_channels=self.n_features_in_,
            known={"channels": self._layout.channels} | self._known,
        )  # fmt: skip
        check_series(batch, self._layout.channels, ())
        features = self._layout
        tokens = multiview_signature(
            batch, self.windows, features.depth, features.views, lifts=self.lifts,
            transform=features.transform,
        )  # fmt: skip
        n_windows = tokens.shape[1]
        if n_windows > self.n_windows_:
            raise InputError(
                f"a series has {n_windows} windows, but {self.n_windows_} was the largest number "
                "when fitting; give windows as a number, or cut times"
            )
        missing = ((0, 0), (0, self.n_windows_ - n_windows), (0, 0))
        rows = np.pad(tokens, missing).reshape(len(batch), -1)
        if not hasattr(X, "iloc"):
            return rows
        import pandas as pd

        return pd.DataFrame(rows, index=batch.ids, columns=self.get_feature_names_out())

    def fit_transform(
        self, X: Any, y: Any = None, *,
        times: Any = None, lengths: Any = None, layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Fit, and compute the features of the same series.

        Parameters
        ----------
        X : SeriesBatch, array, list of arrays or table
            Series, as in ``fit``.
        y : array-like (B,), optional
            As in ``fit``.
        {times}
        {fit_layout}

        Returns
        -------
        ndarray or DataFrame
            As from ``transform``.
        """
        reading: Any = {"times": times, "lengths": lengths, "layout": layout, "columns": columns}
        return self.fit(X, y, **reading).transform(X, **reading)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Return a name for each feature: ``window:view:word``, windows counted from 1.

        Parameters
        ----------
        input_features : sequence of str, optional
            Names of the channels, if the series had none.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self, "n_windows_")
        layout = self._layout
        if input_features is not None:
            names = [str(name) for name in input_features]
            if len(names) != self.n_features_in_:
                raise InputError(
                    "input_features should have length equal to the number of channels, "
                    f"{self.n_features_in_}, got {len(names)}"
                )
            layout = self._layout_of(tuple(names))
        return np.array(
            [f"{k + 1}:{word}" for k in range(self.n_windows_) for word in layout.names()],
            dtype=object,
        )

    def _layout_of(self, channels: tuple[str, ...]) -> Layout:
        transform: Transform = "logsignature" if self.logsignature else "signature"
        return layout_of(channels, self.depth, self.views, self.lifts, transform)


def _is_permuted(index: Any, ids: npt.NDArray[Any]) -> bool:
    """Whether a pandas index has the ids in another order."""
    if len(index) != len(ids) or not index.is_unique:
        return False
    places = index.get_indexer(ids)
    return bool((places >= 0).all() and (np.diff(places) != 1).any())
