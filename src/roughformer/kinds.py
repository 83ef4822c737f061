"""The kinds of models that can be trained, saved and loaded, by name."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from roughformer.baselines import (
    GRU,
    ODERNN,
    ForwardEncoder,
    GRUConfig,
    ODERNNConfig,
    SampleEncoder,
    Transformer,
    TransformerConfig,
)
from roughformer.baselines.neural_cde import NeuralCDE, NeuralCDEConfig, PathEncoder
from roughformer.baselines.neural_rde import LogSignatureEncoder, NeuralRDE, NeuralRDEConfig
from roughformer.baselines.state_space import StateSpace, StateSpaceConfig
from roughformer.errors import InputError
from roughformer.model import RFormer, RFormerConfig
from roughformer.model.outputs import OutputConfig
from roughformer.model.tempo import TempoConfig, TempoFormer
from roughformer.series import SeriesBatch
from roughformer.tokens import TokenConfig, Tokenizer
from roughformer.tokens.tempo import TempoEncoder

__all__ = [
    "ModelKind",
    "check_options",
    "kind_of",
    "kind_of_model",
    "least_scale_of",
    "none_is_a_choice",
    "options_of_kind",
    "unused_options",
]

Options = dict[str, Any]


@dataclass(frozen=True)
class ModelKind:
    """Classes of its encoder (series -> inputs), its configuration and its module.

    ``fit_encoder(tokens, batch, rates, own)``: the encoder, fitted to the training part; rates in
    turns per unit of time if targets are such. ``configure(encoder, model, output, rate_unit,
    own)``: the module's configuration. ``own``: options that only this kind has, an estimator's
    ``model_options``; ``of_encoder``: which of them are the encoder's; ``unused``: which options
    of an estimator change nothing.
    """

    encoder: Any
    config: Any
    model: Any
    fit_encoder: Callable[[TokenConfig, SeriesBatch, npt.NDArray[np.float64] | None, Options], Any]
    configure: Callable[[Any, Options, Options, float, Options], Any]
    of_encoder: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


# Options of an estimator that make the tokens, and the shape, of an RFormer.
_TOKENS = (
    "windows", "depth", "views", "logsignature", "time", "lags", "counts", "basepoint", "clock",
    "observations", "spectrum", "context",
)  # fmt: skip
_SHAPE = (
    "d_model", "n_heads", "n_layers", "dropout", "input_dropout", "wide", "wide_dropout", "scaling",
    "pooling",
)  # fmt: skip


def _attention_config(
    encoder: Any, model: Options, output: Options, unit: float, own: Options
) -> RFormerConfig:
    return RFormerConfig(
        n_features=encoder.n_features,
        n_static=len(encoder.static),
        n_spectrum=encoder.n_spectrum,
        n_wide_features=getattr(encoder, "n_summary", None),
        context=encoder.config.context,
        **(model | output | own),
    )


def _tempo_encoder(
    tokens: TokenConfig,
    batch: SeriesBatch,
    rates: npt.NDArray[np.float64] | None,
    own: Options,
) -> TempoEncoder:
    if rates is None:
        raise InputError("model='tempo' predicts rates: use RFormerRegressor(rate_like=True)")
    if tokens.static:
        raise InputError("a model of rates takes no static covariates; leave static= out")
    return TempoEncoder.fit(batch, rates)


def _tempo_config(
    encoder: TempoEncoder, model: Options, output: Options, unit: float, own: Options
) -> Any:
    if output["n_outputs"] != 1:
        raise InputError(f"a model of rates has one target, got {output['n_outputs']}")
    if model["causal"]:
        raise InputError("a model of rates is not causal yet; leave causal= out")
    return TempoConfig(
        n_outputs=1,
        task="regression",
        uncertainty="histogram",
        n_bins=encoder.n_rates,
        bin_low=math.log(encoder.low / unit),
        bin_step=encoder.step,
        n_channels=2 * len(encoder.channels),
        n_spectra=encoder.n_spectra,
        n_frequencies=encoder.n_frequencies,
        harmonics=encoder.harmonics,
        **({"dropout": model["dropout"]} | own),
    )


def _baseline(encoder: Any, config: Any, model: Any, *of_encoder: str) -> ModelKind:
    """A kind whose encoder is fitted to series alone; ``of_encoder``: which of its own options
    are the encoder's.
    """

    def fit(tokens: TokenConfig, batch: SeriesBatch, rates: Any, own: Options) -> Any:
        wishes = {name: own[name] for name in of_encoder if name in own}
        return encoder.fit(batch, tokens.static, **wishes)

    def configure(fitted: Any, shape: Options, output: Options, unit: float, own: Options) -> Any:
        known = {name: wish for name, wish in shape.items() if name in config.model_fields}
        rest = {name: wish for name, wish in own.items() if name not in of_encoder}
        sizes = {"n_features": fitted.n_features, "n_static": len(fitted.static)}
        sizes |= getattr(fitted, "shape", {})  # what else the module must know of its tokens
        return config(**(sizes | known | output | rest))

    unused = _TOKENS + tuple(name for name in _SHAPE if name not in config.model_fields)
    return ModelKind(encoder, config, model, fit, configure, of_encoder, unused)


_KINDS = {
    "rformer": ModelKind(
        Tokenizer,
        RFormerConfig,
        RFormer,
        lambda tokens, batch, rates, own: Tokenizer.fit(tokens, batch),
        _attention_config,
    ),
    "tempo": ModelKind(
        TempoEncoder,
        TempoConfig,
        TempoFormer,
        _tempo_encoder,
        _tempo_config,
        unused=_TOKENS + tuple(name for name in _SHAPE if name != "dropout"),
    ),
    "transformer": _baseline(SampleEncoder, TransformerConfig, Transformer, "fill"),
    "gru": _baseline(ForwardEncoder, GRUConfig, GRU, "fill"),
    "ode-rnn": _baseline(SampleEncoder, ODERNNConfig, ODERNN),
    "neural-cde": _baseline(
        PathEncoder,
        NeuralCDEConfig,
        NeuralCDE,
        *("interpolation", "counts", "max_steps", "time_range"),
    ),
    "neural-rde": _baseline(
        LogSignatureEncoder,
        NeuralRDEConfig,
        NeuralRDE,
        *("step", "depth", "counts", "time_range"),
    ),
    "state-space": _baseline(SampleEncoder, StateSpaceConfig, StateSpace),
}


def kind_of(name: str) -> ModelKind:
    """The kind of that name."""
    if name not in _KINDS:
        hint = "; ROCKET has no training loop: use roughformer.RocketClassifier"
        known = ", ".join(_KINDS) + (hint if name == "rocket" else "")
        raise InputError(f"unknown model {name!r}; known are {known}")
    return _KINDS[name]


# Sizes that the data decide.
_FROM_DATA = {
    "n_features", "n_static", "n_spectrum", "n_wide_features", "n_channels", "n_spectra",
    "n_frequencies", "harmonics", "stride",
}  # fmt: skip


def options_of_kind(name: str) -> list[str]:
    """What ``model_options`` may name for the model of that name."""
    kind = kind_of(name)
    fixed = _FROM_DATA | OutputConfig.model_fields.keys()
    known = [field for field in kind.config.model_fields if field not in fixed]
    return known + [option for option in kind.of_encoder if option not in known]


def none_is_a_choice(option: str) -> bool:
    """Whether "none" is a value of that option of a model, and not how TOML has to write None."""
    fields = (kind.config.model_fields.get(option) for kind in _KINDS.values())
    return any(field is not None and "none" in get_args(field.annotation) for field in fields)


def check_options(name: str, own: Any) -> Options:
    """An estimator's ``model_options`` for the model of that name, if it has them all."""
    if own is None:
        return {}
    if not isinstance(own, dict):
        raise InputError(f"model_options must be a dict of name -> value, got {own!r}")
    known = options_of_kind(name)
    for option in own:
        if option not in known:
            raise InputError(
                f"model {name!r} has no option {option!r}; it has {', '.join(known) or 'none'}"
            )
    return dict(own)


def unused_options(name: str, changed: list[str]) -> list[str]:
    """Those of the ``changed`` options of an estimator that the model of that name does not use."""
    return [option for option in changed if option in kind_of(name).unused]


def least_scale_of(encoder: Any) -> dict[str, Tensor]:
    """``{"least_scale": (n_features,)}`` of an encoder that has such, for a model's scaling."""
    found = getattr(encoder, "least_scale", None)
    return {} if found is None else {"least_scale": torch.tensor(found)}


def kind_of_model(model: nn.Module) -> str:
    """The name of a model's kind."""
    return next(name for name, kind in _KINDS.items() if type(model) is kind.model)
