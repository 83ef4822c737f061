"""Running trained models: over many inputs, and several of them as one."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from roughformer.model.outputs import OutputConfig

__all__ = ["Ensemble", "run_model"]

_TOKENS_AT_ONCE = 1 << 18  # bounds the memory of blocks: about 1 GB at width 64


@torch.no_grad()
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
