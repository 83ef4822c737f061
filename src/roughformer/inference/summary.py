"""What a fitted model reached beside simple baselines, in words."""

import math

from roughformer.inference.predictor import Predictor
from roughformer.model import SignatureEnsemble

Scores = dict[str, dict[str, float | None]]
PART_NAMES = {
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
_GAP, _RATIO = 0.15, 2.0  # of accuracy, and of errors: more is overfitting


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
