"""Options that several commands share, one by one and in groups; nothing heavy is imported."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from roughformer.runs import Columns

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
        return columns_of(self.series_id, self.time, self.channel, self.value, None)


@dataclass(frozen=True)
class FullTableOptions(TableOptions):
    """Columns of a table to learn from."""

    channels: Channels = None
    static: Static = None

    def columns(self) -> "Columns":
        """What is given, as readers take it."""
        return columns_of(
            self.series_id, self.time, self.channel, self.value, self.channels, self.static
        )


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


def windows_of(count: int | None, duration: float | None, points: int | None) -> Any:
    """The one of three options that is given, as estimators take it."""
    if sum(wish is not None for wish in (count, duration, points)) > 1:
        raise typer.BadParameter(
            "give one of them only", param_hint="--windows, --window-duration, --window-points"
        )
    if duration is not None:
        return {"duration": duration}
    return count if points is None else {"points": points}


def columns_of(
    series_id: str | None,
    time: str | None,
    channel: str | None,
    value: str | None,
    channels: str | None,
    static: str | None = None,
) -> "Columns":
    """The options as one object."""
    from roughformer.runs import Columns

    names = words_of(channels) or None
    return Columns(series_id, time, channel, value, names, words_of(static))


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
