"""``roughformer train`` and ``roughformer tune``."""

import shlex
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from roughformer.cli import common as options

__all__ = ["train", "tune"]

_TOKENS, _TRAINING, _RUN = "Tokens", "Model and training", "The run"


def _option(text: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


@dataclass(frozen=True)
class TokenFlags(options.WindowOptions):
    """Parameters of the tokens that have an option of their own."""

    depth: Annotated[int | None, _option("Depth of the signatures.", _TOKENS, min=1)] = None
    views: Annotated[str | None, _option("global, local, or both: global,local.", _TOKENS)] = None


@dataclass(frozen=True)
class TrainingFlags:
    """Parameters of model and training that have an option of their own."""

    causal: Annotated[
        bool | None, _option("Predict at every window from the past only.", _TRAINING)
    ] = None
    uncertainty: Annotated[
        str | None, _option("Of a regression: none, gaussian or quantile.", _TRAINING)
    ] = None
    drop: Annotated[
        str | None,
        _option("Share of points dropped while training, or a range: 0,0.7.", _TRAINING),
    ] = None
    epochs: Annotated[int | None, _option("Maximum number of epochs.", _TRAINING, min=1)] = None
    batch_size: Annotated[int | None, _option("Series in a step.", _TRAINING, min=1)] = None
    learning_rate: Annotated[float | None, _option("Highest rate.", _TRAINING)] = None
    validation: Annotated[
        float | None, _option("Share of DATA held out for validation.", _TRAINING)
    ] = None
    metric: Annotated[str | None, _option("What chooses the best epoch.", _TRAINING)] = None
    seed: Annotated[
        int | None, _option("The same seed gives the same model (default: 0).", _TRAINING)
    ] = None
    assignments: Annotated[
        list[str] | None,
        _option(
            "Any other parameter of the estimator: tokens.clock=8, training.patience=5; may be "
            "repeated.",
            _TRAINING,
            "--set",
        ),
    ] = None


@dataclass(frozen=True)
class RunFlags:
    """Where and how the training runs."""

    device: Annotated[str | None, _option("auto, cpu, cuda or mps.", _RUN)] = None
    threads: options.Threads = None
    resume: Annotated[bool, _option("Go on where a killed run stopped.", _RUN, "--resume")] = False
    force: Annotated[bool, _option("Replace the run in the directory.", _RUN, "--force")] = False
    no_plots: Annotated[
        bool, _option("A report without pictures, made faster.", _RUN, "--no-plots")
    ] = False
    quiet: Annotated[bool, _option("Print nothing but errors.", _RUN, "--quiet", "-q")] = False


@options.grouped
def train(
    data: options.Data,
    what: options.TargetOptions,
    table: options.FullTableOptions,
    tokens: TokenFlags,
    training: TrainingFlags,
    run: RunFlags,
    out: Annotated[
        Path | None, typer.Option(help="Directory of the run (default: runs/NAME).")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file with parameters of the estimator; flags override it."),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="default or paper; FILE overrides it.")] = None,
) -> None:
    """Learn from labelled series; writes a run with model, metrics, plots and report.html.

    Continue a killed run with the same command and --resume. Several processes, on one machine or
    more: torchrun --nproc-per-node=2 -m roughformer train ...
    """
    from roughformer.runs import TrainingRequest, parse_assignments, run_training

    flags: dict[str, Any] = {
        "windows": tokens.rule,
        "depth": tokens.depth,
        "views": options.words_of(tokens.views) or None,
        "causal": training.causal,
        "uncertainty": training.uncertainty,
        "drop": None if training.drop is None else _drop(training.drop),
        "epochs": training.epochs,
        "batch_size": training.batch_size,
        "learning_rate": training.learning_rate,
        "validation": training.validation,
        "metric": training.metric,
        "random_state": training.seed,
        "device": run.device,
        "n_jobs": run.threads,
        "static": options.words_of(table.static) or None,
    }
    flags = {name: v for name, v in flags.items() if v is not None}
    out = Path("runs") / data.name.split(".")[0] if out is None else out
    request = TrainingRequest(
        data=data,
        out=out,
        columns=replace(table.columns(), static=()),
        **asdict(what),
        preset=preset,
        config=config,
        flags=parse_assignments(training.assignments or []) | flags,
        resume=run.resume,
        force=run.force,
        quiet=run.quiet,
        plots=not run.no_plots,
        command=shlex.join(["roughformer", *sys.argv[1:]]),
    )
    try:
        with options.rank_zero_output():
            summary = run_training(request)
    except KeyboardInterrupt:
        some = any(out.glob("state")) or any(out.glob("member-*/state"))
        state = "the last epoch's state is" if some else "no epoch was"
        raise options.Interrupted(
            f"interrupted; {state} saved in {out}: the same command with --resume continues"
        ) from None
    if summary and not run.quiet:
        _print(summary, out)


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
    from roughformer.runs import TrainingRequest, TuningRequest, parse_assignments, run_tuning
    from roughformer.tune import PRUNERS

    if search.pruner not in PRUNERS:
        raise typer.BadParameter(
            f"{', '.join(PRUNERS)}, not {search.pruner!r}", param_hint="--pruner"
        )
    flags: dict[str, Any] = {
        "epochs": search.epochs,
        "metric": search.metric,
        "random_state": search.seed,
        "static": options.words_of(table.static) or None,
    }
    flags = {name: v for name, v in flags.items() if v is not None}
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
