"""The plan of a fit: an estimator's parameters as checked configurations and a fitted encoder."""

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from roughformer.errors import InputError
from roughformer.estimators.automatic import token_config
from roughformer.inference.registry import ModelSpec, get_model
from roughformer.model.outputs import OutputConfig
from roughformer.series import SeriesBatch
from roughformer.tokens import TokenConfig, Tokenizer
from roughformer.train import TrainConfig
from roughformer.util.groups import Group, one_line

__all__ = ["Plan", "Requested", "plan_of"]


_LEVELS = OutputConfig.model_fields["quantiles"].default


@dataclass(frozen=True)
class Requested:
    """What an estimator's parameters say of tokens and model; "auto": the series decide."""

    tokens: dict[str, Any]
    model: Group
    causal: bool


@dataclass(frozen=True)
class Plan:
    """What the members of a fit share."""

    kind: ModelSpec
    encoder: Any
    model: Any
    train: TrainConfig


def plan_of(
    requested: Requested,
    kind_name: str,
    batch: SeriesBatch,
    target: Tensor,
    *,
    train: TrainConfig,
    output: dict[str, Any],
    rate_unit: float | None,
    tokenizer: Tokenizer | None = None,
) -> Plan:
    """Encoder and configurations, from the parameters of an estimator and its training series.

    ``output``: task and outputs of the model; ``rate_unit``: turns per unit of time of a target of
    1, if targets are rates; ``tokenizer``: the one whose tokens are there already, which no series
    are needed for.
    """
    if output["task"] == "regression" and train.label_smoothing:
        raise InputError("label_smoothing is for classification; leave it out")
    levels = getattr(requested.model, "quantiles", None)
    if levels != _LEVELS and levels and output.get("uncertainty") != "quantile":
        raise InputError("quantiles are levels of uncertainty='quantile'; set that, too")
    kind = get_model(kind_name)
    model = {name: getattr(requested.model, name) for name in type(requested.model).options()}
    try:
        rates = None if rate_unit is None else rate_unit * target.numpy().ravel()
        encoder: Any = tokenizer
        if tokenizer is None:
            tokens = (
                token_config(batch, requested.tokens, requested.causal)
                if kind_name == "rformer"
                else TokenConfig(**requested.tokens)
            )
            encoder = kind.fit_encoder(tokens, batch, rates, model)
        if kind_name == "rformer" and encoder.config.observations:
            model = model | {"wide": 256, "scaling": "rank"} | requested.model.given
        output = output | {"causal": requested.causal}
        return Plan(kind, encoder, kind.configure(encoder, model, output, rate_unit or 1.0), train)
    except ValidationError as error:
        raise one_line(error) from None
