"""TempoFormer: rates from the spectra of windows, by a network that commutes with tempo."""

import math

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from roughformer.model.outputs import OutputConfig


class TempoConfig(OutputConfig):
    """Shape of a TempoFormer; its output is a histogram over the logarithm of the rate."""

    n_channels: int = Field(ge=1, description="Channels of a spectrum.")
    n_spectra: int = Field(ge=1, description="Spectra of a series: K.")
    n_frequencies: int = Field(ge=2, description="Frequencies of a spectrum: J.")
    harmonics: int = Field(4, ge=1, description="Multiples of a rate that are looked at.")
    width: int = Field(24, ge=1, description="Channels of the convolutions.")
    n_layers: int = Field(3, ge=1, description="Convolutions over the axis.")
    kernel: int = Field(5, ge=1, description="Places of the axis that one of them sees.")
    dropout: float = Field(0.1, ge=0, lt=1)
    channel_dropout: float = Field(0.15, ge=0, lt=1, description="Chance to hide a channel.")
    window_dropout: float = Field(0.1, ge=0, lt=1, description="Chance to hide a window.")


class TempoFormer(nn.Module):
    """``spectra (B, K, C, J)`` -> logits over rates ``(B, 1, R)``.

    For each window, the spectrum at r, 2r, 3r, ... is stacked for every rate r of the axis, and a
    small convolution over the axis turns it into evidence e_k(r). Attention over the windows,
    a_k = softmax of a score of each window, weighs clean windows against disturbed ones:

        logit(r) = c √K Σ_k a_k e_k(r).

    All places of the axis are treated alike, so a series played faster has its answer moved by as
    much as its spectrum.
    """

    def __init__(self, config: TempoConfig) -> None:
        """Weights are drawn from torch's current random state."""
        super().__init__()
        self.config = config
        step = config.bin_step
        self.offsets = [round(math.log(h) / step) for h in range(1, config.harmonics + 1)]
        width, kernel = config.width, config.kernel
        layers: list[nn.Module] = []
        n_in = config.n_channels * config.harmonics
        for i in range(config.n_layers):
            if i:
                layers.append(nn.Dropout1d(config.dropout))
            layers += [nn.Conv1d(n_in if i == 0 else width, width, kernel, padding="same")]
            layers += [nn.GELU()]
        self.convolve = nn.Sequential(*layers)
        self.evidence = nn.Conv1d(width, 1, 1)
        self.score = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, 1))
        self.place = nn.Parameter(torch.zeros(config.n_spectra))
        self.sharpness = nn.Parameter(torch.ones(()))

    def forward(self, spectra: Tensor, times: Tensor | None = None) -> Tensor:
        """See the class; ``times`` are not needed."""
        return self.attend(spectra)[0]

    def attend(self, spectra: Tensor) -> tuple[Tensor, Tensor]:
        """The logits ``(B, 1, R)`` and the attention over windows ``(B, K)``."""
        config = self.config
        batch, k, c, j = spectra.shape
        # Neither gain nor the depth of the valleys of a spectrum matters.
        x = spectra - spectra.mean(dim=-1, keepdim=True)
        x = x / (x.std(dim=-1, keepdim=True, correction=0) + 0.3)
        if self.training and config.channel_dropout:
            shown = torch.rand(batch, 1, c, 1, device=x.device) >= config.channel_dropout
            x = x * shown
        x = x.reshape(batch * k, c, j)
        rates = config.n_bins
        x = F.pad(x, (0, max(self.offsets[-1] + rates - x.shape[-1], 0)))
        stack = torch.cat([x[..., o : o + rates] for o in self.offsets], dim=1)
        hidden = self.convolve(stack)  # (B K, width, R)
        evidence = self.evidence(hidden).reshape(batch, k, rates)
        summary = torch.cat([hidden.mean(dim=-1), hidden.amax(dim=-1)], dim=-1)
        score = self.score(summary).reshape(batch, k) + self.place
        if self.training and config.window_dropout:
            hide = torch.rand(batch, k, device=x.device) < config.window_dropout
            score = score.masked_fill(hide, -1e4)
        weight = score.softmax(dim=1)
        mixed = (weight.unsqueeze(-1) * evidence).sum(dim=1)
        logits: Tensor = self.sharpness * math.sqrt(k) * mixed
        return logits.unsqueeze(1), weight

    def fit_scaling(self, inputs: dict[str, Tensor]) -> None:
        """Spectra are scaled one by one: there is nothing to fit."""
