"""What Neural CDEs and Neural RDEs share: a state z that a path drives, and a head on it."""

from abc import abstractmethod
from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from roughformer.model import Head, OutputConfig, Standardize
from roughformer_paper.baselines.cde_solver import Solver, VectorField, solve

__all__ = ["Controlled", "ControlledConfig"]


class ControlledConfig(OutputConfig):
    """Shape of a controlled model and how its equation is solved."""

    n_features: int = Field(ge=1, description="Numbers of a token.")
    n_channels: int = Field(ge=1, description="Channels of the control path.")
    n_static: int = Field(0, ge=0, description="Covariates that do not change with time.")
    d_model: int = Field(64, ge=1, description="Width of the state.")
    n_layers: int = Field(1, ge=0, description="Hidden layers of the vector field.")
    d_hidden: int | None = Field(None, ge=1, description="Their width; None: d_model.")
    solver: Solver = Field(
        "midpoint", description="euler, midpoint or rk4 in fixed steps, dopri5 in adaptive ones."
    )
    substeps: int = Field(1, ge=1, description="Fixed steps for each piece of the path.")
    adjoint: bool = Field(
        False,
        description="Gradients by solving an equation backwards over each piece: only the states "
        "between pieces are kept, it takes longer, and gradients are as exact as the solver.",
    )
    rtol: float = Field(1e-4, gt=0, description="Relative tolerance of dopri5.")
    atol: float = Field(1e-6, gt=0, description="Absolute tolerance of dopri5.")
    clip: float = Field(10.0, gt=0, description="Standardised covariates are cut to ± this.")

    @model_validator(mode="after")
    def _solver_fits(self) -> Self:
        if self.solver == "dopri5" and self.substeps > 1:
            raise ValueError(
                f"dopri5 chooses its steps itself: leave substeps out, got {self.substeps}; for "
                "smaller errors lower rtol"
            )
        return self


class PathScale(nn.Module):
    """Features ``(..., F)`` times ``scale (F,)``. What is not known (NaN) becomes 0: a path that
    does not move.
    """

    scale: Tensor

    def __init__(self, n_features: int) -> None:
        """Nothing is changed until a scale is set."""
        super().__init__()
        self.register_buffer("scale", torch.ones(n_features))

    def forward(self, x: Tensor) -> Tensor:
        """(..., F) -> (..., F)."""
        return (x * self.scale).nan_to_num(0.0)


class Controlled(nn.Module):
    """z(t_0) = linear(X(t_0), static), dz = f(z) dX, answer = head(z(end)); or head(z) at every
    token if causal.
    """

    def __init__(self, config: ControlledConfig, n_driving: int) -> None:
        """``n_driving``: channels of what drives the state. Weights are drawn from torch's current
        random state.
        """
        super().__init__()
        self.config = config
        width = config.d_model
        self.standardize = PathScale(config.n_features)
        self.standardize_static = Standardize(config.n_static, config.clip)
        self.initial = nn.Linear(config.n_channels + config.n_static, width)
        self.field = VectorField(width, n_driving, config.d_hidden or width, config.n_layers)
        self.head = Head(width, config)

    def forward(
        self,
        tokens: Tensor,
        times: Tensor,
        mask: Tensor | None = None,
        static: Tensor | None = None,
    ) -> Tensor:
        """``tokens (B, L, n_features)`` as the encoder makes them, ``times (B, L)`` (not used: time
        is a channel of the path), ``mask (B, L)`` True = real, ``static (B, n_static)``; NaN in
        tokens or static = not known.

        Returns ``(B, n_outputs[, k])``, or ``(B, L, n_outputs[, k])`` if causal; see ``Head``.
        """
        config = self.config
        tokens = self.standardize(tokens)
        start = tokens[:, 0, : config.n_channels]
        if config.n_static:
            if static is None:
                raise ValueError(f"this model takes {config.n_static} static covariates")
            start = torch.cat([start, self.standardize_static(static)], dim=-1)
        moves = tokens[:, 1:]
        if mask is not None:
            # Where the path stands still the state does too: no need to look for the last token.
            moves = moves.masked_fill(~mask[:, 1:, None], 0.0)
        z = solve(
            self.field,
            self.initial(start),
            self.pieces(moves),
            solver=config.solver,
            substeps=config.substeps,
            adjoint=config.adjoint,
            rtol=config.rtol,
            atol=config.atol,
            every=config.causal,
        )
        answer: Tensor = self.head(self.at_tokens(z) if config.causal else z)
        return answer

    @abstractmethod
    def pieces(self, moves: Tensor) -> Tensor:
        """Tokens behind the first ``(B, L - 1, n_features)`` as pieces ``(B, K, order, c)``."""

    def at_tokens(self, states: Tensor) -> Tensor:
        """Of the states at all knots ``(B, K + 1, d)`` those at the tokens ``(B, L, d)``."""
        return states

    @torch.no_grad()
    def fit_scaling(self, inputs: dict[str, Tensor]) -> None:
        """Statistics of the training part: of static covariates; the encoder has the path's."""
        if self.config.n_static:
            self.standardize_static.fit(inputs["static"])

    def fit_prior(self, frequency: Tensor) -> None:
        """Answers begin at the frequencies ``(K,)`` of the classes in the training part."""
        self.head.fit_prior(frequency)
