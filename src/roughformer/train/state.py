"""Everything a training needs to go on bit for bit where it was stopped."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from roughformer.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from roughformer.errors import CheckpointError

__all__ = ["TrainState", "read_state", "restore_random", "save_state"]


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

    @classmethod
    def of(cls, saved: Checkpoint) -> "TrainState":
        """The state in what ``read_state`` gives."""
        return cls(**saved.config["state"], best=saved.tensors.get("best"))


_PLAIN = (
    "epoch", "step", "loss_sum", "loss_count", "seconds", "stale", "finished", "best_metric",
    "best_epoch", "history",
)  # fmt: skip


def save_state(
    directory: Path, key: str, state: TrainState, model: nn.Module, moments: dict[str, Tensor]
) -> None:
    """Write the state, with the ``moments`` of the optimiser; ``key`` names the configuration and
    data that it belongs to. Nothing in it depends on the number of processes.
    """
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


def read_state(directory: Path, key: str) -> Checkpoint | None:
    """What ``save_state`` wrote for the same data and configuration; None if there is nothing."""
    if not directory.exists():
        return None
    saved = load_checkpoint(directory)
    if saved.config.get("kind") != "training":
        raise CheckpointError(f"{directory} holds no training state")
    if saved.config["key"] != key:
        raise CheckpointError(
            f"the training saved in {directory} had other data or another configuration; resume "
            "it with the same ones, or start anew in another directory"
        )
    return saved


def restore_random(saved: Checkpoint) -> None:
    """Put torch's random numbers back."""
    random = saved.tensors["random"]
    torch.set_rng_state(random["torch"])
    if torch.cuda.is_available() and "cuda0" in random:
        torch.cuda.set_rng_state_all([random[f"cuda{i}"] for i in range(len(random) - 1)])
