"""Models on tokens and on paths: the Rough Transformer, the default ensemble, the forecaster."""

from roughformer.model.config import RFormerConfig
from roughformer.model.ensemble import (
    LINEAR_PARTS,
    EnsembleConfig,
    KernelPart,
    PathFeatures,
    SignatureEnsemble,
    blendable,
)
from roughformer.model.forecast_data import (
    Drawn,
    ScaledSeries,
    draw_forecasts,
    draw_interpolations,
)
from roughformer.model.forecaster import (
    QUANTILES,
    Forecaster,
    ForecasterConfig,
    Moments,
    Queries,
)
from roughformer.model.heads import Head, Pooling
from roughformer.model.outputs import (
    Ensemble,
    OutputConfig,
    deviation_of,
    loss_of,
    loss_weight,
    point_of,
    run_model,
)
from roughformer.model.rformer import RFormer, TokenTransformer, why_no_step
from roughformer.model.scaling import Standardize
from roughformer.model.tempo import TempoConfig, TempoFormer
from roughformer.model.trees import Forest

__all__ = [
    "LINEAR_PARTS",
    "QUANTILES",
    "Drawn",
    "Ensemble",
    "EnsembleConfig",
    "Forecaster",
    "ForecasterConfig",
    "Forest",
    "Head",
    "KernelPart",
    "Moments",
    "OutputConfig",
    "PathFeatures",
    "Pooling",
    "Queries",
    "RFormer",
    "RFormerConfig",
    "ScaledSeries",
    "SignatureEnsemble",
    "Standardize",
    "TempoConfig",
    "TempoFormer",
    "TokenTransformer",
    "blendable",
    "deviation_of",
    "draw_forecasts",
    "draw_interpolations",
    "loss_of",
    "loss_weight",
    "point_of",
    "run_model",
    "why_no_step",
]
