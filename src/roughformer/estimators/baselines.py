"""Estimators of the models that RFormer is compared with; they read the samples."""

from typing import Any, ClassVar, Literal

from roughformer.estimators.classifier import TrainedClassifier
from roughformer.estimators.documented import documented
from roughformer.estimators.models import (
    GRUModelConfig,
    NeuralCDEModelConfig,
    NeuralRDEModelConfig,
    ODERNNModelConfig,
    StateSpaceModelConfig,
    TransformerModelConfig,
)
from roughformer.estimators.regressor import TrainedRegressor
from roughformer.groups import Group
from roughformer.train import TrainConfig

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

_SHORTCUTS = dict.fromkeys(("epochs", "batch_size", "learning_rate", "drop"), "training")


class _BaselineClassifier(TrainedClassifier):
    shortcuts: ClassVar[dict[str, str]] = _SHORTCUTS

    def __init__(
        self,
        *,
        static: tuple[str, ...] = (),
        causal: bool = False,
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
        model: Group | dict[str, Any] | None = None,
        training: TrainConfig | dict[str, Any] | None = None,
    ) -> None:
        """Keep the parameters as given, as scikit-learn wants it; see the class."""
        self.static = static
        self.causal = causal
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
        self.model = model
        self.training = training


class _BaselineRegressor(TrainedRegressor):
    shortcuts: ClassVar[dict[str, str]] = _SHORTCUTS

    def __init__(
        self,
        *,
        static: tuple[str, ...] = (),
        causal: bool = False,
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
        model: Group | dict[str, Any] | None = None,
        training: TrainConfig | dict[str, Any] | None = None,
    ) -> None:
        """Keep the parameters as given, as scikit-learn wants it; see the class."""
        self.static = static
        self.causal = causal
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
        self.model = model
        self.training = training


@documented
class TransformerClassifier(_BaselineClassifier):
    """Classify series with a Transformer over the samples.

    Parameters
    ----------
    {series}
    {training}
    {classes}
    {running}
    model : TransformerModelConfig or dict, optional
        Options of the model.
    {train_group}

    Attributes
    ----------
    classes_ : ndarray
        Class labels, in the order of the columns of ``predict_proba``.
    {fitted}
    """

    kind = "transformer"
    groups: ClassVar[dict[str, type[Group]]] = {
        "model": TransformerModelConfig,
        "training": TrainConfig,
    }


@documented
class TransformerRegressor(_BaselineRegressor):
    """Predict numbers from series with a Transformer over the samples.

    Parameters
    ----------
    {series}
    {training}
    {numbers}
    {running}
    model : TransformerModelConfig or dict, optional
        Options of the model.
    {train_group}

    Attributes
    ----------
    {fitted}
    """

    kind = "transformer"
    groups: ClassVar[dict[str, type[Group]]] = {
        "model": TransformerModelConfig,
        "training": TrainConfig,
    }


@documented
class GRUClassifier(_BaselineClassifier):
    """Classify series with a GRU over the samples (GRU-simple of Che et al. 2018).

    Parameters
    ----------
    {series}
    {training}
    {classes}
    {running}
    model : GRUModelConfig or dict, optional
        Options of the model.
    {train_group}

    Attributes
    ----------
    classes_ : ndarray
        Class labels, in the order of the columns of ``predict_proba``.
    {fitted}
    """

    kind = "gru"
    groups: ClassVar[dict[str, type[Group]]] = {
        "model": GRUModelConfig,
        "training": TrainConfig,
    }


@documented
class GRURegressor(_BaselineRegressor):
    """Predict numbers from series with a GRU over the samples (GRU-simple of Che et al. 2018).

    Parameters
    ----------
    {series}
    {training}
    {numbers}
    {running}
    model : GRUModelConfig or dict, optional
        Options of the model.
    {train_group}

    Attributes
    ----------
    {fitted}
    """

    kind = "gru"
    groups: ClassVar[dict[str, type[Group]]] = {
        "model": GRUModelConfig,
        "training": TrainConfig,
    }


@documented
class ODERNNClassifier(_BaselineClassifier):
    """Classify series with an ODE-RNN (Rubanova et al. 2019).

    Parameters
    ----------
    {series}
    {training}
    {classes}
    {running}
    model : ODERNNModelConfig or dict, optional
        Options of the model.
    {train_group}

    Attributes
    ----------
    classes_ : ndarray
        Class labels, in the order of the columns of ``predict_proba``.
    {fitted}
    """

    kind = "ode-rnn"
    groups: ClassVar[dict[str, type[Group]]] = {
        "model": ODERNNModelConfig,
        "training": TrainConfig,
    }


@documented
class ODERNNRegressor(_BaselineRegressor):
    """Predict numbers from series with an ODE-RNN (Rubanova et al. 2019).

    Parameters
    ----------
    {series}
    {training}
    {numbers}
    {running}
    model : ODERNNModelConfig or dict, optional
        Options of the model.
    {train_group}

    Attributes
    ----------
    {fitted}
    """

    kind = "ode-rnn"
    groups: ClassVar[dict[str, type[Group]]] = {
        "model": ODERNNModelConfig,
        "training": TrainConfig,
    }


@documented
class NeuralCDEClassifier(_BaselineClassifier):
    """Classify series with a Neural CDE (Kidger et al. 2020).

    Parameters
    ----------
    {series}
    {training}
    {classes}
    {running}
    model : NeuralCDEModelConfig or dict, optional
        Options of the model.
    {train_group}

    Attributes
    ----------
    classes_ : ndarray
        Class labels, in the order of the columns of ``predict_proba``.
    {fitted}
    """

    kind = "neural-cde"
    groups: ClassVar[dict[str, type[Group]]] = {
        "model": NeuralCDEModelConfig,
        "training": TrainConfig,
    }


@documented
class NeuralCDERegressor(_BaselineRegressor):
    """Predict numbers from series with a Neural CDE (Kidger et al. 2020).

    Parameters
    ----------
    {series}
    {training}
    {numbers}
    {running}
    model : NeuralCDEModelConfig or dict, optional
        Options of the model.
    {train_group}

    Attributes
    ----------
    {fitted}
    """

    kind = "neural-cde"
    groups: ClassVar[dict[str, type[Group]]] = {
        "model": NeuralCDEModelConfig,
        "training": TrainConfig,
    }


@documented
class NeuralRDEClassifier(_BaselineClassifier):
    """Classify series with a Neural RDE on log-signatures (Morrill et al. 2021).

    Parameters
    ----------
    {series}
    {training}
    {classes}
    {running}
    model : NeuralRDEModelConfig or dict, optional
        Options of the model.
    {train_group}

    Attributes
    ----------
    classes_ : ndarray
        Class labels, in the order of the columns of ``predict_proba``.
    {fitted}
    """

    kind = "neural-rde"
    groups: ClassVar[dict[str, type[Group]]] = {
        "model": NeuralRDEModelConfig,
        "training": TrainConfig,
    }


@documented
class NeuralRDERegressor(_BaselineRegressor):
    """Predict numbers from series with a Neural RDE on log-signatures (Morrill et al. 2021).

    Parameters
    ----------
    {series}
    {training}
    {numbers}
    {running}
    model : NeuralRDEModelConfig or dict, optional
        Options of the model.
    {train_group}

    Attributes
    ----------
    {fitted}
    """

    kind = "neural-rde"
    groups: ClassVar[dict[str, type[Group]]] = {
        "model": NeuralRDEModelConfig,
        "training": TrainConfig,
    }


@documented
class StateSpaceClassifier(_BaselineClassifier):
    """Classify series with a state-space model, S5 (Smith et al. 2023).

    Parameters
    ----------
    {series}
    {training}
    {classes}
    {running}
    model : StateSpaceModelConfig or dict, optional
        Options of the model.
    {train_group}

    Attributes
    ----------
    classes_ : ndarray
        Class labels, in the order of the columns of ``predict_proba``.
    {fitted}
    """

    kind = "state-space"
    groups: ClassVar[dict[str, type[Group]]] = {
        "model": StateSpaceModelConfig,
        "training": TrainConfig,
    }


@documented
class StateSpaceRegressor(_BaselineRegressor):
    """Predict numbers from series with a state-space model.

    Parameters
    ----------
    {series}
    {training}
    {numbers}
    {running}
    model : StateSpaceModelConfig or dict, optional
        Options of the model.
    {train_group}

    Attributes
    ----------
    {fitted}
    """

    kind = "state-space"
    groups: ClassVar[dict[str, type[Group]]] = {
        "model": StateSpaceModelConfig,
        "training": TrainConfig,
    }


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
