"""Predictions of a trained model as a table, their scores and their pictures."""

from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.predictor import Predictor
from roughformer.series import SeriesBatch
from roughformer.targets import ClassTargets, check_numbers
from roughformer.threads import using_threads
from roughformer.train import classification_scores, regression_scores

__all__ = ["figures_of", "prediction_columns", "predictions", "scores_at", "scores_of"]

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
        return dict(predictor.numbers(batch, drop=drop, seed=seed))


def prediction_columns(
    predictor: Predictor, found: dict[str, Array], names: tuple[str, ...] = (), proba: bool = True
) -> dict[str, Array]:
    """Column name -> ``(B,)``: prediction, then probabilities, std or quantiles.

    ``names``: of several targets, which give each column its end.
    """
    targets = predictor.targets
    if isinstance(targets, ClassTargets):
        p = found["probabilities"]
        columns: dict[str, Array] = {"prediction": targets.labels[p.argmax(axis=1)]}
        if proba:
            columns |= {f"p_{label}": p[:, k] for k, label in enumerate(targets.labels)}
        return columns
    columns = {}
    m = found["point"].shape[1]
    for j in range(m):
        end = "" if m == 1 else f"_{names[j] if len(names) == m else j}"
        columns[f"prediction{end}"] = found["point"][:, j]
        if "deviation" in found:
            columns[f"std{end}"] = found["deviation"][:, j]
        for q, level in enumerate(predictor.outputs.quantiles if "quantiles" in found else ()):
            columns[f"q{level:g}{end}"] = found["quantiles"][:, j, q]
    return columns


def scores_of(predictor: Predictor, found: dict[str, Array], target: Array) -> dict[str, float]:
    """Scores of predictions against targets ``(B,)`` or ``(B, m)`` of the world."""
    if isinstance(predictor.targets, ClassTargets):
        numbers = predictor.targets.numbers(_like_labels(predictor.targets, target)).numpy()
        return classification_scores(found["probabilities"], numbers)
    return regression_scores(found["point"], check_numbers(target, len(target))[0])


def _like_labels(targets: ClassTargets, y: Array) -> Array:
    """Labels of another file may be read as another kind: "1" and 1 are the same class."""
    if y.dtype.kind == targets.labels.dtype.kind:
        return y
    by_text = {str(label): label for label in targets.labels}
    return np.array([by_text.get(str(label), label) for label in y.tolist()])


def scores_at(
    predictor: Predictor,
    batch: SeriesBatch,
    target: Array,
    drop: float,
    seeds: int,
    threads: int | None = None,
) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of each score over ``seeds`` draws of dropped points."""
    rows = [
        scores_of(
            predictor, predictions(predictor, batch, drop=drop, seed=s, threads=threads), target
        )
        for s in range(seeds if drop > 0 else 1)
    ]
    return {
        name: (float(np.mean([r[name] for r in rows])), float(np.std([r[name] for r in rows])))
        for name in rows[0]
    }


def figures_of(
    predictor: Predictor, found: dict[str, Array], target: Array, part: str
) -> list[tuple[str, str, Any]]:
    """Pictures as (file name, caption, figure): confusion and calibration, or regression."""
    from roughformer import plots

    if isinstance(predictor.targets, ClassTargets):
        labels = predictor.targets.labels
        y = predictor.targets.numbers(_like_labels(predictor.targets, target)).numpy()
        p = found["probabilities"]
        matrix = np.zeros((len(labels), len(labels)), dtype=np.int64)
        np.add.at(matrix, (y, p.argmax(axis=1)), 1)
        made = [
            (
                "confusion",
                f"Truth and prediction, {part}",
                plots.plot_confusion(matrix, labels.tolist()),
            )
        ]
        if len(labels) > 1:
            figure = plots.plot_calibration(p, y)
            made.append(("calibration", f"Confidence and frequency, {part}", figure))
        return made
    y = check_numbers(target, len(target))[0]
    made = []
    for j in range(y.shape[1]):
        interval = None
        point = found["point"][:, j]
        if "deviation" in found:
            half = _SPREAD * found["deviation"][:, j]
            interval = np.stack([point - half, point + half], axis=1)
        elif "quantiles" in found and found["quantiles"].shape[2] > 1:
            interval = found["quantiles"][:, j][:, [0, -1]]
        end = "" if y.shape[1] == 1 else f"_{j}"
        figure = plots.plot_regression(y[:, j], point, interval)
        made.append((f"regression{end}", f"Truth and prediction, {part}", figure))
    return made
