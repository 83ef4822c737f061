"""Scores of predictions, by name."""

from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError

__all__ = [
    "CLASSIFICATION",
    "HIGHER_IS_BETTER",
    "REGRESSION",
    "better",
    "check_metric",
    "classification_scores",
    "regression_scores",
]

Array = npt.NDArray[Any]
CLASSIFICATION = ("accuracy", "balanced_accuracy", "log_loss", "auroc", "auprc")
REGRESSION = ("rmse", "mae", "r2")
HIGHER_IS_BETTER = {"accuracy", "balanced_accuracy", "auroc", "auprc", "r2"}


def check_metric(name: str, task: str) -> str:
    """The metric's name; "auto" is log_loss for classes and rmse for numbers, "loss" is that of
    the training.
    """
    known = ("loss", *(CLASSIFICATION if task == "classification" else REGRESSION))
    if name == "auto":
        return "log_loss" if task == "classification" else "rmse"
    if name not in known:
        raise InputError(f"metric must be 'auto' or one of {', '.join(known)}; got {name!r}")
    return name


def better(name: str, new: float, old: float | None) -> bool:
    """Whether ``new`` improves on ``old``; NaN improves on nothing."""
    if old is None or np.isnan(old):
        return not np.isnan(new)
    return new > old if name in HIGHER_IS_BETTER else new < old


def classification_scores(probabilities: Array, labels: Array) -> dict[str, float]:
    """``probabilities (N, K)``, ``labels (N,)`` class numbers.

    AUROC and AUPRC are of class 1 with two classes and means over the classes with more; NaN where
    only one class is present.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    n, k = probabilities.shape
    if n == 0:
        return dict.fromkeys(CLASSIFICATION, float("nan"))
    guess = probabilities.argmax(axis=1)
    present = np.unique(labels)
    recall = [float((guess[labels == c] == c).mean()) for c in present]
    right = probabilities[np.arange(n), labels].clip(1e-12, 1.0)
    found = {
        "accuracy": float((guess == labels).mean()),
        "balanced_accuracy": float(np.mean(recall)),
        "log_loss": float(-np.log(right).mean()) + 0.0,  # 0, not -0
        "auroc": float("nan"),
        "auprc": float("nan"),
    }
    if len(present) > 1:
        which = [1] if k == 2 else list(present)
        one = [(labels == c, probabilities[:, c]) for c in which]
        found["auroc"] = float(np.mean([roc_auc_score(y, p) for y, p in one]))
        found["auprc"] = float(np.mean([average_precision_score(y, p) for y, p in one]))
    return found


def regression_scores(predicted: Array, true: Array) -> dict[str, float]:
    """``(N, m)`` both; NaN in ``true`` = not known, left out."""
    known = ~np.isnan(true)
    if not known.any():
        return dict.fromkeys(REGRESSION, float("nan"))
    error, y = (predicted - true)[known], true[known]
    centre = np.broadcast_to(np.nanmean(true, axis=0, keepdims=True), true.shape)[known]
    spread = float(((y - centre) ** 2).sum())
    return {
        "rmse": float(np.sqrt((error**2).mean())),
        "mae": float(np.abs(error).mean()),
        "r2": 1 - float((error**2).sum()) / spread if spread > 0 else float("nan"),
    }
