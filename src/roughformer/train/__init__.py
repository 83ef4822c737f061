"""Training of any model: configuration, batches of inputs, the loop, checkpoints, processes.

``train`` is the loop of classifiers and regressors, ``train_forecaster`` that of forecasters; the
splits and scores of a validation part are in ``validation``.
"""

from roughformer.train.config import Augmentation, Callback, TrainConfig
from roughformer.train.data import (
    BatchSource,
    Inputs,
    TrainingData,
    join,
    run_fingerprint,
    source_of,
    tensors,
)
from roughformer.train.distributed import ProcessGroup, ProcessLost, current_process_group
from roughformer.train.forecasting import (
    Drawn,
    ScaledSeries,
    draw_forecasts,
    draw_interpolations,
    train_forecaster,
)
from roughformer.train.loop import check_device, processor_time, read_log, train
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

__all__ = [
    "CLASSIFICATION",
    "HIGHER_IS_BETTER",
    "REGRESSION",
    "Augmentation",
    "BatchSource",
    "Callback",
    "Drawn",
    "Inputs",
    "ProcessGroup",
    "ProcessLost",
    "ScaledSeries",
    "TrainConfig",
    "TrainingData",
    "better",
    "check_device",
    "check_metric",
    "classification_scores",
    "current_process_group",
    "draw_forecasts",
    "draw_interpolations",
    "fold_validation",
    "join",
    "processor_time",
    "read_log",
    "regression_scores",
    "run_fingerprint",
    "source_of",
    "split_validation",
    "tensors",
    "train",
    "train_forecaster",
]
