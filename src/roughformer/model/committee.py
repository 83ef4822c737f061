"""Committee: several models of one kind, trained on different parts, that answer as one."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from roughformer.model.outputs import OutputConfig

__all__ = ["Committee"]


class Committee(nn.Module):
    """Answers of the members, averaged.

    Classes and histograms: the logarithm of the mean probability, each member at its own
    temperature T_m: log (1/M) Σ_m softmax(z_m / T_m). Numbers: the mean of what they say.
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

    @property
    def standardize(self) -> nn.Module:
        """The first member's: what "hidden" means when an answer is explained."""
        return self.members[0].standardize  # type: ignore[return-value]

    @property
    def standardize_spectrum(self) -> nn.Module:
        """The first member's."""
        return self.members[0].standardize_spectrum  # type: ignore[return-value]

    @property
    def standardize_static(self) -> nn.Module:
        """The first member's."""
        return self.members[0].standardize_static  # type: ignore[return-value]

    def forward(self, **inputs: Tensor) -> Tensor:
        """As a member's, for the same inputs."""
        answers = torch.stack([member(**inputs) for member in self.members])
        config = self.config
        if config.task == "regression" and config.uncertainty != "histogram":
            return answers.mean(dim=0)
        scale = self.temperature.reshape(-1, *[1] * (answers.dim() - 1)).to(answers)
        return (answers / scale).softmax(dim=-1).mean(dim=0).clamp(min=1e-30).log()
