"""The paper, measured: each of its experiments as a command that anyone can run."""

from roughformer_paper.reproduce.catalogue import NAMES, experiment_of
from roughformer_paper.reproduce.experiment import Experiment, Wishes, key_of
from roughformer_paper.reproduce.page import write_page
from roughformer_paper.reproduce.results import Results
from roughformer_paper.reproduce.runner import run_jobs
from roughformer_paper.reproduce.selection import Selection, only_those, selected, words_of_job

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
