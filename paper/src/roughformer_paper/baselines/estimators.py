"""Estimators of the models that RFormer is compared with; they read the samples."""

from types import FunctionType
from typing import Any, ClassVar, Literal

from roughformer.estimators import (
    ModelGroup,
    TrainedClassifier,
    TrainedEstimator,
    TrainedRegressor,
    documented,
)
from roughformer.train import TrainConfig
from roughformer_paper.baselines.options import (
    GRUModelConfig,
    NeuralCDEModelConfig,
    NeuralRDEModelConfig,
    ODERNNModelConfig,
    StateSpaceModelConfig,
    TransformerModelConfig,
)

__all__ = [
    "BASELINES",
    "GRUClassifier",
    "GRURegressor",
    "NeuralCDEClassifier",
    "NeuralCDERegressor",
    "NeuralRDEClassifier",
    "NeuralRDERegressor",
    "ODERNNClassifier",
    "ODERNNRegressor",
    "StateSpaceClassifier",
    "StateSpaceRegressor",
    "TransformerClassifier",
    "TransformerRegressor",
]

_SHORTCUTS = dict.fromkeys(("epochs", "learning_rate", "drop"), "training")


_CLASSES = """classes_ : ndarray
        Class labels, in the order of the columns of ``predict_proba``.
    """


def _complete(
    cls: type[TrainedEstimator],
    kind: str,
    config: type[ModelGroup],
    outputs: str,
    classes: str = "",
) -> None:
    """Kind, groups and docstring of a baseline: only the first line of it is its own.

    Its ``__init__`` is a copy, so that Python's own errors name the public class.
    """
    shared: Any = cls.__init__
    own: Any = FunctionType(shared.__code__, shared.__globals__)
    own.__kwdefaults__, own.__annotations__ = shared.__kwdefaults__, shared.__annotations__
    own.__doc__, own.__module__ = shared.__doc__, shared.__module__
    own.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = own  # type: ignore[method-assign]
    cls.kind = kind
    cls.groups = {"model": config, "training": TrainConfig}
    cls.__doc__ = f"""{cls.__doc__}

    Parameters
    ----------
    {{parameters_of_series}}
    {{training}}
    {outputs}
    {{running}}
    model : {config.__name__} or dict, optional
        Options of the model.
    {{train_group}}

    Attributes
    ----------
    {classes}{{fitted}}
    """
    documented(cls)


class _BaselineClassifier(TrainedClassifier):
    shortcuts: ClassVar[dict[str, str]] = _SHORTCUTS

    def __init_subclass__(cls, *, kind: str, config: type[ModelGroup], **options: Any) -> None:
        super().__init_subclass__(**options)
        _complete(cls, kind, config, "{classes}", _CLASSES)

    def __init__(
        self,
        *,
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
        model: ModelGroup | dict[str, Any] | None = None,
        training: TrainConfig | dict[str, Any] | None = None,
    ) -> None:
        """Keep the parameters as given, as scikit-learn wants it; see the class."""
        self._keep(locals())


class _BaselineRegressor(TrainedRegressor):
    shortcuts: ClassVar[dict[str, str]] = _SHORTCUTS

    def __init_subclass__(cls, *, kind: str, config: type[ModelGroup], **options: Any) -> None:
        super().__init_subclass__(**options)
        _complete(cls, kind, config, "{numbers}")

    def __init__(
        self,
        *,
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
        model: ModelGroup | dict[str, Any] | None = None,
        training: TrainConfig | dict[str, Any] | None = None,
    ) -> None:
        """Keep the parameters as given, as scikit-learn wants it; see the class."""
        self._keep(locals())


class TransformerClassifier(_BaselineClassifier, kind="transformer", config=TransformerModelConfig):
    """Classify series with a Transformer over the samples."""


class TransformerRegressor(_BaselineRegressor, kind="transformer", config=TransformerModelConfig):
    """Predict numbers from series with a Transformer over the samples."""


class GRUClassifier(_BaselineClassifier, kind="gru", config=GRUModelConfig):
    """Classify series with a GRU over the samples (GRU-simple of Che et al. 2018)."""


class GRURegressor(_BaselineRegressor, kind="gru", config=GRUModelConfig):
    """Predict numbers from series with a GRU over the samples (GRU-simple of Che et al. 2018)."""


class ODERNNClassifier(_BaselineClassifier, kind="ode-rnn", config=ODERNNModelConfig):
    """Classify series with an ODE-RNN (Rubanova et al. 2019)."""


class ODERNNRegressor(_BaselineRegressor, kind="ode-rnn", config=ODERNNModelConfig):
    """Predict numbers from series with an ODE-RNN (Rubanova et al. 2019)."""


class NeuralCDEClassifier(_BaselineClassifier, kind="neural-cde", config=NeuralCDEModelConfig):
    """Classify series with a Neural CDE (Kidger et al. 2020)."""


class NeuralCDERegressor(_BaselineRegressor, kind="neural-cde", config=NeuralCDEModelConfig):
    """Predict numbers from series with a Neural CDE (Kidger et al. 2020)."""


class NeuralRDEClassifier(_BaselineClassifier, kind="neural-rde", config=NeuralRDEModelConfig):
    """Classify series with a Neural RDE on log-signatures (Morrill et al. 2021)."""


class NeuralRDERegressor(_BaselineRegressor, kind="neural-rde", config=NeuralRDEModelConfig):
    """Predict numbers from series with a Neural RDE on log-signatures (Morrill et al. 2021)."""


class StateSpaceClassifier(_BaselineClassifier, kind="state-space", config=StateSpaceModelConfig):
    """Classify series with a state-space model, S5 (Smith et al. 2023)."""


class StateSpaceRegressor(_BaselineRegressor, kind="state-space", config=StateSpaceModelConfig):
    """Predict numbers from series with a state-space model."""


BASELINES: tuple[type[TrainedClassifier | TrainedRegressor], ...] = (
    TransformerClassifier,
    TransformerRegressor,
    GRUClassifier,
    GRURegressor,
    ODERNNClassifier,
    ODERNNRegressor,
    NeuralCDEClassifier,
    NeuralCDERegressor,
    NeuralRDEClassifier,
    NeuralRDERegressor,
    StateSpaceClassifier,
    StateSpaceRegressor,
)
