"""What models answer: kinds of output, their heads and losses, and how to read, run and average
them.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from roughformer.util.groups import describe

_TOKENS_AT_ONCE = 1 << 18  # bounds the memory of blocks: about 1 GB at width 64


class OutputConfig(BaseModel):
    """Classes or targets of a model, and the uncertainty it tells; shared by all models."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Describe the fields in the docstring."""
        super().__pydantic_init_subclass__(**kwargs)
        describe(cls)

    n_outputs: int = Field(ge=1, description="Classes, or targets of a regression.")
    task: Literal["classification", "regression"] = Field(
        "classification", description="What the outputs are."
    )
    uncertainty: Literal["none", "gaussian", "quantile", "histogram"] = Field(
        "none",
        description="What a regression predicts beside the point: a variance, quantiles, or "
        "logits of bins.",
    )
    quantiles: tuple[float, ...] = Field((0.1, 0.5, 0.9), description="Levels, increasing.")
    n_bins: int = Field(2, ge=2, description="Bins of a histogram.")
    bin_low: float = Field(0.0, description="Centre of the first bin, in the units of the loss.")
    bin_step: float = Field(1.0, gt=0, description="Width of a bin.")
    causal: bool = Field(
        False, description="Windows attend to the past only, and each has an output of its own."
    )

    @model_validator(mode="after")
    def _outputs_fit(self) -> Self:
        if self.task == "classification" and self.uncertainty != "none":
            raise ValueError("a classification has probabilities; uncertainty is for regression")
        levels = self.quantiles
        if not levels or not all(0 < q < 1 for q in levels) or list(levels) != sorted(set(levels)):
            raise ValueError(f"quantiles must increase between 0 and 1, got {levels}")
        return self

    @property
    def outputs_per_target(self) -> int:
        """Numbers that the head gives for each class or target."""
        sizes = {"none": 1, "gaussian": 2, "quantile": len(self.quantiles)}
        return sizes.get(self.uncertainty, self.n_bins)

    def shaped(self, raw: Tensor) -> Tensor:
        """Shape the last layer's numbers.

        Parameters
        ----------
        raw : Tensor (..., n_outputs · k)
            The numbers.

        Returns
        -------
        Tensor (..., n_outputs) or (..., n_outputs, k)
            Logits or points, or with uncertainty the k numbers of each target.
        """
        if self.uncertainty == "none":
            return raw
        raw = raw.reshape(*raw.shape[:-1], self.n_outputs, self.outputs_per_target)
        if self.uncertainty == "quantile":
            # The lowest, then steps that cannot be negative: quantiles never cross.
            steps = F.softplus(raw[..., 1:])
            return torch.cat([raw[..., :1], raw[..., :1] + steps.cumsum(dim=-1)], dim=-1)
        return raw

    def centres(self, like: Tensor) -> Tensor:
        """Compute the centres of the bins of a histogram.

        Parameters
        ----------
        like : Tensor
            A tensor of the device and dtype that are wanted.

        Returns
        -------
        Tensor (n_bins,)
        """
        places = torch.arange(self.n_bins, device=like.device, dtype=like.dtype)
        return self.bin_low + self.bin_step * places


def point_of(output: Tensor, config: OutputConfig) -> Tensor:
    """The point prediction ``(..., n_outputs)`` in the output of a regression."""
    if config.uncertainty == "gaussian":
        return output[..., 0]
    if config.uncertainty == "quantile":
        middle = min(range(len(config.quantiles)), key=lambda i: abs(config.quantiles[i] - 0.5))
        return output[..., middle]
    if config.uncertainty == "histogram":
        return (output.softmax(dim=-1) * config.centres(output)).sum(dim=-1)
    return output


def deviation_of(output: Tensor, config: OutputConfig) -> Tensor | None:
    """The standard deviation ``(..., n_outputs)`` that a regression tells, if it does."""
    if config.uncertainty == "gaussian":
        return (0.5 * output[..., 1].clamp(-10, 10)).exp()
    if config.uncertainty == "histogram":
        gap = config.centres(output) - point_of(output, config).unsqueeze(-1)
        variance = (output.softmax(dim=-1) * gap.square()).sum(dim=-1)
        # A value is known no better than its bin.
        return (variance + config.bin_step**2 / 12).sqrt()
    return None


def loss_of(
    output: Tensor,
    target: Tensor,
    config: OutputConfig,
    class_weight: Tensor | None = None,
    label_smoothing: float = 0.0,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Mean loss: cross entropy, squared error, Gaussian likelihood, pinball or histogram loss.

    ``target``: class numbers ``(...)``, negative = not known, or ``(..., n_outputs)``, NaN = not
    known; what is not known is left out. ``sample_weight (B,)``: of the series, along the first
    axis; the mean is weighted by it.
    """
    if config.task == "classification":
        flat = target.flatten()
        each = F.cross_entropy(
            output.flatten(0, -2),
            flat.where(flat >= 0, -100),
            weight=class_weight,
            label_smoothing=label_smoothing,
            reduction="none",
        ).view(target.shape)
        return _mean(each, target, config, class_weight, sample_weight)
    known = ~target.isnan()
    safe = torch.where(known, target, torch.zeros_like(target))
    if config.uncertainty == "gaussian":
        mean, log_variance = output[..., 0], output[..., 1].clamp(-10, 10)
        loss = 0.5 * (log_variance + (safe - mean).square() * (-log_variance).exp())
    elif config.uncertainty == "quantile":
        level = output.new_tensor(config.quantiles)
        gap = safe.unsqueeze(-1) - output
        loss = torch.maximum(level * gap, (level - 1) * gap).sum(dim=-1)
    elif config.uncertainty == "histogram":
        # Cross entropy to a bell of one bin's width, and Huber's loss of the mean, in bins.
        gap = (config.centres(output) - safe.unsqueeze(-1)) / config.bin_step
        label = (-0.5 * gap.square()).softmax(dim=-1)
        miss = (point_of(output, config) - safe) / config.bin_step
        huber = F.huber_loss(miss, torch.zeros_like(miss), reduction="none", delta=2.0)
        loss = huber - (label * output.log_softmax(dim=-1)).sum(dim=-1)
    else:
        loss = (output - safe).square()
    return _mean(loss * known, target, config, None, sample_weight)


def _mean(
    each: Tensor,
    target: Tensor,
    config: OutputConfig,
    class_weight: Tensor | None,
    sample_weight: Tensor | None,
) -> Tensor:
    """The weighted mean of losses ``(B, ...)``, 0 where the target is not known; of none 0."""
    weight = torch.ones(target.shape, device=target.device)
    if sample_weight is not None:
        weight = _along(sample_weight, target)
        each = each * weight
    if config.task != "classification":
        total = (weight * ~target.isnan()).sum()
    else:
        known = target >= 0
        weight = weight.expand(target.shape)[known]
        weight = weight if class_weight is None else weight * class_weight[target[known]]
        total = weight.sum()
    return each.sum() / total.clamp(min=1e-12).to(each.dtype)


def _along(sample_weight: Tensor, target: Tensor) -> Tensor:
    """Weights of the series ``(B,)`` as those of their targets ``(B, ...)``."""
    return sample_weight.reshape(-1, *[1] * (target.dim() - 1)).expand(target.shape)


def run_model(
    model: nn.Module, inputs: dict[str, Tensor], device: torch.device | str, batch_size: int = 256
) -> Tensor:
    """Outputs of all series ``(B, ...)``, in main memory and float32; evaluation mode while it
    runs. Batches of long series are smaller.
    """
    was = model.training
    if was:  # a walk over all modules, which takes as long as a small batch
        model.eval()
    n = len(next(iter(inputs.values())))
    length = max((x.shape[1] for x in inputs.values() if x.dim() > 1), default=1)
    size = max(min(batch_size, _TOKENS_AT_ONCE // max(length, 1)), 1)
    parts = []
    with torch.inference_mode():
        for i in range(0, max(n, 1), size):
            part = {name: x[i : i + size].to(device) for name, x in inputs.items()}
            parts.append(model(**part).float().cpu())
    if was:
        model.train()
    return torch.cat(parts)


class Ensemble(nn.Module):
    """Answers of the members, averaged.

    Classes and histograms: the logarithm of the mean probability, each member at its own
    temperature T_m: log (1/M) Σ_m softmax(z_m / T_m). Numbers: the mean of what they say, with the
    variance of their mixture if they tell one.
    """

    temperature: Tensor

    def __init__(self, members: Sequence[nn.Module], temperature: Sequence[float] = ()) -> None:
        """``members`` have the same configuration."""
        super().__init__()
        self.members = nn.ModuleList(members)
        given = list(temperature) or [1.0] * len(members)
        self.register_buffer("temperature", torch.tensor(given, dtype=torch.float32))

    @property
    def config(self) -> OutputConfig:
        """That of every member."""
        config: OutputConfig = self.members[0].config  # type: ignore[assignment]
        return config

    def forward(self, **inputs: Tensor) -> Tensor:
        """As a member's, for the same inputs."""
        return self.joined(torch.stack([member(**inputs) for member in self.members]))

    def joined(self, answers: Tensor) -> Tensor:
        """What the members say together: ``(M, ...)`` -> ``(...)``."""
        config = self.config
        if config.uncertainty == "gaussian":
            # The variance of the mixture: what members say, and how far they are apart.
            mean, log_variance = answers[..., 0], answers[..., 1].clamp(-10, 10)
            apart = mean.var(dim=0, correction=0)
            variance = log_variance.exp().mean(dim=0) + apart
            return torch.stack([mean.mean(dim=0), variance.log()], dim=-1)
        if config.task == "regression" and config.uncertainty != "histogram":
            return answers.mean(dim=0)
        scale = self.temperature.reshape(-1, *[1] * (answers.dim() - 1)).to(answers)
        return (answers / scale).softmax(dim=-1).mean(dim=0).clamp(min=1e-30).log()


# From the vectors of tokens to predictions.


class Pooling(nn.Module):
    """Tokens ``(B, L, d)`` -> ``(B, d)`` over those that are real."""

    def __init__(self, d_model: int, kind: str) -> None:
        """``mean``, ``attention`` (a learned score for each token) or ``last``."""
        super().__init__()
        self.kind = kind
        self.score = nn.Linear(d_model, 1) if kind == "attention" else None

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(B, L, d), (B, L) -> (B, d)."""
        batch, length, _ = x.shape
        if mask is None and self.kind == "mean":
            return x.mean(dim=1)
        real = x.new_ones(batch, length) if mask is None else mask.to(x.dtype)
        if self.kind == "last":
            at = (real.sum(dim=1).long() - 1).clamp(min=0)
            last: Tensor = x[torch.arange(batch, device=x.device), at]
            return last
        if self.score is not None:
            score = self.score(x).squeeze(-1).masked_fill(real == 0, -math.inf)
            weight = score.softmax(dim=1).nan_to_num()
        else:
            weight = real / real.sum(dim=1, keepdim=True).clamp(min=1)
        pooled: Tensor = (weight.unsqueeze(-1) * x).sum(dim=1)
        return pooled


class Head(nn.Module):
    """``(..., d)`` -> ``(..., n_outputs)`` logits or points, or ``(..., n_outputs, k)`` with
    uncertainty: (mean, log variance) or increasing quantiles.
    """

    def __init__(self, d_in: int, config: OutputConfig) -> None:
        """A norm and one linear map."""
        super().__init__()
        self.config = config
        self.norm = nn.LayerNorm(d_in)
        self.map = nn.Linear(d_in, config.n_outputs * config.outputs_per_target)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return self.config.shaped(self.map(self.norm(x)))

    @torch.no_grad()
    def fit_prior(self, frequency: Tensor) -> None:
        """Answers begin at the frequencies ``(K,)`` of the classes in the training part.

        Learning that one class is rare would cost the first of few epochs.
        """
        self.map.bias.copy_(prior_logits(frequency))


class _Maps(nn.Module):
    """k linear maps side by side: ``(k, B, i)`` -> ``(k, B, o)``."""

    def __init__(self, k: int, n_in: int, n_out: int) -> None:
        super().__init__()
        bound = n_in**-0.5
        self.weight = nn.Parameter(torch.empty(k, n_in, n_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(k, 1, n_out).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class Wide(nn.Module):
    """``(..., n_in)`` -> ``(k, ..., n_outputs[, m])``: answers of k small networks.

    They have weights and dropout of their own and are trained each by itself; their mean is
    steadier than any of them.
    """

    def __init__(
        self,
        n_in: int,
        width: int,
        k: int,
        dropout: float,
        input_dropout: float,
        outputs: OutputConfig,
    ) -> None:
        """Weights are drawn from torch's current random state."""
        super().__init__()
        self.k, self.outputs = k, outputs
        self.input_drop, self.drop = nn.Dropout(input_dropout), nn.Dropout(dropout)
        size = outputs.n_outputs * outputs.outputs_per_target
        self.one, self.two = _Maps(k, n_in, width), _Maps(k, width, width)
        self.out = _Maps(k, width, size)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        shape = x.shape[:-1]
        flat = x.reshape(math.prod(shape), x.shape[-1])
        hidden = self.input_drop(flat.expand(self.k, *flat.shape))
        for layer in (self.one, self.two):
            hidden = self.drop(layer(hidden).relu())
        raw = self.out(hidden)
        raw = raw.reshape(self.k, *shape, raw.shape[-1])
        return self.outputs.shaped(raw)


def prior_logits(frequency: Tensor) -> Tensor:
    """Logits ``(K,)`` with mean 0 whose softmax are the frequencies of the classes."""
    logits = frequency.clamp(min=1e-6).log()
    return logits - logits.mean()
