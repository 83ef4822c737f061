"""scikit-learn estimators of irregular series.

Classifiers, regressors, the forecaster and the transformer: they read series in any shape, choose
what is "auto", split, train and calibrate, and hold a ``Predictor`` when they are fitted.
"""

from roughformer.errors import InputError
from roughformer.estimators.baselines import Scores, compared, known_scores
from roughformer.estimators.classifier import RFormerClassifier, TrainedClassifier
from roughformer.estimators.fitting import TrainedEstimator
from roughformer.estimators.forecaster import RFormerForecaster, duration_of
from roughformer.estimators.parameters import (
    ModelConfig,
    ModelGroup,
    RateModelConfig,
    documented,
    token_config,
)
from roughformer.estimators.regressor import RateRegressor, RFormerRegressor, TrainedRegressor
from roughformer.estimators.transformer import SignatureTransformer
from roughformer.inference import get_model

_ESTIMATORS: list[type[TrainedEstimator]] = [RFormerClassifier, RFormerRegressor, RateRegressor]


def register_estimator(cls: type[TrainedEstimator]) -> None:
    """Make the estimator of a registered model known to ``estimator_class`` and the command line.

    Parameters
    ----------
    cls : type
        Subclass of ``TrainedClassifier`` or ``TrainedRegressor`` whose ``kind`` is the name of a
        model that ``roughformer.register_model`` made known.
    """
    if cls not in _ESTIMATORS:
        _ESTIMATORS.append(cls)


def estimator_class(task: str, kind: str = "rformer") -> type[TrainedEstimator]:
    """The estimator of a task whose model is of that kind."""
    get_model(kind)  # a package that brings it is imported, and registers its estimators
    for cls in _ESTIMATORS:
        if cls.task == task and kind in (cls.kind, *cls.other_kinds):
            return cls
    raise InputError(f"there is no model {kind!r} for {task}")
