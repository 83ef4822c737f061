"""Groups of options of the models, one class for each model.

Each takes its fields from the configuration of its module; what the data or other parameters of an
estimator decide is no option.
"""

from typing import ClassVar

from pydantic import Field

from roughformer.baselines import (
    GRUConfig,
    NeuralCDEConfig,
    NeuralRDEConfig,
    ODERNNConfig,
    StateSpaceConfig,
    TransformerConfig,
)
from roughformer.baselines.control import TIME_RANGE
from roughformer.baselines.samples import Fill
from roughformer.groups import Group
from roughformer.model import RFormerConfig
from roughformer.model.tempo import TempoConfig

__all__ = [
    "GRUModelConfig",
    "ModelConfig",
    "NeuralCDEModelConfig",
    "NeuralRDEModelConfig",
    "ODERNNModelConfig",
    "RateModelConfig",
    "StateSpaceModelConfig",
    "TransformerModelConfig",
]

_DATA = (
    "n_features", "n_static", "n_spectrum", "n_wide_features", "n_channels", "n_spectra",
    "n_frequencies", "harmonics", "stride", "n_outputs", "task", "n_bins", "bin_low", "bin_step",
)  # fmt: skip
_PARAMETERS = ("uncertainty", "quantiles", "causal", "context")


class _ModelGroup(Group):
    set_by: ClassVar[dict[str, str]] = dict.fromkeys(_DATA, "the data") | {
        name: name for name in _PARAMETERS
    }


class ModelConfig(_ModelGroup, RFormerConfig):
    """Shape of an RFormer.

    Parameters
    ----------
    d_model : int, default 64
        Width of the blocks.
    n_heads : int, default 4
        Attention heads; they divide the width.
    n_layers : int, default 1
        Attention blocks.
    d_feedforward : int, optional
        Hidden width of a block; 2 ``d_model`` if None.
    dropout : float, default 0.1
        Share of activations hidden while training.
    attention_dropout : float, optional
        Dropout of the attention weights; as ``dropout`` if None.
    input_dropout : float, default 0.0
        Share of token features hidden while training.
    wide : int or "auto", default "auto"
        Width of small networks that predict from the last token, beside attention; 0 for none.
        "auto": 256 with ``observations``, else 0.
    n_wide : int, default 8
        Number of these networks.
    wide_share : float, default 0.8
        Weight of their mean beside the prediction of attention.
    wide_dropout : float, default 0.5
        Dropout inside these networks.
    scaling : {"auto", "standard", "rank", "none"}, default "auto"
        Scaling of token features. "auto": "rank" with ``observations``, else "standard".
    pooling : {"mean", "attention", "last"}, default "mean"
        How windows become one vector; a causal model has no pooling.
    n_time_waves : int, default 8
        Octaves of the encoding of window times.
    clip : float, default 10.0
        Standardised features are clipped to ± this.

    Examples
    --------
    >>> ModelConfig(d_model=128, n_layers=2)
    ModelConfig(d_model=128, n_layers=2)
    """

    n_outputs: int = 1
    n_features: int = 1


class RateModelConfig(_ModelGroup, TempoConfig):
    """Shape of a TempoFormer, the model of ``RateRegressor``."""

    n_outputs: int = 1
    n_channels: int = 1
    n_spectra: int = 1
    n_frequencies: int = 2


class TransformerModelConfig(_ModelGroup, TransformerConfig):
    """Shape of a Transformer over the samples."""

    n_outputs: int = 1
    n_features: int = 1
    fill: Fill | None = Field(None, description="What stands for a missing value; None: the mean.")


class GRUModelConfig(_ModelGroup, GRUConfig):
    """Shape of a GRU over the samples."""

    n_outputs: int = 1
    n_features: int = 1
    fill: Fill | None = Field(
        None, description="What stands for a missing value; None: the last value."
    )


class ODERNNModelConfig(_ModelGroup, ODERNNConfig):
    """Shape of an ODE-RNN and how its equation is solved."""

    n_outputs: int = 1
    n_features: int = 3


class NeuralCDEModelConfig(_ModelGroup, NeuralCDEConfig):
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


class NeuralRDEModelConfig(_ModelGroup, NeuralRDEConfig):
    """Shape of a Neural RDE, its log-signatures and how its equation is solved."""

    n_outputs: int = 1
    n_features: int = 1
    n_channels: int = 1
    step: int = Field(8, ge=1, description="Samples of a window.")
    counts: bool | None = Field(
        None, description="Numbers of observations as channels; None: if values are missing."
    )
    time_range: float = Field(TIME_RANGE, gt=0, description="How far time moves over a usual span.")


class StateSpaceModelConfig(_ModelGroup, StateSpaceConfig):
    """Shape of a state-space model (S5)."""

    n_outputs: int = 1
    n_features: int = 3
    n_layers: int = Field(1, ge=0, description="Blocks; the published tables have 4.")
