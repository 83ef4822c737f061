"""``roughformer reproduce``."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from roughformer.cli._options import say, words_of

__all__ = ["reproduce"]


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The experiment; --list names them.")
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="Name the experiments.")] = False,
    preset: Annotated[
        str, typer.Option(help="quick: minutes on 2 cores; full: as published; tiny: seconds.")
    ] = "quick",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each model (default: of the preset).")
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="Only these models, e.g. rformer,gru (default: all).")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=1, help="Budget of time of one training (default: of the preset)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory of the results (default: runs/NAME-PRESET).")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Directory with the real data (default: $ROUGHFORMER_DATA)."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Jobs at a time.")] = 1,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of a job (default: cores / workers).")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--again", help="Keep finished runs, or measure anew.")
    ] = True,
) -> None:
    """Run an experiment of the paper; interrupted ones go on where they stopped.

    Writes results.json (every number with its seed, configuration, machine, time and memory),
    plots and report.html, in which the paper's figures stand beside ours.
    """
    from roughformer.reproduce.catalogue import NAMES

    if list_all or name is None:
        for title, about in NAMES.items():
            typer.echo(f"{title:18}{about}")
        return
    if preset not in ("tiny", "quick", "full"):
        raise typer.BadParameter(f"quick, full or tiny, not {preset!r}", param_hint="--preset")
    from roughformer import reproduce as work
    from roughformer.reproduce.page import print_table

    experiment = work.experiment_of(name)
    chosen = words_of(models) or None
    unknown = [m for m in chosen or () if m not in experiment.models]
    if unknown:
        raise typer.BadParameter(
            f"{name} has no {', '.join(unknown)}; it has {', '.join(experiment.models)}",
            param_hint="--models",
        )
    if data is not None:
        os.environ["ROUGHFORMER_DATA"] = str(data)  # the processes of the jobs read it too
    wishes = work.Wishes(preset, seeds, chosen, seconds)  # type: ignore[arg-type]
    out = Path("runs") / f"{name}-{preset}" if out is None else out
    results = work.Results(out / "results.json", name, again=not resume)
    jobs = experiment.jobs(wishes)
    left = [job for job in jobs if results.get(job) is None]
    say(f"{experiment.title}: {len(jobs)} runs, {len(jobs) - len(left)} of them done before")
    _run(experiment, jobs, results, out, workers, threads, preset)
    keys = {work.key_of(job) for job in jobs}
    rows = [row for row in results.rows if row["key"] in keys]
    command = shlex.join(["roughformer", *sys.argv[1:]])
    page = work.write_page(experiment, rows, out, command)
    for table in page.tables:
        print_table(table)
    failed = [row for row in rows if "failed" in row]
    for row in failed:
        say(f"not run: {row['job']}: {row['failed']}")
    typer.echo(f"results: {out / 'results.json'}\nreport: {out / 'report.html'}")
    if failed:
        raise typer.Exit(1)


def _run(
    experiment: Any,
    jobs: list[Any],
    results: Any,
    out: Path,
    workers: int,
    threads: int | None,
    preset: str,
) -> None:
    """All jobs that are left, with a bar; Ctrl-C leaves what is done."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from roughformer import reproduce as work
    from roughformer.cli._errors import Interrupted

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    each = threads or max(cores // workers, 1)
    look = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )  # fmt: skip
    with Progress(*look, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(experiment.name, total=len(jobs))
        bar.update(task, completed=sum(results.get(job) is not None for job in jobs))

        def told(job: Any, row: Any, done: int, every: int) -> None:
            bar.update(task, completed=done)
            words = ", ".join(str(v) for v in job.values() if isinstance(v, str | int | float))
            state = row["failed"] if "failed" in row else f"{row['seconds']:.0f} s"
            say(f"[{done}/{every}] {words}: {state}")

        try:
            work.run_jobs(
                experiment, jobs, results, out / "work", workers=workers, threads=each, told=told,
                in_process=preset == "tiny",
            )  # fmt: skip
        except KeyboardInterrupt:
            raise Interrupted(
                f"interrupted; finished runs are in {out}: the same command goes on"
            ) from None
