"""Models that RFormer is compared with; same calls, same training, same estimators."""

from roughformer.baselines.gru import GRU, GRUConfig
from roughformer.baselines.neural_cde import NeuralCDE, NeuralCDEConfig, PathEncoder
from roughformer.baselines.neural_rde import LogSignatureEncoder, NeuralRDE, NeuralRDEConfig
from roughformer.baselines.ode_rnn import ODERNN, ODERNNConfig
from roughformer.baselines.samples import ForwardEncoder, SampleEncoder
from roughformer.baselines.state_space import StateSpace, StateSpaceConfig
from roughformer.baselines.transformer import Transformer, TransformerConfig

__all__ = [
    "GRU",
    "ODERNN",
    "ForwardEncoder",
    "GRUConfig",
    "LogSignatureEncoder",
    "NeuralCDE",
    "NeuralCDEConfig",
    "NeuralRDE",
    "NeuralRDEConfig",
    "ODERNNConfig",
    "PathEncoder",
    "SampleEncoder",
    "StateSpace",
    "StateSpaceConfig",
    "Transformer",
    "TransformerConfig",
]
