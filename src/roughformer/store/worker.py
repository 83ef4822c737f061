"""What a process that was started for one kind of work does first."""

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait
from typing import Any

__all__ = ["begin_worker"]


def begin_worker() -> None:
    """From now on this process dies with its parent, however that ends, and leaves Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends this one
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()


def _die_with(sentinel: Any) -> None:
    wait([sentinel])
    os._exit(1)
