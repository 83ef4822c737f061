"""Hyperparameter search: which settings of an estimator validate best, found by Optuna."""

from roughformer.tune.search import Job, LocalEngine, Problem, search, trial_directory
from roughformer.tune.space import Choice, Range, Space, default_space, parse_space
from roughformer.tune.study import (
    PRUNERS,
    Ended,
    Reported,
    Study,
    as_csv,
    open_study,
    rows_of,
    summary_line,
)

__all__ = [
    "PRUNERS",
    "Choice",
    "Ended",
    "Job",
    "LocalEngine",
    "Problem",
    "Range",
    "Reported",
    "Space",
    "Study",
    "as_csv",
    "default_space",
    "open_study",
    "parse_space",
    "rows_of",
    "search",
    "summary_line",
    "trial_directory",
]
