"""The states of a GRU over a batch of series, and of one that moves by an ODE between samples.

Step t, for state h and input x (σ = sigmoid; torch's ``GRUCell`` on e):

    e  = h + gap_t Σ_i b_i k_i,   k_i = f(h + gap_t Σ_{j<i} a_ij k_j)     (e = h without an ODE)
    r  = σ(W_ir x + W_hr e),  z = σ(W_iz x + W_hz e),  n = tanh(W_in x + r · (W_hn e))   (+ biases)
    h' = (1 - z) n + z e,   or h' = e where the sample is held out

f is an MLP with tanh. Only the states are stored. The backward pass computes all else again for
many steps at once, since their states are known; what is left to do step by step is a few small
products. Gradients of weights are one product for many steps. On a CPU that takes about 0.6 of the
time of torch's own GRU, or of a loop under autograd with an ODE.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["OWN_SOLVERS", "RungeKutta", "gru_states", "runge_kutta"]

_STEPS = 64  # worked on at once: temporaries of a few MB that stay in cache


class RungeKutta(NamedTuple):
    """An explicit method: a_ij for j < i, and b_i."""

    inner: tuple[tuple[float, ...], ...]
    outer: tuple[float, ...]


# rk4 is the 3/8 rule, as in torchdiffeq.
OWN_SOLVERS = {
    "euler": RungeKutta(((),), (1.0,)),
    "midpoint": RungeKutta(((), (0.5,)), (0.0, 1.0)),
    "rk4": RungeKutta(
        ((), (1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)), (0.125, 0.375, 0.375, 0.125)
    ),
}


def runge_kutta(solver: str, substeps: int) -> RungeKutta:
    """That method with ``substeps`` equal steps, which is an explicit method again."""
    inner, outer = OWN_SOLVERS[solver]
    done = tuple(b / substeps for b in outer)
    rows = tuple(
        done * step + tuple(a / substeps for a in row) for step in range(substeps) for row in inner
    )
    return RungeKutta(rows, done * substeps)


def gru_states(
    inputs: Tensor,
    cell: tuple[Tensor, Tensor, Tensor, Tensor],
    *,
    hold: Tensor | None = None,
    gap: Tensor | None = None,
    field: tuple[Tensor, ...] = (),
    method: RungeKutta | None = None,
) -> Tensor:
    """States ``(L, B, d)`` after each sample of ``inputs (L, B, F)``, from 0 on.

    ``cell``: weight_ih (3d, F), weight_hh (3d, d), bias_ih (3d,), bias_hh (3d,) in torch's order
    r, z, n. ``hold (L, B)``: True = the sample does not change the state. With a ``method``:
    ``gap (L, B)`` before each sample, and the weights and biases W_1, b_1, W_2, ... of f.
    """
    method = method or RungeKutta((), ())
    if gap is not None:
        gap = gap.unsqueeze(-1)  # (L, B, 1)
    dtype = cell[1].dtype
    # Under mixed precision too: hundreds of steps would add up what rounding loses.
    with torch.autocast(inputs.device.type, enabled=False):
        states: Tensor = _States.apply(  # type: ignore[no-untyped-call]
            inputs.to(dtype), gap, hold, method, *cell, *field
        )
    return states


class _Stages(NamedTuple):
    """What f gave on the way of a step: S stages of (N, ·) each."""

    points: list[Tensor]
    hidden: list[list[Tensor]]  # per stage, what each tanh gives
    slopes: list[Tensor]
    end: Tensor


def _maps(field: tuple[Tensor, ...]) -> list[tuple[Tensor, Tensor]]:
    """Weights of f, each transposed and laid out for fast products, and its biases."""
    return [(w.t().contiguous(), b) for w, b in zip(field[::2], field[1::2], strict=True)]


def _evolve(
    h: Tensor, gap: Tensor, maps: list[tuple[Tensor, Tensor]], method: RungeKutta
) -> _Stages:
    """One step of the method from ``h (N, d)`` over ``gap (N, 1)``."""
    stages = _Stages([], [], [], h)
    for row in (*method.inner, method.outer):
        y = h
        for a, k in zip(row, stages.slopes, strict=True):
            if a:
                y = torch.addcmul(y, gap, k, value=a)
        if len(stages.slopes) == len(method.inner):
            return stages._replace(end=y)
        stages.points.append(y)
        passed = []
        for w, b in maps[:-1]:
            y = torch.addmm(b, y, w).tanh_()
            passed.append(y)
        stages.hidden.append(passed)
        stages.slopes.append(torch.addmm(maps[-1][1], y, maps[-1][0]))
    return stages


def _input_gates(
    inputs: Tensor, hold: Tensor | None, w_ih: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    """What inputs and biases add to r and z ``(T, B, 2d)`` and to n ``(T, B, d)``."""
    d = len(b_hh) // 3
    both = F.linear(inputs, w_ih[: 2 * d], b_ih[: 2 * d] + b_hh[: 2 * d])
    if hold is not None:
        # z = 1 exactly: the state stays, and no gradient reaches the gates.
        both[..., d:].masked_fill_(hold.unsqueeze(-1), torch.inf)
    return both, F.linear(inputs, w_ih[2 * d :], b_ih[2 * d :])


class _States(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        gap: Tensor | None,
        hold: Tensor | None,
        method: RungeKutta,
        *weights: Tensor,
    ) -> Tensor:
        w_ih, w_hh, b_ih, b_hh, *field = weights
        maps = _maps(tuple(field))
        length, batch, _ = inputs.shape
        d = w_hh.shape[1]
        # Laid out for products that are made very often.
        to_rz, to_n = w_hh[: 2 * d].t().contiguous(), w_hh[2 * d :].t().contiguous()
        b_n = b_hh[2 * d :]
        states = inputs.new_empty(length + 1, batch, d)
        states[0] = 0
        row = states.unbind(0)
        gaps = None if gap is None else gap.unbind(0)
        for first in range(0, length, _STEPS):
            part = slice(first, first + _STEPS)
            held = None if hold is None else hold[part]
            both, new = _input_gates(inputs[part], held, w_ih, b_ih, b_hh)
            for t, (gate_rz, gate_n) in enumerate(zip(both, new, strict=True), start=first):
                e = row[t]
                if gaps is not None:
                    e = _evolve(e, gaps[t], maps, method).end
                rz = torch.addmm(gate_rz, e, to_rz).sigmoid_()
                n = torch.addcmul(gate_n, rz[:, :d], torch.addmm(b_n, e, to_n)).tanh_()
                torch.lerp(n, e, rz[:, d:], out=row[t + 1])
        ctx.save_for_backward(inputs, gap, hold, states, *weights)
        ctx.method = method
        return states[1:]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        inputs, gap, hold, states, *weights = ctx.saved_tensors
        w_ih, w_hh, b_ih, b_hh, *field = weights
        maps, method = _maps(tuple(field)), ctx.method
        length, batch, d = grad.shape
        # Slopes stand in the order W_hn, r, z, n: the first three are those of W_hh, the last
        # three those of W_ih, and neither has to be copied.
        w_h = torch.cat([w_hh[2 * d :], w_hh[: 2 * d]])
        sums = [torch.zeros_like(w) for w in weights]
        by_inputs = torch.empty_like(inputs) if ctx.needs_input_grad[0] else None
        by_gap = torch.empty_like(gap) if ctx.needs_input_grad[1] else None
        g = grad.new_zeros(batch, d)
        for first in reversed(range(0, length, _STEPS)):
            part = slice(first, min(first + _STEPS, length))
            steps = part.stop - first
            # Again what the forward pass had, for all these steps together.
            back = None
            e = states[part]
            if gap is not None:
                back = _Back(e, gap[part], field[::2], maps, method)
                e = back.end
            held = None if hold is None else hold[part]
            both, new = _input_gates(inputs[part], held, w_ih, b_ih, b_hh)
            r, z = (both + F.linear(e, w_hh[: 2 * d])).sigmoid_().chunk(2, dim=-1)
            candidate = F.linear(e, w_hh[2 * d :], b_hh[2 * d :])
            n = torch.addcmul(new, r, candidate).tanh_()
            keep = 1 - z
            by_n = keep * (1 - n * n)
            factors = torch.stack(
                [by_n * r, by_n * candidate * r * (1 - r), (e - n) * z * keep, by_n], dim=2
            )  # (T, B, 4, d)
            slopes = torch.empty_like(factors)
            flat = slopes.view(steps, batch, 4 * d)
            rows = (grad[part], factors, slopes, flat[..., : 3 * d], z)
            each = zip(*(x.unbind(0) for x in rows), strict=True)
            for t, (outer, factor, slope, of_h, z_t) in reversed(list(enumerate(each))):
                g = g + outer
                torch.mul(g.unsqueeze(1), factor, out=slope)
                g = torch.addmm(g * z_t, of_h, w_h)
                if back is not None:
                    g = back.step(t, g)
            of_h, of_x = flat[..., : 3 * d].flatten(0, 1), flat[..., d:].flatten(0, 1)
            sums[0].addmm_(of_x.t(), inputs[part].flatten(0, 1))
            sums[1].addmm_(of_h.t(), e.flatten(0, 1))
            sums[2] += of_x.sum(dim=0)
            sums[3] += of_h.sum(dim=0)
            if by_inputs is not None:
                by_inputs[part] = (of_x @ w_ih).view(steps, batch, -1)
            if back is not None:
                back.add_to(sums[4:])
                if by_gap is not None:
                    by_gap[part] = back.by_gap()
        for i in (1, 3):
            sums[i] = torch.cat([sums[i][d:], sums[i][:d]])
        return by_inputs, by_gap, None, None, *sums


class _Back:
    """Gradients through ``_evolve``, one step at a time, kept for those of the weights.

    With g at its end, c_i = b_i g + Σ_{j>i} a_ji J_jᵀ gap c_j is gap⁻¹ times the gradient at k_i.
    """

    def __init__(
        self,
        h: Tensor,
        gap: Tensor,
        weights: list[Tensor],
        maps: list[tuple[Tensor, Tensor]],
        method: RungeKutta,
    ) -> None:
        """All steps forward at once, from ``h (T, B, d)`` over ``gap (T, B, 1)``."""
        self.shape = h.shape[:2]
        self.gap, self.weights, self.method = gap.flatten(0, 1), weights, method
        self.stages = _evolve(h.flatten(0, 1), self.gap, maps, method)
        self.end = self.stages.end.view(h.shape)
        self.outer = [torch.empty_like(k) for k in self.stages.slopes]
        self.inner = [[torch.empty_like(y) for y in hidden] for hidden in self.stages.hidden]
        # Slopes of the tanh; the gap goes with the last of them.
        factors = [[1 - y * y for y in hidden] for hidden in self.stages.hidden]
        for of_stage in factors:
            of_stage[-1] *= self.gap
        self.outer_rows = [self._rows(x) for x in self.outer]
        self.inner_rows = [
            [(self._rows(x), self._rows(factor)) for x, factor in zip(*pair, strict=True)]
            for pair in zip(self.inner, factors, strict=True)
        ]

    def _rows(self, x: Tensor) -> tuple[Tensor, ...]:
        """(T B, ·) -> T tensors (B, ·)."""
        return x.view(*self.shape, x.shape[-1]).unbind(0)

    def step(self, t: int, g: Tensor) -> Tensor:
        """The gradient ``(B, d)`` at the begin of step t from that at its end."""
        inner, outer = self.method
        total = g
        later: list[tuple[int, Tensor]] = []
        for i in reversed(range(len(outer))):
            c = torch.mul(g, outer[i], out=self.outer_rows[i][t])
            for j, slope in later:
                if inner[j][i]:
                    c.add_(slope, alpha=inner[j][i])
            for layer in reversed(range(len(self.weights) - 1)):
                kept, factor = self.inner_rows[i][layer]
                c = torch.mm(c, self.weights[layer + 1], out=kept[t]).mul_(factor[t])
            slope = c @ self.weights[0]
            later.append((i, slope))
            total = total + slope
        return total

    def add_to(self, sums: list[Tensor]) -> None:
        """Add the gradients of W_1, b_1, W_2, ... over all steps."""
        for i, c in enumerate(self.outer):
            below = [self.stages.points[i], *self.stages.hidden[i]]
            slopes = [*self.inner[i], c * self.gap]
            for layer, (slope, y) in enumerate(zip(slopes, below, strict=True)):
                sums[2 * layer].addmm_(slope.t(), y)
                sums[2 * layer + 1] += slope.sum(dim=0)

    def by_gap(self) -> Tensor:
        """``(T, B, 1)``."""
        pairs = zip(self.outer, self.stages.slopes, strict=True)
        parts = [(c * k).sum(dim=-1) for c, k in pairs]
        return torch.stack(parts).sum(dim=0).view(*self.shape, 1)
