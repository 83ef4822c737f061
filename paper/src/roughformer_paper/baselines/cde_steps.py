"""Fixed steps of dz = f(z) dX for a field that is a small network: forward and backward by hand.

A path of 2000 samples takes thousands of evaluations of f one after the other, each of which is
little work: most of the time autograd would only keep books. Here the layers of all evaluations
stand in a few large buffers, the backward pass goes over the states alone, and the gradient of each
weight is one matrix product over all evaluations at the end.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["TABLEAUS", "Tableau", "fixed_steps"]


class Tableau(NamedTuple):
    """An explicit Runge-Kutta method whose stage i looks from the stage before it only:

    k_i = f(z + reach_i k_{i-1}) dX(node_i),   z <- z + Σ_i weight_i k_i.
    """

    reach: tuple[float, ...]
    node: tuple[float, ...]  # in [0, 1] of a step
    weight: tuple[float, ...]


TABLEAUS = {
    "euler": Tableau((0.0,), (0.0,), (1.0,)),
    "midpoint": Tableau((0.0, 0.5), (0.0, 0.5), (0.0, 1.0)),
    "rk4": Tableau((0.0, 0.5, 0.5, 1.0), (0.0, 0.5, 0.5, 1.0), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
}


def fixed_steps(
    z0: Tensor, controls: Tensor, tableau: Tableau, layers: list[tuple[Tensor, Tensor]]
) -> Tensor:
    """States ``(S + 1, B, d)`` at the ends of all steps, the first is ``z0 (B, d)``.

    ``controls (S, stages, B, c)``: dX over the whole step if it went on as at each stage's node; no
    gradient flows to them. ``layers``: weights and biases of f, with ReLU between and tanh behind
    them; the last one has c · d outputs, a matrix ``(c, d)``.
    """
    flat = [part for layer in layers for part in layer]
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in (z0, *flat))
    kind = flat[0].dtype  # mixed precision would lose the small steps
    found: Tensor = _FixedSteps.apply(z0.to(kind), controls.to(kind), tableau, learns, *flat)  # type: ignore[no-untyped-call]
    return found


class _FixedSteps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z0: Tensor, controls: Tensor, tableau: Tableau, learns: bool, *flat: Tensor
    ) -> Tensor:
        weights, biases = [w.t() for w in flat[::2]], flat[1::2]
        n_steps, n_stages, batch, c = controls.shape
        d = z0.shape[1]
        rows = n_steps * n_stages if learns else 1  # evaluations whose layers are kept
        inputs = z0.new_empty(rows, batch, d)
        outputs = [z0.new_empty(rows, batch, w.shape[1]) for w in weights]
        by_row = list(zip(inputs.unbind(0), *(o.unbind(0) for o in outputs), strict=True))
        moves = controls.reshape(-1, batch, c, 1).unbind(0)
        states = z0.new_empty(n_steps + 1, batch, d)
        states[0] = z0
        last = len(weights) - 1
        k = torch.zeros_like(z0)
        each = states.unbind(0)
        for step in range(n_steps):
            z, following = each[step], each[step + 1]
            following.copy_(z)
            for stage in range(n_stages):
                e = step * n_stages + stage
                x, *layer = by_row[e if learns else 0]
                torch.add(z, k, alpha=tableau.reach[stage], out=x)
                for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
                    torch.addmm(b, x, w, out=layer[i])
                    x = layer[i].tanh_() if i == last else layer[i].relu_()
                k = (x.view(batch, c, d) * moves[e]).sum(dim=1)
                if tableau.weight[stage]:
                    following.add_(k, alpha=tableau.weight[stage])
        if learns:
            ctx.tableau, ctx.buffers = tableau, (inputs, outputs)
            ctx.save_for_backward(controls, *flat)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        controls, *flat = ctx.saved_tensors
        inputs, outputs = ctx.buffers
        weights = flat[::2]
        tableau = ctx.tableau
        n_steps, n_stages, batch, c = controls.shape
        d = inputs.shape[2]
        last = len(weights) - 1
        # Gradients before each layer's nonlinearity.
        inner = [torch.empty_like(o) for o in outputs]
        by_row = list(zip(*(o.unbind(0) for o in outputs), strict=True))
        inner_row = list(zip(*(g.unbind(0) for g in inner), strict=True))
        moves = controls.reshape(-1, batch, c, 1).unbind(0)
        outside = grad.unbind(0)
        back = outside[n_steps].clone()
        for step in range(n_steps - 1, -1, -1):
            total, g_next = back.clone(), None
            for stage in range(n_stages - 1, -1, -1):
                e = step * n_stages + stage
                g = tableau.weight[stage] * back
                if g_next is not None:
                    g.add_(g_next, alpha=tableau.reach[stage + 1])
                matrix = (moves[e] * g.unsqueeze(1)).view(batch, c * d)
                torch.ops.aten.tanh_backward.grad_input(
                    matrix, by_row[e][last], grad_input=inner_row[e][last]
                )
                g_next = inner_row[e][last] @ weights[last]
                for i in range(last - 1, -1, -1):
                    torch.ops.aten.threshold_backward.grad_input(
                        g_next, by_row[e][i], 0, grad_input=inner_row[e][i]
                    )
                    g_next = inner_row[e][i] @ weights[i]
                total.add_(g_next)
            back = total.add_(outside[step])
        found: list[Tensor] = []
        for i in range(last + 1):
            gradient = inner[i].flatten(0, 1)
            seen = (inputs if i == 0 else outputs[i - 1]).flatten(0, 1)
            found += [gradient.t() @ seen, gradient.sum(dim=0)]
        return back, None, None, None, *found
