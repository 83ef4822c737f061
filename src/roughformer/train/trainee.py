"""A model in training: on its device, in its precision, alone or together with other processes."""

import os
import warnings
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from roughformer.errors import InputError
from roughformer.train.config import TrainConfig
from roughformer.train.team import Team, losses_told

__all__ = ["Trainee", "check_device", "share_weights", "trainee_of"]


class Trainee:
    """A model that this process trains alone, and its optimiser.

    ``module`` is what is called in training and validation, ``trained`` has the weights that the
    optimiser changes, and ``model`` has all of them after ``gather``.
    """

    together = False  # whether validation, too, needs all processes in each call of ``module``

    def __init__(self, model: nn.Module, config: TrainConfig, team: Team) -> None:
        """All processes begin with the weights of the first."""
        self.model, self.config, self.team = model, config, team
        self.device = _device(config, team)
        self.apart = bool(getattr(model, "answers_apart", False))
        self.trained = self._placed(model)
        module = self.trained
        if config.precision == "bfloat16":
            module = _InHalf(module, self.device)
        module = self._joined(module)
        self.module: Any = torch.compile(module) if config.compile else module
        self.optimizer = torch.optim.AdamW(
            self.trained.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )

    # What training with others changes

    def _placed(self, model: nn.Module) -> nn.Module:
        return model.to(self.device)

    def _joined(self, module: nn.Module) -> nn.Module:
        return module

    def _whole(self, tensor: Tensor) -> Tensor:
        """All of a tensor of which this process may have a part."""
        return tensor

    def _part(self, tensor: Tensor, weight: Tensor) -> Tensor:
        """What this process keeps of a tensor that belongs to ``weight``."""
        return tensor

    def gather(self) -> None:
        """Bring ``model`` up to date; all processes must call it."""

    def backward(self, loss: Tensor) -> None:
        """Gradients of a loss; with others, means over the processes."""
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)

    # What it does not

    def answers(self, inputs: dict[str, Tensor]) -> Tensor:
        """``(k, B, ...)``: the answers of the model, to be trained each by itself."""
        on_device = {name: x.to(self.device) for name, x in inputs.items()}
        if self.apart:
            several: Tensor = self.module(**on_device, separate=True)
            return several
        one: Tensor = self.module(**on_device)
        return one.unsqueeze(0)

    def update(self, rate: float, factor: float = 1.0) -> None:
        """A step of the optimiser with ``factor`` times the gradients, clipped."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        weights = list(self.trained.parameters())
        if factor != 1.0:
            torch._foreach_mul_([w.grad for w in weights if w.grad is not None], factor)
        nn.utils.clip_grad_norm_(weights, self.config.clip_norm)
        self.optimizer.step()

    def moments(self) -> dict[str, Tensor]:
        """What the optimiser remembers, whole, as ``number.name``; all processes must call it."""
        return {
            f"{i}.{name}": self._whole(x) if isinstance(x, Tensor) else torch.tensor(x)
            for i, entry in self.optimizer.state_dict()["state"].items()
            for name, x in entry.items()
        }

    def remember(self, moments: dict[str, Tensor]) -> None:
        """Go on with what ``moments`` gave, in another process or another number of them."""
        weights = list(self.trained.parameters())
        entries: dict[int, dict[str, Tensor]] = {}
        for name, x in moments.items():
            number, part = name.split(".", 1)
            entries.setdefault(int(number), {})[part] = self._part(x, weights[int(number)])
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": entries})


class CopiedTrainee(Trainee):
    """Every process has a copy of the model; gradients are averaged while they are made (DDP)."""

    def _joined(self, module: nn.Module) -> nn.Module:
        share_weights(module)
        with warnings.catch_warnings():
            # A newer name of this option is not known to all versions of torch that we take.
            warnings.filterwarnings("ignore", ".*broadcast_buffers.*")
            # Buffers are statistics of the training part: they do not change any more.
            return DistributedDataParallel(module, broadcast_buffers=False)

    def backward(self, loss: Tensor) -> None:
        """See ``Trainee``."""
        with losses_told():
            super().backward(loss)


def share_weights(module: nn.Module) -> None:
    """Give the weights and buffers of the first process to all."""
    with losses_told():
        for tensor in chain(module.parameters(), module.buffers()):
            dist.broadcast(tensor.detach(), src=0)


def trainee_of(model: nn.Module, config: TrainConfig, team: Team) -> Trainee:
    """As many processes as the team has; in shards if the launcher asks for FSDP, as ``accelerate
    launch --use_fsdp`` does.
    """
    if team.alone:
        return Trainee(model, config, team)
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true", "yes"):
        from roughformer.train.sharding import ShardedTrainee

        return ShardedTrainee(model, config, team)
    return CopiedTrainee(model, config, team)


class _InHalf(nn.Module):
    """The model with its products in bfloat16 and its answers in float32."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        super().__init__()
        self.model, self.kind = model, device.type

    def forward(self, **inputs: Any) -> Tensor:
        with torch.autocast(self.kind, torch.bfloat16):
            answer: Tensor = self.model(**inputs)
        return answer.float()


def check_device(device: str) -> None:
    """``InputError`` if torch does not see it."""
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("device='cuda', but torch sees no CUDA device here; use device='auto'")
    if device == "mps" and not torch.backends.mps.is_available():
        raise InputError("device='mps', but torch sees no such device here; use device='auto'")


def _device(config: TrainConfig, team: Team) -> torch.device:
    check_device(config.device)
    if config.device == "cpu":
        return torch.device("cpu")
    found = torch.accelerator.current_accelerator(check_available=True)
    if found is None or (found.type == "mps" and not team.alone):  # no processes share one
        return torch.device("cpu")
    if found.type == "cuda" and not team.alone:
        number = int(os.environ.get("LOCAL_RANK", team.rank)) % torch.cuda.device_count()
        torch.cuda.set_device(number)
        return torch.device("cuda", number)
    return found
