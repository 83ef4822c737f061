"""RFormerClassifier and RFormerRegressor."""

from typing import Any, ClassVar, Literal

from roughformer.estimators.classifier import TrainedClassifier
from roughformer.estimators.documented import documented
from roughformer.estimators.models import ModelConfig
from roughformer.estimators.regressor import TrainedRegressor
from roughformer.groups import Group
from roughformer.lifts import View
from roughformer.tokens import TokenConfig
from roughformer.train import TrainConfig

__all__ = ["RFormerClassifier", "RFormerRegressor"]

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
    "batch_size": "training",
    "learning_rate": "training",
    "drop": "training",
}


@documented
class RFormerClassifier(TrainedClassifier):
    """Classify irregular, ragged, incomplete multichannel series with a Rough Transformer.

    The parameters that are changed most are flat; the others are in the groups ``tokens``,
    ``model`` and ``training``. A parameter that is given twice with different values is refused.

    Parameters
    ----------
    {tokens}
    {series}
    {context}
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
    groups: ClassVar[dict[str, type[Group]]] = _GROUPS
    shortcuts: ClassVar[dict[str, str]] = _SHORTCUTS

    def __init__(
        self,
        *,
        windows: Any = None,
        depth: int | Literal["auto"] | None = None,
        views: View | tuple[View, ...] | None = None,
        static: tuple[str, ...] = (),
        causal: bool = False,
        context: int | Literal["auto"] | None = "auto",
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        drop: float | tuple[float, float] | None = None,
        validation: float = 0.2,
        metric: str = "auto",
        members: int = 1,
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
        random_state: Any = None,
        device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
        n_jobs: int | None = None,
        run_dir: Any = None,
        resume: bool = False,
        verbose: int = 0,
        tokens: TokenConfig | dict[str, Any] | None = None,
        model: ModelConfig | dict[str, Any] | None = None,
        training: TrainConfig | dict[str, Any] | None = None,
    ) -> None:
        """Keep the parameters as given, as scikit-learn wants it; see the class."""
        self.windows = windows
        self.depth = depth
        self.views = views
        self.static = static
        self.causal = causal
        self.context = context
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.drop = drop
        self.validation = validation
        self.metric = metric
        self.members = members
        self.class_weight = class_weight
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.run_dir = run_dir
        self.resume = resume
        self.verbose = verbose
        self.tokens = tokens
        self.model = model
        self.training = training


@documented
class RFormerRegressor(TrainedRegressor):
    """Predict numbers from irregular, ragged, incomplete multichannel series.

    Targets may be ``(B,)`` or ``(B, m)``; NaN, None, pandas.NA and masked entries are unknown and
    count nowhere. For rates (a heart rate, a rotation speed) see ``RateRegressor``.

    Parameters
    ----------
    {tokens}
    {series}
    {context}
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

    kind = "rformer"
    groups: ClassVar[dict[str, type[Group]]] = _GROUPS
    shortcuts: ClassVar[dict[str, str]] = _SHORTCUTS

    def __init__(
        self,
        *,
        windows: Any = None,
        depth: int | Literal["auto"] | None = None,
        views: View | tuple[View, ...] | None = None,
        static: tuple[str, ...] = (),
        causal: bool = False,
        context: int | Literal["auto"] | None = "auto",
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        drop: float | tuple[float, float] | None = None,
        validation: float = 0.2,
        metric: str = "auto",
        members: int = 1,
        uncertainty: Literal["none", "gaussian", "quantile"] = "none",
        quantiles: tuple[float, ...] = (0.1, 0.5, 0.9),
        random_state: Any = None,
        device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
        n_jobs: int | None = None,
        run_dir: Any = None,
        resume: bool = False,
        verbose: int = 0,
        tokens: TokenConfig | dict[str, Any] | None = None,
        model: ModelConfig | dict[str, Any] | None = None,
        training: TrainConfig | dict[str, Any] | None = None,
    ) -> None:
        """Keep the parameters as given, as scikit-learn wants it; see the class."""
        self.windows = windows
        self.depth = depth
        self.views = views
        self.static = static
        self.causal = causal
        self.context = context
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.drop = drop
        self.validation = validation
        self.metric = metric
        self.members = members
        self.uncertainty = uncertainty
        self.quantiles = quantiles
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.run_dir = run_dir
        self.resume = resume
        self.verbose = verbose
        self.tokens = tokens
        self.model = model
        self.training = training
