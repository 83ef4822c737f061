"""What models share that carry a state from sample to sample: all but how the state moves."""

from abc import abstractmethod

import torch
from pydantic import Field
from torch import Tensor, nn

from roughformer.model import Head, OutputConfig, Pooling, Standardize

__all__ = ["Recurrent", "RecurrentConfig"]


class RecurrentConfig(OutputConfig):
    """Shape of a model with a state."""

    n_features: int = Field(ge=1, description="Features of a token.")
    n_static: int = Field(0, ge=0, description="Covariates that do not change with time.")
    d_model: int = Field(64, ge=1, description="Width of the state.")
    dropout: float = Field(0.1, ge=0, lt=1)
    clip: float = Field(10.0, gt=0, description="Standardised features are cut to ± this.")


class Recurrent(nn.Module):
    """Tokens, standardised -> states -> the last real one, or each if causal -> head.

    Static covariates are embedded and added to the state that the head sees.
    """

    def __init__(self, config: RecurrentConfig) -> None:
        """Weights are drawn from torch's current random state."""
        super().__init__()
        self.config = config
        width = config.d_model
        self.standardize = Standardize(config.n_features, config.clip)
        self.standardize_static = Standardize(config.n_static, config.clip)
        self.embed_static = nn.Linear(config.n_static, width) if config.n_static else None
        self.last = Pooling(width, "last")
        self.drop = nn.Dropout(config.dropout)
        self.head = Head(width, config)

    @abstractmethod
    def states(
        self, features: Tensor, tokens: Tensor, times: Tensor, mask: Tensor | None
    ) -> Tensor:
        """States ``(B, L, d)`` after each sample; ``features (B, L, F)`` are the tokens,
        standardised. States of padded samples are not looked at.
        """

    def forward(
        self,
        tokens: Tensor,
        times: Tensor,
        mask: Tensor | None = None,
        static: Tensor | None = None,
    ) -> Tensor:
        """``tokens (B, L, n_features)``, NaN = not known, their ``times (B, L)`` in units of about
        the span, ``mask (B, L)`` True = real, ``static (B, n_static)``, NaN = not known.

        Returns ``(B, n_outputs[, k])``, or ``(B, L, n_outputs[, k])`` if causal; see ``Head``.
        """
        x = self.states(self.standardize(tokens), tokens, times, mask)
        if not self.config.causal:
            x = self.last(x, mask)
        if self.embed_static is not None:
            if static is None:
                raise ValueError(f"this model takes {self.config.n_static} static covariates")
            known = self.embed_static(self.standardize_static(static))
            x = x + (known.unsqueeze(1) if self.config.causal else known)
        output: Tensor = self.head(self.drop(x))
        return output

    @torch.no_grad()
    def fit_scaling(self, inputs: dict[str, Tensor]) -> None:
        """Take the statistics of the training part: those of ``forward``'s inputs."""
        self.standardize.fit(inputs["tokens"], inputs.get("mask"), inputs.get("least_scale"))
        if self.embed_static is not None:
            self.standardize_static.fit(inputs["static"])

    def fit_prior(self, frequency: Tensor) -> None:
        """Answers begin at the frequencies ``(K,)`` of the classes in the training part."""
        self.head.fit_prior(frequency)
