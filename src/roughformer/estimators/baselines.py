"""What simple baselines reach beside a fitted model.

An ensemble is compared on out-of-fold predictions with its own parts, a network on its validation
part with models that are fitted to its training part: gradient boosting on summaries and ridge
regression on functionals. Both are compared with the majority class or the mean.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.estimators.ensemble import FittedEnsemble
from roughformer.inference import PART_NAMES, ClassTargets, NumberTargets, Predictor, Scores
from roughformer.model import PathFeatures
from roughformer.tokens import CellEncoder
from roughformer.train import classification_scores, regression_scores

_FEWEST, _MOST_FITTED = 10, 2000  # series that baselines are fitted to
_RIDGE = "ridge on functionals"


def out_of_fold(
    fitted: FittedEnsemble, target: Tensor, targets: ClassTargets | NumberTargets
) -> Scores:
    """Scores of the model, of its parts and of the majority class or the mean, on series that were
    left out when they were predicted. A score that is not defined is None.
    """
    predicted = {"model": fitted.blend} | {PART_NAMES[k]: x for k, x in fitted.parts.items()}
    known = ~np.isnan(np.stack(list(predicted.values()))).any(axis=(0, 2))
    if not known.any():
        return {}
    classes = isinstance(targets, ClassTargets)
    y = target.numpy() if classes else target.double().numpy()
    if isinstance(targets, NumberTargets):
        predicted["mean"] = np.zeros_like(fitted.blend)
        predicted = {
            name: targets.to_units(torch.from_numpy(p)).numpy() for name, p in predicted.items()
        }
    else:
        shares = np.bincount(y, minlength=fitted.blend.shape[1]) / len(y)
        predicted["majority class"] = np.tile(shares, (len(y), 1))
    return {name: _scores(p[known], y[known], None, classes) for name, p in predicted.items()}


def beside_baselines(
    predictor: Predictor, train: Any, held: Any, static: tuple[str, ...], seed: int
) -> tuple[Scores, dict[str, float | None]]:
    """Scores on the validation part of a network and of baselines fitted to its training part, and
    of the network on the training part. Parts: series, class numbers ``(B,)`` or targets
    ``(B, m)``, weights; series whose target is not known are left out.
    """
    classes = isinstance(predictor.targets, ClassTargets)
    (batch, y, w), (new, y_new, w_new) = (_known_part(*part) for part in (train, held))
    if len(batch) < _FEWEST or len(new) < 2 or (classes and len(np.unique(y)) < 2):
        return {}, {}
    chosen = np.sort(np.random.default_rng(seed).permutation(len(batch))[:_MOST_FITTED])
    batch, y, w = batch[chosen], y[chosen], None if w is None else w[chosen]
    encoder = CellEncoder.fit(batch, static)
    inputs, inputs_new = encoder.encode(batch), encoder.encode(new)
    path = PathFeatures(len(encoder.channels), encoder.n_cells, 1024, 4000, len(encoder.spans))
    path.draw(inputs["cells"], seed)

    def functionals(cells: Tensor) -> npt.NDArray[Any]:
        parts = [path(part, ("ppv",))["ppv"] for part in torch.split(cells, 256)]
        return torch.cat(parts).numpy()

    own, predicted_new = (
        predictor.probabilities(x) if classes else predictor.predict(x)["point"]
        for x in (batch, new)
    )
    size = predicted_new.shape[1]
    summary, summary_new = inputs["summary"].numpy(), inputs_new["summary"].numpy()
    cells, cells_new = functionals(inputs["cells"]), functionals(inputs_new["cells"])
    predicted = {
        "model": predicted_new,
        PART_NAMES["boosting"]: _boosting(summary, y, w, summary_new, size, classes, seed),
        _RIDGE: _ridge(cells, y, w, cells_new, size, classes),
    }
    if classes:
        shares = np.bincount(y, w, minlength=size)
        predicted["majority class"] = np.tile(shares / shares.sum(), (len(new), 1))
    else:
        predicted["mean"] = np.tile(np.average(y, axis=0, weights=w), (len(new), 1))
    scores = {name: _scores(p, y_new, w_new, classes) for name, p in predicted.items()}
    if classes:  # the decisions of ridge are no probabilities
        scores[_RIDGE] |= dict.fromkeys(("log_loss", "auroc", "auprc"))
    return scores, _scores(own, y, w, classes)


def _scores(
    predicted: npt.NDArray[Any], true: Any, weight: Any, classes: bool
) -> dict[str, float | None]:
    scores = (classification_scores if classes else regression_scores)(predicted, true, weight)
    return {name: float(x) if math.isfinite(x) else None for name, x in scores.items()}


def _known_part(batch: Any, target: Tensor, weight: Tensor | None) -> tuple[Any, Any, Any]:
    y = target.numpy()
    known = np.flatnonzero(y >= 0 if y.ndim == 1 else ~np.isnan(y).any(axis=1))
    return batch[known], y[known], None if weight is None else weight.double().numpy()[known]


def _ridge(x: Any, y: Any, w: Any, x_new: Any, size: int, classes: bool) -> npt.NDArray[np.float64]:
    """Predictions ``(B, size)`` for new series; for classes 1 for the one that is chosen."""
    from sklearn import linear_model, pipeline, preprocessing

    ridge = linear_model.RidgeClassifierCV if classes else linear_model.RidgeCV
    model = pipeline.make_pipeline(
        preprocessing.StandardScaler(), ridge(alphas=np.logspace(-1, 5, 7))
    )
    model.fit(x, y, **{f"{model.steps[-1][0]}__sample_weight": w})
    predicted = model.predict(x_new)
    return np.asarray(np.eye(size)[predicted] if classes else predicted.reshape(-1, size))


def _boosting(
    x: Any, y: Any, w: Any, x_new: Any, size: int, classes: bool, seed: int
) -> npt.NDArray[np.float64]:
    """Predictions ``(B, size)`` for new series."""
    from sklearn import ensemble

    options = {"max_iter": 100, "max_features": 0.3, "random_state": seed, "early_stopping": False}
    if classes:
        boosted = ensemble.HistGradientBoostingClassifier(**options).fit(x, y, w)
        predicted = np.zeros((len(x_new), size))
        predicted[:, boosted.classes_] = boosted.predict_proba(x_new)
        return predicted
    each = [ensemble.HistGradientBoostingRegressor(**options).fit(x, t, w) for t in y.T]
    return np.stack([boosted.predict(x_new) for boosted in each], axis=1)
