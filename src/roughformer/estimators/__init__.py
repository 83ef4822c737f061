"""scikit-learn style estimators of irregular series."""

from roughformer.estimators.classifier import RFormerClassifier
from roughformer.estimators.regressor import RFormerRegressor

__all__ = ["RFormerClassifier", "RFormerRegressor"]
