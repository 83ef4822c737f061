"""Controlled differential equations dz = f(z) dX, driven by a path that is given in pieces.

Every series is integrated over its own pieces, piece k from parameter k to k + 1: the solution of
such an equation does not change when the path is passed at another speed, so series with other
times go side by side. A piece that does not move leaves the state alone.
"""

import itertools
from typing import Any, Literal

import torch
from torch import Tensor, nn

from roughformer_paper.baselines.cde_steps import TABLEAUS, Tableau, fixed_steps

__all__ = ["Solver", "VectorField", "chords", "solve"]

Solver = Literal["euler", "midpoint", "rk4", "dopri5"]


class VectorField(nn.Module):
    """f(z) dx: a network from z ``(B, d)`` to a matrix ``(B, c, d)``, applied to dx ``(B, c)``.

    Hidden layers have ReLU, the matrix tanh, as Kidger et al. have it: the field is bounded.
    """

    def __init__(self, d_model: int, n_channels: int, d_hidden: int, n_layers: int) -> None:
        """``n_layers`` hidden layers of width ``d_hidden``."""
        super().__init__()
        self.shape = (n_channels, d_model)
        sizes = [d_model, *[d_hidden] * n_layers]
        layers: list[nn.Module] = []
        for size, following in itertools.pairwise(sizes):
            layers += [nn.Linear(size, following), nn.ReLU()]
        layers += [nn.Linear(sizes[-1], d_model * n_channels), nn.Tanh()]
        self.layers = nn.Sequential(*layers)

    @property
    def weights(self) -> list[tuple[Tensor, Tensor]]:
        """Matrix and bias of each layer."""
        return [(layer.weight, layer.bias) for layer in self.layers if isinstance(layer, nn.Linear)]

    def forward(self, z: Tensor, dx: Tensor) -> Tensor:
        """(B, d), (B, c) -> (B, d)."""
        matrix: Tensor = self.layers(z).view(-1, *self.shape)
        return (matrix * dx.unsqueeze(-1)).sum(dim=1)


def chords(pieces: Tensor, stride: int = 1) -> Tensor:
    """Linear pieces ``(B, ceil(K / stride), 1, c)`` over ``stride`` pieces each, with the same
    increments: ∫ (b + two_c s + three_d s²) ds = b + two_c / 2 + three_d / 3.
    """
    batch, count, order, c = pieces.shape
    share = 1.0 / torch.arange(1, order + 1, dtype=pieces.dtype, device=pieces.device)
    rises = torch.einsum("bkoc,o->bkc", pieces, share)
    missing = -count % stride
    rises = torch.cat([rises, rises.new_zeros(batch, missing, c)], dim=1)
    return rises.view(batch, -1, stride, c).sum(dim=2).unsqueeze(2)


def derivative(pieces: Tensor, s: float | Tensor) -> Tensor:
    """dX/ds ``(..., c)`` at s in [0, 1] within pieces ``(..., order, c)``: Σ_j pieces_j s^j."""
    found = pieces[..., -1, :]
    for j in range(pieces.shape[-2] - 2, -1, -1):
        found = pieces[..., j, :] + s * found
    return found


def solve(
    field: nn.Module,
    z0: Tensor,
    pieces: Tensor,
    *,
    solver: Solver = "midpoint",
    substeps: int = 1,
    adjoint: bool = False,
    rtol: float = 1e-4,
    atol: float = 1e-6,
    every: bool = False,
) -> Tensor:
    """The state at the end ``(B, d)``, or at every knot ``(B, K + 1, d)`` if ``every``.

    ``field(z (B, d), dx (B, c)) -> (B, d)``; ``z0 (B, d)``; ``pieces (B, K, order, c)``: dX/ds =
    Σ_j pieces_j s^j on each piece, s in [0, 1]. ``substeps`` fixed steps a piece, or adaptive ones
    by dopri5 with ``rtol`` and ``atol``. ``adjoint``: gradients by solving an equation backwards
    over each piece, which keeps the states at the knots only but is as exact as the solver; where
    ``pieces`` need a gradient too it is taken directly.
    """
    if pieces.shape[1] == 0:
        return z0.unsqueeze(1) if every else z0
    adjoint = adjoint and not pieces.requires_grad
    if adjoint or solver == "dopri5":
        return _by_torchdiffeq(field, z0, pieces, solver, substeps, adjoint, rtol, atol, every)
    tableau = TABLEAUS[solver]
    controls = _controls(pieces, tableau.node, substeps)
    if type(field) is VectorField and not controls.requires_grad:
        states = fixed_steps(z0, controls, tableau, field.weights)
    else:
        states = _steps_of_any_field(field, z0, controls, tableau)
    return states[::substeps].transpose(0, 1) if every else states[-1]


def _controls(pieces: Tensor, nodes: tuple[float, ...], substeps: int) -> Tensor:
    """``(K · substeps, nodes, B, c)``: for each step, dX over the whole step if it went on as at
    each of the nodes.
    """
    at = torch.stack(
        [
            torch.stack([derivative(pieces, (j + node) / substeps) for node in nodes])
            for j in range(substeps)
        ]
    )  # (substeps, nodes, B, K, c)
    return at.permute(3, 0, 1, 2, 4).flatten(0, 1) / substeps


def _steps_of_any_field(field: nn.Module, z0: Tensor, controls: Tensor, tableau: Tableau) -> Tensor:
    """``fixed_steps`` for any field, by autograd."""
    states, z = [z0], z0
    for control in controls:
        k, following = torch.zeros_like(z), z
        for reach, dx, weight in zip(tableau.reach, control, tableau.weight, strict=True):
            k = field(z + reach * k, dx)
            following = following + weight * k
        z = following
        states.append(z)
    return torch.stack(states)


class _Flow(nn.Module):
    """dz/ds on one piece ``(B, order, c)``, as torchdiffeq takes it."""

    def __init__(self, field: nn.Module, piece: Tensor) -> None:
        super().__init__()
        self.field = field
        self.piece = piece

    def forward(self, s: Tensor, z: Tensor) -> Tensor:
        found: Tensor = self.field(z, derivative(self.piece, s))
        return found


def _by_torchdiffeq(
    field: nn.Module,
    z0: Tensor,
    pieces: Tensor,
    solver: Solver,
    substeps: int,
    adjoint: bool,
    rtol: float,
    atol: float,
    every: bool,
) -> Tensor:
    """Piece after piece: the speed of a path jumps at its knots, and torchdiffeq's own way to step
    onto jumps loses all further ones once a step happens to end at one.
    """
    import torchdiffeq as package

    integrate = package.odeint_adjoint if adjoint else package.odeint
    span = torch.tensor([0.0, 1.0], dtype=z0.dtype, device=z0.device)
    # An adaptive solver tries the whole piece first.
    options = {"first_step": 1.0} if solver == "dopri5" else {"step_size": 1.0 / substeps}
    method: dict[str, Any] = {"method": solver, "options": options, "rtol": rtol, "atol": atol}
    if adjoint:
        method["adjoint_params"] = tuple(field.parameters())
    states, z = [z0], z0
    for piece in pieces.unbind(1):
        flow = _Flow(field, piece)
        z = integrate(flow, z, span, **method)[-1]
        if every:
            states.append(z)
    return torch.stack(states, dim=1) if every else z
