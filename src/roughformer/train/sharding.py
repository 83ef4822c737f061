"""FSDP: every process keeps a part of each weight, of its gradient and of its moments.

On torch's ``fully_shard``, which works wherever a process group does, also on a CPU with gloo. The
weights of a block are put together while it is used.
"""

import copy
from itertools import chain

from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from roughformer.train.team import losses_told
from roughformer.train.trainee import Trainee, share_weights

__all__ = ["ShardedTrainee"]


class ShardedTrainee(Trainee):
    """A copy of the model is cut into shards and trained; ``gather`` puts it together."""

    together = True

    def _placed(self, model: nn.Module) -> nn.Module:
        shards = copy.deepcopy(model).to(self.device)
        share_weights(shards)
        mesh = init_device_mesh(self.device.type, (self.team.size,))
        scalars = {p for p in shards.parameters() if p.dim() == 0}  # cannot be cut
        lists = [part for part in shards.modules() if isinstance(part, nn.ModuleList)]
        for block in chain(*lists):
            if any(p.dim() > 0 for p in block.parameters()):
                fully_shard(block, mesh=mesh, ignored_params=scalars)
        fully_shard(shards, mesh=mesh, ignored_params=scalars)
        return shards

    def _whole(self, tensor: Tensor) -> Tensor:
        if not isinstance(tensor, DTensor):
            return tensor
        with losses_told():
            return tensor.full_tensor()

    def _part(self, tensor: Tensor, weight: Tensor) -> Tensor:
        if not isinstance(weight, DTensor) or tensor.shape != weight.shape:
            return tensor  # a count of steps, or a scalar
        # Every process has all of it, so nothing needs to be sent.
        return distribute_tensor(
            tensor.to(self.device), weight.device_mesh, weight.placements, src_data_rank=None
        )

    def gather(self) -> None:
        """See ``Trainee``."""
        found = {name: self._whole(x) for name, x in self.trained.state_dict().items()}
        self.model.load_state_dict(found)

    def backward(self, loss: Tensor) -> None:
        """See ``Trainee``; what cannot be cut is averaged here."""
        with losses_told():
            super().backward(loss)
            for weight in self.trained.parameters():
                if weight.grad is not None and not isinstance(weight, DTensor):
                    dist.all_reduce(weight.grad)
                    weight.grad /= self.team.size

    def update(self, rate: float, factor: float = 1.0) -> None:
        """See ``Trainee``."""
        with losses_told():  # the norm of the gradient is one of all processes
            super().update(rate, factor)
