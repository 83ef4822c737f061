"""Hyperparameter search: which settings of an estimator validate best, found by Optuna."""

from roughformer.tune.search import (
    PRUNERS,
    Problem,
    Search,
    as_csv,
    begun_trials,
    best_trial,
    search_figures,
    trial_row,
)
from roughformer.tune.space import Choice, Range, Space, default_space, parse_space
