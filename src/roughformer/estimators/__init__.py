"""scikit-learn style estimators of irregular series."""

from roughformer.estimators.classifier import RFormerClassifier
from roughformer.estimators.regressor import RFormerRegressor
from roughformer.estimators.rocket import RocketClassifier, RocketRegressor
from roughformer.estimators.transformer import SignatureTransformer

__all__ = [
    "RFormerClassifier",
    "RFormerRegressor",
    "RocketClassifier",
    "RocketRegressor",
    "SignatureTransformer",
]
