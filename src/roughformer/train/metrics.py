"""Scores of predictions, by name."""

from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError

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


def classification_scores(
    probabilities: Array, labels: Array, weight: Array | None = None
) -> dict[str, float]:
    """``probabilities (N, K)``, ``labels (N,)`` class numbers, ``weight (N,)``.

    AUROC and AUPRC are of class 1 with two classes and means over the classes with more; NaN where
    only one class is present.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    n, k = probabilities.shape
    if n == 0:
        return dict.fromkeys(CLASSIFICATION, float("nan"))
    guess = probabilities.argmax(axis=1)
    present = np.unique(labels)
    hit = guess == labels
    recall = [_mean(hit, weight, labels == c) for c in present]
    right = probabilities[np.arange(n), labels].clip(1e-12, 1.0)
    found = {
        "accuracy": _mean(hit, weight),
        "balanced_accuracy": float(np.mean(recall)),
        "log_loss": _mean(-np.log(right), weight) + 0.0,  # 0, not -0
        "auroc": float("nan"),
        "auprc": float("nan"),
    }
    if len(present) > 1:
        which = [1] if k == 2 else list(present)
        one = [(labels == c, probabilities[:, c]) for c in which]
        for name, score in (("auroc", roc_auc_score), ("auprc", average_precision_score)):
            found[name] = float(np.mean([score(y, p, sample_weight=weight) for y, p in one]))
    return found


def _mean(values: Array, weight: Array | None, among: Any = slice(None)) -> float:
    return float(np.average(values[among], weights=None if weight is None else weight[among]))


def regression_scores(
    predicted: Array, true: Array, weight: Array | None = None
) -> dict[str, float]:
    """``(N, m)`` both; NaN in ``true`` = not known, left out; ``weight (N,)``."""
    known = ~np.isnan(true)
    if not known.any():
        return dict.fromkeys(REGRESSION, float("nan"))
    error, y = (predicted - true)[known], true[known]
    share = None
    mean = np.nanmean(true, axis=0, keepdims=True)
    if weight is not None:
        shares = np.where(known, weight[:, None], 0)
        mean = np.nansum(true * shares, axis=0) / shares.sum(axis=0).clip(1e-300)
        share = shares[known]
    centre = np.broadcast_to(mean, true.shape)[known]
    spread = float(np.average((y - centre) ** 2, weights=share))
    square = float(np.average(error**2, weights=share))
    return {
        "rmse": float(np.sqrt(square)),
        "mae": float(np.average(np.abs(error), weights=share)),
        "r2": 1 - square / spread if spread > 0 else float("nan"),
    }
