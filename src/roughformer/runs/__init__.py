"""Whole runs as functions: read a file, train, predict, evaluate, search, make features.

The command line parses, calls these and prints. ``read`` is ``roughformer.read``.
"""

from roughformer.runs.data import Columns, SeriesData, ids_of, read, read_data, stamps
from roughformer.runs.evaluation import (
    check_ending,
    chosen_target,
    evaluate_file,
    predict_file,
    read_for,
    target_of,
    write_columns,
)
from roughformer.runs.features import (
    TokenJob,
    label_table,
    lifts_of,
    store_columns,
    token_config,
    write_tokens,
)
from roughformer.runs.run import (
    is_forecaster,
    load_model,
    model_directory,
    parse_assignments,
    prepare_run,
    settings_of,
    started_run,
    write_json,
)
from roughformer.runs.training import TrainingRequest, run_training
from roughformer.runs.tuning import TuningRequest, run_tuning

__all__ = [
    "Columns",
    "SeriesData",
    "TokenJob",
    "TrainingRequest",
    "TuningRequest",
    "check_ending",
    "chosen_target",
    "evaluate_file",
    "ids_of",
    "is_forecaster",
    "label_table",
    "lifts_of",
    "load_model",
    "model_directory",
    "parse_assignments",
    "predict_file",
    "prepare_run",
    "read",
    "read_data",
    "read_for",
    "run_training",
    "run_tuning",
    "settings_of",
    "stamps",
    "started_run",
    "store_columns",
    "target_of",
    "token_config",
    "write_columns",
    "write_json",
    "write_tokens",
]
