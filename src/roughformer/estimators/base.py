"""What a fitted estimator does whatever its task: run, explain, save, load."""

import os
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from roughformer.errors import InputError
from roughformer.estimators.baselines import summary_of
from roughformer.estimators.inputs import aligned, as_series
from roughformer.estimators.parameters import (
    GroupedParameters,
    documented,
    preset,
    to_plain,
    with_saved_parameters,
)
from roughformer.inference import Explanation, Predictor, explain, model_name
from roughformer.series import SeriesBatch
from roughformer.util.checks import using_threads


@documented
class FittedEstimator(GroupedParameters):
    """An estimator around a ``predictor_``, which fitting or loading gives it."""

    kind: ClassVar[str]  # of the model, as ``roughformer.inference.predictor`` names it
    other_kinds: ClassVar[tuple[str, ...]] = ()  # that the estimator may choose instead
    task: Literal["classification", "regression"]
    n_jobs: Any
    predictor_: Predictor
    history_: list[dict[str, Any]]  # one record an epoch; empty when loaded

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> Self:
        """Make an estimator with the parameters of a preset.

        Parameters
        ----------
        name : {"default", "paper"}
            "paper" has the paper's own choices, for its sine task (classifier) or for heart rate
            (regressor): 75 windows, learning rate 1e-3, time as the only lift; depth 2 and both
            views for sines, depth 4 and the local view for heart rate.
        **changes
            Parameters that differ from the preset. Options of groups may be given by their own
            names: ``clock=8`` is ``tokens__clock=8``.

        Returns
        -------
        estimator
            Not fitted.
        """
        return cls.from_settings(cls.preset_settings(name) | cls.settings(changes))

    @classmethod
    def preset_settings(cls, name: str) -> dict[str, Any]:
        """Look up the settings of a preset that differ from the defaults.

        Parameters
        ----------
        name : str
            Name of the preset.

        Returns
        -------
        dict
        """
        settings = preset(name, cls.task)
        if settings and cls.kind != "rformer":
            raise InputError(
                f"the preset {name!r} is RFormer's; {cls.__name__} has its defaults only"
            )
        return cls.settings(settings)

    @abstractmethod
    def _truth(self, y: Any, n: int) -> npt.NDArray[Any]:
        """Known targets of n series, ``(n, m)``, or which class is the true one, ``(n, K)``."""

    @abstractmethod
    def _readable(self, output: Tensor) -> Any:
        """Outputs of the model as its user reads them."""

    def _series(
        self, x: Any, times: Any, lengths: Any, layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> SeriesBatch:  # fmt: skip
        check_is_fitted(self, "predictor_")
        predictor = self.predictor_
        known = {"channels": predictor.encoder.channels, "static": predictor.static_names}
        known |= predictor.metadata.get("data", {})
        return as_series(
            x, times, lengths, layout=layout, columns=columns, n_channels=self.n_features_in_,
            known=known,
        )  # fmt: skip

    def _labelled(
        self, x: Any, y: Any, times: Any, lengths: Any, layout: str | None,
        columns: Mapping[str, Any] | None,
    ) -> tuple[SeriesBatch, Any]:  # fmt: skip
        """Series and their targets; ``y=None``: those that the series have as labels."""
        batch = self._series(x, times, lengths, layout, columns)
        if y is None and batch.labels is None:
            raise InputError("score needs y, or series with labels")
        return batch, batch.labels if y is None else aligned(y, batch)

    def _run(
        self, what: str, x: Any, times: Any, lengths: Any, layout: str | None = None,
        columns: Mapping[str, Any] | None = None, **options: Any,
    ) -> Any:  # fmt: skip
        batch = self._series(x, times, lengths, layout, columns)
        with using_threads(self.n_jobs):
            return getattr(self.predictor_, what)(batch, **options)

    def predict_windows(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Predict at the end of each window, with a causal model.

        Parameters
        ----------
        {series}

        Returns
        -------
        list of (ndarray (L,), ndarray (L, ...))
            For each series the times of the window ends and the predictions there.
        """
        batch = self._series(X, times, lengths, layout, columns)
        if not self.predictor_.outputs.causal:
            raise InputError("only a causal model predicts at every window: fit with causal=True")
        with using_threads(self.n_jobs):
            output, _ = self.predictor_.forward(batch)
        readable = self._readable(output)
        ends = [edges[1:] for edges in self.predictor_.window_edges(batch)]
        return [(end, readable[b, : len(end)]) for b, end in enumerate(ends)]

    def embed(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Represent each series by one vector, for search, clustering or another model.

        Parameters
        ----------
        {series}

        Returns
        -------
        ndarray (B, E)
            Principal components of the functionals (at most 64) for an ensemble; what the head
            sees, at the last window, for a network.
        """
        return self._run("embed", X, times, lengths, layout, columns).numpy()

    def explain(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        layout: str | None = None, columns: Mapping[str, Any] | None = None,
        n_words: int | None = 20, target: Any = None,
    ) -> list[Explanation]:  # fmt: skip
        """Explain which windows, channels and words drove each prediction.

        Parameters
        ----------
        {series}
        n_words : int or None, default 20
            Number of words to tell; None: all.
        target : label or int, optional
            The class to explain (not given: the predicted one), or the index of a target of a
            regression with several.

        Returns
        -------
        list of Explanation
            One for each series; see ``roughformer.inference.explanation``.
        """
        batch = self._series(X, times, lengths, layout, columns)
        with using_threads(self.n_jobs):
            return explain(self.predictor_, batch, n_words=n_words, target=target)

    def calibrate(
        self, X: Any, y: Any = None, times: Any = None, lengths: Any = None, *,
        layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> Self:  # fmt: skip
        """Learn from held-out series how wide intervals, or how large sets of classes, must be.

        Split conformal prediction: the scores are errors in units of the predicted deviation (if
        the model has one), or one minus the probability of the true class. Series are predicted
        whole and with 50 to 90 % of their points left out, and bounds are kept by the number of
        values observed: intervals and sets grow where much is missing.

        Parameters
        ----------
        X : SeriesBatch, array or list of arrays
            Series that the model was not fitted to.
        y : array-like (B,) or (B, m), optional
            Their labels, or targets, NaN where unknown. Not given: the labels of ``X``.
        {reading}

        Returns
        -------
        self
        """
        batch, y = self._labelled(X, y, times, lengths, layout, columns)
        self._run("calibrate", batch, None, None, true=self._truth(y, len(batch)))
        return self

    def summary(self) -> str:
        """Describe the fitted model, and what it reached beside simple yardsticks.

        Returns
        -------
        str
            Several lines: what the model is made of and, of an ensemble, out-of-fold scores of the
            model, of its parts alone and of the majority class or the mean.
        """
        check_is_fitted(self, "predictor_")
        return summary_of(self.predictor_)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Save the trained model; ``load`` reads it, no pickle is involved.

        Parameters
        ----------
        directory : path-like
            Directory to write.
        """
        check_is_fitted(self, "predictor_")
        _check_directory(directory)
        given = self.get_params(deep=False)
        del given["run_dir"]  # where a run was made is not the model's business
        self.predictor_.metadata["parameters"] = to_plain(given)
        self.predictor_.save(directory)

    @classmethod
    def load(cls, directory: str | os.PathLike[str], device: str = "cpu") -> Self:
        """Load a fitted estimator.

        Parameters
        ----------
        directory : path-like
            Directory that ``save`` or a training run wrote.
        device : str, default "cpu"
            Where the model is to run.

        Returns
        -------
        estimator
            Fitted, with the parameters that it was saved with.
        """
        _check_directory(directory)
        predictor = Predictor.load(directory, device)
        if predictor.metadata.get("task") != cls.task:
            raise InputError(
                f"{os.fspath(directory)} holds a model for {predictor.metadata.get('task')}, "
                f"not for {cls.task}"
            )
        kind = model_name(predictor.model)
        if kind not in (cls.kind, *cls.other_kinds):
            raise InputError(
                f"{os.fspath(directory)} holds a model of the kind {kind!r}, and {cls.__name__} is "
                f"for the kind {cls.kind!r}; load it with the estimator that saved it"
            )
        estimator = with_saved_parameters(cls, predictor.metadata, directory)
        estimator._adopt(predictor)
        return estimator

    def _adopt(self, predictor: Predictor) -> None:
        self.predictor_ = predictor
        self.n_features_in_ = len(predictor.encoder.channels)
        self.history_ = []


def _check_directory(directory: Any) -> None:
    if not isinstance(directory, str | os.PathLike):
        raise InputError(f"the directory of a model must be a path, got {directory!r}")
