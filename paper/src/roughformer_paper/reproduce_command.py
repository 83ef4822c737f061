"""``roughformer reproduce``."""

import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

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
    only: Annotated[
        str | None,
        typer.Option(help="Only runs with these fields, e.g. protocol=patient,drop=0.5."),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1, help="Budget of processor time of one training (default: of the preset)."
        ),
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
        int | None,
        typer.Option(
            min=1, help="Threads of a job (default: $OMP_NUM_THREADS or cores / workers)."
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--again", help="Keep finished runs, or measure those asked for anew."
        ),
    ] = True,
) -> None:
    """Run an experiment of the paper; interrupted ones go on where they stopped.

    Writes results.json (every number with its seed, configuration, machine, time and memory),
    plots and report.html, in which the paper's figures stand beside ours.
    """
    from roughformer_paper.reproduce.catalogue import NAMES

    if list_all or name is None:
        for title, about in NAMES.items():
            typer.echo(f"{title:18}{about}")
        return
    if preset not in ("tiny", "quick", "full"):
        raise typer.BadParameter(f"quick, full or tiny, not {preset!r}", param_hint="--preset")
    out = Path("runs") / f"{name}-{preset}" if out is None else out
    with _interruptible(out, again=not resume):
        from roughformer_paper import reproduce as work

        experiment = work.experiment_of(name)
        chosen = tuple(dict.fromkeys(words_of(models))) or None
        unknown = [m for m in chosen or () if m not in experiment.models]
        if unknown:
            raise typer.BadParameter(
                f"{name} has no {', '.join(unknown)}; it has {', '.join(experiment.models)}",
                param_hint="--models",
            )
        if data is not None:
            os.environ["ROUGHFORMER_DATA"] = str(data)  # the processes of the jobs read it too
        wishes = work.Wishes(preset, seeds, chosen, seconds)  # type: ignore[arg-type]
        try:
            jobs = work.only_those(experiment.jobs(wishes), words_of(only))
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--only") from None
        results = work.Results(out / "results.json", name)
        failed = _run(experiment, jobs, results, out, workers, threads, preset, again=not resume)
        _tell(experiment, wishes, results, out)
    if failed:
        say(
            f"{len(failed)} of {len(jobs)} runs failed, as told above; the same command tries again"
        )
        raise typer.Exit(1)


def _run(
    experiment: Any,
    jobs: list[Any],
    results: Any,
    out: Path,
    workers: int,
    threads: int | None,
    preset: str,
    again: bool,
) -> list[Any]:
    """All jobs that are left, with a bar; the rows that failed."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from roughformer_paper import reproduce as work

    before = 0 if again else sum(results.get(job) is not None for job in jobs)
    say(f"{experiment.title}: {len(jobs)} runs, {before} of them done before")
    if experiment.timed and workers > 1:
        say(
            f"warning: {experiment.name} measures times, and {workers} jobs at a time disturb each "
            "other; use --workers 1 for figures that mean something"
        )
    look = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )  # fmt: skip
    with Progress(*look, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(experiment.name, total=len(jobs))
        bar.update(task, completed=before)

        def told(job: Any, row: Any, done: int, every: int) -> None:
            bar.update(task, completed=done)
            words = work.words_of_job(job)
            state = f"failed: {row['failed']}" if "failed" in row else f"{row['seconds']:.0f} s"
            say(f"[{done}/{every}] {words}: {state}")

        return work.run_jobs(
            experiment, jobs, results, out / "work", workers=workers,
            threads=threads or _usual_threads(workers),
            told=told, in_process=preset == "tiny", again=again,
        )  # fmt: skip


def _tell(experiment: Any, wishes: Any, results: Any, out: Path) -> None:
    """Write plots and report, and print the tables."""
    from roughformer_paper import reproduce as work
    from roughformer_paper.reproduce.page import print_table

    command = shlex.join(["roughformer", *sys.argv[1:]])
    rows = work.selected(experiment, wishes, results.rows)
    for table in work.write_page(experiment, rows, out, command).tables:
        print_table(table)
    typer.echo(f"results: {out / 'results.json'}\nreport: {out / 'report.html'}")


def _usual_threads(workers: int) -> int:
    """What the environment says, or else an equal share of the cores."""
    wished = os.environ.get("OMP_NUM_THREADS", "")
    if wished.isdecimal() and int(wished) > 0:
        return int(wished)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return max(cores // workers, 1)


def say(text: str) -> None:
    """A line for people, on stderr: stdout is for results."""
    typer.echo(text, err=True)


def words_of(text: str | None) -> tuple[str, ...]:
    """``"a, b"`` -> ``("a", "b")``."""
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


@contextlib.contextmanager
def _interruptible(out: Path, again: bool) -> Iterator[None]:
    """Ctrl-C and SIGTERM alike: processes are ended, and the last words say how to go on."""
    from roughformer.cli import Interrupted

    goes_on = "begins anew; without --again it keeps what is done" if again else "goes on"
    try:
        with _terminated_as_interrupted():
            yield
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; finished runs are in {out}: the same command {goes_on}"
        ) from None


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM is as Ctrl-C."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    usual = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, usual)
