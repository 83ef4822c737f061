"""Running a trained model over many inputs."""

import torch
from torch import Tensor, nn

__all__ = ["run_model"]

_TOKENS_AT_ONCE = 1 << 18  # bounds the memory of blocks: about 1 GB at width 64


@torch.no_grad()
def run_model(
    model: nn.Module, inputs: dict[str, Tensor], device: torch.device | str, batch_size: int = 256
) -> Tensor:
    """Outputs of all series ``(B, ...)``, in main memory and float32; evaluation mode while it
    runs. Batches of long series are smaller.
    """
    was = model.training
    if was:  # a walk over all modules, which takes as long as a small batch
        model.eval()
    n = len(next(iter(inputs.values())))
    length = max((x.shape[1] for x in inputs.values() if x.dim() > 1), default=1)
    size = max(min(batch_size, _TOKENS_AT_ONCE // max(length, 1)), 1)
    parts = []
    for i in range(0, max(n, 1), size):
        part = {name: x[i : i + size].to(device) for name, x in inputs.items()}
        parts.append(model(**part).float().cpu())
    if was:
        model.train()
    return torch.cat(parts)
