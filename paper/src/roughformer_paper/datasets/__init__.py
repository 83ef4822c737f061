"""The paper's data sets as ``SeriesBatch``: the sine task, heart rate (BIDMC) and ICU stays."""

from roughformer_paper.datasets.bidmc import (
    heart_rate_recording,
    heart_rate_split,
    heart_rate_test_recordings,
    load_heart_rate,
)
from roughformer_paper.datasets.folders import data_root
from roughformer_paper.datasets.physionet2012 import load_physionet2012, physionet2012_subset
from roughformer_paper.datasets.sine import make_sine

__all__ = [
    "data_root",
    "heart_rate_recording",
    "heart_rate_split",
    "heart_rate_test_recordings",
    "load_heart_rate",
    "load_physionet2012",
    "make_sine",
    "physionet2012_subset",
]
