"""One step of training: the loss of a global batch, whoever has which of its series."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from roughformer.errors import InputError
from roughformer.model.outputs import OutputConfig, loss_of, loss_weight
from roughformer.train.feed import Share
from roughformer.train.inputs import SAMPLE_WEIGHT, Inputs
from roughformer.train.team import Team
from roughformer.train.trainee import Trainee

__all__ = ["Batch", "Lesson", "spread"]


def spread(target: Tensor, inputs: Inputs, outputs: OutputConfig) -> Tensor:
    """Targets of a causal model at each window: one per series counts for all its windows."""
    if not outputs.causal:
        return target
    length, mask = inputs["times"].shape[1], inputs.get("mask")
    classes = outputs.task == "classification"
    if target.dim() == (1 if classes else 2):
        target = target.unsqueeze(1).expand(-1, length, *target.shape[1:])
    # Windows of a batch may be fewer than those of the longest series; never more.
    if target.shape[1] < length:
        raise InputError(
            f"there are {length} windows but targets for {target.shape[1]} of them; give as many "
            "as the series with most windows has"
        )
    target = target[:, :length]
    if mask is not None:
        hidden = mask.new_zeros(()).to(target.dtype) + (-1 if classes else float("nan"))
        real = mask if classes else mask.unsqueeze(-1)
        target = torch.where(real, target, hidden)
    return target


@dataclass(frozen=True)
class Batch:
    """What a step found out, agreed on by all processes: the loss and the series of the global
    batch, and what the first process said.
    """

    loss: float
    count: int
    along: float
    save: bool


@dataclass
class Lesson:
    """How shares of batches become gradients.

    With L_r the mean loss of process r's share and W_r the weight of its known targets, the loss
    of the global batch is Σ_r W_r L_r / Σ_r W_r. The processes average the gradients of W_r L_r;
    times size / Σ_r W_r they are those of one process that has all series.
    """

    trainee: Trainee
    outputs: OutputConfig
    class_weight: Tensor | None
    smoothing: float
    team: Team
    idle: Inputs  # of some series, for a process whose share is empty

    def learn(self, share: Share, along: float, save: bool) -> tuple[Batch, float]:
        """Make the gradients. What was found, and the factor that they still need."""
        team, trainee = self.team, self.trainee
        loss, weight, problem = self._loss(share)
        if team.alone:
            trainee.backward(loss)
            return Batch(float(loss.detach()), len(share.target), along, save), 1.0
        trainee.backward(loss * weight)
        said = (along, float(save)) if team.first else (0.0, 0.0)
        lossy, total, count, along, saving, failed = team.sums(
            float(loss.detach()) * weight,
            weight,
            len(share.target),
            *said,
            problem is not None,
        )
        if failed:
            team.agreed(lambda: _raise(problem))
        total = max(total, 1e-12)
        return Batch(lossy / total, int(count), along, saving > 0), team.size / total

    def _loss(self, share: Share) -> tuple[Tensor, float, Exception | None]:
        """The mean loss of the share, its weight, and why there is none."""
        problem = share.problem
        if problem is None and len(share.target):
            try:
                return *self._taught(share), None
            except Exception as error:
                if self.team.alone:
                    raise
                problem = error
        # The others wait for gradients of this process: zeros.
        nothing = self.trainee.answers(self.idle).nan_to_num().sum() * 0
        return nothing, 0.0, problem

    def _taught(self, share: Share) -> tuple[Tensor, float]:
        device = self.trainee.device
        aim = spread(share.target, share.inputs, self.outputs).to(device)
        inputs = dict(share.inputs)
        series = inputs.pop(SAMPLE_WEIGHT, None)
        series = None if series is None else series.to(device)
        weight = 1.0
        if not self.team.alone:
            weight = float(loss_weight(aim, self.outputs, self.class_weight, series))
        losses = [
            loss_of(answer.float(), aim, self.outputs, self.class_weight, self.smoothing, series)
            for answer in self.trainee.answers(inputs)
        ]
        return torch.stack(losses).mean(), weight

    def noise(self, seed: int, epoch: int, step: int) -> None:
        """Dropout of processes must differ, and follow from what a resumed training knows."""
        if not self.team.alone:
            entropy = [seed, epoch, step, self.team.rank, self.team.size]
            state = np.random.SeedSequence(entropy).generate_state(1, np.uint64)
            torch.manual_seed(int(state[0] >> 1))


def _raise(problem: Exception | None) -> None:
    if problem is not None:
        raise problem
