"""Graph: padded raw samples -> predictions, as one module of plain torch operations."""

import copy

import torch
from torch import Tensor, nn

from roughformer.errors import InputError
from roughformer.inference import ClassTargets, NumberTargets, Predictor
from roughformer.model import RFormer
from roughformer.model.committee import Committee
from roughformer.model.ensemble import SignatureEnsemble
from roughformer.model.outputs import deviation_of, point_of
from roughformer.model.tempo import TempoFormer
from roughformer.signatures.torch_backend import observed

__all__ = ["Graph", "frozen", "names_of", "said", "static_names"]


def static_names(predictor: Predictor) -> tuple[str, ...]:
    """Names of the static covariates that a model takes, as the world gives them."""
    encoder = predictor.encoder
    return tuple(getattr(encoder, "config", encoder).static)


class Graph(nn.Module):
    """What ``Predictor`` says of series, for padded batches.

    Inputs: ``values (B, L, C)`` with NaN = not observed, ``times (B, L)``, ``lengths (B,)`` and, if
    the model takes them, ``static (B, S)``; what is behind the length of a series is ignored.
    Outputs, in the order of ``outputs``: ``probabilities (B, K)``, or ``point (B, m)`` and, as the
    model tells them, ``deviation (B, m)`` or ``quantiles (B, m, q)``. A causal model says the same
    of all its windows: ``window_probabilities (B, W, K)`` ..., with ``window_end (B, W)``, their
    ends in the unit of the times, and ``window_mask (B, W)``, True = real.
    """

    def __init__(self, predictor: Predictor) -> None:
        """``InputError`` for kinds of models that no graph can be made of."""
        super().__init__()
        check_kind(predictor)
        self.predictor, self.encoder = predictor, predictor.encoder
        self.config = predictor.outputs
        self.model = frozen(predictor.model)
        self.static_names = static_names(predictor)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs."""
        static = ("static",) if self.static_names else ()
        return ("values", "times", "lengths", *static)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        found = names_of(self.predictor)
        if not self.config.causal:
            return found
        return (*found, *(f"window_{name}" for name in found), "window_end", "window_mask")

    @property
    def dynamic(self) -> dict[str, dict[int, str]]:
        """Axes of any size."""
        axes = {"values": {0: "batch", 1: "length"}, "times": {0: "batch", 1: "length"}}
        return axes | {name: {0: "batch"} for name in self.inputs[2:]}

    def forward(
        self, values: Tensor, times: Tensor, lengths: Tensor, static: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """See the class."""
        data = observed(values, times, lengths)
        inputs, ends = self.encoder.padded(data, static)
        output = self.model(**inputs)
        if not self.config.causal:
            return said(self.predictor, output)
        assert ends is not None
        mask = inputs.get("mask")
        mask = torch.ones_like(inputs["times"], dtype=torch.bool) if mask is None else mask
        last = (mask.to(torch.int64).sum(dim=1) - 1).clamp(min=0)
        every = said(self.predictor, output)
        row = torch.arange(last.shape[0], device=last.device)
        final = tuple(part[row, last] for part in every)
        return (*final, *every, data.start.unsqueeze(1) + ends, mask)


def frozen(model: nn.Module) -> nn.Module:
    """A copy in evaluation mode that is not trained any more; the model itself stays as it is."""
    copied = copy.deepcopy(model).eval().cpu()
    for parameter in copied.parameters():
        parameter.requires_grad_(False)
    return copied


def names_of(predictor: Predictor) -> tuple[str, ...]:
    """Names of what a model says."""
    if isinstance(predictor.targets, ClassTargets):
        return ("probabilities",)
    kind = predictor.outputs.uncertainty
    if kind in ("gaussian", "histogram"):
        return ("point", "deviation")
    return ("point", "quantiles") if kind == "quantile" else ("point",)


def said(predictor: Predictor, output: Tensor) -> tuple[Tensor, ...]:
    """Outputs ``(..., n[, k])`` of the model in terms of the world, float64; see ``names_of``."""
    targets, config = predictor.targets, predictor.outputs
    if isinstance(targets, ClassTargets):
        return ((output / predictor.calibration).double().softmax(dim=-1),)
    assert isinstance(targets, NumberTargets)
    point = targets.to_units(point_of(output, config))
    deviation = deviation_of(output, config)
    if deviation is not None:
        wide = deviation * predictor.calibration
        return point, targets.deviation_to_units(wide, point)
    if config.uncertainty == "quantile":
        return point, targets.to_units(output.transpose(-1, -2)).transpose(-1, -2)
    return (point,)


def check_kind(predictor: Predictor) -> None:
    """``InputError`` for kinds of models that no graph can be made of."""
    model = predictor.model
    first = model.members[0] if isinstance(model, Committee) else model
    if not isinstance(first, RFormer | TempoFormer | SignatureEnsemble):
        raise InputError(
            f"a {type(first).__name__} cannot be exported; RFormer, TempoFormer (RateRegressor) "
            "and the default ensemble can"
        )
