"""The plan of a fit: an estimator's parameters as checked configurations and a fitted encoder."""

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from roughformer.errors import InputError
from roughformer.estimators.automatic import token_config
from roughformer.kinds import ModelKind, check_options, kind_of
from roughformer.series import SeriesBatch
from roughformer.tokens import Tokenizer
from roughformer.train import TrainConfig
from roughformer.train.config import Augmentation

__all__ = ["TOKEN_OPTIONS", "Plan", "one_line", "plan_of"]

TOKEN_OPTIONS = (
    "windows", "depth", "views", "time", "lags", "counts", "basepoint", "clock",
    "observations", "spectrum", "static", "context",
)  # fmt: skip
_MODEL = (
    "d_model", "n_heads", "n_layers", "dropout", "input_dropout", "wide",
    "wide_dropout", "scaling", "pooling", "causal",
)  # fmt: skip
_TRAIN = (
    "epochs", "batch_size", "learning_rate", "weight_decay", "schedule", "patience",
    "precision", "compile", "device", "max_seconds",
)  # fmt: skip
_AUGMENT = ("drop", "jitter", "channel_dropout", "warp", "draws")


@dataclass(frozen=True)
class Plan:
    """What the members of a fit share."""

    kind: ModelKind
    encoder: Any
    model: Any
    train: TrainConfig


def one_line(error: ValidationError) -> InputError:
    """What pydantic found wrong with an option, in one sentence."""
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"] if not str(part).startswith("function"))
    message = first["msg"].removeprefix("Value error, ")
    told = isinstance(first.get("input"), dict) or " got " in message
    given = "" if told else f", got {first.get('input')!r}"
    return InputError(f"{'' if message.startswith(name) else name + ': '}{message}{given}")


def plan_of(
    parameters: dict[str, Any],
    kind_name: str,
    batch: SeriesBatch,
    target: Tensor,
    *,
    output: dict[str, Any],
    rate_unit: float | None,
    tokenizer: Tokenizer | None = None,
) -> Plan:
    """Encoder and configurations, from the ``parameters`` of an estimator and its training series.

    ``output``: task and outputs of the model; ``rate_unit``: turns per unit of time of a target of
    1, if targets are rates; ``tokenizer``: the one whose tokens are there already, which no series
    are needed for.
    """

    def some(names: tuple[str, ...]) -> dict[str, Any]:
        return {name: parameters[name] for name in names}

    kind = kind_of(kind_name)
    own = check_options(kind_name, parameters["model_options"])
    causal = bool(parameters["causal"])
    try:
        config = TrainConfig(
            **some(_TRAIN),
            label_smoothing=parameters.get("label_smoothing", 0.0),
            augment=Augmentation(**some(_AUGMENT)),
        )
        # Not called transform: to scikit-learn, what has that attribute is a transformer.
        options = some(TOKEN_OPTIONS)
        options["transform"] = "logsignature" if parameters["logsignature"] else "signature"
        rates = None if rate_unit is None else rate_unit * target.numpy().ravel()
        encoder: Any = tokenizer
        if tokenizer is None:
            encoder = kind.fit_encoder(token_config(batch, options, causal), batch, rates, own)
        shape = some(_MODEL)
        counted = kind_name == "rformer" and encoder.config.observations
        if shape["wide"] == "auto":
            shape["wide"] = 256 if counted else 0
        if shape["scaling"] == "auto":
            shape["scaling"] = "rank" if counted else "standard"
        model = kind.configure(encoder, shape, output, rate_unit or 1.0, own)
        return Plan(kind, encoder, model, config)
    except ValidationError as error:
        raise one_line(error) from None
