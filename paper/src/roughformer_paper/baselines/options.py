"""Options of the baselines, as their estimators and ``--set model.NAME=VALUE`` take them."""

from pydantic import Field

from roughformer.estimators import ModelGroup
from roughformer_paper.baselines.control import TIME_RANGE
from roughformer_paper.baselines.gru import GRUConfig
from roughformer_paper.baselines.neural_cde import NeuralCDEConfig
from roughformer_paper.baselines.neural_rde import NeuralRDEConfig
from roughformer_paper.baselines.ode_rnn import ODERNNConfig
from roughformer_paper.baselines.samples import Fill
from roughformer_paper.baselines.state_space import StateSpaceConfig
from roughformer_paper.baselines.transformer import TransformerConfig

__all__ = [
    "GRUModelConfig",
    "NeuralCDEModelConfig",
    "NeuralRDEModelConfig",
    "ODERNNModelConfig",
    "StateSpaceModelConfig",
    "TransformerModelConfig",
]


class TransformerModelConfig(ModelGroup, TransformerConfig):
    """Shape of a Transformer over the samples."""

    n_outputs: int = 1
    n_features: int = 1
    fill: Fill | None = Field(None, description="What stands for a missing value; None: the mean.")


class GRUModelConfig(ModelGroup, GRUConfig):
    """Shape of a GRU over the samples."""

    n_outputs: int = 1
    n_features: int = 1
    fill: Fill | None = Field(
        None, description="What stands for a missing value; None: the last value."
    )


class ODERNNModelConfig(ModelGroup, ODERNNConfig):
    """Shape of an ODE-RNN and how its equation is solved."""

    n_outputs: int = 1
    n_features: int = 3


class NeuralCDEModelConfig(ModelGroup, NeuralCDEConfig):
    """Shape of a Neural CDE, its path and how its equation is solved."""

    n_outputs: int = 1
    n_features: int = 1
    n_channels: int = 1
    counts: bool | None = Field(
        None, description="Numbers of observations as channels; None: if values are missing."
    )
    max_steps: int | None = Field(
        2048, ge=1, description="Maximum number of steps over a usual series; None: no limit."
    )
    time_range: float = Field(TIME_RANGE, gt=0, description="How far time moves over a usual span.")


class NeuralRDEModelConfig(ModelGroup, NeuralRDEConfig):
    """Shape of a Neural RDE, its log-signatures and how its equation is solved."""

    n_outputs: int = 1
    n_features: int = 1
    n_channels: int = 1
    step: int = Field(8, ge=1, description="Samples of a window.")
    counts: bool | None = Field(
        None, description="Numbers of observations as channels; None: if values are missing."
    )
    time_range: float = Field(TIME_RANGE, gt=0, description="How far time moves over a usual span.")


class StateSpaceModelConfig(ModelGroup, StateSpaceConfig):
    """Shape of a state-space model (S5)."""

    n_outputs: int = 1
    n_features: int = 3
    n_layers: int = Field(1, ge=0, description="Blocks; the published tables have 4.")
