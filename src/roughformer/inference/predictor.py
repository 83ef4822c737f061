"""Predictor: everything from raw series to predictions, in one object and one directory.

Which models there are: the registry, here. Another package adds its own with ``register_model``,
and tells of them by entry points of the group ``roughformer.models``: the name of a model, and a
module that registers it when imported.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from roughformer.errors import CheckpointError, InputError
from roughformer.inference.calibration import (
    NOT_CALIBRATED,
    LevelCalibration,
    calibrate_out_of_fold,
    calibrate_scores,
    least_for,
)
from roughformer.inference.targets import ClassTargets, NumberTargets
from roughformer.model import (
    Ensemble,
    EnsembleConfig,
    OutputConfig,
    RFormer,
    RFormerConfig,
    SignatureEnsemble,
    TempoConfig,
    TempoFormer,
    deviation_of,
    point_of,
    run_model,
)
from roughformer.series import SeriesBatch
from roughformer.signatures import Windows
from roughformer.tokens import CellEncoder, TempoEncoder, TokenConfig, Tokenizer
from roughformer.util.checkpoint import load_checkpoint, save_checkpoint

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


_SERIES_AT_ONCE = 1024  # bounds the memory of tokens


@dataclass
class Predictor:
    """Everything from raw series to predictions: an encoder, a model, and what its numbers mean.

    Parameters
    ----------
    encoder : Tokenizer or other encoder
        Makes the inputs of the model from series.
    model : nn.Module
        The network, or a committee of networks.
    targets : ClassTargets or NumberTargets
        What its outputs mean: class labels, or the scale of targets.
    calibration : float, default 1.0
        Temperature of the logits, or factor on standard deviations.
    metadata : dict, optional
        Metadata saved with the model.
    """

    encoder: Any
    model: nn.Module
    targets: ClassTargets | NumberTargets
    calibration: float = 1.0
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Let the model itself make its tokens, too."""
        for member in self.members:
            if isinstance(member, RFormer):
                member.attach(self.encoder)

    @property
    def outputs(self) -> OutputConfig:
        """Configuration of the model's outputs."""
        config: OutputConfig = self.model.config  # type: ignore[assignment]
        return config

    @property
    def static_names(self) -> tuple[str, ...]:
        """Names of the static covariates that the model takes, before encoding."""
        return tuple(getattr(self.encoder, "config", self.encoder).static)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.model.parameters()).device

    def forward(
        self, batch: SeriesBatch, *, drop: float = 0.0, seed: int = 0, threads: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Run the model on series.

        Parameters
        ----------
        batch : SeriesBatch
            Series with the channels that the model was fitted to.
        drop : float, default 0.0
            Share of each series' points to leave out.
        seed : int, default 0
            Which points are left out.
        threads : int, optional
            Threads for the tokens.

        Returns
        -------
        output : Tensor (B, n[, k]), or (B, L, n[, k]) if causal
            Outputs of the model.
        mask : Tensor (B, L)
            True where a window is real.
        """
        return self._through(self.model, batch, drop, seed, threads)

    def embed(self, batch: SeriesBatch, *, threads: int | None = None) -> Tensor:
        """Represent each series by one vector.

        Parameters
        ----------
        batch : SeriesBatch
            Series with the channels that the model was fitted to.
        threads : int, optional
            Threads for the tokens.

        Returns
        -------
        Tensor (B, E)
            What the head sees at the last window, side by side for members of a committee;
            principal components of the functionals for an ensemble.
        """
        if not all(hasattr(member, "represent") for member in self.members):
            raise InputError(f"a {type(self.model).__name__} has no vectors of series")
        output, mask = self._through(_Represent(self.members), batch, threads=threads)
        return self.at_last_window(output, mask)

    def _through(
        self,
        model: nn.Module,
        batch: SeriesBatch,
        drop: float = 0.0,
        seed: int = 0,
        threads: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Outputs of a module that takes what the model takes, and which windows are real."""
        outputs, masks = [], []
        for i in range(0, max(len(batch), 1), _SERIES_AT_ONCE):
            whole = len(batch) <= _SERIES_AT_ONCE
            part = batch if whole else batch[i : i + _SERIES_AT_ONCE]
            # Every series keeps its own draw of dropped points wherever the batch is cut.
            numbers = np.arange(i, i + len(part)) if drop else None
            inputs = self.encoder.encode(
                part, drop=drop, seed=seed, series=numbers, threads=threads
            )
            outputs.append(run_model(model, inputs, self.device))
            shape = inputs["times"].shape
            masks.append(inputs.get("mask", torch.ones(shape, dtype=torch.bool)))
        if len(outputs) == 1:
            return outputs[0], masks[0]
        most = max(m.shape[1] for m in masks)
        if self.outputs.causal:
            outputs = [_pad(o, most) for o in outputs]
        return torch.cat(outputs), torch.cat([_pad(m, most) for m in masks])

    def probabilities(self, batch: SeriesBatch, **options: Any) -> npt.NDArray[np.float64]:
        """Compute calibrated probabilities of the classes; those of the last window if causal.

        Parameters
        ----------
        batch : SeriesBatch
            Series to classify.
        **options
            Of ``forward``.

        Returns
        -------
        ndarray (B, K)
            Rows sum to 1.
        """
        output, mask = self.forward(batch, **options)
        return np.asarray(self.answers(self.at_last_window(output, mask))["probabilities"])

    def predict(self, batch: SeriesBatch, **options: Any) -> dict[str, npt.NDArray[np.float64]]:
        """Predict the targets of a regression, in their own units.

        Parameters
        ----------
        batch : SeriesBatch
            Series to predict for.
        **options
            Of ``forward``.

        Returns
        -------
        dict
            ``point (B, m)``, and ``deviation (B, m)`` or ``quantiles (B, m, q)`` if the model has
            them.
        """
        output, mask = self.forward(batch, **options)
        answers = self.answers(self.at_last_window(output, mask))
        return {name: x.numpy() for name, x in answers.items()}

    def answers(self, output: Tensor) -> dict[str, Tensor]:
        """Convert outputs of the model to probabilities, or to numbers in units of the targets.

        Parameters
        ----------
        output : Tensor (..., n[, k])
            Outputs of the model.

        Returns
        -------
        dict
            Float64: ``probabilities (..., K)``; or ``point (..., m)``, and ``deviation (..., m)``
            or ``quantiles (..., m, q)`` if the model has them.
        """
        if isinstance(self.targets, ClassTargets):
            return {"probabilities": (output / self.calibration).double().softmax(dim=-1)}
        answers = {"point": self.targets.to_units(point_of(output, self.outputs))}
        deviation = deviation_of(output, self.outputs)
        if deviation is not None:
            wide = deviation * self.calibration
            answers["deviation"] = self.targets.deviation_to_units(wide, answers["point"])
        if self.outputs.uncertainty == "quantile":
            answers["quantiles"] = self.targets.to_units(output.mT).mT
        return answers

    @property
    def conformal(self) -> list[LevelCalibration] | None:
        """Calibration of each target's intervals, or of the sets of classes."""
        plain = self.metadata.get("conformal")
        return None if plain is None else [LevelCalibration.from_plain(part) for part in plain]

    def promises(self, coverage: float) -> bool:
        """Tell whether enough series calibrated the model for intervals or sets that hold so often.

        Parameters
        ----------
        coverage : float
            Share of new series.

        Returns
        -------
        bool
        """
        parts = self.conformal or []
        return bool(parts) and min(part.n_groups for part in parts) >= least_for(coverage)

    def calibrate(self, batch: SeriesBatch, true: npt.NDArray[Any]) -> None:
        """Learn from held-out series how wide intervals, or how large sets of classes, must be.

        Parameters
        ----------
        batch : SeriesBatch
            Series that the model was not fitted to; they are predicted whole and thinned.
        true : ndarray (B, m) or (B, K)
            Their targets, NaN where unknown; of classes 1 for the true one, else 0.
        """

        def scores_of(series: SeriesBatch) -> npt.NDArray[np.float64]:
            if isinstance(self.targets, ClassTargets):
                return self._scores({"probabilities": self.probabilities(series)}, true)
            return self._scores(self.predict(series), true)

        calibrations = calibrate_scores(batch, scores_of)
        self.metadata["conformal"] = [part.to_plain() for part in calibrations]

    def calibrate_out_of_fold(
        self, batch: SeriesBatch, outputs: npt.NDArray[Any], true: npt.NDArray[Any], groups: Any
    ) -> None:
        """Learn the same from training series that were predicted out of fold.

        Parameters
        ----------
        batch : SeriesBatch
            The series.
        outputs : ndarray (B, n_outputs)
            Of each by models that have not seen it or its group, NaN where there are none.
        true : ndarray (B, m) or (B, K)
            As for ``calibrate``.
        groups : array-like (B,) or None
            Groups whose series err alike.
        """
        scores = self._scores(self.answers(torch.from_numpy(outputs)), true)
        calibrations = calibrate_out_of_fold(batch, scores, groups)
        if min(part.n_held for part in calibrations):
            self.metadata["conformal"] = [part.to_plain() for part in calibrations]

    def _scores(self, answers: dict[str, Any], true: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """How far off answers are, from 0 to 1, ``(B, m)``: of one target after the other, or of
        the classes.
        """
        answers = {name: np.asarray(x) for name, x in answers.items()}
        if isinstance(self.targets, ClassTargets):
            return np.asarray(1 - (answers["probabilities"] * true).sum(axis=1, keepdims=True))
        error = np.abs(true - answers["point"])
        return np.asarray(error / (error + self._spread(answers)))

    def intervals(
        self,
        predicted: dict[str, npt.NDArray[np.float64]],
        observed: npt.NDArray[np.float64],
        coverage: float,
    ) -> npt.NDArray[np.float64]:
        """Compute intervals of a regression that was calibrated.

        Parameters
        ----------
        predicted : dict
            Of ``predict``.
        observed : ndarray (B,)
            Number of values that were observed of each series.
        coverage : float
            Share of new series whose target is to lie inside.

        Returns
        -------
        ndarray (B, m, 2)
            Their ends.
        """
        if self.conformal is None:
            raise InputError(NOT_CALIBRATED.format("intervals"))
        bound = np.stack([part.bound(coverage, observed) for part in self.conformal], axis=1)
        with np.errstate(divide="ignore"):
            reach = self._spread(predicted) * bound / (1 - bound)
        return np.stack([predicted["point"] - reach, predicted["point"] + reach], axis=-1)

    def _spread(self, predicted: dict[str, npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
        """The unit of errors: the deviation, or that of the targets if the model tells none."""
        if "deviation" in predicted:
            return np.maximum(predicted["deviation"], 1e-12)
        assert isinstance(self.targets, NumberTargets)
        point = torch.from_numpy(predicted["point"])
        return np.asarray(self.targets.deviation_to_units(torch.ones_like(point), point))

    def window_edges(self, batch: SeriesBatch) -> list[npt.NDArray[np.float64]]:
        """Compute the edges of the windows that the tokens stand for.

        Parameters
        ----------
        batch : SeriesBatch
            Series to be cut.

        Returns
        -------
        list of ndarray (L + 1,)
            For each series, in the unit of its times. A token of one sample stands for the time
            since the sample before.
        """
        if isinstance(self.encoder, Tokenizer):
            rule = self.encoder.config.rule
        elif isinstance(self.encoder, TempoEncoder):
            rule = Windows.by_count(max(self.encoder.n_windows, 1))
        elif hasattr(self.encoder, "window_edges"):
            return list(self.encoder.window_edges(batch))
        else:
            times = (batch.series(b)[0] for b in range(len(batch)))
            return [np.concatenate([t[:1], t]) for t in times]
        cuts = rule.place(batch)
        return [cuts.of(b) for b in range(len(batch))]

    def at_last_window(self, output: Tensor, mask: Tensor) -> Tensor:
        """Select the outputs of a causal model at the last real window.

        Parameters
        ----------
        output : Tensor (B, L, n[, k])
            Outputs of the model; those of a model that is not causal are returned as they are.
        mask : Tensor (B, L)
            True where a window is real.

        Returns
        -------
        Tensor (B, n[, k])
        """
        if not self.outputs.causal:
            return output
        at = (mask.sum(dim=1) - 1).clamp(min=0)
        return output[torch.arange(len(output)), at]

    @property
    def members(self) -> list[Any]:
        """The networks that answer together; one alone, if there are no others."""
        return list(self.model.members) if isinstance(self.model, Ensemble) else [self.model]

    # On disk

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write ``config.json``, ``model.safetensors`` and a manifest; complete or not at all.

        Parameters
        ----------
        directory : path
            Where to write.
        """
        config = {
            "kind": model_name(self.members[0]),
            "members": len(self.members),
            "encoder": self.encoder.model_dump(mode="json"),
            "model": self.outputs.model_dump(mode="json"),
            "targets": self.targets.model_dump(mode="json"),
            "calibration": self.calibration,
            "facts": self.metadata,
        }
        save_checkpoint(directory, config, {"model": dict(self.model.state_dict())})

    @classmethod
    def load(cls, directory: str | os.PathLike[str], device: str = "cpu") -> "Predictor":
        """Load what ``save`` wrote.

        Parameters
        ----------
        directory : path
            Where it was written.
        device : str, default "cpu"
            Where to put the weights.

        Returns
        -------
        Predictor

        Raises
        ------
        CheckpointError
            If the files are damaged or something else.
        """
        _check_device(device)
        saved = load_checkpoint(directory)
        if saved.config.get("kind") == "forecaster":
            raise InputError(
                f"{os.fspath(directory)} holds a forecaster: load it with RFormerForecaster"
            )
        try:
            kind = get_model(saved.config["kind"])
            encoder = kind.encoder.model_validate(saved.config["encoder"])
            config = kind.config.model_validate(saved.config["model"])
            count, tensors = int(saved.config["members"]), saved.tensors["model"]
            _check_weights(kind.model, config, count, tensors)
            members = [kind.model(config) for _ in range(count)]
            model = members[0] if len(members) == 1 else Ensemble(members)
            model.load_state_dict(tensors)
            raw = saved.config["targets"]
            how = ClassTargets if raw["kind"] == "classes" else NumberTargets
            predictor = cls(
                encoder,
                model.eval().to(device),
                how.model_validate(raw),
                float(saved.config["calibration"]),
                dict(saved.config["facts"]),
            )
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            first = str(error).splitlines()[0] if str(error) else repr(error)
            raise CheckpointError(
                f"{os.fspath(directory)} is complete but is no model that this version of "
                f"roughformer can read: {first}"
            ) from error
        return predictor


class _Represent(nn.Module):
    """Representations of several models, side by side."""

    def __init__(self, members: list[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.train(members[0].training)

    def forward(self, **inputs: Tensor) -> Tensor:
        vectors = [member.represent(**inputs) for member in self.members]  # type: ignore[operator]
        return torch.cat(vectors, dim=-1)


def _check_weights(
    build: Callable[[Any], nn.Module], config: Any, members: int, tensors: dict[str, Tensor]
) -> None:
    """``ValueError`` unless ``tensors`` are finite and those that the configuration asks for;
    before any memory is taken for it.
    """
    if not 1 <= members * max(getattr(config, "n_layers", 1), 1) <= max(len(tensors), 1):
        raise ValueError("the configuration has more layers or members than there are weights")
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in build(config).state_dict().items()}
    prefixes = [""] if members == 1 else [f"members.{k}." for k in range(members)]
    expected = {prefix + name: shape for prefix in prefixes for name, shape in shapes.items()}
    if members > 1:
        expected["temperature"] = torch.Size([members])
    for name in sorted(expected.keys() | tensors.keys()):
        if name.endswith("_extra_state"):  # of any length; its module looks at it
            continue
        shape = tensors[name].shape if name in tensors else None
        if expected.get(name) != shape:
            raise ValueError(
                f"{name} has {_size(shape)}, the configuration asks for {_size(expected.get(name))}"
            )
        if tensors[name].is_floating_point():
            leaves = name.endswith(".threshold")  # in trees those have infinite ones
            wrong = tensors[name].isnan() if leaves else ~tensors[name].isfinite()
            if bool(wrong.any()):
                raise ValueError(f"{name} is not finite")


def _size(shape: torch.Size | None) -> str:
    return "no weights" if shape is None else f"weights of shape {tuple(shape)}"


def _check_device(device: str) -> None:
    kind = str(device).split(":")[0]
    there = {"cpu": True, "cuda": torch.cuda.is_available()}
    there["mps"] = torch.backends.mps.is_available()
    if kind not in there:
        raise InputError(f"device must be one of {', '.join(there)}, got {device!r}")
    if not there[kind]:
        raise InputError(f"device={device!r}, but torch sees no such device here; use 'cpu'")


def committee_of(predictors: list[Predictor]) -> Predictor:
    """One predictor that answers for all; they share encoder, targets and configuration."""
    first = predictors[0]
    if len(predictors) == 1:
        return first
    factors = [p.calibration for p in predictors]
    classes = isinstance(first.targets, ClassTargets)
    # Temperatures belong to the members; the factor on deviations to what they say together.
    committee = Ensemble([p.model for p in predictors], factors if classes else ())
    factor = 1.0 if classes else float(np.mean(factors))
    return replace(first, model=committee.to(first.device).eval(), calibration=factor)


def _pad(x: Tensor, length: int) -> Tensor:
    """``(B, L, ...)`` with zeros up to ``length``."""
    if x.shape[1] == length:
        return x
    return torch.cat([x, x.new_zeros(len(x), length - x.shape[1], *x.shape[2:])], dim=1)
