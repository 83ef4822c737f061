"""RFormer: multi-view signature tokens -> embedding -> attention blocks -> pooling -> head."""

import torch
from torch import Tensor, nn

from roughformer.model.blocks import Block, TimeEncoding, attention_mask
from roughformer.model.config import RFormerConfig
from roughformer.model.heads import Head, Pooling, prior_logits
from roughformer.model.scaling import Standardize, scale_of
from roughformer.model.wide import Wide

__all__ = ["RFormer"]


class RFormer(nn.Module):
    """The Rough Transformer on tokens ``(B, L, n_features)``.

    Cost is that of attention over L windows, whatever the number of samples. ``causal=False`` is
    the paper's model: one output per series. ``causal=True`` has one output per window that depends
    on that window and the ones before it.
    """

    def __init__(self, config: RFormerConfig) -> None:
        """Weights are drawn from torch's current random state."""
        super().__init__()
        self.config = config
        width = config.d_model
        self.standardize = scale_of(config.scaling, config.n_features, config.clip)
        self.embed = nn.Linear(config.n_features, width)
        self.time = None if config.context else TimeEncoding(width, config.n_time_waves)
        hidden = config.d_feedforward or 2 * width
        drop = config.dropout
        of_weights = drop if config.attention_dropout is None else config.attention_dropout
        self.blocks = nn.ModuleList(
            Block(width, config.n_heads, hidden, drop, of_weights, config.context)
            for _ in range(config.n_layers)
        )
        self.pool = None if config.causal else Pooling(width, config.pooling)
        self.standardize_static = Standardize(config.n_static, config.clip)
        self.embed_static = nn.Linear(config.n_static, width) if config.n_static else None
        self.standardize_spectrum = Standardize(config.n_spectrum, config.clip)
        self.embed_spectrum = (
            nn.Sequential(
                nn.Linear(config.n_spectrum, 2 * width),
                nn.GELU(),
                nn.Dropout(config.dropout),
                nn.Linear(2 * width, width),
            )
            if config.n_spectrum
            else None
        )
        self.input_drop = nn.Dropout(config.input_dropout)
        seen = config.n_wide_features or config.n_features
        self.wide = (
            Wide(
                seen + config.n_static,
                config.wide,
                config.n_wide,
                config.wide_dropout,
                config.input_dropout,
                config,
            )
            if config.wide
            else None
        )
        # Of last tokens only: what stands at the end of a series is spread otherwise.
        self.standardize_last = scale_of(config.scaling, seen, config.clip) if config.wide else None
        self.head = Head(width, config)

    def forward(
        self,
        tokens: Tensor,
        times: Tensor,
        mask: Tensor | None = None,
        static: Tensor | None = None,
        spectrum: Tensor | None = None,
        separate: bool = False,
    ) -> Tensor:
        """``tokens (B, L, n_features)``, their window ends ``times (B, L)`` in units of about the
        span, ``mask (B, L)`` True = real, ``static (B, n_static)`` with NaN = not known,
        ``spectrum (B, C, J)`` of whole paths.

        Returns ``(B, n_outputs[, k])``, or ``(B, L, n_outputs[, k])`` if causal; see ``Head``.
        """
        x, known = self.embedded(tokens, times, static)
        config = self.config
        allowed = attention_mask(mask, x.shape[1], config.causal, x.device, config.context)
        for block in self.blocks:
            x = block(x, allowed)
        if self.pool is not None:
            x = self.pool(x, mask)
        if self.embed_spectrum is not None:
            if spectrum is None:
                raise ValueError("this model takes the spectrum of the paths")
            powers = self.input_drop(self.standardize_spectrum(spectrum.flatten(-2)))
            x = x + self.embed_spectrum(powers)
        return self.answer(x, self._last(tokens, mask), known, separate)

    def embedded(
        self, tokens: Tensor, times: Tensor, static: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """What goes into the blocks, ``(B, L, d)``, and the standardised covariates."""
        x = self.embed(self.input_drop(self.standardize(tokens)))
        if self.time is not None:
            x = x + self.time(times)
        if self.embed_static is None:
            return x, None
        if static is None:
            raise ValueError(f"this model takes {self.config.n_static} static covariates")
        # Not known = the mean of the training part, which standardises to 0.
        known = self.standardize_static(static)
        return x + self.embed_static(known).unsqueeze(1), known

    def answer(
        self, x: Tensor, seen: Tensor, known: Tensor | None, separate: bool = False
    ) -> Tensor:
        """From what the blocks say ``(B, [L,] d)`` and the tokens ``seen`` by the networks beside
        them to the output; ``known``: standardised covariates ``(B, n_static)``.
        """
        output: Tensor = self.head(x)
        if self.wide is None:
            return output
        assert self.standardize_last is not None
        last = self.standardize_last(seen)
        if known is not None:
            if self.config.causal:
                known = known.unsqueeze(1).expand(-1, last.shape[1], -1)
            last = torch.cat([last, known], dim=-1)
        direct: Tensor = self.wide(last)  # (n_wide, ...)
        if separate:
            return torch.cat([output.unsqueeze(0), direct])
        share = self.config.wide_share
        return share * direct.mean(dim=0) + (1 - share) * output

    @property
    def answers_apart(self) -> bool:
        """Whether ``forward(..., separate=True)`` gives several answers, to be trained each by
        itself: trained as a sum, they would learn to correct each other on the training part.
        """
        return self.wide is not None

    def _last(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """What ``wide`` sees of the last real token, or of each token if causal."""
        seen = tokens[..., : self.config.n_wide_features]
        if self.config.causal:
            return seen
        if mask is None:
            return seen[:, -1]
        at = (mask.sum(dim=1) - 1).clamp(min=0)
        return seen[torch.arange(seen.shape[0], device=seen.device), at]

    @torch.no_grad()
    def fit_scaling(self, inputs: dict[str, Tensor]) -> None:
        """Take the statistics of the training part: those of ``forward``'s inputs."""
        self.standardize.fit(inputs["tokens"], inputs.get("mask"), inputs.get("least_scale"))
        if self.standardize_last is not None:
            mask = inputs.get("mask") if self.config.causal else None
            last = self._last(inputs["tokens"], inputs.get("mask"))
            self.standardize_last.fit(last, mask)
        if self.embed_spectrum is not None:
            self.standardize_spectrum.fit(inputs["spectrum"].flatten(-2))
        if self.embed_static is not None:
            self.standardize_static.fit(inputs["static"])

    @torch.no_grad()
    def fit_prior(self, frequency: Tensor) -> None:
        """Answers begin at the frequencies ``(K,)`` of the classes in the training part."""
        self.head.fit_prior(frequency)
        if self.wide is not None:
            self.wide.out.bias.copy_(prior_logits(frequency))
