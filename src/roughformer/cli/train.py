"""``roughformer train`` and ``roughformer tune``."""

import shlex
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from roughformer.cli import common as options
from roughformer.cli.common import option

if TYPE_CHECKING:
    from roughformer.runs import TrainingRequest


@dataclass(frozen=True)
class TokenFlags(options.WindowOptions):
    """Parameters of the tokens that have an option of their own."""

    depth: Annotated[int | None, option("Depth of the signatures.", min=1)] = None
    views: Annotated[str | None, option("global, local, or both: global,local.")] = None


@dataclass(frozen=True)
class TrainingFlags:
    """Parameters of model and training that have an option of their own."""

    panel: ClassVar = "Model and training"
    causal: Annotated[bool | None, option("Predict at every window from the past only.")] = None
    uncertainty: Annotated[str | None, option("Of a regression: none, gaussian or quantile.")] = (
        None
    )
    drop: Annotated[
        str | None, option("Share of points dropped while training, or a range: 0,0.7.")
    ] = None
    epochs: Annotated[int | None, option("Maximum number of epochs.", min=1)] = None
    batch_size: Annotated[int | None, option("Series in a step.", min=1)] = None
    learning_rate: Annotated[float | None, option("Highest rate.")] = None
    validation: Annotated[float | None, option("Share of DATA held out for validation.")] = None
    metric: Annotated[str | None, option("What chooses the best epoch.")] = None
    seed: Annotated[int | None, option("The same seed gives the same model (default: 0).")] = None
    assignments: Annotated[
        list[str] | None,
        option(
            "Any other parameter of the estimator: tokens.clock=8, training.patience=5; may be "
            "repeated.",
            "--set",
        ),
    ] = None


@dataclass(frozen=True)
class RunFlags:
    """Where and how the training runs."""

    panel: ClassVar = "The run"
    device: Annotated[str | None, option("auto, cpu, cuda or mps.")] = None
    threads: options.Threads = None
    resume: Annotated[bool, option("Go on where a killed run stopped.", "--resume")] = False
    force: Annotated[bool, option("Replace the run in the directory.", "--force")] = False
    no_plots: Annotated[bool, option("A report without pictures, made faster.", "--no-plots")] = (
        False
    )
    quiet: Annotated[bool, option("Print nothing but errors.", "--quiet", "-q")] = False


@options.grouped
def train(
    data: options.Data,
    what: options.TargetOptions,
    table: options.FullTableOptions,
    tokens: TokenFlags,
    training: TrainingFlags,
    run: RunFlags,
    out: Annotated[Path | None, option("Directory of the run (default: runs/NAME).")] = None,
    config: Annotated[
        Path | None, option("TOML file with parameters of the estimator; flags override it.")
    ] = None,
    preset: Annotated[str | None, option("default or paper; FILE overrides it.")] = None,
) -> None:
    """Learn from labelled series; writes a run with model, metrics, plots and report.html.

    Continue a killed run with the same command and --resume.
    """
    from roughformer.runs import run_training

    chosen = asdict(training)
    assignments, seed = chosen.pop("assignments"), chosen.pop("seed")
    flags = chosen | {
        "windows": tokens.rule,
        "depth": tokens.depth,
        "views": options.words_of(tokens.views) or None,
        "drop": None if training.drop is None else _drop(training.drop),
        "random_state": seed,
        "device": run.device,
        "n_jobs": run.threads,
    }
    out = Path("runs") / data.name.split(".")[0] if out is None else out
    request = _request(
        data, what, table, flags, assignments, out=out, preset=preset, config=config,
        resume=run.resume, force=run.force, quiet=run.quiet, plots=not run.no_plots,
    )  # fmt: skip
    try:
        summary = run_training(request)
    except KeyboardInterrupt:
        saved = any(out.glob("state")) or any(out.glob("member-*/state"))
        state = "the last epoch's state is" if saved else "no epoch was"
        raise options.Interrupted(
            f"interrupted; {state} saved in {out}: the same command with --resume continues"
        ) from None
    if not run.quiet:
        _print(summary, out)


def _request(
    data: Path,
    what: options.TargetOptions,
    table: options.FullTableOptions,
    flags: dict[str, Any],
    assignments: list[str] | None,
    **of_run: Any,
) -> "TrainingRequest":
    from roughformer.runs import TrainingRequest, parse_assignments

    flags["static"] = options.words_of(table.static) or None
    given = {name: value for name, value in flags.items() if value is not None}
    return TrainingRequest(
        data=data,
        columns=replace(table.columns(), static=()),
        **asdict(what),
        flags=parse_assignments(assignments or []) | given,
        command=shlex.join(["roughformer", *sys.argv[1:]]),
        **of_run,
    )


def _drop(text: str) -> Any:
    numbers = options.numbers_of(text, "--drop")
    if len(numbers) not in (1, 2):
        raise typer.BadParameter("a share or a range such as 0,0.7", param_hint="--drop")
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def _print(summary: dict[str, Any], out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    rows = {part: summary[part] for part in ("validation", "test") if part in summary}
    yardsticks = summary.get("yardsticks", {})
    rows |= {name: row for name, row in yardsticks.items() if name != "model"}
    if rows:
        title = "validation: series left out in turn"
        if "best_epoch" in summary:
            title = f"best epoch {summary['best_epoch']} of {summary['epochs']}"
        table = Table(title=title)
        table.add_column("")
        names = list(dict.fromkeys(name for row in rows.values() for name in row))
        for name in names:
            table.add_column(name.replace("_", " "), justify="right")
        for part, row in rows.items():
            shown = (row.get(name) for name in names)
            table.add_row(part, *("" if x is None else f"{x:.4g}" for x in shown))
        console.print(table)
    if yardsticks:
        typer.echo(summary["verdict"])
    typer.echo(f"run: {out}\nreport: {out / 'report.html'}")


_SEARCH, _WHERE = "The search", "Where trials run"


@dataclass(frozen=True)
class SearchFlags:
    """What is searched, and how."""

    panel: ClassVar = _SEARCH
    trials: Annotated[int, option("Trials in all.", min=1)] = 30
    space: Annotated[
        Path | None, option("TOML file with choices and ranges (default: by the data).")
    ] = None
    config: Annotated[
        Path | None,
        option("TOML file with settings: of the first trial, and what is not searched."),
    ] = None
    preset: Annotated[str | None, option("default or paper.")] = None
    assignments: Annotated[
        list[str] | None, option("Fix a parameter: tokens.clock=8; may be repeated.", "--set")
    ] = None
    epochs: Annotated[int | None, option("Maximum number of epochs of a trial.", min=1)] = None
    metric: Annotated[str | None, option("What is searched for, on validation.")] = None
    pruner: Annotated[str, option("Who stops poor trials early: median, hyperband or none.")] = (
        "median"
    )
    seed: Annotated[int | None, option("The same seed gives the same search (default: 0).")] = None


@options.grouped
def tune(
    data: options.Data,
    what: options.TargetOptions,
    table: options.FullTableOptions,
    search: SearchFlags,
    out: Annotated[Path, option("Directory of the search; it goes on from there.")],
    workers: Annotated[int, option("Trials at a time.", panel=_WHERE, min=1)] = 1,
    threads: Annotated[
        int | None, option("Threads of a trial (default: cores / workers).", panel=_WHERE, min=1)
    ] = None,
    resume: Annotated[
        bool, option("Go on where a killed search stopped.", "--resume", panel=_SEARCH)
    ] = False,
    no_plots: Annotated[
        bool, option("Reports without pictures, made faster.", "--no-plots", panel=_SEARCH)
    ] = False,
    quiet: Annotated[
        bool, option("Print nothing but errors.", "--quiet", "-q", panel=_SEARCH)
    ] = False,
) -> None:
    """Search for the settings that validate best; writes best.toml, the trained winner in best/,
    all trials and report.html.

    Continue a killed search with the same command and --resume; with more --trials it goes further.
    """
    from roughformer.runs import TuningRequest, run_tuning
    from roughformer.tune import PRUNERS

    if search.pruner not in PRUNERS:
        raise typer.BadParameter(
            f"{', '.join(PRUNERS)}, not {search.pruner!r}", param_hint="--pruner"
        )
    flags = {"epochs": search.epochs, "metric": search.metric, "random_state": search.seed}
    training = _request(
        data, what, table, flags, search.assignments, out=out / "best", preset=search.preset,
        config=search.config, quiet=quiet, plots=not no_plots,
    )  # fmt: skip
    request = TuningRequest(
        training, out, search.trials, search.space, search.pruner, workers, threads, resume
    )
    try:
        best = run_tuning(request)
    except KeyboardInterrupt:
        raise options.Interrupted(
            f"interrupted; what is done is in {out}: the same command with --resume continues"
        ) from None
    if not quiet:
        _print_best(best, out)


def _print_best(best: dict[str, Any], out: Path) -> None:
    typer.echo(f"best: trial {best['trial']}, validation {best['metric']} {best['score']:.4g}")
    for name, value in best["parameters"].items():
        typer.echo(f"  {name.replace('__', '.')} = {value}")
    for name, value in best["test"].items():
        typer.echo(f"test {name.replace('_', ' ')}: {value:.4g}")
    typer.echo(
        f"settings: {out / 'best.toml'}\nmodel: {out / 'best'}\nreport: {out / 'report.html'}"
    )
