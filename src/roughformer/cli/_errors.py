"""Any error as one line for people, and the exit code that goes with it."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from roughformer.errors import CapacityError, CheckpointError, InputError, MissingDataError

__all__ = ["Interrupted", "describe", "rank_zero_output"]

_OURS = (InputError, MissingDataError, CapacityError, CheckpointError)


class Interrupted(Exception):
    """The user pressed Ctrl-C; the text says how to go on."""


def describe(error: BaseException) -> tuple[str, int]:
    """``(line, exit code)``: 1 error in the input or data, 2 wrong usage, 130 interrupted."""
    if isinstance(error, Interrupted):
        return str(error), 130
    if _is_usage(error):
        return _usage(error), 2
    if isinstance(error, _OURS):
        return _one_line(error), 1
    if type(error).__module__.startswith("pydantic"):
        return _of_pydantic(error), 1
    if isinstance(error, OSError):
        return _of_system(error), 1
    if isinstance(error, MemoryError):
        return "there is not enough memory; take fewer series, windows or features", 1
    return (
        f"unexpected {type(error).__name__}: {_one_line(error)} (this is a bug, or a case nobody "
        "thought of; --debug shows where it comes from)"
    ), 1


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _is_usage(error: BaseException) -> bool:
    """An error of typer's parser: known by its form, since typers differ in whose click it is."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _usage(error: BaseException) -> str:
    text = " ".join(str(error.format_message()).split())  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    command = "roughformer" if context is None else context.command_path
    return f"{text.rstrip('.')}; see: {command} --help"


def _of_pydantic(error: BaseException) -> str:
    first = error.errors()[0]  # type: ignore[attr-defined]
    name = ".".join(str(part) for part in first["loc"])
    return f"{name}: {first['msg']}, got {first.get('input')!r}"


def _of_system(error: OSError) -> str:
    name = "" if error.filename is None else f"{error.filename}: "
    if isinstance(error, FileNotFoundError):
        return f"{name}there is no such file; check the path"
    if isinstance(error, PermissionError):
        return f"{name}permission denied; check the rights, or choose another place"
    if isinstance(error, IsADirectoryError):
        return f"{name}this is a directory, a file is needed"
    if isinstance(error, FileExistsError | NotADirectoryError):
        return f"{name}a file is in the way; choose another place"
    return f"{name}{error.strerror or _one_line(error)}"


@contextmanager
def rank_zero_output() -> Iterator[None]:
    """In a command that runs in several processes, only the first prints notes; errors of the
    others say whose they are.
    """
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
