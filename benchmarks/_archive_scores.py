"""Scores of predictions, and ranks over many sets."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

__all__ = [
    "calibration_error", "chance_of_error", "class_scores", "log_loss", "mean_ranks",
    "number_scores", "wins",
]  # fmt: skip

Array = npt.NDArray[Any]
_LEAST_PROBABILITY = 1e-6  # a wrong certainty would make the mean infinite


def calibration_error(confidence: Array, correct: Array, n_bins: int = 15) -> float:
    """Expected calibration error of the predicted class: ``confidence`` and ``correct (N,)``.

    Σ_k n_k / N · |mean of correct - mean of confidence| over ``n_bins`` bins of equal width.
    """
    confidence, correct = np.asarray(confidence, float), np.asarray(correct, float)
    bins = np.clip(np.ceil(confidence * n_bins).astype(int) - 1, 0, n_bins - 1)
    gaps = np.bincount(bins, correct - confidence, n_bins)
    return float(np.abs(gaps).sum() / len(confidence))


def chance_of_error(confidence: Array, n_draws: int = 200) -> float:
    """The mean of ``calibration_error`` where every confidence is right, for sets are finite."""
    rng = np.random.default_rng(0)
    draws = [rng.random(len(confidence)) < confidence for _ in range(n_draws)]
    return float(np.mean([calibration_error(confidence, correct) for correct in draws]))


def log_loss(probabilities: Array, classes: Array, labels: Array) -> float:
    """Mean of -log of the label's probability, at least 1e-6; a label of no class has none."""
    chosen = np.where(labels[:, None] == classes, probabilities, 0.0).sum(axis=1)
    return float(-np.log(np.clip(chosen, _LEAST_PROBABILITY, 1.0)).mean())


def class_scores(
    labels: Array, predicted: Array, probabilities: Array | None, classes: Array
) -> dict[str, float]:
    """Accuracy ``(N,)``, and of ``probabilities (N, K)`` log-loss and calibration error."""
    correct = predicted == labels
    scores = {"accuracy": float(correct.mean())}
    if probabilities is not None:
        scores["log_loss"] = log_loss(probabilities, classes, labels)
        confidence = probabilities.max(axis=1)
        scores["ece"] = calibration_error(confidence, correct)
        scores["ece_by_chance"] = chance_of_error(confidence)
        scores["confidence"] = float(confidence.mean())
    return scores


def number_scores(targets: Array, predicted: Array) -> dict[str, float]:
    """RMSE, MAE and R² of ``(N,)``."""
    error = predicted - targets
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.abs(error).mean()),
        "r2": float(1 - np.mean(error**2) / np.var(targets)),
    }


def mean_ranks(scores: Array, larger_is_better: bool) -> Array:
    """Mean over sets of the rank of each model, 1 = best, ties shared: ``(S, M)`` -> ``(M,)``."""
    scores = np.asarray(scores, float)
    return np.asarray(rankdata(-scores if larger_is_better else scores, axis=1).mean(axis=0))


def wins(scores: Array, larger_is_better: bool) -> npt.NDArray[np.int64]:
    """On how many sets each model is best, ties counted for each: ``(S, M)`` -> ``(M,)``."""
    scores = np.asarray(scores, float)
    best = scores.max(axis=1) if larger_is_better else scores.min(axis=1)
    return np.asarray((scores == best[:, None]).sum(axis=0))
