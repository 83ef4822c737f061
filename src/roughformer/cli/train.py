"""``roughformer train``."""

import shlex
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from roughformer.cli import _options as options

__all__ = ["train"]

_TOKENS, _TRAINING, _RUN = "Tokens", "Model and training", "The run"


def _option(text: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


@dataclass(frozen=True)
class TokenFlags:
    """Parameters of the tokens that have an option of their own."""

    windows: Annotated[int | None, _option("Windows of a series.", _TOKENS, min=1)] = None
    window_duration: Annotated[
        float | None, _option("Or: duration of a window, in the unit of the times.", _TOKENS)
    ] = None
    window_points: Annotated[int | None, _option("Or: points of a window.", _TOKENS, min=1)] = None
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
    from roughformer.cli._errors import Interrupted, rank_zero_output
    from roughformer.runs import TrainingRequest, parse_assignments, run_training

    flags: dict[str, Any] = {
        "windows": options.windows_of(tokens.windows, tokens.window_duration, tokens.window_points),
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
        with rank_zero_output():
            summary = run_training(request)
    except KeyboardInterrupt:
        some = any(out.glob("state")) or any(out.glob("member-*/state"))
        state = "the last epoch's state is" if some else "no epoch was"
        raise Interrupted(
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
