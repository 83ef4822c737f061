"""The kinds of models that can be trained, saved and loaded, by name."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
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
from roughformer.model.committee import Committee
from roughformer.model.ensemble import EnsembleConfig, SignatureEnsemble
from roughformer.model.tempo import TempoConfig, TempoFormer
from roughformer.series import SeriesBatch
from roughformer.tokens import TokenConfig, Tokenizer
from roughformer.tokens.cells import CellEncoder
from roughformer.tokens.tempo import TempoEncoder

__all__ = [
    "ModelKind",
    "kind_of",
    "kind_of_model",
    "least_scale_of",
]

Options = dict[str, Any]


@dataclass(frozen=True)
class ModelKind:
    """Classes of its encoder (series -> inputs), its configuration and its module.

    ``fit_encoder(tokens, batch, rates, options)``: the encoder, fitted to the training part; rates
    in turns per unit of time if targets are such. ``configure(encoder, options, output,
    rate_unit)``: the module's configuration. ``options``: those of the model.
    """

    encoder: Any
    config: Any
    model: Any
    fit_encoder: Callable[[TokenConfig, SeriesBatch, npt.NDArray[np.float64] | None, Options], Any]
    configure: Callable[[Any, Options, Options, float], Any]


def _attention_config(
    encoder: Any, options: Options, output: Options, unit: float
) -> RFormerConfig:
    return RFormerConfig(
        n_features=encoder.n_features,
        n_static=len(encoder.static),
        n_spectrum=encoder.n_spectrum,
        n_wide_features=getattr(encoder, "n_summary", None),
        context=encoder.config.context,
        **(options | output),
    )


def _tempo_encoder(
    tokens: TokenConfig,
    batch: SeriesBatch,
    rates: npt.NDArray[np.float64] | None,
    options: Options,
) -> TempoEncoder:
    assert rates is not None
    return TempoEncoder.fit(batch, rates)


def _tempo_config(encoder: TempoEncoder, options: Options, output: Options, unit: float) -> Any:
    if output["n_outputs"] != 1:
        raise InputError(f"a model of rates has one target, got {output['n_outputs']}")
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
        **options,
    )


def _ensemble_config(encoder: CellEncoder, options: Options, output: Options, unit: float) -> Any:
    return EnsembleConfig(
        n_channels=len(encoder.channels), n_cells=encoder.n_cells, **(options | output)
    )


def _baseline(encoder: Any, config: Any, model: Any, *of_encoder: str) -> ModelKind:
    """A kind whose encoder is fitted to series alone; ``of_encoder``: which of the model's options
    are the encoder's.
    """

    def fit(tokens: TokenConfig, batch: SeriesBatch, rates: Any, options: Options) -> Any:
        return encoder.fit(batch, tokens.static, **{name: options[name] for name in of_encoder})

    def configure(fitted: Any, options: Options, output: Options, unit: float) -> Any:
        own = {name: value for name, value in options.items() if name not in of_encoder}
        sizes = {"n_features": fitted.n_features, "n_static": len(fitted.static)}
        sizes |= getattr(fitted, "shape", {})  # what else the module must know of its tokens
        return config(**(sizes | own | output))

    return ModelKind(encoder, config, model, fit, configure)


_KINDS = {
    "rformer": ModelKind(
        Tokenizer,
        RFormerConfig,
        RFormer,
        lambda tokens, batch, rates, options: Tokenizer.fit(tokens, batch),
        _attention_config,
    ),
    "ensemble": ModelKind(
        CellEncoder,
        EnsembleConfig,
        SignatureEnsemble,
        lambda tokens, batch, rates, options: CellEncoder.fit(batch, tokens.static),
        _ensemble_config,
    ),
    "tempo": ModelKind(
        TempoEncoder,
        TempoConfig,
        TempoFormer,
        _tempo_encoder,
        _tempo_config,
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


def least_scale_of(encoder: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """``{"least_scale": (n_features,)}`` of an encoder that has such, for a model's scaling."""
    found = getattr(encoder, "least_scale", None)
    return {} if found is None else {"least_scale": found(inputs)}


def kind_of_model(model: nn.Module) -> str:
    """The name of a model's kind, or of its members' kind."""
    model = model.members[0] if isinstance(model, Committee) else model
    return next(name for name, kind in _KINDS.items() if type(model) is kind.model)
