"""scikit-learn style estimators of irregular series."""

from roughformer.errors import InputError
from roughformer.estimators.base import TrainedEstimator
from roughformer.estimators.baselines import (
    BASELINES,
    GRUClassifier,
    GRURegressor,
    NeuralCDEClassifier,
    NeuralCDERegressor,
    NeuralRDEClassifier,
    NeuralRDERegressor,
    ODERNNClassifier,
    ODERNNRegressor,
    StateSpaceClassifier,
    StateSpaceRegressor,
    TransformerClassifier,
    TransformerRegressor,
)
from roughformer.estimators.forecaster import RFormerForecaster
from roughformer.estimators.models import (
    GRUModelConfig,
    ModelConfig,
    NeuralCDEModelConfig,
    NeuralRDEModelConfig,
    ODERNNModelConfig,
    RateModelConfig,
    StateSpaceModelConfig,
    TransformerModelConfig,
)
from roughformer.estimators.rates import RateRegressor
from roughformer.estimators.rformer import RFormerClassifier, RFormerRegressor
from roughformer.estimators.rocket import RocketClassifier, RocketRegressor
from roughformer.estimators.transformer import SignatureTransformer

__all__ = [
    "GRUClassifier",
    "GRUModelConfig",
    "GRURegressor",
    "ModelConfig",
    "NeuralCDEClassifier",
    "NeuralCDEModelConfig",
    "NeuralCDERegressor",
    "NeuralRDEClassifier",
    "NeuralRDEModelConfig",
    "NeuralRDERegressor",
    "ODERNNClassifier",
    "ODERNNModelConfig",
    "ODERNNRegressor",
    "RFormerClassifier",
    "RFormerForecaster",
    "RFormerRegressor",
    "RateModelConfig",
    "RateRegressor",
    "RocketClassifier",
    "RocketRegressor",
    "SignatureTransformer",
    "StateSpaceClassifier",
    "StateSpaceModelConfig",
    "StateSpaceRegressor",
    "TransformerClassifier",
    "TransformerModelConfig",
    "TransformerRegressor",
    "estimator_class",
]

_TRAINED: tuple[type[TrainedEstimator], ...] = (
    RFormerClassifier,
    RFormerRegressor,
    RateRegressor,
    *BASELINES,
)


def estimator_class(task: str, kind: str = "rformer") -> type[TrainedEstimator]:
    """The estimator of a task whose model is of that kind."""
    kinds = list(dict.fromkeys(cls.kind for cls in _TRAINED))
    if kind not in kinds and not any(kind in cls.other_kinds for cls in _TRAINED):
        hint = "; ROCKET has no training loop: use RocketClassifier" if kind == "rocket" else ""
        raise InputError(f"unknown model {kind!r}; known are {', '.join(kinds)}{hint}")
    for cls in _TRAINED:
        if cls.task == task and kind in (cls.kind, *cls.other_kinds):
            return cls
    raise InputError(f"there is no model {kind!r} for {task}")
