"""Options that several commands share; nothing heavy is imported here."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from roughformer.cli._columns import Columns

__all__ = [
    "Channel",
    "Channels",
    "Data",
    "Group",
    "Labels",
    "Model",
    "Run",
    "SeriesId",
    "Static",
    "Target",
    "Task",
    "Threads",
    "Time",
    "Valid",
    "Value",
    "check_place",
    "columns_of",
    "numbers_of",
    "say",
    "windows_of",
    "words_of",
]

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


def words_of(text: str | None) -> tuple[str, ...]:
    """``"a, b"`` -> ``("a", "b")``."""
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def numbers_of(text: str, option: str) -> list[float]:
    """``"0,0.5"`` -> numbers, or a usage error."""
    try:
        return [float(word) for word in words_of(text)]
    except ValueError:
        raise typer.BadParameter(f"numbers parted by commas are needed, got {text!r}",
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
    from roughformer.cli._columns import Columns

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
