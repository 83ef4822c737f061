"""Everything a training needs to go on bit for bit where it was stopped."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from roughformer.checkpoint import load_checkpoint, save_checkpoint
from roughformer.errors import CheckpointError

__all__ = ["TrainState", "load_state", "save_state"]


@dataclass
class TrainState:
    """Where a training is. The order of batches and all draws follow from (seed, epoch, step)."""

    epoch: int = 0  # epochs completed
    step: int = 0  # steps completed in the epoch that runs
    loss_sum: float = 0.0  # of the epoch that runs
    loss_count: int = 0
    seconds: float = 0.0  # spent in the epoch that runs, by earlier processes
    stale: int = 0  # epochs since the best one
    finished: bool = False
    best_metric: float | None = None
    best_epoch: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Tensor] | None = None


_PLAIN = (
    "epoch", "step", "loss_sum", "loss_count", "seconds", "stale", "finished", "best_metric",
    "best_epoch", "history",
)  # fmt: skip


def save_state(
    directory: Path, key: str, state: TrainState, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Write the state; ``key`` names the configuration and data that it belongs to."""
    moments = {
        f"{i}.{name}": value if isinstance(value, Tensor) else torch.tensor(value)
        for i, entry in optimizer.state_dict()["state"].items()
        for name, value in entry.items()
    }
    tensors = {
        "model": dict(model.state_dict()),
        "optimizer": moments,
        "random": {"torch": torch.get_rng_state()},
    }
    if torch.cuda.is_available():
        tensors["random"] |= {f"cuda{i}": s for i, s in enumerate(torch.cuda.get_rng_state_all())}
    if state.best is not None:
        tensors["best"] = state.best
    plain = {name: getattr(state, name) for name in _PLAIN}
    save_checkpoint(directory, {"kind": "training", "key": key, "state": plain}, tensors)


def load_state(
    directory: Path, key: str, model: nn.Module, optimizer: torch.optim.Optimizer
) -> TrainState:
    """Put a saved state back into model, optimiser and random numbers."""
    saved = load_checkpoint(directory)
    if saved.config.get("kind") != "training":
        raise CheckpointError(f"{directory} holds no training state")
    if saved.config["key"] != key:
        raise CheckpointError(
            f"the training saved in {directory} had other data or another configuration; resume "
            "it with the same ones, or start anew in another directory"
        )
    model.load_state_dict(saved.tensors["model"])
    entries: dict[int, dict[str, Tensor]] = {}
    for name, value in saved.tensors["optimizer"].items():
        number, part = name.split(".", 1)
        entries.setdefault(int(number), {})[part] = value
    optimizer.load_state_dict(optimizer.state_dict() | {"state": entries})
    random = saved.tensors["random"]
    torch.set_rng_state(random["torch"])
    if torch.cuda.is_available() and "cuda0" in random:
        torch.cuda.set_rng_state_all([random[f"cuda{i}"] for i in range(len(random) - 1)])
    return TrainState(**saved.config["state"], best=saved.tensors.get("best"))
