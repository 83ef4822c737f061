"""What a fitted model reached beside simple yardsticks, in numbers and in words."""

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.estimators.ensemble import FittedEnsemble
from roughformer.inference import ClassTargets, NumberTargets, Predictor
from roughformer.model.ensemble import SignatureEnsemble
from roughformer.train import (
    CLASSIFICATION,
    HIGHER_IS_BETTER,
    REGRESSION,
    classification_scores,
    regression_scores,
)

__all__ = ["Scores", "known_scores", "out_of_fold", "summary_of", "verdict"]

Scores = dict[str, dict[str, float | None]]
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


def _in_units(x: npt.NDArray[np.float64], targets: NumberTargets) -> npt.NDArray[np.float64]:
    return np.asarray(targets.to_units(torch.from_numpy(x)).numpy())


def known_scores(row: dict[str, float | None]) -> dict[str, float]:
    """Scores that are not defined as NaN."""
    return {name: math.nan if x is None else x for name, x in row.items()}


def verdict(scores: Scores) -> str:
    """One sentence: whether the model is better than each yardstick."""
    if len(scores) < 2:
        return ""
    metric = "accuracy" if "accuracy" in scores["model"] else "rmse"
    if scores["model"].get("accuracy") == 1:
        return "No series that was left out was predicted wrong."
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
        return f"The model is ahead of every yardstick; the best of them is {best}."
    simple = "majority class" if metric == "accuracy" else "mean"
    if simple in others and sign * mine <= sign * others[simple]:
        return (
            f"The model is not better than the {simple}: these series do not tell the target, or "
            "there are too few of them."
        )
    return f"The model is not better than {best}, which alone would do as well here."


def summary_of(predictor: Predictor) -> str:
    """What the model is made of, and what it reached on series that were left out."""
    facts, encoder, model = predictor.metadata, predictor.encoder, predictor.model
    lines = [
        f"{type(model).__name__} for {facts['task']}, trained on {facts['trained_on']} series of "
        f"{len(encoder.channels)} channel{'s' if len(encoder.channels) != 1 else ''}"
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
    scores: Scores = facts.get("out_of_fold", {})
    if scores:
        metrics = CLASSIFICATION if facts["task"] == "classification" else REGRESSION
        width = max(len(name) for name in scores) + 2
        lines.append("  out-of-fold scores:")
        lines.append(" " * (width + 4) + "".join(f"{m:>19}" for m in metrics))
        for name, row in scores.items():
            numbers = (row.get(m) for m in metrics)
            shown = "".join(f"{'-' if x is None else format(x, '.4g'):>19}" for x in numbers)
            lines.append(f"    {name:<{width}}{shown}")
        lines.append(f"  {verdict(scores)}")
    return "\n".join(lines)
