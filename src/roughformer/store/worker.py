"""What a process that was started for one kind of work does first."""

import gc
import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait
from typing import Any

from roughformer.store.places import map_files

__all__ = ["begin_units", "begin_worker"]


def begin_worker() -> None:
    """From now on this process dies with its parent, however that ends, and leaves Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends this one
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()


def begin_units() -> None:
    """From now on this process does units of work, and nothing else."""
    # The garbage collector need not look through the objects of all imported modules: each of its
    # rounds would take as long as a block of series.
    gc.freeze()
    map_files()  # if one is shortened under its hands, this process dies, and not the caller's


def _die_with(sentinel: Any) -> None:
    wait([sentinel])
    os._exit(1)
