"""Training of any model: configuration, batches of inputs, the loop, checkpoints.

``train`` is the loop of classifiers and regressors, ``train_forecaster`` that of forecasters; the
splits and scores of a validation part are in ``validation``.
"""

from roughformer.train.data import (
    Callback,
    Inputs,
    LazySeries,
    Source,
    TrainConfig,
    join,
    run_fingerprint,
    source_of,
    tensors,
)
from roughformer.train.forecaster import train_forecaster
from roughformer.train.loop import TrainingData, check_device, processor_time, train
from roughformer.train.seasons import choose_seasons, drawn_to_start, spectral_periods
from roughformer.train.validation import (
    CLASSIFICATION,
    HIGHER_IS_BETTER,
    REGRESSION,
    better,
    check_metric,
    classification_scores,
    fold_validation,
    regression_scores,
    split_validation,
)
