"""The models that can be trained, saved and loaded, by name.

Another package adds its own with ``register_model``, and tells of them by entry points of the
group ``roughformer.models``: the name of a model, and a module that registers it when imported.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from roughformer.errors import InputError
from roughformer.model import (
    Ensemble,
    EnsembleConfig,
    RFormer,
    RFormerConfig,
    SignatureEnsemble,
    TempoConfig,
    TempoFormer,
)
from roughformer.series import SeriesBatch
from roughformer.tokens import CellEncoder, TempoEncoder, TokenConfig, Tokenizer

Options = dict[str, Any]


@dataclass(frozen=True)
class ModelSpec:
    """What a model is made of.

    Parameters
    ----------
    encoder : type
        Pydantic model of the step from series to the module's inputs.
    config : type
        Pydantic model of the module's configuration.
    model : type
        ``torch.nn.Module`` made of a configuration.
    fit_encoder : callable
        ``(tokens, batch, rates, options)`` -> the encoder, fitted to the training part; rates in
        turns per unit of time if targets are such, options of the model.
    configure : callable
        ``(encoder, options, output, rate_unit)`` -> the module's configuration.
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


_MODELS: dict[str, ModelSpec] = {
    "rformer": ModelSpec(
        Tokenizer,
        RFormerConfig,
        RFormer,
        lambda tokens, batch, rates, options: Tokenizer.fit(tokens, batch),
        _attention_config,
    ),
    "ensemble": ModelSpec(
        CellEncoder,
        EnsembleConfig,
        SignatureEnsemble,
        lambda tokens, batch, rates, options: CellEncoder.fit(batch, tokens.static),
        _ensemble_config,
    ),
    "tempo": ModelSpec(
        TempoEncoder,
        TempoConfig,
        TempoFormer,
        _tempo_encoder,
        _tempo_config,
    ),
}


def register_model(name: str, spec: ModelSpec) -> None:
    """Make a model known by name.

    Parameters
    ----------
    name : str
        As ``--model`` takes it, and as saved models are marked.
    spec : ModelSpec
        Its classes, and how they are fitted and configured.

    Raises
    ------
    InputError
        If another model has that name.
    """
    if _MODELS.setdefault(name, spec).model is not spec.model:
        raise InputError(f"there is a model named {name!r} already; choose another name")


def model_names() -> list[str]:
    """Names of all models, those of other packages included."""
    return list(dict.fromkeys([*_MODELS, *(entry.name for entry in _plugins())]))


def get_model(name: str) -> ModelSpec:
    """Look up a model; a package that brings it is imported if need be.

    Parameters
    ----------
    name : str
        Such as "rformer".

    Returns
    -------
    ModelSpec

    Raises
    ------
    InputError
        If there is none.
    """
    if name not in _MODELS:
        for entry in _plugins(name):
            entry.load()
    if name not in _MODELS:
        raise InputError(
            f"unknown model {name!r}; known are {', '.join(model_names())}; the baselines of the "
            "paper come with the package roughformer-paper"
        )
    return _MODELS[name]


def _plugins(*name: str) -> list[EntryPoint]:
    entries = entry_points(group="roughformer.models")
    return [entry for entry in entries if not name or entry.name in name]


def model_name(model: nn.Module) -> str:
    """The name of a model, or of its members."""
    model = model.members[0] if isinstance(model, Ensemble) else model
    return next(name for name, spec in _MODELS.items() if type(model) is spec.model)
