"""``roughformer tune``."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from roughformer.cli import _options as options

__all__ = ["tune"]

_SEARCH, _WHERE = "The search", "Where trials run"


def _option(text: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


def tune(
    data: options.Data,
    out: Annotated[Path, typer.Option(help="Directory of the search; it goes on from there.")],
    target: options.Target = None,
    task: options.Task = None,
    valid: options.Valid = None,
    test: Annotated[
        Path | None, typer.Option(help="Test series, scored once, at the end, with the winner.")
    ] = None,
    group: options.Group = None,
    labels: options.Labels = None,
    series_id: options.SeriesId = None,
    time: options.Time = None,
    channel: options.Channel = None,
    value: options.Value = None,
    channels: options.Channels = None,
    static: options.Static = None,
    trials: Annotated[int, _option("Trials in all.", _SEARCH, min=1)] = 30,
    space: Annotated[
        Path | None,
        _option("TOML file with choices and ranges (default: by the data).", _SEARCH),
    ] = None,
    config: Annotated[
        Path | None,
        _option("TOML file with settings: of the first trial, and what is not searched.", _SEARCH),
    ] = None,
    preset: Annotated[str | None, _option("default or paper.", _SEARCH)] = None,
    model: options.Model = None,
    assignments: Annotated[
        list[str] | None,
        _option("Fix a parameter: tokens.clock=8; may be repeated.", _SEARCH, "--set"),
    ] = None,
    epochs: Annotated[
        int | None, _option("At most so many epochs a trial.", _SEARCH, min=1)
    ] = None,
    metric: Annotated[str | None, _option("What is searched for, on validation.", _SEARCH)] = None,
    pruner: Annotated[
        str, _option("Who stops poor trials early: median, hyperband or none.", _SEARCH)
    ] = "median",
    seed: Annotated[
        int | None, _option("The same seed gives the same search (default: 0).", _SEARCH)
    ] = None,
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
    from roughformer.cli._requests import TrainingRequest
    from roughformer.cli._settings import parse_assignments
    from roughformer.cli._tuning import TuningRequest, run_tuning
    from roughformer.tune import PRUNERS

    if pruner not in PRUNERS:
        raise typer.BadParameter(f"{', '.join(PRUNERS)}, not {pruner!r}", param_hint="--pruner")
    said: dict[str, Any] = {
        "epochs": epochs,
        "metric": metric,
        "random_state": seed,
        "static": options.words_of(static) or None,
    }
    flags = {name: v for name, v in said.items() if v is not None}
    training = TrainingRequest(
        data=data,
        out=out / "best",
        columns=options.columns_of(series_id, time, channel, value, channels),
        target=target,
        task=task,
        preset=preset,
        model=model,
        group=group,
        labels=labels,
        valid=valid,
        test=test,
        config=config,
        flags=parse_assignments(assignments or []) | flags,
        quiet=quiet,
        plots=not no_plots,
        command=shlex.join(["roughformer", *sys.argv[1:]]),
    )
    request = TuningRequest(training, out, trials, space, pruner, workers, threads, resume)
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
