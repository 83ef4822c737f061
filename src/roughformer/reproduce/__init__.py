"""The paper, measured: each of its experiments as a command that anyone can run."""

from roughformer.reproduce.catalogue import NAMES, experiment_of
from roughformer.reproduce.experiment import Experiment, Wishes, key_of
from roughformer.reproduce.page import write_page
from roughformer.reproduce.results import Results
from roughformer.reproduce.runner import run_jobs
from roughformer.reproduce.selection import Selection, only_those, selected, words_of_job

__all__ = [
    "NAMES",
    "Experiment",
    "Results",
    "Selection",
    "Wishes",
    "experiment_of",
    "key_of",
    "only_those",
    "run_jobs",
    "selected",
    "words_of_job",
    "write_page",
]
