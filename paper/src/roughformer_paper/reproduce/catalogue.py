"""The experiments by name; each is imported only when it is asked for."""

from importlib import import_module

from roughformer import InputError
from roughformer_paper.reproduce.experiment import Experiment

__all__ = ["NAMES", "experiment_of"]

# name -> what it is, for --list, without importing it
NAMES = {
    "sine": "Figure 1: accuracy per epoch on the sine task, all models, full and 50 % dropped",
    "heart-rate": "Table 1: heart rate (BIDMC), both protocols, full and 50 % dropped, yardsticks",
    "efficiency": "Table 2: seconds per epoch and memory of all models, and growth with length",
    "nrde-validation": "Tables 4 and 5: Neural RDE by step and depth, on validation series",
    "hyperparameters": "Table 3: windows, depth, views, rate chosen on validation; ablations",
    "robustness": "Trained on full series, tested on series sampled otherwise, all models",
    "theory": "The appendix measured: decay, universality, invariance, reconstruction, aliasing",
}


def experiment_of(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in NAMES:
        raise InputError(f"there is no experiment {name!r}; there are {', '.join(NAMES)}")
    module = import_module(f"roughformer_paper.reproduce.{name.replace('-', '_')}")
    found: Experiment = module.EXPERIMENT
    return found
