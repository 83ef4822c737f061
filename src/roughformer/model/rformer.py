"""RFormer: multi-view signature tokens -> embedding -> attention blocks -> pooling -> head."""

import torch
from torch import Tensor, nn

from roughformer.model.blocks import Block, TimeEncoding, attention_mask
from roughformer.model.config import RFormerConfig
from roughformer.model.heads import Head, Pooling
from roughformer.model.scaling import Standardize

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
        self.standardize = Standardize(config.n_features, config.clip)
        self.embed = nn.Linear(config.n_features, width)
        self.time = TimeEncoding(width, config.n_time_waves)
        hidden = config.d_feedforward or 2 * width
        self.blocks = nn.ModuleList(
            Block(width, config.n_heads, hidden, config.dropout) for _ in range(config.n_layers)
        )
        self.pool = None if config.causal else Pooling(width, config.pooling)
        self.standardize_static = Standardize(config.n_static, config.clip)
        self.embed_static = nn.Linear(config.n_static, width) if config.n_static else None
        self.head = Head(width, config)

    def forward(
        self,
        tokens: Tensor,
        times: Tensor,
        mask: Tensor | None = None,
        static: Tensor | None = None,
    ) -> Tensor:
        """``tokens (B, L, n_features)``, their window ends ``times (B, L)`` in units of about the
        span, ``mask (B, L)`` True = real, ``static (B, n_static)`` with NaN = not known.

        Returns ``(B, n_outputs[, k])``, or ``(B, L, n_outputs[, k])`` if causal; see ``Head``.
        """
        x = self.embed(self.standardize(tokens)) + self.time(times)
        if self.embed_static is not None:
            if static is None:
                raise ValueError(f"this model takes {self.config.n_static} static covariates")
            # Not known = the mean of the training part, which standardises to 0.
            known = self.standardize_static(static).nan_to_num(0.0)
            x = x + self.embed_static(known).unsqueeze(1)
        allowed = attention_mask(mask, x.shape[1], self.config.causal, x.device)
        for block in self.blocks:
            x = block(x, allowed)
        if self.pool is not None:
            x = self.pool(x, mask)
        output: Tensor = self.head(x)
        return output

    @torch.no_grad()
    def fit_scaling(
        self, tokens: Tensor, mask: Tensor | None = None, static: Tensor | None = None
    ) -> None:
        """Take the statistics of the training part: features of tokens, and static covariates."""
        self.standardize.fit(tokens, mask)
        if static is not None and self.config.n_static:
            for i in range(self.config.n_static):
                known = static[:, i][~static[:, i].isnan()]
                column = Standardize(1)
                column.fit(known.unsqueeze(-1))
                self.standardize_static.mean[i] = column.mean[0]
                self.standardize_static.scale[i] = column.scale[0]
