"""A command that runs in several processes at once speaks with one voice."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from roughformer.cli._errors import Interrupted, describe
from roughformer.errors import InputError

__all__ = ["one_voice"]


@contextmanager
def one_voice() -> Iterator[None]:
    """Notes of other processes than the first are dropped, and their errors say whose they are."""
    rank, size = (int(os.environ.get(name, x)) for name, x in (("RANK", 0), ("WORLD_SIZE", 1)))
    if size == 1:
        yield
        return
    try:
        with warnings.catch_warnings():
            if rank > 0:
                warnings.simplefilter("ignore")
            yield
    except Interrupted:
        raise
    except Exception as error:
        from roughformer.train import ProcessLost

        if rank == 0 and not isinstance(error, ProcessLost):
            raise
        line = str(error) if isinstance(error, ProcessLost) else describe(error)[0]
        raise InputError(f"process {rank + 1} of {size}: {line}") from error
