"""The network on tokens: its configuration, attention blocks, and ``TokenTransformer``."""

import math
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from roughformer.model.outputs import Head, OutputConfig, Pooling, Wide, prior_logits
from roughformer.model.scaling import Standardize, scale_of

_NARROW = 4  # contexts that a series is long from which on only the band is looked at


class RFormerConfig(OutputConfig):
    """Shape of an RFormer; ``model_dump_json`` and ``model_validate_json`` write and read it."""

    n_features: int = Field(ge=1, description="Features of a token.")
    d_model: int = Field(64, ge=1, description="Width of the blocks.")
    n_heads: int = Field(4, ge=1, description="Attention heads; they divide the width.")
    n_layers: int = Field(1, ge=0, description="Attention blocks.")
    d_feedforward: int | None = Field(
        None, ge=1, description="Hidden width of a block; None: 2 d_model."
    )
    dropout: float = Field(
        0.1, ge=0, lt=1, description="Share of activations hidden while training."
    )
    attention_dropout: float | None = Field(
        None, ge=0, lt=1, description="Dropout of the attention weights; None: as dropout."
    )
    input_dropout: float = Field(
        0.0, ge=0, lt=1, description="Share of token features hidden while training."
    )
    wide: int = Field(
        0,
        ge=0,
        description="Width of small networks beside attention, from the last token (each token, "
        "if causal) and the static covariates to outputs of their own; 0 for none.",
    )
    n_wide: int = Field(8, ge=1, description="Number of these networks.")
    n_wide_features: int | None = Field(
        None, ge=1, description="Number of leading features of the token that they see; None: all."
    )
    wide_share: float = Field(
        0.8, ge=0, le=1, description="Weight of their mean beside the output of attention."
    )
    wide_dropout: float = Field(0.5, ge=0, lt=1, description="Dropout inside these networks.")
    scaling: Literal["standard", "rank", "none"] = Field(
        "standard", description="Scaling of token features: mean and deviation, ranks, or none."
    )
    pooling: Literal["mean", "attention", "last"] = Field(
        "mean", description="How windows become one vector; a causal model has no pooling."
    )
    context: int | None = Field(
        None,
        ge=1,
        description="For causal models: a window attends to the last ``context`` up to itself, and "
        "knows how long ago they were instead of how late it is; None: to all before it.",
    )
    n_time_waves: int = Field(8, ge=0, description="Octaves of the encoding of window times.")
    n_static: int = Field(0, ge=0, description="Covariates that do not change with time.")
    n_spectrum: int = Field(
        0, ge=0, description="Powers of the spectrum of a path, over channels and frequencies."
    )
    clip: float = Field(10.0, gt=0, description="Standardised features are clipped to ± this.")

    @model_validator(mode="after")
    def _model_fits(self) -> Self:
        if self.d_model % self.n_heads:
            raise ValueError(
                f"d_model must be a multiple of n_heads, got {self.d_model} and {self.n_heads}"
            )
        if self.context is not None and not self.causal:
            raise ValueError("a context of windows is for causal models; set causal=True")
        return self


# Pre-norm attention blocks, and the encoding of the times that tokens stand for.


class TimeEncoding(nn.Module):
    """Times ``(B, L)`` -> ``(B, L, d)``: a linear map of t and of sin and cos of 2^j π t.

    Continuous, so a window end may fall anywhere and windows may differ between series.
    """

    waves: Tensor

    def __init__(self, d_model: int, n_waves: int) -> None:
        """``n_waves`` octaves, from half a turn over the unit of time on."""
        super().__init__()
        self.register_buffer("waves", math.pi * 2.0 ** torch.arange(n_waves), persistent=False)
        self.map = nn.Linear(1 + 2 * n_waves, d_model)

    def forward(self, times: Tensor) -> Tensor:
        """(B, L) -> (B, L, d_model)."""
        # In float64: angles reach hundreds of turns, where some runtimes lose digits in float32.
        angle = (times.unsqueeze(-1) * self.waves).double()  # (B, L, waves)
        parts = [times.unsqueeze(-1), angle.sin().to(times), angle.cos().to(times)]
        encoded: Tensor = self.map(torch.cat(parts, dim=-1))
        return encoded


def attention_mask(
    mask: Tensor | None,
    length: int,
    causal: bool,
    device: torch.device,
    context: int | None = None,
) -> Tensor | None:
    """What may be attended to: ``(B or 1, 1, L or 1, L)``, True = yes; None if everything may.

    Without ``causal`` it depends on the token looked at alone, ``(B, 1, 1, L)``: L² numbers for
    each series would be gigabytes where tokens are samples. With a ``context``, only the last so
    many tokens up to each; where that is a narrow band, which ``Attention`` cuts out itself,
    ``(B, L)``, the tokens that may. A padded token attends to itself, or those of a series that
    has no others to each other, so that no softmax is empty; nothing reads them.
    """
    if mask is None and not causal:
        return None
    if mask is not None and not causal and context is None:
        seen = (mask | ~mask.any(dim=1, keepdim=True))[:, None, None]
        # A graph cannot tell whether L is 1, and so whether one row is to be spread out.
        return seen.expand(-1, -1, length, -1) if torch.compiler.is_compiling() else seen
    if context is not None and not torch.compiler.is_exporting() and length > _NARROW * context:
        return torch.ones(1, length, dtype=torch.bool, device=device) if mask is None else mask
    allowed = torch.ones(1, length, length, dtype=torch.bool, device=device)
    if causal:
        allowed = allowed.tril()
    if context is not None:
        allowed = allowed.triu(1 - context)
    if mask is not None:
        itself = torch.eye(length, dtype=torch.bool, device=device)
        allowed = (allowed & mask.unsqueeze(1)) | itself
    return allowed.unsqueeze(1)


class Attention(nn.Module):
    """Multi-head softmax attention: softmax(Q Kᵀ / √d' + b) V for each head.

    b is 0, or with a ``context`` of m tokens a learned number for each age 0 ... m-1 of a token:
    who slides along an endless series knows how long ago a token was, not how late it is.
    """

    def __init__(
        self, d_model: int, n_heads: int, dropout: float, context: int | None = None
    ) -> None:
        """One linear map to queries, keys and values together; ``dropout`` of the weights."""
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.to_qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.age = None if context is None else nn.Parameter(torch.zeros(n_heads, context))

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, L, d) -> queries, keys and values, each (B, heads, L, d')."""
        batch, length, width = x.shape
        qkv = self.to_qkv(x).view(batch, length, 3, self.n_heads, width // self.n_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        return q, k, v

    def join(self, mixed: Tensor) -> Tensor:
        """(B, heads, L, d') -> (B, L, d)."""
        joined: Tensor = self.out(mixed.transpose(1, 2).flatten(-2))
        return joined

    def forward(self, x: Tensor, allowed: Tensor | None) -> Tensor:
        """(B, L, d), ``attention_mask`` -> (B, L, d)."""
        q, k, v = self.split(x)
        rate = self.dropout if self.training else 0.0
        if allowed is not None and allowed.dim() == 2:
            return self.join(self._banded(q, k, v, allowed, rate))
        weight = allowed if self.age is None else self._by_age(allowed, x.shape[1])
        return self.join(F.scaled_dot_product_attention(q, k, v, attn_mask=weight, dropout_p=rate))

    def step(
        self, x: Tensor, past: Tensor, window: Tensor, ended: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The newest windows of streams, ``x (B, K, d)`` -> ``(B, K, d)``, and what is remembered.

        ``past (B, 2, heads, size, d')`` is a ring of the keys and values of the last ``size``
        windows, ``window (B,)`` the number of the first of the new ones. Of one window, it is kept
        where it ``ended``; None: all have, and ``past`` itself is written to.
        """
        q, k, v = self.split(x)
        if x.shape[1] > 1:
            return self.join(self._several(q, k, v, past, window)), past
        size = past.shape[3]
        place = (window % size).unsqueeze(1)
        slot = torch.arange(size, device=x.device)
        # How long ago each entry of the ring was written; beyond the first window there is none.
        age = torch.remainder(place - slot, size)  # (B, size)
        added = torch.where(age <= window.unsqueeze(1), 0.0, -math.inf).to(x).unsqueeze(1)
        if self.age is not None:
            added = added + self.age[:, age].transpose(0, 1)  # (B, heads, size)
        both = torch.stack([k, v], dim=1)  # (B, 2, heads, 1, d')
        if ended is None:
            ring = past
            ring[torch.arange(len(past), device=x.device), :, :, place[:, 0]] = both[:, :, :, 0]
        else:
            ring = torch.where((slot == place)[:, None, None, :, None], both, past)
        mixed = F.scaled_dot_product_attention(
            q, ring[:, 0], ring[:, 1], attn_mask=added.unsqueeze(2)
        )
        if ended is not None:
            ring = torch.where(ended[:, None, None, None, None], ring, past)
        return self.join(mixed), ring

    def _several(self, q: Tensor, k: Tensor, v: Tensor, past: Tensor, window: Tensor) -> Tensor:
        """Several new windows, each of which sees those before it; all are kept."""
        size, count = past.shape[3], q.shape[2]
        number = torch.arange(count, device=q.device)
        slot = torch.arange(size, device=q.device)
        # How long before each new window the entries of the ring were written, and the new ones.
        old = torch.remainder(window.unsqueeze(1) - 1 - slot, size) + 1  # (B, size)
        new = (-number).expand(len(window), count)
        age = torch.cat([old, new], dim=1).unsqueeze(1) + number.unsqueeze(1)
        first = (window.unsqueeze(1) + number).unsqueeze(-1)
        seen = (age >= 0) & (age < size) & (age <= first)  # (B, K, size + K)
        added = torch.where(seen, 0.0, -math.inf).to(q).unsqueeze(1)
        if self.age is not None:
            added = added + self.age[:, age.clamp(0, size - 1)].transpose(0, 1)
        keys, values = (torch.cat([past[:, i], x], dim=2) for i, x in enumerate((k, v)))
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=added)
        kept = number[-size:]
        place = (window.unsqueeze(1) + kept) % size  # (B, at most size)
        row = torch.arange(len(past), device=q.device).unsqueeze(1)
        past[row, :, :, place] = torch.stack([k, v], dim=1)[:, :, :, kept].permute(0, 3, 1, 2, 4)
        return mixed

    def _banded(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor, rate: float) -> Tensor:
        """The same in memory that grows with L · context, not L²: ``real (B or 1, L)``."""
        assert self.age is not None
        size = self.age.shape[1]
        # The band of token i is i-m+1 ... i, the oldest first: (B, heads, L, d', m).
        k, v = (F.pad(x, (0, 0, size - 1, 0)).unfold(2, size, 1) for x in (k, v))
        there = F.pad(real, (size - 1, 0)).unfold(1, size, 1).clone()  # (B, L, m)
        there[..., -1] = True
        score = (q.unsqueeze(-2) @ k).squeeze(-2) * q.shape[-1] ** -0.5
        score = (score + self.age.flip(1).unsqueeze(1)).masked_fill(~there.unsqueeze(1), -math.inf)
        weight = F.dropout(score.softmax(dim=-1), rate)
        return (v @ weight.unsqueeze(-1)).squeeze(-1)

    def _by_age(self, allowed: Tensor | None, length: int) -> Tensor:
        """What is added to scores, ``(B or 1, heads, L, L)``; -inf where nothing may be seen."""
        assert self.age is not None
        assert allowed is not None
        place = torch.arange(length, device=allowed.device)
        old = (place.unsqueeze(1) - place).clamp(0, self.age.shape[1] - 1)
        added: Tensor = self.age[:, old].unsqueeze(0)
        return added.masked_fill(~allowed, -math.inf)


class Block(nn.Module):
    """x + Attention(norm x), then x + MLP(norm x)."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_feedforward: int,
        dropout: float,
        attention_dropout: float,
        context: int | None = None,
    ) -> None:
        """Norms come before what they feed, which trains without warm-up tricks."""
        super().__init__()
        self.norm_attention = nn.LayerNorm(d_model)
        self.attention = Attention(d_model, n_heads, attention_dropout, context)
        self.norm_mlp = nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(
            nn.Linear(d_model, d_feedforward),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(d_feedforward, d_model),
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, allowed: Tensor | None) -> Tensor:
        """(B, L, d), ``attention_mask`` -> (B, L, d)."""
        return self.finish(x, self.attention(self.norm_attention(x), allowed))

    def step(
        self, x: Tensor, past: Tensor, window: Tensor, ended: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """See ``Attention.step``."""
        attended, kept = self.attention.step(self.norm_attention(x), past, window, ended)
        return self.finish(x, attended), kept

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """What follows attention."""
        x = x + self.drop(attended)
        moved: Tensor = x + self.drop(self.mlp(self.norm_mlp(x)))
        return moved


class TokenTransformer(nn.Module):
    """Attention on tokens ``(B, L, n_features)``: scaling, embedding, blocks, pooling, head.

    ``causal=False`` has one output per series, ``causal=True`` one per token that depends on that
    token and the ones before it.
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

    def from_tokens(
        self,
        tokens: Tensor,
        times: Tensor,
        mask: Tensor | None = None,
        static: Tensor | None = None,
        spectrum: Tensor | None = None,
        separate: bool = False,
    ) -> Tensor:
        """Compute outputs from tokens.

        Parameters
        ----------
        tokens : Tensor (B, L, n_features)
            Features of each window.
        times : Tensor (B, L)
            Ends of the windows, in units of about the span.
        mask : Tensor (B, L), optional
            True where a window is real; by default all are.
        static : Tensor (B, n_static), optional
            Static covariates; NaN = not known.
        spectrum : Tensor (B, C, J), optional
            Of whole paths.
        separate : bool, default False
            Return the outputs of attention and of each network beside it, along a new first axis,
            instead of their weighted sum; without such networks it changes nothing.

        Returns
        -------
        Tensor (B, n_outputs[, k])
            Or ``(B, L, n_outputs[, k])`` if causal; see ``Head``.
        """
        x, known = self._read(tokens, times, mask, static, spectrum)
        return self._answer(x, self._last(tokens, mask), known, separate)

    def represent(self, **inputs: Any) -> Tensor:
        """Compute what the head sees.

        Parameters
        ----------
        **inputs : Tensor
            As for ``from_tokens``.

        Returns
        -------
        Tensor (B, d_model)
            Or ``(B, L, d_model)`` if causal.
        """
        return self._read(**inputs)[0]

    def _read(
        self,
        tokens: Tensor,
        times: Tensor,
        mask: Tensor | None = None,
        static: Tensor | None = None,
        spectrum: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """What the head sees, and the standardised covariates."""
        x, known = self._embedded(tokens, times, static)
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
        return x, known

    def forward(self, **inputs: Any) -> Tensor:
        """``from_tokens``."""
        return self.from_tokens(**inputs)

    def step_tokens(
        self,
        past: list[Tensor],
        tokens: Tensor,
        times: Tensor,
        static: Tensor | None,
        window: Tensor,
        ended: Tensor | None,
    ) -> tuple[list[Tensor], Tensor]:
        """Compute outputs for the newest tokens of each stream; see ``Attention.step``.

        Parameters
        ----------
        past : list of Tensor
            What each block remembers.
        tokens : Tensor (B, K, n_features)
            The newest tokens; several only if all of their windows have ended.
        times : Tensor (B, K)
            Ends of their windows.
        static : Tensor (B, n_static) or None
            Static covariates.
        window : Tensor (B,)
            Numbers of the first of these windows.
        ended : Tensor (B,) or None
            Whether they have ended: only those are remembered. None: all have, and
            ``past`` is overwritten.

        Returns
        -------
        past : list of Tensor
            What each block remembers now.
        output : Tensor (B, K, n_outputs[, k])
        """
        x, known = self._embedded(tokens, times, static)
        kept = []
        for block, ring in zip(self.blocks, past, strict=True):
            x, new = block.step(x, ring, window, ended)  # type: ignore[operator]
            kept.append(new)
        return kept, self._answer(x, self._last(tokens, None), known)

    def ring_shape(self, size: int) -> tuple[int, ...]:
        """Tell the shape of what one block remembers of a stream: keys and values.

        Parameters
        ----------
        size : int
            Number of windows.

        Returns
        -------
        tuple of int
        """
        config = self.config
        return (2, config.n_heads, size, config.d_model // config.n_heads)

    def _embedded(
        self, tokens: Tensor, times: Tensor, static: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """``(B, L, d_model)``: scaled and embedded tokens; and the standardised covariates."""
        kind = self.embed.weight.dtype
        x = self.embed(self.input_drop(self.standardize(tokens).to(kind)))
        if self.time is not None:
            x = x + self.time(times.to(kind))
        if self.embed_static is None:
            return x, None
        if static is None:
            raise ValueError(f"this model takes {self.config.n_static} static covariates")
        # Not known = the mean of the training part, which standardises to 0.
        known = self.standardize_static(static).to(kind)
        return x + self.embed_static(known).unsqueeze(1), known

    def _answer(
        self, x: Tensor, seen: Tensor, known: Tensor | None, separate: bool = False
    ) -> Tensor:
        """Outputs ``(B, [L,] n_outputs[, k])`` from ``x (B, [L,] d_model)``, which the blocks give,
        and the tokens ``seen`` and covariates ``known`` that the networks beside them see.
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
        """Take the statistics of the training part: those of ``from_tokens``'s inputs."""
        least = inputs.get("least_scale")
        self.standardize.fit(inputs["tokens"], inputs.get("mask"), least)
        if self.standardize_last is not None:
            mask = inputs.get("mask") if self.config.causal else None
            last = self._last(inputs["tokens"], inputs.get("mask"))
            self.standardize_last.fit(
                last, mask, None if least is None else least[: last.shape[-1]]
            )
        if self.embed_spectrum is not None:
            powers = inputs["spectrum"].flatten(-2)
            # Logarithms of shares of power, in float32: what varies by less is mostly rounding.
            self.standardize_spectrum.fit(powers, least=powers.new_full(powers.shape[-1:], 1e-3))
        if self.embed_static is not None:
            self.standardize_static.fit(inputs["static"])

    @torch.no_grad()
    def fit_prior(self, frequency: Tensor) -> None:
        """Let answers begin at the frequencies of the classes in the training part.

        Parameters
        ----------
        frequency : Tensor (K,)
            Shares of the classes.
        """
        self.head.fit_prior(frequency)
        if self.wide is not None:
            self.wide.out.bias.copy_(prior_logits(frequency))
