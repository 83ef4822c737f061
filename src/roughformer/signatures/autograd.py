"""The native kernel as a differentiable torch function of the values."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from roughformer.signatures import native_call

__all__ = ["native_signature"]


class _NativeSignature(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, request: native_call.Request, features: int) -> Tensor:
        flat = values.detach().contiguous()
        request = replace(request, path=replace(request.path, values=flat.numpy()))
        shape = (request.path.n_series, request.cuts.most, features)
        make = np.empty if request.cuts.equal else np.zeros
        out = make(shape, dtype=request.compute)
        native_call.forward(request, out)
        result = torch.from_numpy(out)
        ctx.save_for_backward(flat, result)
        ctx.request = request
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        _, result = ctx.saved_tensors
        out = result.detach().numpy()
        dense = np.ascontiguousarray(grad.detach().numpy(), dtype=out.dtype)
        return torch.from_numpy(native_call.backward(ctx.request, out, dense)), None, None


def native_signature(values: Tensor, request: native_call.Request, features: int) -> Tensor:
    """Signatures ``(B, windows, features)`` of the views in ``request``.

    Only level words are stored for the backward (the result itself and the values); each window's
    Horner sums are computed again. Second derivatives: use ``engine="torch"``.
    """
    result: Tensor = _NativeSignature.apply(values, request, features)  # type: ignore[no-untyped-call]
    return result
