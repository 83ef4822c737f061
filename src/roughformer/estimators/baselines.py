"""What simple baselines reach beside a fitted model.

An ensemble is compared on out-of-fold predictions with its own parts, a network on its validation
part with models that are fitted to its training part: gradient boosting on summaries and ridge
regression on functionals. Both are compared with the majority class or the mean. ``summary_of``
puts it in words.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.estimators.ensemble import FittedEnsemble
from roughformer.inference import ClassTargets, NumberTargets, Predictor
from roughformer.model import PathFeatures, SignatureEnsemble
from roughformer.tokens import CellEncoder
from roughformer.train import classification_scores, regression_scores
from roughformer.util.checks import threads_for_boosting

Scores = dict[str, dict[str, float | None]]
PART_NAMES = {
    "ppv": "ridge on functionals (PPV)",
    "poolings": "ridge on functionals (MPV, MIPV)",
    "competition": "ridge on functionals (competition)",
    "intervals": "extra trees on interval quantiles",
    "summary": "extra trees on summaries",
    "linear": "ridge on summaries",
    "boosting": "gradient boosting on summaries",
    "rhythm": "gradient boosting on rhythms",
}
_GAP, _RATIO = 0.15, 2.0  # of accuracy, and of errors: more is overfitting
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
    with threads_for_boosting(len(batch)):
        boosted = _boosting(summary, y, w, summary_new, size, classes, seed)
    predicted = {
        "model": predicted_new,
        PART_NAMES["boosting"]: boosted,
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


# In words.


def compared(predictor: Predictor) -> tuple[Scores, str, str]:
    """Scores of a model and of its baselines, what series they are of, and a verdict in words."""
    metadata = predictor.metadata
    if scores := metadata.get("out_of_fold"):
        return scores, "out-of-fold", _verdict(scores)
    scores = metadata.get("beside_baselines", {})
    overfits = _overfits(scores, metadata.get("training_scores", {}))
    return scores, "validation", f"{_verdict(scores)} {overfits}".strip()


def known_scores(row: dict[str, float | None]) -> dict[str, float]:
    """Scores that are not defined as NaN."""
    return {name: math.nan if x is None else x for name, x in row.items()}


def _overfits(scores: Scores, training: dict[str, float | None]) -> str:
    """A sentence, if a network is far better on the series that it was trained on."""
    name = "accuracy" if "accuracy" in training else "rmse"
    own, new = training.get(name), scores.get("model", {}).get(name)
    if own is None or new is None:
        return ""
    if own - new <= _GAP if name == "accuracy" else new <= _RATIO * own:
        return ""
    return (
        f"It overfits: on the series that it was trained on its {name} is {own:.3g}, on the "
        f"validation part {new:.3g}; more data, drop=, dropout or fewer epochs may help."
    )


def _verdict(scores: Scores) -> str:
    """One sentence: whether the model is better than each baseline."""
    if len(scores) < 2:
        return ""
    simple_scores = scores.get("majority class", {})
    if simple_scores.get("accuracy") == 1:
        return "All series that were held out are of one class, which says nothing of the model."
    if scores["model"].get("accuracy") == 1:
        return "No series that was held out was predicted wrong."
    metric, sign = ("accuracy", 1) if "accuracy" in scores["model"] else ("rmse", -1)
    # Higher is better.
    goodness = {name: sign * x for name, row in scores.items() if (x := row[metric]) is not None}
    own = goodness.pop("model", None)
    if own is None or not goodness:
        return ""
    best = max(goodness, key=lambda name: goodness[name])
    if own > goodness[best]:
        return f"The model is ahead of every baseline; the best of them is {best}."
    simple = "majority class" if metric == "accuracy" else "mean"
    loss, simple_loss = scores["model"].get("log_loss"), simple_scores.get("log_loss")
    if own == goodness.get(simple) and loss is not None and loss < (simple_loss or 0):
        return (
            "By accuracy the model is not better than the majority class, but its probabilities "
            f"are (log loss {loss:.3g}, not {simple_loss:.3g}): to find the rarer class choose a "
            "threshold of its probability."
        )
    if own <= goodness.get(simple, -math.inf):
        return (
            f"The model is not better than the {simple}: these series do not tell the target, or "
            "there are too few of them."
        )
    return f"The model is not better than {best}, which alone would do as well here."


def summary_of(predictor: Predictor) -> str:
    """What the model is made of, and what it reached on series that were left out."""
    metadata, encoder, model = predictor.metadata, predictor.encoder, predictor.model
    lines = [
        f"{type(model).__name__} for {metadata['task']}, trained on {metadata['trained_on']} "
        f"series of {len(encoder.channels)} channel{'s' if len(encoder.channels) != 1 else ''}"
    ]
    if isinstance(model, SignatureEnsemble):
        functionals = model.path.functionals
        widths = ", ".join(f"{9 * w / functionals.n_cells:.2g}" for w in functionals.widths)
        lines.append(
            f"  paths: {functionals.n_cells} even cells of each series' own span; "
            f"{functionals.n_functionals} functionals over windows of {widths} of it"
        )
        if encoder.duration is not None:
            lines.append(
                "  time: series last differently long, so half of the functionals see shares of "
                f"the span, the other half cells of one duration (of {encoder.duration:.4g} in all)"
            )
        weights = zip(model.config.parts, model.weights.tolist(), strict=True)
        lines.append("  weights: " + ", ".join(f"{PART_NAMES[k]} {w:.2f}" for k, w in weights))
    scores, of, verdict = compared(predictor)
    if scores:
        width = max(map(len, scores)) + 2
        lines.append(f"  {of} scores:")
        lines.append(" " * (width + 4) + "".join(f"{m:>19}" for m in scores["model"]))
        for name, row in scores.items():
            numbers = ("-" if x is None else format(x, ".4g") for x in row.values())
            lines.append(f"    {name:<{width}}" + "".join(f"{x:>19}" for x in numbers))
        lines.append(f"  {verdict}")
    return "\n".join(lines)
