"""The models of the comparisons: a title and a recipe for each, the same loop for all."""

from pathlib import Path
from typing import Any

from roughformer.estimators import (
    RFormerClassifier,
    RFormerRegressor,
    RocketClassifier,
    RocketRegressor,
)
from roughformer.train.clock import processor_time

__all__ = [
    "OWN_RDE",
    "OWN_RDE_TITLE",
    "TASK_TITLES",
    "TITLES",
    "count_parameters",
    "fitted",
    "history_of",
    "own_options",
    "recipe_of",
]

OWN_RDE, OWN_RDE_TITLE = "neural-rde-own", "Neural RDE, our choices"
TASK_TITLES = {
    "rformer": "RFormer",
    "rformer-paper": "RFormer, the paper's choices",
    "transformer": "Transformer",
    "gru": "GRU",
    "ode-rnn": "ODE-RNN",
    "neural-cde": "Neural CDE",
    "neural-rde": "Neural RDE",
    OWN_RDE: OWN_RDE_TITLE,
    "state-space": "State space (S5)",
    "rocket": "ROCKET features + ridge",
}
# Where Neural RDE has one line.
TITLES = {name: title for name, title in TASK_TITLES.items() if name != OWN_RDE}
# What a model needs beside the options that all share, wherever it is trained or timed.
_RECIPES: dict[str, dict[str, Any]] = {"state-space": {"n_layers": 4}}
# Neural RDE by the paper's own validation (its Tables 4 and 5): accuracy 24 %, RMSE 2.44.
_RDE = {"sine": {"step": 8, "depth": 3}, "heart-rate": {"step": 2, "depth": 2}}
# And by ours (``nrde-validation``), at the same processor time for each.
_OWN_RDE = {"sine": {"step": 16, "depth": 2}, "heart-rate": {"step": 24, "depth": 3}}
_MOST_STEPS = 2048  # of a Neural CDE, its default
Options = dict[str, Any]
Estimator = RFormerClassifier | RFormerRegressor | RocketClassifier | RocketRegressor


def own_options(model: str, task: str, drop: float = 0.0) -> Options:
    """``{"model_options": ...}`` of a model for "sine" or "heart-rate", or nothing.

    A Neural CDE takes at most 2,048 steps over a usual series, as it is before points are dropped;
    series that have lost a share of their points may have that many more, so that the limit is one
    of the points that are left.
    """
    if model in ("neural-rde", OWN_RDE):
        return {"model_options": dict((_RDE if model == "neural-rde" else _OWN_RDE)[task])}
    if model == "neural-cde" and task == "heart-rate" and drop:
        return {"model_options": {"max_steps": round(_MOST_STEPS / (1 - drop))}}
    return {}


def recipe_of(model: str) -> tuple[str, Options]:
    """The estimators' preset that a model starts from, and what is changed in it."""
    preset = "paper" if model == "rformer-paper" else "default"
    name = next((kind for kind in ("rformer", "neural-rde") if model.startswith(kind)), model)
    return preset, {"model": name} | _RECIPES.get(model, {})


def fitted(
    task: str,
    model: str,
    parts: dict[str, Any],
    options: Options,
    seed: int,
    where: Path,
) -> Estimator:
    """An estimator of the model, trained on ``parts["train"]``, chosen on the validation part.

    Lists among the options are tuples: JSON has no others. A training that was killed goes on from
    the state in ``where``. ROCKET has no epochs: it is
    fitted once, to series that have lost their points once.
    """
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    if model == "rocket":
        kind = RocketClassifier if task == "classification" else RocketRegressor
        train, drop = parts["train"], options.get("drop", 0.0)
        thin = train.drop_points(drop, seed=seed) if drop else train
        return kind(random_state=seed).fit(thin, train.labels)
    cls = RFormerClassifier if task == "classification" else RFormerRegressor
    running: Options = {
        "random_state": seed, "run_dir": where / "run", "resume": True, "verbose": 1,
    }  # fmt: skip
    preset, recipe = recipe_of(model)
    estimator = cls.from_preset(preset, **(recipe | options | running))
    held = parts["validation"]
    # Budgets of processor time: what else runs on the machine must not shorten a training.
    with processor_time():
        return estimator.fit(
            parts["train"], parts["train"].labels, validation_data=(held, held.labels)
        )


def history_of(estimator: Estimator) -> list[dict[str, float]]:
    """One short record an epoch: seconds so far, training loss and validation scores."""
    spent, found = 0.0, []
    for record in getattr(estimator, "history_", []):
        spent += record["seconds"]
        scores = record.get("valid_scores", {})
        kept = {k: scores[k] for k in ("accuracy", "log_loss", "rmse", "loss") if k in scores}
        found.append({"seconds": spent, "train_loss": record["train_loss"], **kept})
    return found


def count_parameters(estimator: Estimator) -> int | None:
    """Trained numbers of the model; None for ROCKET's ridge."""
    if isinstance(estimator, RocketClassifier | RocketRegressor):
        return None
    return sum(p.numel() for p in estimator.predictor_.model.parameters() if p.requires_grad)
