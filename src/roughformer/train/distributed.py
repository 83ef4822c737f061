"""The processes that train one model together: who they are, and what they tell each other."""

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import distributed as dist

from roughformer.errors import InputError

T = TypeVar("T")
_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells a process


class ProcessLost(RuntimeError):
    """Another process of the training was killed or failed."""


@contextmanager
def report_lost_process() -> Iterator[None]:
    """An exchange with a process that is gone fails with words about sockets: say what it means."""
    try:
        yield
    except RuntimeError as error:
        text = str(error).lower()
        if not any(word in text for word in ("gloo", "nccl", "connection", "recv", "peer")):
            raise
        raise ProcessLost(
            "another process of this training was killed or failed: see its own message. Started "
            "again, all of them can resume what was saved"
        ) from error


@dataclass(frozen=True)
class ProcessGroup:
    """``size`` processes, of which this is number ``rank``; the first one writes the files.

    All processes must make the same calls in the same order. A group of one exchanges nothing.
    """

    rank: int = 0
    size: int = 1
    group: Any = None  # through which numbers in main memory are exchanged; None: the default one

    @property
    def first(self) -> bool:
        """Whether this process writes and prints."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there are no others."""
        return self.size == 1

    def sums(self, *numbers: float) -> list[float]:
        """The sum over the processes of each number, the same bits for all of them."""
        if self.alone:
            return list(numbers)
        shared = torch.tensor(numbers, dtype=torch.float64)
        with report_lost_process():
            dist.all_reduce(shared, group=self.group)
        return [float(x) for x in shared]

    def gathered(self, value: T) -> list[T]:
        """What each process has, for all of them."""
        if self.alone:
            return [value]
        values: list[Any] = [None] * self.size
        with report_lost_process():
            dist.all_gather_object(values, value, group=self.group)
        return values

    def same(self, value: T) -> T:
        """What the first process has."""
        return self.gathered(value if self.first else None)[0]  # type: ignore[return-value]

    def agreed(self, work: Callable[[], T]) -> T:
        """``work()`` of every process; if it fails in one of them, it fails in all."""
        if self.alone:
            return work()
        problem: Exception | None = None
        try:
            result = work()
        except Exception as error:
            problem = error
        shared = self.gathered(None if problem is None else (str(problem) or repr(problem)))
        if problem is not None:
            raise problem
        for rank, text in enumerate(shared):
            if text is not None:
                raise InputError(f"process {rank + 1} of {self.size} failed: {text}")
        return result

    def once(self, work: Callable[[], T]) -> T:
        """``work()`` of the first process, which all others wait for and are told of."""
        return self.same(self.agreed(lambda: work() if self.first else None))  # type: ignore[return-value]


def current_process_group() -> ProcessGroup:
    """The processes that a launcher (torchrun, accelerate, Ray) started together with this one.

    A group of ``torch.distributed`` that is there is used; else the environment that launchers set
    is followed. Without either, this process is a group of its own.
    """
    if not dist.is_available():
        return ProcessGroup()
    if not dist.is_initialized():
        launched = all(name in os.environ for name in _LAUNCHED)
        if not launched or int(os.environ["WORLD_SIZE"]) == 1:
            return ProcessGroup()
        with report_lost_process():
            _join()
    size = dist.get_world_size()
    return ProcessGroup(dist.get_rank(), size, _in_main_memory()) if size > 1 else ProcessGroup()


def _join() -> None:
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    store, rank, size = next(iter(rendezvous("env://")))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        # torchrun keeps its store over restarts, with the addresses of processes that are gone
        # (pytorch issue 135712). Its count of restarts names ours; with several machines each has
        # a count of its own, and torchrun must be told to make a new store.
        count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = PrefixStore(f"roughformer start {count}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    atexit.register(_leave)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


_groups: dict[int, Any] = {}  # of default groups that know CUDA only


def _in_main_memory() -> Any:
    default = dist.group.WORLD
    if "gloo" in str(dist.get_backend_config(default)):
        return None
    if id(default) not in _groups:
        _groups[id(default)] = dist.new_group(backend="gloo")
    return _groups[id(default)]
