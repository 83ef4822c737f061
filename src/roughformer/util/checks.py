"""What several modules share: checks of options and files, optional packages, threads."""

import importlib
import numbers
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from roughformer.errors import InputError

_ONE_THREAD = 10_000  # samples that boosting uses one thread for


def whole_number(value: Any, name: str, least: int, most: int | None = None) -> int:
    """``value`` as an int in [least, most], or ``InputError``. 3.0 counts, True does not."""
    good = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if (
        not good
        or not float(value).is_integer()
        or value < least
        or (most is not None and value > most)
    ):
        span = f">= {least}" if most is None else f"from {least} to {most}"
        raise InputError(f"{name} must be a whole number {span}, got {value!r}")
    return int(value)


def real_number(value: Any, name: str, what: str, positive: bool = False) -> float:
    """``value`` as a finite float, positive if asked, or ``InputError`` ("must be <what>")."""
    good = isinstance(value, numbers.Real) and not isinstance(value, bool)
    number = float(value) if good else float("nan")
    if not abs(number) < float("inf") or (positive and number <= 0):
        raise InputError(f"{name} must be {what}, got {value!r}")
    return number


def existing_file(path: str | PathLike[str]) -> Path:
    """Return ``path`` as a ``Path`` if it is a file, else raise ``InputError``."""
    file = Path(path)
    if not os.path.isfile(file):  # unlike Path.is_file, also for names that are too long
        kind = "a directory" if os.path.isdir(file) else "nothing"
        raise InputError(f"expected a file at {file}, found {kind}; check the path")
    return file


def unique_names(names: Iterable[str]) -> list[str]:
    """The names, of which repeated ones get #2, #3, ..."""
    count: Counter[str] = Counter()
    unique = []
    for name in names:
        count[name] += 1
        unique.append(name if count[name] == 1 else f"{name}#{count[name]}")
    return unique


def optional(module: str, extra: str) -> Any:
    """Import ``module``, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"this needs the package {module}, which cannot be imported ({error}); install it "
            f"with: pip install 'roughformer[{extra}]'"
        ) from error


@contextmanager
def using_threads(n_jobs: Any) -> Iterator[None]:
    """``None``: as torch is set; -1: all processors; n: n threads. Restored afterwards."""
    if n_jobs is None:
        yield
        return
    whole = isinstance(n_jobs, numbers.Integral) and not isinstance(n_jobs, bool)
    if not whole or n_jobs == 0 or n_jobs < -1:
        raise InputError(f"n_jobs must be None, -1 or a positive whole number, got {n_jobs!r}")
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads((os.cpu_count() or 1) if n_jobs == -1 else int(n_jobs))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for_boosting(n_samples: int) -> Any:
    """A context in which scikit-learn's boosting uses one thread for up to 10,000 samples,
    beyond that as many as torch.

    More of them gain little there, and wait for each other in busy loops: beside other work, 270
    samples of nine classes took 85 s by two threads and 1 s by one.
    """
    import torch
    from threadpoolctl import threadpool_limits

    count = 1 if n_samples <= _ONE_THREAD else torch.get_num_threads()
    return threadpool_limits(count, user_api="openmp")
