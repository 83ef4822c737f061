"""Predictions of a trained model against the truth: scores, and pictures."""

from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.inference import ClassTargets, Predictor, check_numbers
from roughformer.series import SeriesBatch
from roughformer.train import classification_scores, regression_scores
from roughformer.util.checks import using_threads

Array = npt.NDArray[Any]
_SPREAD = 1.96  # standard deviations of a 95 % interval


def predictions(
    predictor: Predictor,
    batch: SeriesBatch,
    *,
    drop: float = 0.0,
    seed: int = 0,
    threads: int | None = None,
) -> dict[str, Array]:
    """``probabilities (B, K)``, or ``point (B, m)`` with ``deviation`` or ``quantiles``."""
    with using_threads(threads):
        if isinstance(predictor.targets, ClassTargets):
            return {"probabilities": predictor.probabilities(batch, drop=drop, seed=seed)}
        return dict(predictor.predict(batch, drop=drop, seed=seed))


def scores_of(predictor: Predictor, predicted: dict[str, Array], target: Array) -> dict[str, float]:
    """Scores of predictions against targets ``(B,)`` or ``(B, m)`` of the world."""
    if isinstance(predictor.targets, ClassTargets):
        return classification_scores(predicted["probabilities"], _classes(predictor, target))
    return regression_scores(predicted["point"], check_numbers(target, len(target))[0])


def _classes(predictor: Predictor, target: Array) -> npt.NDArray[np.int64]:
    """Numbers of the classes. Labels of another file may be read as another kind: "1" and 1 are
    the same class.
    """
    assert isinstance(predictor.targets, ClassTargets)
    labels = predictor.targets.labels
    if target.dtype.kind != labels.dtype.kind:
        by_text = {str(label): label for label in labels}
        target = np.array([by_text.get(str(label), label) for label in target.tolist()])
    return predictor.targets.numbers(target).numpy()


def figures_of(
    predictor: Predictor, predicted: dict[str, Array], target: Array, part: str
) -> list[tuple[str, str, Any]]:
    """Pictures as (file name, caption, figure): confusion and calibration, or regression."""
    from roughformer import plots

    caption = f"Truth and prediction, {part}"
    if isinstance(predictor.targets, ClassTargets):
        labels, y = predictor.targets.labels, _classes(predictor, target)
        p = predicted["probabilities"]
        matrix = np.zeros((len(labels), len(labels)), dtype=np.int64)
        np.add.at(matrix, (y, p.argmax(axis=1)), 1)
        figures = [("confusion", caption, plots.plot_confusion(matrix, labels.tolist()))]
        if len(labels) > 1:
            title = f"Confidence and frequency, {part}"
            figures.append(("calibration", title, plots.plot_calibration(y, p)))
        return figures
    y = check_numbers(target, len(target))[0]
    figures = []
    for j in range(y.shape[1]):
        point, interval = predicted["point"][:, j], None
        if "deviation" in predicted:
            half = _SPREAD * predicted["deviation"][:, j]
            interval = np.stack([point - half, point + half], axis=1)
        elif "quantiles" in predicted and predicted["quantiles"].shape[2] > 1:
            interval = predicted["quantiles"][:, j][:, [0, -1]]
        name = "regression" if y.shape[1] == 1 else f"regression_{j}"
        figures.append((name, caption, plots.plot_regression(y[:, j], point, interval)))
    return figures
