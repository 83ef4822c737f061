"""What commands share: options, one by one and in groups, and errors as one line."""

import inspect
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from roughformer.errors import CapacityError, CheckpointError, InputError, MissingDataError

__all__ = ["Interrupted", "describe", "rank_zero_output"]

if TYPE_CHECKING:
    from roughformer.runs import Columns

_TABLE, _TOKENS = "Columns of a table", "Tokens"
Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="Series: a .parquet of SeriesBatch.save, a long or wide .parquet/.csv table, .ts, "
        "WFDB (.hea or a directory), .edf.",
    ),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run, or of a model.")]
SeriesId = Annotated[
    str | None,
    typer.Option(
        help="Column with the series' id (default: by usual names).", rich_help_panel=_TABLE
    ),
]
Time = Annotated[
    str | None,
    typer.Option(help="Column with the time (default: by usual names).", rich_help_panel=_TABLE),
]
Channel = Annotated[
    str | None,
    typer.Option(help="Long table: column with the channel's name.", rich_help_panel=_TABLE),
]
Value = Annotated[
    str | None, typer.Option(help="Long table: column with the value.", rich_help_panel=_TABLE)
]
Channels = Annotated[
    str | None,
    typer.Option(
        help="Channels to take, e.g. HR,SpO2; of a wide table its columns (default: all that have "
        "no other role).",
        rich_help_panel=_TABLE,
    ),
]
Static = Annotated[
    str | None,
    typer.Option(
        help="Static covariates to use, e.g. age,weight; columns of a table or names in a .parquet "
        "(default: none).",
        rich_help_panel=_TABLE,
    ),
]
Labels = Annotated[
    Path | None,
    typer.Option(
        help="Table with one row for each series: its id and its target.", rich_help_panel=_TABLE
    ),
]
Target = Annotated[
    str | None,
    typer.Option(help="Column (or several: a,b), static covariate, or label (default: label)."),
]
Task = Annotated[
    str | None, typer.Option(help="classification or regression (default: by the target).")
]
Valid = Annotated[Path | None, typer.Option(help="Validation series (default: a part of DATA).")]
Group = Annotated[
    str | None,
    typer.Option(help="Column or covariate: no group is both trained on and validated on."),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="rformer; tempo for rates, per unit of time; or one that another package brings: "
        "of roughformer-paper transformer, gru, ode-rnn, neural-cde, neural-rde, state-space."
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads (default: as torch chooses).")]


Device = Annotated[str, typer.Option(help="cpu, cuda or mps.")]
Drop = Annotated[float, typer.Option(min=0, help="Share of each series' points to leave out.")]
Seed = Annotated[int, typer.Option(help="Seed of the dropping.")]


@dataclass(frozen=True)
class TableOptions:
    """Columns of a table that a model is applied to."""

    series_id: SeriesId = None
    time: Time = None
    channel: Channel = None
    value: Value = None

    def columns(self) -> "Columns":
        """What is given, as readers take it."""
        from roughformer.runs import Columns

        return Columns(self.series_id, self.time, self.channel, self.value)


@dataclass(frozen=True)
class FullTableOptions(TableOptions):
    """Columns of a table to learn from."""

    channels: Channels = None
    static: Static = None

    def columns(self) -> "Columns":
        """What is given, as readers take it."""
        names = words_of(self.channels) or None
        return replace(super().columns(), channels=names, static=words_of(self.static))


@dataclass(frozen=True)
class WindowOptions:
    """How series are cut into windows: one of three options."""

    windows: Annotated[
        int | None, typer.Option(min=1, help="Windows of a series.", rich_help_panel=_TOKENS)
    ] = None
    window_duration: Annotated[
        float | None,
        typer.Option(
            help="Or: duration of a window, in the unit of the times.", rich_help_panel=_TOKENS
        ),
    ] = None
    window_points: Annotated[
        int | None, typer.Option(min=1, help="Or: points of a window.", rich_help_panel=_TOKENS)
    ] = None

    @property
    def rule(self) -> Any:
        """The option that is given, as estimators take it; None if none is."""
        choices = (self.windows, self.window_duration, self.window_points)
        if sum(choice is not None for choice in choices) > 1:
            raise typer.BadParameter(
                "give one of them only", param_hint="--windows, --window-duration, --window-points"
            )
        if self.window_duration is not None:
            return {"duration": self.window_duration}
        return self.windows if self.window_points is None else {"points": self.window_points}


@dataclass(frozen=True)
class TargetOptions:
    """What is to be learnt, and from which files."""

    target: Target = None
    task: Task = None
    valid: Valid = None
    test: Annotated[Path | None, typer.Option(help="Test series, scored once, at the end.")] = None
    group: Group = None
    labels: Labels = None
    model: Model = None


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take options in groups: a parameter whose type is a dataclass stands for the
    options that are its fields.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in inspect.signature(command).parameters.values():
        kind = parameter.annotation
        if not is_dataclass(kind):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[parameter.name] = kind
        hints = get_type_hints(kind, include_extras=True)
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=hints[field.name],
            )
            for field in fields(kind)
        ]

    @wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def words_of(text: str | None) -> tuple[str, ...]:
    """``"a, b"`` -> ``("a", "b")``."""
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def numbers_of(text: str, option: str) -> list[float]:
    """``"0,0.5"`` -> numbers, or a usage error."""
    try:
        return [float(word) for word in words_of(text)]
    except ValueError:
        raise typer.BadParameter(f"expected comma-separated numbers, got {text!r}",
                                 param_hint=option) from None  # fmt: skip


def check_place(path: Path | None, option: str) -> None:
    """A file is written where a directory is; a slip in a path must not make a new one."""
    if path is not None and not path.parent.is_dir():
        from roughformer.errors import InputError

        raise InputError(
            f"{option}: there is no directory {str(path.parent)!r} to write {path.name!r} into; "
            "make it first, or choose another place"
        )


def say(text: str) -> None:
    """A line for people, on stderr: stdout is for results."""
    typer.echo(text, err=True)


class Interrupted(Exception):
    """The user pressed Ctrl-C; the text says how to go on."""


def describe(error: BaseException) -> tuple[str, int]:
    """``(line, exit code)``: 1 error in the input or data, 2 wrong usage, 130 interrupted."""
    line = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, Interrupted):
        return str(error), 130
    # An error of typer's parser, known by its form: versions of typer differ in whose click it is.
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        text = " ".join(str(error.format_message()).split())
        context = getattr(error, "ctx", None)
        command = "roughformer" if context is None else context.command_path
        return f"{text.rstrip('.')}; see: {command} --help", 2
    if isinstance(error, InputError | MissingDataError | CapacityError | CheckpointError):
        return line, 1
    if type(error).__module__.startswith("pydantic"):
        first = error.errors()[0]  # type: ignore[attr-defined]
        name = ".".join(str(part) for part in first["loc"])
        return f"{name}: {first['msg']}, got {first.get('input')!r}", 1
    if isinstance(error, OSError):
        name = "" if error.filename is None else f"{error.filename}: "
        return f"{name}{_system_error(error)}", 1
    if isinstance(error, MemoryError):
        return "there is not enough memory; take fewer series, windows or features", 1
    return (
        f"unexpected {type(error).__name__}: {line} (this is a bug, or a case nobody thought of; "
        "--debug shows where it comes from)"
    ), 1


def _system_error(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file; check the path"
    if isinstance(error, PermissionError):
        return "permission denied; check the rights, or choose another place"
    if isinstance(error, IsADirectoryError):
        return "this is a directory, a file is needed"
    if isinstance(error, FileExistsError | NotADirectoryError):
        return "a file is in the way; choose another place"
    return error.strerror or " ".join(str(error).split()) or type(error).__name__


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
