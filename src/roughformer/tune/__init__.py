"""Hyperparameter search: which settings of an estimator validate best, found by Optuna."""

from roughformer.tune.defaults import default_space
from roughformer.tune.jobs import Ended, Engine, Job, Problem, Reported
from roughformer.tune.search import search
from roughformer.tune.space import Choice, Range, Space, parse_space
from roughformer.tune.study import Study, open_study

__all__ = [
    "Choice",
    "Ended",
    "Engine",
    "Job",
    "Problem",
    "Range",
    "Reported",
    "Space",
    "Study",
    "default_space",
    "open_study",
    "parse_space",
    "search",
]
