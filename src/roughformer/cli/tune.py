"""``roughformer tune``."""

import shlex
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from roughformer.cli import _options as options

__all__ = ["tune"]

_SEARCH, _WHERE = "The search", "Where trials run"


def _option(text: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


@dataclass(frozen=True)
class SearchFlags:
    """What is searched, and how."""

    trials: Annotated[int, _option("Trials in all.", _SEARCH, min=1)] = 30
    space: Annotated[
        Path | None,
        _option("TOML file with choices and ranges (default: by the data).", _SEARCH),
    ] = None
    config: Annotated[
        Path | None,
        _option("TOML file with settings: of the first trial, and what is not searched.", _SEARCH),
    ] = None
    preset: Annotated[str | None, _option("default or paper.", _SEARCH)] = None
    assignments: Annotated[
        list[str] | None,
        _option("Fix a parameter: tokens.clock=8; may be repeated.", _SEARCH, "--set"),
    ] = None
    epochs: Annotated[
        int | None, _option("Maximum number of epochs of a trial.", _SEARCH, min=1)
    ] = None
    metric: Annotated[str | None, _option("What is searched for, on validation.", _SEARCH)] = None
    pruner: Annotated[
        str, _option("Who stops poor trials early: median, hyperband or none.", _SEARCH)
    ] = "median"
    seed: Annotated[
        int | None, _option("The same seed gives the same search (default: 0).", _SEARCH)
    ] = None


@options.grouped
def tune(
    data: options.Data,
    what: options.TargetOptions,
    table: options.FullTableOptions,
    search: SearchFlags,
    out: Annotated[Path, typer.Option(help="Directory of the search; it goes on from there.")],
    workers: Annotated[int, _option("Trials at a time.", _WHERE, min=1)] = 1,
    threads: Annotated[
        int | None, _option("Threads of a trial (default: cores / workers).", _WHERE, min=1)
    ] = None,
    resume: Annotated[
        bool, _option("Go on where a killed search stopped.", _SEARCH, "--resume")
    ] = False,
    no_plots: Annotated[
        bool, _option("Reports without pictures, made faster.", _SEARCH, "--no-plots")
    ] = False,
    quiet: Annotated[bool, _option("Print nothing but errors.", _SEARCH, "--quiet", "-q")] = False,
) -> None:
    """Search for the settings that validate best; writes best.toml, the trained winner in best/,
    all trials and report.html.

    Continue a killed search with the same command and --resume; with more --trials it goes further.
    """
    from roughformer.cli._errors import Interrupted
    from roughformer.runs import TrainingRequest, TuningRequest, parse_assignments, run_tuning
    from roughformer.tune import PRUNERS

    if search.pruner not in PRUNERS:
        raise typer.BadParameter(
            f"{', '.join(PRUNERS)}, not {search.pruner!r}", param_hint="--pruner"
        )
    said: dict[str, Any] = {
        "epochs": search.epochs,
        "metric": search.metric,
        "random_state": search.seed,
        "static": options.words_of(table.static) or None,
    }
    flags = {name: v for name, v in said.items() if v is not None}
    training = TrainingRequest(
        data=data,
        out=out / "best",
        columns=replace(table.columns(), static=()),
        **asdict(what),
        preset=search.preset,
        config=search.config,
        flags=parse_assignments(search.assignments or []) | flags,
        quiet=quiet,
        plots=not no_plots,
        command=shlex.join(["roughformer", *sys.argv[1:]]),
    )
    request = TuningRequest(
        training, out, search.trials, search.space, search.pruner, workers, threads, resume
    )
    try:
        best = run_tuning(request)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; what is done is in {out}: the same command with --resume continues"
        ) from None
    if not quiet:
        _print(best, out)


def _print(best: dict[str, Any], out: Path) -> None:
    typer.echo(f"best: trial {best['trial']}, validation {best['metric']} {best['score']:.4g}")
    for name, value in best["parameters"].items():
        typer.echo(f"  {name.replace('__', '.')} = {value}")
    for name, value in best["test"].items():
        typer.echo(f"test {name.replace('_', ' ')}: {value:.4g}")
    typer.echo(
        f"settings: {out / 'best.toml'}\nmodel: {out / 'best'}\nreport: {out / 'report.html'}"
    )
