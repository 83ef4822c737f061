"""Jobs in processes of their own that do not outlive the command.

The command holds a lock on the directory of its jobs and hands it down to their processes, so that
it is free only when the last of them has ended, however they end. Each job's process reads from a
pipe that only the command holds open: when the command dies, even by kill -9, the pipe closes and
the process ends itself.
"""

import os
import threading

__all__ = ["end_with_parent"]

_ENDED = 70  # exit code of a process whose command is gone


def end_with_parent() -> None:
    """From now on this process ends when the other end of its standard input closes."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os._exit(_ENDED)

    threading.Thread(target=watch, daemon=True).start()
