"""ODE-RNN (Rubanova, Chen, Duvenaud, NeurIPS 2019): a state that lives between samples too.

Between samples  dh/dt = f(h), f an MLP with tanh; at a sample  h = GRUCell(x, h), x its values
(the mean where missing) and which of them were observed. A sample without any observation leaves
the state as it is. Time moves by ``time_range`` over a usual span, as in a Neural CDE. Gaps differ
between the series of a batch, so all are solved over s in [0, 1]: dh/ds = gap f(h). Where steps are
fixed, a long gap is cut into equal ones of at most ``max_step`` of a usual span, or of the time
since the series began if that is longer. (Rubanova et al. take a 50th of the whole batch's time.)
"""

from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from roughformer_paper.baselines.control import TIME_RANGE
from roughformer_paper.baselines.gru_states import OWN_SOLVERS, gru_states, runge_kutta
from roughformer_paper.baselines.recurrent import Recurrent, RecurrentConfig
from roughformer_paper.baselines.samples import channels_of_samples, gaps_of_samples

__all__ = ["ODERNN", "ODERNNConfig"]


class ODERNNConfig(RecurrentConfig):
    """Shape of an ODE-RNN. Its tokens are values, flags and the gap: 2 C + 1 features."""

    n_layers: int = Field(1, ge=1, description="Hidden layers of f.")
    d_hidden: int | None = Field(None, ge=1, description="Their width; None: d_model.")
    solver: Literal["euler", "midpoint", "rk4", "bosh3", "dopri5", "dopri8"] = Field(
        "euler",
        description="The first three have fixed steps and are our own, unless adjoint; the others "
        "are torchdiffeq's, whose steps adapt to the batch as a whole.",
    )
    max_step: float | None = Field(
        0.02,
        gt=0,
        description="Gaps are cut into equal parts of at most this share of a usual span, or of "
        "the time since the series began if that is longer, if steps are fixed; None: never.",
    )
    substeps: int = Field(1, ge=1, description="Equal steps for each part of a gap, if fixed.")
    adjoint: bool = Field(
        False, description="Gradients by the adjoint equation, which stores no steps (torchdiffeq)."
    )
    time_range: float = Field(TIME_RANGE, gt=0, description="How far time moves over a usual span.")
    rtol: float = Field(1e-3, gt=0, description="Relative tolerance of adaptive solvers.")
    atol: float = Field(1e-4, gt=0, description="Absolute tolerance of adaptive solvers.")

    @model_validator(mode="after")
    def _model_fits(self) -> Self:
        channels_of_samples(self.n_features, "an ODE-RNN")
        if self.substeps > 1 and self.solver not in OWN_SOLVERS:
            raise ValueError(
                f"solver={self.solver!r} chooses its own steps; leave substeps out, or take a "
                f"solver with fixed steps: {', '.join(OWN_SOLVERS)}"
            )
        return self

    @property
    def n_channels(self) -> int:
        """Channels of the series."""
        return channels_of_samples(self.n_features, "an ODE-RNN")


class ODERNN(Recurrent):
    """A GRU whose state moves by a neural ODE from one sample to the next."""

    config: ODERNNConfig

    def __init__(self, config: ODERNNConfig) -> None:
        """Weights are drawn from torch's current random state."""
        super().__init__(config)
        width, hidden = config.d_model, config.d_hidden or config.d_model
        layers: list[nn.Module] = []
        for i in range(config.n_layers):
            layers += [nn.Linear(hidden if i else width, hidden), nn.Tanh()]
        self.field = nn.Sequential(*layers, nn.Linear(hidden, width))
        self.cell = nn.GRUCell(2 * config.n_channels, width)

    def states(
        self, features: Tensor, tokens: Tensor, times: Tensor, mask: Tensor | None
    ) -> Tensor:
        """(B, L, F), (B, L) -> (B, L, d). The time before the first sample does not count."""
        config, c = self.config, self.config.n_channels
        gap = gaps_of_samples(tokens, times, mask, c)
        # A flag that is NaN, hidden for an explanation, stands for the mean as any feature does.
        hold = (tokens[..., c : 2 * c] < 0.5).all(dim=-1)
        if mask is not None:
            # A padded sample changes nothing: the state stands still from the last real one on.
            hold = hold | ~mask
        x, at = features[..., : 2 * c], None
        if config.max_step is not None and config.solver in OWN_SOLVERS:
            x, gap, hold, at = _with_stops(x, gap, hold, config.max_step)
        # Time first: (L, B, ...).
        x, gap, hold = x.transpose(0, 1), config.time_range * gap.T, hold.T
        dtype, width = self.cell.weight_hh.dtype, config.d_model
        if self.config.solver in OWN_SOLVERS and not self.config.adjoint:
            cell = self.cell
            found = gru_states(
                x,
                (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh),
                hold=hold,
                gap=gap.to(dtype),
                field=tuple(self.field.parameters()),
                method=runge_kutta(self.config.solver, self.config.substeps),
            )
        else:
            with torch.autocast(x.device.type, enabled=False):
                found = self._solved(x.to(dtype), gap.to(dtype), hold)
        found = found.transpose(0, 1)
        return found if at is None else found.gather(1, at.unsqueeze(-1).expand(*at.shape, width))

    def _solved(self, x: Tensor, gap: Tensor, hold: Tensor) -> Tensor:
        """``x (L, B, 2C)``, ``gap (L, B)``, ``hold (L, B)`` -> states (L, B, d), by torchdiffeq."""
        config = self.config
        import torchdiffeq as package

        options: dict[str, Any] = {"method": config.solver, "rtol": config.rtol}
        options["atol"] = config.atol
        if config.solver in OWN_SOLVERS:
            options["options"] = {"step_size": 1 / config.substeps}
        solve = package.odeint
        if config.adjoint:
            solve = package.odeint_adjoint
            options["adjoint_params"] = tuple(self.field.parameters())
        span = x.new_tensor([0.0, 1.0])
        h = x.new_zeros(x.shape[1], config.d_model)
        moves = (gap != 0).any(dim=1).tolist()
        states = []
        rows = zip(x.unbind(0), gap.unsqueeze(-1).unbind(0), hold.unbind(0), moves, strict=True)
        for x_t, gap_t, hold_t, moves_t in rows:
            if moves_t:
                h = solve(self._speed(gap_t), h, span, **options)[-1]
            h = torch.where(hold_t.unsqueeze(-1), h, self.cell(x_t, h))
            states.append(h)
        return torch.stack(states)

    def _speed(self, gap: Tensor) -> Any:
        """dh/ds of one gap ``(B, 1)``; the adjoint calls it long after the loop has gone on."""
        return lambda s, h: gap * self.field(h)


def _with_stops(
    x: Tensor, gap: Tensor, hold: Tensor, longest: float
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Series with stops in long gaps: samples that are held.

    ``x (B, L, F)``, ``gap (B, L)`` and ``hold (B, L)`` -> the same of N >= L samples, and where
    the old ones stand among them, ``(B, L)``; None: where they did. A part of a gap that ends at
    t, since the series began and in usual spans, is at most ``longest`` max(1, t): that knows
    nothing of other series and of what comes later, so that a series is solved alike in any batch
    and as it grows, and N - L is at most (1 + log t) / ``longest``, however sparse it is.
    """
    share = gap / gap.cumsum(dim=1).clamp(min=1)
    # A grid whose gaps are just so long is not cut because of rounding.
    parts = (share / longest - 1e-4).ceil().clamp(min=1).long()
    if bool((parts == 1).all()):
        return x, gap, hold, None
    after = parts.cumsum(dim=1)
    place = torch.arange(int(after[:, -1].max()), device=x.device).expand(len(x), -1).contiguous()
    owner = torch.searchsorted(after, place, right=True)
    beyond = owner == gap.shape[1]  # padding, of series with fewer stops than others
    owner = owner.masked_fill(beyond, gap.shape[1] - 1)
    gap = (gap / parts).gather(1, owner).masked_fill(beyond, 0.0)
    stop = place != after.gather(1, owner) - 1
    hold = hold.gather(1, owner) | stop
    x = x.gather(1, owner.unsqueeze(-1).expand(*owner.shape, x.shape[-1]))
    return x, gap, hold, after - 1
