"""What streams remember, packed: one row of numbers for each stream."""

import math

import torch
from torch import Tensor

__all__ = ["Packing", "State", "per_stream"]

State = dict[str, Tensor]


class Packing:
    """Named parts, one behind the other in rows ``(B, size)`` of float64: whole numbers and
    float32 lose nothing there. A new stream is a row of zeros.
    """

    def __init__(self) -> None:
        """Without parts yet."""
        self.shapes: dict[str, tuple[int, ...]] = {}

    def add(self, name: str, *shape: int) -> None:
        """A part ``(B, *shape)``."""
        assert name not in self.shapes
        self.shapes[name] = shape

    @property
    def size(self) -> int:
        """Numbers of one stream."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def unpack(self, rows: Tensor) -> State:
        """``(B, size)`` -> the parts, float64."""
        found, at = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            found[name] = rows[:, at : at + size].reshape(rows.shape[0], *shape)
            at += size
        return found

    def pack(self, parts: State) -> Tensor:
        """The way back; parts of any type."""
        flat = [
            parts[name].double().reshape(parts[name].shape[0], math.prod(shape))
            for name, shape in self.shapes.items()
        ]
        return torch.cat(flat, dim=1)


def per_stream(which: Tensor, yes: Tensor | float, no: Tensor) -> Tensor:
    """``yes`` for the streams ``which (B,)``, ``no (B, ...)`` for the others."""
    return torch.where(which.reshape(-1, *[1] * (no.dim() - 1)), yes, no)
