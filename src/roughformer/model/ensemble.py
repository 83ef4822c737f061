"""SignatureEnsemble: linear maps of functionals, and trees on quantiles and summaries, blended."""

from typing import Self

import torch
from pydantic import Field
from torch import Tensor, nn

from roughformer.model.outputs import OutputConfig
from roughformer.model.trees import Forest, ForestShape
from roughformer.signatures import FINE, Functionals
from roughformer.tokens import IntervalQuantiles

__all__ = [
    "LINEAR_PARTS",
    "TREE_PARTS",
    "EnsembleConfig",
    "PathFeatures",
    "SignatureEnsemble",
    "SummaryPart",
]

LINEAR_PARTS = ("ppv", "poolings", "competition")
TREE_PARTS = ("intervals", "summary", "boosting", "rhythm")
_LEAST = 1e-3  # added to probabilities before their logarithms are blended


class EnsembleConfig(OutputConfig):
    """Sizes of a ``SignatureEnsemble``."""

    n_channels: int = Field(ge=1)
    n_cells: int = Field(ge=1, description="Even cells that each path is cut into.")
    n_views: int = Field(1, ge=1, description="Spans that the cells divide.")
    n_functionals: int = Field(3072, ge=8, description="About how many functionals.")
    n_features: int = Field(10_000, ge=8, description="About how many of their thresholds.")
    n_embedding: int = Field(64, ge=0, description="Length of the vectors of ``represent``.")
    parts: tuple[str, ...] = Field(description="Names of the parts that are blended.")
    n_words: int = Field(0, ge=0, description="Length of the summary.")
    forests: dict[str, ForestShape] = Field({}, description="Sizes of those that are trees.")


class PathFeatures(nn.Module):
    """What the parts of an ensemble see of a path: pooled functionals and interval quantiles."""

    mean: Tensor  # (R,) of cells
    factor: Tensor  # (R,) one over their deviation; 0 if they do not vary

    def __init__(
        self,
        n_channels: int,
        n_cells: int,
        n_functionals: int = 3072,
        n_features: int = 10_000,
        n_views: int = 1,
    ) -> None:
        """Nothing is drawn yet."""
        super().__init__()
        rows = 2 * n_views * n_channels
        self.functionals = Functionals(rows, n_cells, n_functionals, n_features, 2 * n_views)
        self.intervals = IntervalQuantiles(n_views * n_channels, n_cells)
        self.register_buffer("mean", torch.zeros(rows, dtype=torch.float64))
        self.register_buffer("factor", torch.ones(rows, dtype=torch.float64))

    def size(self, part: str) -> int:
        """Features that a linear part sees."""
        features, functionals = self.functionals.n_features, self.functionals.n_functionals
        return {"ppv": features, "poolings": 2 * features, "competition": 2 * functionals}[part]

    def draw(self, cells: Tensor, seed: int) -> Self:
        """Scale cells ``(B, R, N)`` of training series, and draw functionals of them."""
        flat = cells.transpose(0, 1).flatten(1)
        self.mean.copy_(flat.mean(dim=1))
        self.mean[len(self.mean) // 2 :] = 0  # increments keep their sign
        spread, largest = flat.std(dim=1, unbiased=False), flat.abs().amax(dim=1)
        self.factor.copy_(torch.where(spread > 1e-12 * largest, 1 / spread, 0.0))
        self.functionals.draw(self._scaled(cells), seed)
        return self

    def _scaled(self, cells: Tensor) -> Tensor:
        return (cells - self.mean.unsqueeze(-1)) * self.factor.unsqueeze(-1)

    def forward(self, cells: Tensor, parts: tuple[str, ...]) -> dict[str, Tensor]:
        """Features ``(B, ...)`` of these parts."""
        found: dict[str, Tensor] = {}
        scaled = self._scaled(cells)
        if set(parts) & set(LINEAR_PARTS):
            pooled = self.functionals(scaled)
            above = (pooled.mpv / FINE).asinh()  # draws long tails in
            found["ppv"] = pooled.ppv
            found["poolings"] = torch.cat([above, pooled.mipv], dim=1)
            found["competition"] = pooled.wins.clamp(min=0).sqrt()
        if "intervals" in parts:
            found["intervals"] = self.intervals(scaled)
        return {name: x for name, x in found.items() if name in parts}


class LinearPart(nn.Module):
    """A linear map, which ``usual (F,)``, the training means, come with; float64 inside."""

    weight: Tensor
    bias: Tensor
    usual: Tensor

    def __init__(self, n_features: int, n_outputs: int) -> None:
        """All zero, to be loaded."""
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_outputs, n_features))
        self.bias = nn.Parameter(torch.zeros(n_outputs))
        self.register_buffer("usual", torch.zeros(n_features))

    def forward(self, features: Tensor) -> Tensor:
        """``(B, F)`` -> ``(B, n_outputs)``."""
        return features.double() @ self.weight.double().T + self.bias.double()


class SummaryPart(LinearPart):
    """A linear map of words that are cut to ``low`` ... ``high (F,)`` first."""

    low: Tensor
    high: Tensor

    def __init__(self, n_features: int, n_outputs: int) -> None:
        """All zero, to be loaded."""
        super().__init__(n_features, n_outputs)
        self.register_buffer("low", torch.zeros(n_features))
        self.register_buffer("high", torch.zeros(n_features))

    def forward(self, features: Tensor) -> Tensor:
        """``(B, F)`` -> ``(B, n_outputs)``."""
        return super().forward(torch.minimum(torch.maximum(features, self.low), self.high))


class SignatureEnsemble(nn.Module):
    """Several readers of the same path, each with its own prediction, and their blend.

    - ``ppv``, ``poolings``, ``competition``: linear maps of pooled functionals of local signatures
      (``signatures.functionals``), fitted by ridge regression;
    - ``intervals``: trees on quantiles over dyadic intervals (``tokens.intervals``);
    - ``summary``, ``boosting``: trees on words of the observations, durations and covariates;
    - ``linear``: a linear map of the same, where most values are missing;
    - ``rhythm``: boosting on the rhythm of the channels alone, for rates.

    Logarithms of probabilities, or predictions of a regression, are added with weights.
    """

    config: EnsembleConfig
    weights: Tensor  # (parts,)
    directions: Tensor  # (E, F) principal directions of PPV features

    def __init__(self, config: EnsembleConfig, features: PathFeatures | None = None) -> None:
        """Nothing is fitted; see ``estimators.ensemble``."""
        super().__init__()
        self.config = config
        self.path = features or PathFeatures(
            config.n_channels, config.n_cells, config.n_functionals, config.n_features,
            config.n_views,
        )  # fmt: skip
        self.linear = nn.ModuleDict(
            {
                name: LinearPart(self.path.size(name), config.n_outputs)
                for name in config.parts
                if name in LINEAR_PARTS
            }
        )
        self.forests = nn.ModuleDict(
            {name: Forest(config.forests[name]) for name in config.parts if name in TREE_PARTS}
        )
        if "linear" in config.parts:
            self.linear["linear"] = SummaryPart(config.n_words, config.n_outputs)
        count = len(config.parts)
        self.register_buffer("weights", torch.full((count,), 1 / max(count, 1)))
        size = self.path.size("ppv")
        self.register_buffer("directions", torch.zeros(config.n_embedding, size))

    def represent(self, cells: Tensor, **others: Tensor) -> Tensor:
        """``(B, E)``: principal components of the PPV features."""
        usual: Tensor = self.linear["ppv"].usual  # type: ignore[assignment]
        ppv: Tensor = self.path(cells, ("ppv",))["ppv"]
        components: Tensor = (ppv - usual).double() @ self.directions.double().T
        return components.float()

    def answers(self, seen: dict[str, Tensor], summary: Tensor) -> dict[str, Tensor]:
        """Log-probabilities, or predictions, ``(B, n_outputs)`` of each part, from what ``path``
        says and the ``summary (B, S)``.
        """
        return {name: self._answer(name, seen.get(name, summary)) for name in self.config.parts}

    def blended(self, seen: dict[str, Tensor], summary: Tensor) -> Tensor:
        """Logits or predictions ``(B, n_outputs)``, float64."""
        answers = torch.stack(list(self.answers(seen, summary).values()))
        return torch.einsum("h,hbk->bk", self.weights.double(), answers)

    def hidden(self, seen: dict[str, Tensor], group: Tensor) -> dict[str, Tensor]:
        """Features with those of a ``group (K,)`` of functionals at their training means."""
        found = dict(seen)
        each = group.to(self.weights.device)
        each_threshold = each.repeat_interleave(self.path.functionals.thresholds.shape[-1])
        masks = {
            "ppv": each_threshold,
            "poolings": each_threshold.repeat(2),
            "competition": each.repeat(2),
        }
        for name, mask in masks.items():
            usual: Tensor = self.linear[name].usual  # type: ignore[assignment]
            found[name] = torch.where(mask, usual, seen[name])
        return found

    def _answer(self, part: str, features: Tensor) -> Tensor:
        if part in self.linear:
            raw: Tensor = self.linear[part](features)
        else:
            raw = self.forests[part](features).double()
        if self.config.task == "regression":
            return raw
        return blendable(raw if part in ("intervals", "summary") else raw.softmax(dim=-1))

    def forward(self, cells: Tensor, summary: Tensor, times: Tensor | None = None) -> Tensor:
        """Logits or predictions ``(B, n_outputs)``; ``times`` are not used."""
        return self.blended(self.path(cells, self.config.parts), summary).float()


def blendable(probabilities: Tensor) -> Tensor:
    """Logarithms of probabilities, none of them far below 1/1000."""
    return (probabilities + _LEAST).log()
