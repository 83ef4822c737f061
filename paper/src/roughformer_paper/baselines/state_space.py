"""A linear state-space model (S5: Smith, Warrington, Linderman 2023) on irregular samples.

Each layer is the linear system  z'(t) = λ z(t) + B u(t),  y = 2 Re(C z) + D u  with a diagonal
complex λ, solved exactly for an input that is held from one sample to the next: the real gap
between the samples is its step, so that irregular sampling needs no treatment of its own.
"""

from typing import Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from roughformer.model import Head, OutputConfig, Pooling, Standardize
from roughformer_paper.baselines.samples import channels_of_samples, gaps_of_samples
from roughformer_paper.baselines.scan import linear_scan

__all__ = ["StateSpace", "StateSpaceConfig"]

_AT_ONCE = 1 << 17  # samples that are run together where no gradient is wanted: bounds the memory


class StateSpaceConfig(OutputConfig):
    """Shape of a state-space model. Its tokens are values, flags and the gap: 2 C + 1 features."""

    n_features: int = Field(ge=1, description="Features of a token.")
    n_static: int = Field(0, ge=0, description="Covariates that do not change with time.")
    d_model: int = Field(64, ge=1, description="Width of the blocks.")
    d_state: int = Field(64, ge=2, description="Real size of a state: d_state / 2 complex pairs.")
    n_layers: int = Field(4, ge=0, description="Blocks.")
    bidirectional: bool = Field(False, description="A second system runs backwards in time.")
    step_low: float = Field(1e-3, gt=0, description="Steps begin between this ...")
    step_high: float = Field(0.1, gt=0, description="... and this, per median gap.")
    pooling: Literal["mean", "attention", "last"] = Field(
        "mean", description="How samples become one vector; a causal model has no pooling."
    )
    dropout: float = Field(0.1, ge=0, lt=1)
    clip: float = Field(10.0, gt=0, description="Standardised features are cut to ± this.")

    @model_validator(mode="after")
    def _model_fits(self) -> Self:
        channels_of_samples(self.n_features, "a state-space model")
        if self.d_state % 2:
            raise ValueError(f"d_state must be even (conjugate pairs), got {self.d_state}")
        if self.step_low > self.step_high:
            raise ValueError(
                f"step_low must not exceed step_high, got {self.step_low} and {self.step_high}"
            )
        if self.causal and self.bidirectional:
            raise ValueError("a causal model cannot be bidirectional; leave one of them out")
        return self

    @property
    def n_channels(self) -> int:
        """Channels of the series."""
        return channels_of_samples(self.n_features, "a state-space model")


def hippo_frequencies(size: int) -> Tensor:
    """``(size / 2,)`` positive imaginary parts of the eigenvalues -1/2 ± iω of HiPPO-LegS's normal
    part: A_nk = -1/2 [n = k] ∓ √((n + 1/2)(k + 1/2)), - below and + above the diagonal.
    """
    root = np.sqrt(np.arange(size) + 0.5)
    skew = np.triu(np.outer(root, root), 1)
    # A + 1/2 is skew-symmetric, so -i times it is Hermitian with real eigenvalues ±ω.
    omega = np.linalg.eigvalsh(-1j * (skew - skew.T))
    # Made where modules are made: a device context holds for torch.tensor.
    return torch.tensor(omega[size // 2 :].copy(), dtype=torch.float32)


def _decay(rate: Tensor, gap: Tensor) -> Tensor:
    """exp(rate · gap) for ``rate (P,)`` complex and ``gap (L, B, 1)`` -> ``(L, B, P)``.

    In real arithmetic: torch's complex exponential is six times slower.
    """
    size, angle = (gap * rate.real).exp(), gap * rate.imag
    return torch.complex(size * angle.cos(), size * angle.sin())


class System(nn.Module):
    """The linear system of a layer, on samples ``(L, B, d)`` with the gaps between them.

    With λ = -e^α + iω and the step Δ of each state, over a gap g with the input held at u:

        z(t + g) = e^{λΔg} z(t) + (e^{λΔg} - 1) / λ · B u
    """

    def __init__(self, config: StateSpaceConfig) -> None:
        """λ of HiPPO-LegS, steps log-uniform; B and C such that a white input gives states and
        outputs of about its own size.
        """
        super().__init__()
        pairs, width = config.d_state // 2, config.d_model
        omega = hippo_frequencies(config.d_state)
        low, high = torch.tensor([config.step_low, config.step_high]).log()
        step = torch.exp(low + (high - low) * torch.rand(pairs))
        # Turning by more than half a turn in a usual gap looks like turning the other way.
        step = torch.minimum(step, torch.pi / omega)
        self.log_decay = nn.Parameter(torch.full((pairs,), 0.5).log())
        self.omega = nn.Parameter(omega)
        self.log_step = nn.Parameter(step.log())
        size = (2 * width * step).rsqrt()
        self.to_state = nn.Parameter(torch.randn(2, pairs, width) * size[:, None])
        self.from_state = nn.Parameter(torch.randn(2, width, pairs) / (2 * pairs) ** 0.5)
        self.direct = nn.Parameter(torch.randn(width))

    def states(self, u: Tensor, gap: Tensor, reverse: bool = False) -> Tensor:
        """``u (L, B, d)``, ``gap (L, B or 1, 1)``: the time from the sample before -> states
        ``(L, B, P)`` when each sample arrives, 0 at the first. Each input acts from its own sample
        to the next. ``reverse``: the same in reversed time.
        """
        rate = torch.complex(-self.log_decay.exp(), self.omega)  # λ
        into = torch.complex(*self.to_state) / rate.unsqueeze(1)  # B / λ, (P, d)
        held = u[1:] if reverse else u[:-1]
        pushed = held @ torch.view_as_real(into.T).flatten(1)  # (L-1, B, 2P)
        pushed = pushed.to(self.omega.dtype)  # complex numbers have no half precision on a CPU
        pushed = torch.view_as_complex(pushed.view(*held.shape[:2], len(rate), 2))
        decay = _decay(rate * self.log_step.exp(), gap[1:])
        moved = linear_scan(decay, (decay - 1) * pushed, reverse)
        edge = moved.new_zeros(1, *moved.shape[1:])
        return torch.cat([moved, edge] if reverse else [edge, moved])

    def forward(self, u: Tensor, gap: Tensor, reverse: bool = False) -> Tensor:
        """y = 2 Re(C z) + D u, ``(L, B, d)``."""
        z = torch.view_as_real(self.states(u, gap, reverse)).flatten(-2)  # (L, B, 2P)
        real, imaginary = self.from_state
        out = torch.stack([real, -imaginary], dim=-1).flatten(1)  # (d, 2P): Re(C z)
        return 2 * (z @ out.T) + self.direct * u


class StateSpaceBlock(nn.Module):
    """x + GLU(GELU(system(norm x)))."""

    def __init__(self, config: StateSpaceConfig) -> None:
        """One system, or two that run in opposite directions."""
        super().__init__()
        width = config.d_model
        self.norm = nn.LayerNorm(width)
        self.system = System(config)
        self.back = System(config) if config.bidirectional else None
        self.gate = nn.Linear(width, 2 * width)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, gap: Tensor) -> Tensor:
        """(L, B, d) -> (L, B, d)."""
        u = self.norm(x)
        y = self.system(u, gap)
        if self.back is not None:
            y = y + self.back(u, gap, reverse=True)
        moved: Tensor = x + self.drop(F.glu(self.gate(F.gelu(y)), dim=-1))
        return moved


class StateSpace(nn.Module):
    """Samples -> embedding -> blocks of linear systems -> pooling -> head; cost is L."""

    usual_gap: Tensor

    def __init__(self, config: StateSpaceConfig) -> None:
        """Weights are drawn from torch's current random state."""
        super().__init__()
        self.config = config
        width = config.d_model
        self.standardize = Standardize(config.n_features, config.clip)
        self.embed = nn.Linear(config.n_features, width)
        self.standardize_static = Standardize(config.n_static, config.clip)
        self.embed_static = nn.Linear(config.n_static, width) if config.n_static else None
        self.register_buffer("usual_gap", torch.ones(()))
        self.blocks = nn.ModuleList(StateSpaceBlock(config) for _ in range(config.n_layers))
        self.pool = None if config.causal else Pooling(width, config.pooling)
        self.head = Head(width, config)

    def forward(
        self,
        tokens: Tensor,
        times: Tensor,
        mask: Tensor | None = None,
        static: Tensor | None = None,
    ) -> Tensor:
        """``tokens (B, L, n_features)`` of the samples at ``times (B, L)``, ``mask (B, L)`` True =
        real, ``static (B, n_static)`` with NaN = not known.

        Returns ``(B, n_outputs[, k])``, or ``(B, L, n_outputs[, k])`` if causal; see ``Head``.
        """
        if self.embed_static is not None and static is None:
            raise ValueError(f"this model takes {self.config.n_static} static covariates")
        size = max(1, _AT_ONCE // max(tokens.shape[1], 1))
        if torch.is_grad_enabled() or len(tokens) <= size:
            return self._run(tokens, times, mask, static)
        parts = []
        for i in range(0, len(tokens), size):
            some = (None if x is None else x[i : i + size] for x in (mask, static))
            parts.append(self._run(tokens[i : i + size], times[i : i + size], *some))
        return torch.cat(parts)

    def _run(
        self, tokens: Tensor, times: Tensor, mask: Tensor | None, static: Tensor | None
    ) -> Tensor:
        x = self.embed(self.standardize(tokens))
        if self.embed_static is not None:
            assert static is not None
            x = x + self.embed_static(self.standardize_static(static)).unsqueeze(1)
        # Time comes first from here on: a step of the scan then is one piece of memory.
        x = x.transpose(0, 1).contiguous()  # (L, B, d)
        gap = gaps_of_samples(tokens, times, mask, self.config.n_channels)
        gap = (gap / self.usual_gap).T.unsqueeze(-1)  # (L, B, 1)
        if bool((gap == gap[:, :1]).all()):
            gap = gap[:, :1]  # one grid for all series: one set of decays
        for block in self.blocks:
            x = block(x, gap)
        x = x.transpose(0, 1)
        output: Tensor = self.head(x if self.pool is None else self.pool(x, mask))
        return output

    @torch.no_grad()
    def fit_scaling(self, inputs: dict[str, Tensor]) -> None:
        """Take the statistics of the training part: those of the tokens, and the median gap."""
        self.standardize.fit(inputs["tokens"], inputs.get("mask"), inputs.get("least_scale"))
        if self.embed_static is not None:
            self.standardize_static.fit(inputs["static"])
        gaps = gaps_of_samples(
            inputs["tokens"], inputs["times"], inputs.get("mask"), self.config.n_channels
        )
        gaps = gaps[gaps > 0]
        if len(gaps):
            self.usual_gap.copy_(gaps.median())

    def fit_prior(self, frequency: Tensor) -> None:
        """Answers begin at the frequencies ``(K,)`` of the classes in the training part."""
        self.head.fit_prior(frequency)
