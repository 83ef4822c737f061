"""The models of the comparisons: a title and a recipe for each, the same loop for all."""

from pathlib import Path
from typing import Any

from roughformer.estimators import TrainedEstimator, estimator_class
from roughformer.train import processor_time
from roughformer_paper.baselines import RocketClassifier, RocketRegressor

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
    "settings_of",
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
Estimator = TrainedEstimator | RocketClassifier | RocketRegressor


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
    return "paper" if model == "rformer-paper" else "default", _RECIPES.get(model, {})


def settings_of(task: str, model: str, options: Options) -> tuple[type[TrainedEstimator], Options]:
    """The class of a model's estimator and the settings that differ from its defaults.

    ``options``: as jobs have them. Results of long runs are found by them, so they keep the names
    that they were stored with: ``rate_like`` says that the model is one of rates,
    ``model_options`` are options of the model.
    """
    options = dict(options)
    own = options.pop("model_options", None) or {}
    kind = next((kind for kind in ("rformer", "neural-rde") if model.startswith(kind)), model)
    cls = estimator_class(task, "tempo" if options.pop("rate_like", False) else kind)
    preset, recipe = recipe_of(model)
    network = {"recipe": "attention"} if cls.kind == "rformer" else {}
    changes = network | recipe | options | {f"model.{name}": value for name, value in own.items()}
    return cls, cls.preset_settings(preset) | cls.settings(changes)


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
    running: Options = {
        "random_state": seed, "run_dir": where / "run", "resume": True, "verbose": 1,
    }  # fmt: skip
    cls, settings = settings_of(task, model, options)
    estimator = cls.from_settings(settings | cls.settings(running))
    held = parts["validation"]
    # Budgets of processor time: what else runs on the machine must not shorten a training.
    with processor_time():
        estimator.fit(parts["train"], parts["train"].labels, validation_data=(held, held.labels))
    return estimator


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
