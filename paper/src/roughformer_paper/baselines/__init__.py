"""Models that RFormer is compared with; same calls, same training, same estimators.

Importing this registers them with roughformer, which finds it by the entry points of the group
``roughformer.models``: ``roughformer train --model gru`` and saved models need no import.
"""

from typing import Any

from roughformer import ModelSpec, register_model
from roughformer.estimators import register_estimator
from roughformer_paper.baselines.estimators import (
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
from roughformer_paper.baselines.gru import GRU, GRUConfig
from roughformer_paper.baselines.neural_cde import NeuralCDE, NeuralCDEConfig, PathEncoder
from roughformer_paper.baselines.neural_rde import LogSignatureEncoder, NeuralRDE, NeuralRDEConfig
from roughformer_paper.baselines.ode_rnn import ODERNN, ODERNNConfig
from roughformer_paper.baselines.options import (
    GRUModelConfig,
    NeuralCDEModelConfig,
    NeuralRDEModelConfig,
    ODERNNModelConfig,
    StateSpaceModelConfig,
    TransformerModelConfig,
)
from roughformer_paper.baselines.rocket import RocketClassifier, RocketRegressor
from roughformer_paper.baselines.samples import ForwardEncoder, SampleEncoder
from roughformer_paper.baselines.state_space import StateSpace, StateSpaceConfig
from roughformer_paper.baselines.transformer import Transformer, TransformerConfig

__all__ = [
    "BASELINES",
    "GRU",
    "ODERNN",
    "ForwardEncoder",
    "GRUClassifier",
    "GRUConfig",
    "GRUModelConfig",
    "GRURegressor",
    "LogSignatureEncoder",
    "NeuralCDE",
    "NeuralCDEClassifier",
    "NeuralCDEConfig",
    "NeuralCDEModelConfig",
    "NeuralCDERegressor",
    "NeuralRDE",
    "NeuralRDEClassifier",
    "NeuralRDEConfig",
    "NeuralRDEModelConfig",
    "NeuralRDERegressor",
    "ODERNNClassifier",
    "ODERNNConfig",
    "ODERNNModelConfig",
    "ODERNNRegressor",
    "PathEncoder",
    "RocketClassifier",
    "RocketRegressor",
    "SampleEncoder",
    "StateSpace",
    "StateSpaceClassifier",
    "StateSpaceConfig",
    "StateSpaceModelConfig",
    "StateSpaceRegressor",
    "Transformer",
    "TransformerClassifier",
    "TransformerConfig",
    "TransformerModelConfig",
    "TransformerRegressor",
]


def _spec(encoder: Any, config: Any, model: Any, *of_encoder: str) -> ModelSpec:
    """A model whose encoder is fitted to series alone; ``of_encoder``: which of the model's options
    are the encoder's.
    """

    def fit(tokens: Any, batch: Any, rates: Any, options: dict[str, Any]) -> Any:
        return encoder.fit(batch, tokens.static, **{name: options[name] for name in of_encoder})

    def configure(fitted: Any, options: dict[str, Any], output: dict[str, Any], unit: float) -> Any:
        own = {name: value for name, value in options.items() if name not in of_encoder}
        sizes = {"n_features": fitted.n_features, "n_static": len(fitted.static)}
        sizes |= getattr(fitted, "shape", {})  # what else the module must know of its tokens
        return config(**(sizes | own | output))

    return ModelSpec(encoder, config, model, fit, configure)


_PATH = ("interpolation", "counts", "max_steps", "time_range")
_LOG_SIGNATURES = ("step", "depth", "counts", "time_range")

for _name, _model in {
    "transformer": _spec(SampleEncoder, TransformerConfig, Transformer, "fill"),
    "gru": _spec(ForwardEncoder, GRUConfig, GRU, "fill"),
    "ode-rnn": _spec(SampleEncoder, ODERNNConfig, ODERNN),
    "neural-cde": _spec(PathEncoder, NeuralCDEConfig, NeuralCDE, *_PATH),
    "neural-rde": _spec(LogSignatureEncoder, NeuralRDEConfig, NeuralRDE, *_LOG_SIGNATURES),
    "state-space": _spec(SampleEncoder, StateSpaceConfig, StateSpace),
}.items():
    register_model(_name, _model)
for _estimator in BASELINES:
    register_estimator(_estimator)
