"""What commands share: options, one by one and in groups, and errors as one line."""

import inspect
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer

from roughformer.errors import CapacityError, CheckpointError, InputError, MissingDataError

if TYPE_CHECKING:
    from roughformer.runs import Columns


def option(text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """An option of a command: ``text`` says what it is for."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


_TABLE = "Columns of a table"
Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="Series: a .parquet of SeriesBatch.save, a long or wide .parquet/.csv table, .ts, "
        "WFDB (.hea or a directory), .edf.",
    ),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run, or of a model.")]
Labels = Annotated[
    Path | None, option("Table with one row for each series: its id and its target.", panel=_TABLE)
]
Threads = Annotated[int | None, option("Threads (default: as torch chooses).", min=1)]
Device = Annotated[str, option("cpu, cuda or mps.")]
Drop = Annotated[float, option("Share of each series' points to leave out.", min=0)]
Seed = Annotated[int, option("Seed of the dropping.")]


@dataclass(frozen=True)
class TableOptions:
    """Columns of a table that a model is applied to."""

    panel: ClassVar = _TABLE
    series_id: Annotated[
        str | None, option("Column with the series' id (default: by usual names).")
    ] = None
    time: Annotated[str | None, option("Column with the time (default: by usual names).")] = None
    channel: Annotated[str | None, option("Long table: column with the channel's name.")] = None
    value: Annotated[str | None, option("Long table: column with the value.")] = None

    def columns(self) -> "Columns":
        """What is given, as readers take it."""
        from roughformer.runs import Columns

        return Columns(self.series_id, self.time, self.channel, self.value)


@dataclass(frozen=True)
class FullTableOptions(TableOptions):
    """Columns of a table to learn from."""

    channels: Annotated[
        str | None,
        option(
            "Channels to take, e.g. HR,SpO2; of a wide table its columns (default: all that have "
            "no other role)."
        ),
    ] = None
    static: Annotated[
        str | None,
        option(
            "Static covariates to use, e.g. age,weight; columns of a table or names in a .parquet "
            "(default: none)."
        ),
    ] = None

    def columns(self) -> "Columns":
        """What is given, as readers take it."""
        names = words_of(self.channels) or None
        return replace(super().columns(), channels=names, static=words_of(self.static))


@dataclass(frozen=True)
class WindowOptions:
    """How series are cut into windows: one of three options."""

    panel: ClassVar = "Tokens"
    windows: Annotated[int | None, option("Windows of a series.", min=1)] = None
    window_duration: Annotated[
        float | None, option("Or: duration of a window, in the unit of the times.")
    ] = None
    window_points: Annotated[int | None, option("Or: points of a window.", min=1)] = None

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

    target: Annotated[
        str | None, option("Column (or several: a,b), static covariate, or label (default: label).")
    ] = None
    task: Annotated[
        str | None, option("classification or regression (default: by the target).")
    ] = None
    valid: Annotated[Path | None, option("Validation series (default: a part of DATA).")] = None
    test: Annotated[Path | None, option("Test series, scored once, at the end.")] = None
    group: Annotated[
        str | None, option("Column or covariate: no group is both trained on and validated on.")
    ] = None
    labels: Labels = None
    model: Annotated[
        str | None,
        option(
            "rformer; tempo for rates, per unit of time; or one that another package brings: "
            "of roughformer-paper transformer, gru, ode-rnn, neural-cde, neural-rde, state-space."
        ),
    ] = None


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take options in groups: a parameter whose type is a dataclass stands for the
    options that are its fields, which ``--help`` shows in the panel that the class names.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    keyword = inspect.Parameter.KEYWORD_ONLY
    for parameter in inspect.signature(command).parameters.values():
        kind = parameter.annotation
        if not is_dataclass(kind):
            parameters.append(parameter.replace(kind=keyword))
            continue
        groups[parameter.name] = kind
        hints = get_type_hints(kind, include_extras=True)
        for field in fields(kind):
            hint = _in_panel(hints[field.name], getattr(kind, "panel", None))
            parameters.append(
                inspect.Parameter(field.name, keyword, default=field.default, annotation=hint)
            )

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


def _in_panel(hint: Any, panel: str | None) -> Any:
    info = copy(hint.__metadata__[0])
    info.rich_help_panel = info.rich_help_panel or panel
    return Annotated[hint.__origin__, info]


def words_of(text: str | None) -> tuple[str, ...]:
    """``"a, b"`` -> ``("a", "b")``."""
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def numbers_of(text: str, name: str) -> list[float]:
    """``"0,0.5"`` -> numbers, or a usage error."""
    try:
        return [float(word) for word in words_of(text)]
    except ValueError:
        raise typer.BadParameter(f"expected comma-separated numbers, got {text!r}",
                                 param_hint=name) from None  # fmt: skip


def check_place(path: Path | None, name: str) -> None:
    """A file is written where a directory is; a slip in a path must not make a new one."""
    if path is not None and not path.parent.is_dir():
        raise InputError(
            f"{name}: there is no directory {str(path.parent)!r} to write {path.name!r} into; "
            "make it first, or choose another place"
        )


def check_free(paths: Iterable[Path], force: bool) -> None:
    """Refuse to replace files without --force."""
    for file in paths:
        if file.is_dir():
            raise InputError(f"--out: {str(file)!r} is a directory; choose another name")
        if file.exists() and not force:
            raise InputError(
                f"{str(file)!r} exists; replace it with --force, or choose another place with --out"
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
