"""RFormerClassifier, RFormerRegressor and RateRegressor."""

from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from roughformer.errors import InputError
from roughformer.estimators.classifier import TrainedClassifier
from roughformer.estimators.ensemble import fit_ensemble
from roughformer.estimators.fitting import Part, TrainedEstimator, TrainingSet, held_series
from roughformer.estimators.parameters import ModelConfig, RateModelConfig, documented
from roughformer.estimators.regressor import TrainedRegressor
from roughformer.estimators.summary import beside_baselines, out_of_fold
from roughformer.inference import NumberTargets, Predictor, check_rates
from roughformer.model import OutputConfig
from roughformer.signatures import View
from roughformer.store import StoredSeries
from roughformer.tokens import CellEncoder, TokenConfig
from roughformer.train import TrainConfig, check_device, current_process_group
from roughformer.util.checks import real_number
from roughformer.util.groups import Group

__all__ = ["RFormerClassifier", "RFormerRegressor", "RateRegressor"]

_GROUPS: dict[str, type[Group]] = {
    "tokens": TokenConfig,
    "model": ModelConfig,
    "training": TrainConfig,
}
_SHORTCUTS = {
    "windows": "tokens",
    "depth": "tokens",
    "views": "tokens",
    "epochs": "training",
    "learning_rate": "training",
    "drop": "training",
}

_RECIPES = ("auto", "ensemble", "attention")
# Options of the training that are not about the network.
_BESIDE_THE_MODEL = ("metric", "resume", "save_seconds", "baselines")
_MOST_SERIES = 50_000  # that an ensemble is fitted to


class _WithRecipe(TrainedEstimator):
    """An estimator that is an ensemble on functionals of signatures, or attention on tokens."""

    kind = "rformer"
    other_kinds = ("ensemble",)
    groups: ClassVar[dict[str, type[Group]]] = _GROUPS
    shortcuts: ClassVar[dict[str, str]] = _SHORTCUTS
    recipe: Any

    def _learn(self, data: TrainingSet, validation: Any, seed: int) -> None:
        reasons = self._against_ensemble(data)
        if self.recipe not in _RECIPES:
            raise InputError(f"recipe must be one of {', '.join(_RECIPES)}; got {self.recipe!r}")
        if self.recipe == "ensemble" and reasons:
            raise InputError(f"recipe='ensemble' does not go with {reasons[0]}")
        if self.recipe == "attention" or reasons:
            super()._learn(data, validation, seed)
        else:
            if validation is not None:  # it is checked, and left to whoever gave it
                held, y = held_series(validation[0], 1, validation[1])
                self._aim(y, len(held))
            self._learn_ensemble(data, seed)

    def _against_ensemble(self, data: TrainingSet) -> list[str]:
        """What an ensemble cannot do, or is not asked to do because options of the network are
        changed.
        """
        found = [
            f"{group}.{name}"
            for group in self.groups
            for name in self._changed(group)
            if name not in _BESIDE_THE_MODEL
        ]
        if self.causal:
            found.append("causal=True")
        if getattr(self, "uncertainty", "none") != "none":
            found.append("uncertainty")
        if isinstance(data.batch, StoredSeries):
            found.append("a store")
        if self.task == "regression" and bool(data.target.isnan().any()):
            found.append("unknown targets")
        if current_process_group().size > 1:
            found.append("several processes")
        return found

    def _compare(self, part: Part, held: Part, seed: int) -> None:
        (batch, target, weight), (new, new_target, new_weight) = part, held
        if isinstance(batch, StoredSeries) or isinstance(new, StoredSeries):
            return
        if target.dim() > self._axes_per_series or current_process_group().size > 1:
            return
        metadata = self.predictor_.metadata
        metadata["beside_baselines"], metadata["training_scores"] = beside_baselines(
            self.predictor_,
            (batch, target, weight),
            (new, new_target, new_weight),
            tuple(self.static),
            seed,
        )

    def _learn_ensemble(self, data: TrainingSet, seed: int) -> None:
        batch, target, weight, groups, _ = data
        assert not isinstance(batch, StoredSeries)
        self.checked_metric(self._train_config.metric)
        check_device(self._train_config.device)
        self._fit_targets(target, None)
        of_class = self._class_weight(target, weight)
        if of_class is not None:
            each = of_class[target]
            weight = each if weight is None else weight * each
        chosen = np.arange(len(batch))
        if len(chosen) > _MOST_SERIES:
            chosen = np.sort(np.random.default_rng(seed).permutation(len(chosen))[:_MOST_SERIES])
            batch, target = batch[chosen], target[chosen]
            weight = None if weight is None else weight[chosen]
            groups = None if groups is None else np.asarray(groups)[chosen]
        encoder = CellEncoder.fit(batch, tuple(self.static))
        fitted = fit_ensemble(
            encoder,
            encoder.encode(batch),
            self._to_loss(target),
            n_outputs=self._output_options(target)["n_outputs"],
            task=self.task,
            weight=weight,
            groups=groups,
            seed=seed,
        )
        self.predictor_ = Predictor(
            encoder, fitted.model, self._targets, metadata=self._metadata(batch)
        )
        self.predictor_.metadata["out_of_fold"] = out_of_fold(fitted, target, self._targets)
        self.history_, self.member_histories_ = [], [[]]
        self.validation_index_ = np.zeros(0, dtype=np.int64)


@documented
class RFormerClassifier(_WithRecipe, TrainedClassifier):
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


@documented
class RFormerRegressor(_WithRecipe, TrainedRegressor):
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

    def _aim(self, y: Any, n: int) -> Tensor:
        target = super()._aim(y, n)
        check_rates(target.numpy())
        return target

    def _fit_targets(self, target: Tensor, outputs: OutputConfig) -> None:
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
