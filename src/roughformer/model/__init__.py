"""Models on tokens and on paths: the Rough Transformer, the default ensemble, the forecaster."""

from roughformer.model.ensemble import (
    LINEAR_PARTS,
    EnsembleConfig,
    PathFeatures,
    SignatureEnsemble,
    blendable,
)
from roughformer.model.forecast_data import (
    Drawn,
    Moments,
    Queries,
    ScaledSeries,
    draw_forecasts,
    draw_interpolations,
)
from roughformer.model.forecaster import (
    QUANTILES,
    Forecaster,
    ForecasterConfig,
    far_weight,
)
from roughformer.model.outputs import (
    Ensemble,
    Head,
    OutputConfig,
    Pooling,
    deviation_of,
    loss_of,
    point_of,
    run_model,
)
from roughformer.model.rformer import RFormer, why_no_step
from roughformer.model.transformer import (
    RFormerConfig,
    Standardize,
    TempoConfig,
    TempoFormer,
    TokenTransformer,
)
from roughformer.model.trees import Forest
