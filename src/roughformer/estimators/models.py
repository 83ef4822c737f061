"""Groups of options of the models, one class for each model.

Each takes its fields from the configuration of its module; what the data or other parameters of an
estimator decide is no option.
"""

from typing import ClassVar

from roughformer.model import RFormerConfig
from roughformer.model.tempo import TempoConfig
from roughformer.util.groups import Group

__all__ = ["ModelConfig", "ModelGroup", "RateModelConfig"]

_DATA = (
    "n_features", "n_static", "n_spectrum", "n_wide_features", "n_channels", "n_spectra",
    "n_frequencies", "harmonics", "stride", "n_outputs", "task", "n_bins", "bin_low", "bin_step",
)  # fmt: skip


class ModelGroup(Group):
    """Options of a model that the data and other parameters of its estimator do not decide."""

    set_by: ClassVar[dict[str, str]] = dict.fromkeys(_DATA, "the data") | {
        "uncertainty": "uncertainty",
        "causal": "causal",
        "context": "tokens__context",
    }


class ModelConfig(ModelGroup, RFormerConfig):
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
    quantiles : tuple of float, default (0.1, 0.5, 0.9)
        Levels of ``uncertainty="quantile"``.

    Examples
    --------
    >>> ModelConfig(d_model=128, n_layers=2)
    ModelConfig(d_model=128, n_layers=2)
    """

    n_outputs: int = 1
    n_features: int = 1


class RateModelConfig(ModelGroup, TempoConfig):
    """Shape of a TempoFormer, the model of ``RateRegressor``."""

    set_by: ClassVar[dict[str, str]] = ModelGroup.set_by | {"quantiles": "the histogram of rates"}

    n_outputs: int = 1
    n_channels: int = 1
    n_spectra: int = 1
    n_frequencies: int = 2
