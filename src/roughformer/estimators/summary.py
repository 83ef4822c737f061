"""What a fitted model reached beside simple baselines, in numbers and in words.

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
from roughformer.inference import ClassTargets, NumberTargets, Predictor
from roughformer.model import PathFeatures, SignatureEnsemble
from roughformer.series import SeriesBatch
from roughformer.tokens import CellEncoder
from roughformer.train import (
    CLASSIFICATION,
    HIGHER_IS_BETTER,
    REGRESSION,
    classification_scores,
    regression_scores,
)

__all__ = ["Scores", "beside_baselines", "compared", "known_scores", "out_of_fold", "summary_of"]

Scores = dict[str, dict[str, float | None]]
_FEWEST, _MOST_FITTED = 10, 2000  # series that baselines are fitted to
_GAP, _RATIO = 0.15, 2.0  # of accuracy, and of errors: more is overfitting
NAMES = {
    "ppv": "ridge on functionals (PPV)",
    "poolings": "ridge on functionals (MPV, MIPV)",
    "competition": "ridge on functionals (competition)",
    "kernel": "kernel ridge on functionals (PPV)",
    "intervals": "extra trees on interval quantiles",
    "summary": "extra trees on summaries",
    "linear": "ridge on summaries",
    "boosting": "gradient boosting on summaries",
    "rhythm": "gradient boosting on rhythms",
}


def out_of_fold(
    fitted: FittedEnsemble, target: Tensor, targets: ClassTargets | NumberTargets
) -> Scores:
    """Scores of the model, of its parts and of the majority class or the mean, on series that were
    left out when they were predicted. A score that is not defined is None.
    """
    predicted = {"model": fitted.blend} | {NAMES[k]: x for k, x in fitted.parts.items()}
    known = ~np.isnan(np.stack(list(predicted.values()))).any(axis=(0, 2))
    if not known.any():
        return {}
    if isinstance(targets, ClassTargets):
        y = target.numpy()
        shares = np.bincount(y, minlength=fitted.blend.shape[1]) / len(y)
        predicted["majority class"] = np.tile(shares, (len(y), 1))
        found = {k: classification_scores(p[known], y[known]) for k, p in predicted.items()}
    else:
        y = target.double().numpy()
        predicted["mean"] = np.zeros_like(fitted.blend)
        found = {
            k: regression_scores(_in_units(p[known], targets), y[known])
            for k, p in predicted.items()
        }
    return {
        name: {k: float(v) if math.isfinite(v) else None for k, v in scores.items()}
        for name, scores in found.items()
    }


def beside_baselines(
    predictor: Predictor,
    train: tuple[SeriesBatch, Tensor, Tensor | None],
    held: tuple[SeriesBatch, Tensor, Tensor | None],
    static: tuple[str, ...],
    seed: int,
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
    tables = {
        NAMES["boosting"]: (inputs["summary"].numpy(), inputs_new["summary"].numpy()),
        "ridge on functionals": tuple(
            torch.cat(
                [path(part, ("ppv",))["ppv"] for part in torch.split(x["cells"], 256)]
            ).numpy()
            for x in (inputs, inputs_new)
        ),
    }

    def network(x: SeriesBatch) -> npt.NDArray[np.float64]:
        return predictor.probabilities(x) if classes else predictor.predict(x)["point"]

    def scored(predicted: npt.NDArray[Any], true: Any, weight: Any) -> dict[str, float | None]:
        scores = (classification_scores if classes else regression_scores)(predicted, true, weight)
        return {k: float(v) if math.isfinite(v) else None for k, v in scores.items()}

    found = {"model": network(new)}
    for name, (x, x_new) in tables.items():
        found[name] = _baseline(name, x, y, w, x_new, found["model"].shape[1], classes, seed)
    if classes:
        shares = np.bincount(y, w, minlength=found["model"].shape[1])
        found["majority class"] = np.tile(shares / shares.sum(), (len(new), 1))
    else:
        found["mean"] = np.tile(np.average(y, axis=0, weights=w), (len(new), 1))
    scores = {name: scored(p, y_new, w_new) for name, p in found.items()}
    if "ridge on functionals" in scores and classes:
        for name in ("log_loss", "auroc", "auprc"):  # its decisions are no probabilities
            scores["ridge on functionals"][name] = None
    return scores, scored(network(batch), y, w)


def _known_part(batch: SeriesBatch, target: Tensor, weight: Tensor | None) -> tuple[Any, Any, Any]:
    y = target.numpy()
    known = np.flatnonzero(y >= 0 if y.ndim == 1 else ~np.isnan(y).any(axis=1))
    return batch[known], y[known], None if weight is None else weight.double().numpy()[known]


def _baseline(
    name: str, x: Any, y: Any, w: Any, x_new: Any, n_outputs: int, classes: bool, seed: int
) -> npt.NDArray[np.float64]:
    """Predictions ``(B, n_outputs)`` for new series."""
    from sklearn import ensemble, linear_model, pipeline, preprocessing

    if name != NAMES["boosting"]:
        ridge = linear_model.RidgeClassifierCV if classes else linear_model.RidgeCV
        model = pipeline.make_pipeline(
            preprocessing.StandardScaler(), ridge(alphas=np.logspace(-1, 5, 7))
        )
        model.fit(x, y, **{f"{model.steps[-1][0]}__sample_weight": w})
        if not classes:
            return np.asarray(model.predict(x_new)).reshape(len(x_new), -1)
        return np.asarray(np.eye(n_outputs)[model.predict(x_new)])
    options = {"max_iter": 100, "max_features": 0.3, "random_state": seed, "early_stopping": False}
    if classes:
        boosted = ensemble.HistGradientBoostingClassifier(**options).fit(x, y, w)
        predicted = np.zeros((len(x_new), n_outputs))
        predicted[:, boosted.classes_] = boosted.predict_proba(x_new)
        return predicted
    each = [ensemble.HistGradientBoostingRegressor(**options).fit(x, t, w) for t in y.T]
    return np.stack([boosted.predict(x_new) for boosted in each], axis=1)


def compared(predictor: Predictor) -> tuple[Scores, str, str]:
    """Scores of a model and of its baselines, what series they are of, and a verdict in words."""
    metadata = predictor.metadata
    if metadata.get("out_of_fold"):
        scores = metadata["out_of_fold"]
        return scores, "out-of-fold", _verdict(scores)
    scores = metadata.get("beside_baselines", {})
    overfits = _overfits(scores, metadata.get("training_scores", {}))
    return scores, "validation", f"{_verdict(scores)} {overfits}".strip()


def _overfits(scores: Scores, training: dict[str, float | None]) -> str:
    """A sentence, if a network is far better on the series that it was trained on."""
    if not scores or not training:
        return ""
    if "accuracy" in training:
        own, new = training["accuracy"], scores["model"]["accuracy"]
        far = own is not None and new is not None and own - new > _GAP
        name = "accuracy"
    else:
        own, new = training["rmse"], scores["model"]["rmse"]
        far = own is not None and new is not None and new > _RATIO * own
        name = "rmse"
    if not far:
        return ""
    return (
        f"It overfits: on the series that it was trained on its {name} is {own:.3g}, on the "
        f"validation part {new:.3g}; more data, drop=, dropout or fewer epochs may help."
    )


def _in_units(x: npt.NDArray[np.float64], targets: NumberTargets) -> npt.NDArray[np.float64]:
    return np.asarray(targets.to_units(torch.from_numpy(x)).numpy())


def known_scores(row: dict[str, float | None]) -> dict[str, float]:
    """Scores that are not defined as NaN."""
    return {name: math.nan if x is None else x for name, x in row.items()}


def _verdict(scores: Scores) -> str:
    """One sentence: whether the model is better than each baseline."""
    if len(scores) < 2:
        return ""
    metric = "accuracy" if "accuracy" in scores["model"] else "rmse"
    if scores["model"].get("accuracy") == 1:
        return "No series that was held out was predicted wrong."
    sign = 1 if metric in HIGHER_IS_BETTER else -1
    mine = scores["model"][metric]
    others = {
        name: value
        for name, row in scores.items()
        if name != "model" and (value := row[metric]) is not None
    }
    if mine is None or not others:
        return ""
    best = max(others, key=lambda name: sign * others[name])
    if sign * mine > sign * others[best]:
        return f"The model is ahead of every baseline; the best of them is {best}."
    simple = "majority class" if metric == "accuracy" else "mean"
    if simple in others and sign * mine <= sign * others[simple]:
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
        lines.append("  weights: " + ", ".join(f"{NAMES[k]} {w:.2f}" for k, w in weights))
    scores, of, verdict = compared(predictor)
    if scores:
        metrics = CLASSIFICATION if metadata["task"] == "classification" else REGRESSION
        width = max(len(name) for name in scores) + 2
        lines.append(f"  {of} scores:")
        lines.append(" " * (width + 4) + "".join(f"{m:>19}" for m in metrics))
        for name, row in scores.items():
            numbers = (row.get(m) for m in metrics)
            shown = "".join(f"{'-' if x is None else format(x, '.4g'):>19}" for x in numbers)
            lines.append(f"    {name:<{width}}{shown}")
        lines.append(f"  {verdict}")
    return "\n".join(lines)
