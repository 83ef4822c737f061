"""Whole runs as functions: read a file, train, predict, evaluate, search, make features.

The command line parses, calls these and prints. ``read`` is ``roughformer.read``.
"""

from roughformer.runs.data import Columns, SeriesData, ids_of, read, read_data, stamps
from roughformer.runs.evaluation import (
    check_ending,
    chosen_target,
    evaluate_file,
    is_forecaster,
    load_model,
    model_directory,
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
from roughformer.runs.forecast import forecast_file
from roughformer.runs.run import parse_assignments, write_json
from roughformer.runs.training import TrainingRequest, run_training
from roughformer.runs.tuning import TuningRequest, run_tuning
