"""Running a trained model over many inputs."""

import torch
from torch import Tensor, nn

__all__ = ["run_model"]


@torch.no_grad()
def run_model(
    model: nn.Module, inputs: dict[str, Tensor], device: torch.device | str, batch_size: int = 256
) -> Tensor:
    """Outputs of all series ``(B, ...)``, in main memory and float32; evaluation mode while it
    runs.
    """
    was = model.training
    model.eval()
    n = len(next(iter(inputs.values())))
    parts = []
    for i in range(0, max(n, 1), batch_size):
        part = {name: x[i : i + batch_size].to(device) for name, x in inputs.items()}
        parts.append(model(**part).float().cpu())
    model.train(was)
    return torch.cat(parts)
