"""What the loop needs of a source of batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from roughformer.train.inputs import Inputs, Stopwatch
from roughformer.train.team import Team

__all__ = ["BatchSource", "Share", "share_of", "shares"]


class BatchSource(Protocol):
    """Batches in an order that (seed, epoch) decides, whatever the number of processes."""

    watch: Stopwatch

    @property
    def n_steps(self) -> int:
        """Steps of one epoch: batches of all processes together."""

    def sample(self, n: int) -> Inputs:
        """Inputs of ``n`` series at most, about as training will see them; the same for all."""

    def epoch(
        self, epoch: int, first: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[tuple[Inputs, Tensor]]:
        """Of each of the batches ``first, first + 1, ...`` the share of process ``rank`` of
        ``world``, the series ``share_of(rank, world, size)`` of the batch, with their targets.

        What is drawn for a series depends on its place in the batch, never on ``world``. A share
        without series is yielded too; nobody looks at its inputs.
        """


def share_of(rank: int, world: int, size: int) -> slice:
    """The places of a batch that process ``rank`` of ``world`` takes: neighbours, as many for each
    as can be. A store has its neighbours in the same row groups, so that a process reads few.
    """
    return slice(-(-rank * size // world), -(-(rank + 1) * size // world))


@dataclass(frozen=True)
class Share:
    """Inputs and targets of the series of a batch that this process takes, or why it has none."""

    inputs: Inputs
    target: Tensor
    problem: Exception | None = None


def shares(source: BatchSource, epoch: int, first: int, team: Team) -> Iterator[Share]:
    """The shares of this process. An error in making one is handed over, and the last: others wait
    for this process and must be told.
    """
    batches = source.epoch(epoch, first, team.rank, team.size)
    while True:
        try:
            share = Share(*next(batches))
        except StopIteration:
            return
        except Exception as error:
            if team.alone:
                raise
            yield Share({}, torch.zeros(0), error)
            return
        yield share
