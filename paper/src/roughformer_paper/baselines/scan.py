"""Linear recurrences over a long first axis: x_k = a_k x_{k-1} + b_k, work-efficient and exact.

Measured on one CPU thread (32 complex states): 32 series, L = 2000 / 4000: stepping through slabs
in place 14 / 25 ms, 50 chunks of time side by side 13-20 / 28 ms, doubling (log L passes)
207 / 412 ms. One series, L = 4000 / 32,000: steps 28 / 514 ms, chunks 3 / 23 ms.
"""

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["linear_scan"]

# A step on so many numbers is worth a call of its own, unless there are very many steps.
_LARGE_SLAB = 1024
_FEW_STEPS = 8192


def linear_scan(decay: Tensor, inputs: Tensor, reverse: bool = False) -> Tensor:
    """x_k = decay_k · x_{k-1} + inputs_k with x_{-1} = 0, real or complex.

    ``inputs (L, B, P)``; ``decay`` the same or ``(L, 1, P)``, shared by the batch. ``reverse``:
    x_k = decay_k · x_{k+1} + inputs_k from the end. Returns ``(L, B, P)``. Gradients are exact;
    the backward pass is one scan the other way round.
    """
    found: Tensor = _Scan.apply(decay, inputs, reverse)  # type: ignore[no-untyped-call]
    return found


class _Scan(torch.autograd.Function):
    """The scan and its gradient: with h the scan of the gradients from the other end,

    h_k = g_k + conj(a_{k+1}) h_{k+1},   ∂b_k = h_k,   ∂a_k = h_k conj(x_{k-1}).
    """

    @staticmethod
    def forward(ctx: Any, decay: Tensor, inputs: Tensor, reverse: bool) -> Tensor:
        states = _run(decay, inputs, reverse)
        ctx.save_for_backward(decay, states)
        ctx.reverse = reverse
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, None]:
        decay, states = ctx.saved_tensors
        back = _run(_conj_moved(decay, ctx.reverse), grads[0], not ctx.reverse)
        if not ctx.needs_input_grad[0]:
            return None, back, None
        of_decay = _conj_moved(states, not ctx.reverse).mul_(back)
        if decay.shape[1] != states.shape[1]:
            of_decay = of_decay.sum(dim=1, keepdim=True)
        return of_decay, back, None


def _conj_moved(x: Tensor, later: bool) -> Tensor:
    """conj(x) one row later or earlier; the row for which there is none is 0."""
    out = torch.empty_like(x)
    here, there = (slice(1, None), slice(None, -1)) if later else (slice(None, -1), slice(1, None))
    out[here] = x[there].conj()
    out[: 1 if later else None][-1:] = 0
    return out


def _run(decay: Tensor, inputs: Tensor, reverse: bool) -> Tensor:
    length = len(inputs)
    chunks = _chunks(length, inputs[0].numel() if length else 0, inputs.device.type)
    if chunks < 2:
        return _steps(decay.unsqueeze(0), inputs.unsqueeze(0), reverse)[0]
    size = -(-length // chunks)
    chunks = -(-length // size)
    a, b = (_padded(x, chunks * size).view(chunks, size, *x.shape[1:]) for x in (decay, inputs))
    x = _steps(a, b, reverse)  # each chunk as if nothing came before it
    gain = _products(a, reverse)
    for before, c in pairwise(_order(chunks, reverse)):
        x[c].addcmul_(gain[c], x[before, :1] if reverse else x[before, -1:])
    return x.flatten(0, 1)[:length]


def _steps(a: Tensor, b: Tensor, reverse: bool) -> Tensor:
    """The recurrence along axis 1 of ``(chunks, size, B, P)``, from x_{-1} = 0."""
    x = torch.empty_like(b)
    decays, given, states = a.unbind(1), b.unbind(1), x.unbind(1)
    places = list(_order(len(states), reverse))
    for k in places[:1]:
        states[k].copy_(given[k])
    for before, k in pairwise(places):
        torch.addcmul(given[k], decays[k], states[before], out=states[k])
    return x


def _products(a: Tensor, reverse: bool) -> Tensor:
    """What a state of 1 before each chunk becomes at its steps."""
    return a.flip(1).cumprod(dim=1).flip(1) if reverse else a.cumprod(dim=1)


def _order(n: int, reverse: bool) -> range:
    return range(n - 1, -1, -1) if reverse else range(n)


def _chunks(length: int, slab: int, device: str) -> int:
    """How many chunks of time go side by side; about √L makes the steps fewest."""
    if device != "cpu":
        return math.isqrt(length)
    if slab >= _LARGE_SLAB and length <= _FEW_STEPS:
        return 1
    return min(math.isqrt(length), 64)


def _padded(x: Tensor, length: int) -> Tensor:
    """``x`` with rows of 0 behind: nothing is carried back or forth over them."""
    missing = length - len(x)
    return x if missing == 0 else torch.cat([x, x.new_zeros(missing, *x.shape[1:])])
