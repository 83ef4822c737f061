"""Training: the loop, its configuration, splits, augmentation, metrics and logs."""

from roughformer.train.clock import processor_time
from roughformer.train.config import TrainConfig
from roughformer.train.data import TrainingData
from roughformer.train.loop import train
from roughformer.train.split import split_validation

__all__ = ["TrainConfig", "TrainingData", "processor_time", "split_validation", "train"]
