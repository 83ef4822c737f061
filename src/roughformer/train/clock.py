"""The clock of a training: of the wall or, for comparisons on a machine that is shared, of the
processor.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

__all__ = ["now", "processor_time"]

_CLOCK: ContextVar[Callable[[], float]] = ContextVar("_CLOCK", default=time.perf_counter)


def now() -> float:
    """Seconds of the clock in force; only differences mean something."""
    return _CLOCK.get()()


def _processor() -> float:
    """Processor time of all threads of this process, by the number of torch's threads: what the
    wall would show if the threads were always busy and nothing else ran.
    """
    return time.process_time() / torch.get_num_threads()


@contextmanager
def processor_time() -> Iterator[None]:
    """Inside, epochs are timed and budgets (``max_seconds``) spent in processor time: other work
    on the machine makes the training later, and not shorter.
    """
    token = _CLOCK.set(_processor)
    try:
        yield
    finally:
        _CLOCK.reset(token)
