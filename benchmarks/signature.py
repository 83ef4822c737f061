"""Speed of multi-view signatures beside other libraries and beside the memory bandwidth.

Every contender computes the same tokens ``(B, 75, features)``: global and local signatures over 75
windows, float32. They take turns for several rounds; the median counts. See ``_pysiglib.py`` for
how the peers are used. `make bench`, or

    .venv/bin/python benchmarks/signature.py --json results.json --tasks sine,hr --plot speed.png
"""

import argparse
import gc
import json
import platform
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _contender import Build, Contender, Run, Skip, threads
from _contenders import contenders
from _markdown import write_page
from _memory import available, measure_peaks, peak_of, peaks_in_subprocess
from _plot import plot
from _reference import max_relative_error, reference, sample
from _report import print_targets, print_task
from _tasks import TASKS, Task, make_problem
from _timing import first_look, interleaved
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import roughformer as rf


@dataclass
class Entry:
    """A usage of a contender that takes part in the rounds."""

    contender: Contender
    usage: str
    run: Run
    guess: float
    result: Any = None
    error: float | None = None


# Their input or output is not the task's, so "beyond input and output" would mean nothing.
_OTHER_SIZES = {"floor"} | {
    f"roughformer_{name}" for name in ("unequal", "regular", "grid", "signature")
}
_PROBE = 16  # a contender is first tried on this part of the series


def _refuse_if_hopeless(contender: Contender, problem: Any, limit: float) -> None:
    """Skip what would take minutes or all memory, judged by a sixteenth of the series."""
    task = problem.task
    if not contender.probe or task.series < 4 * _PROBE:
        return
    usage, build = next(iter(contender.usages.items()))
    part = problem.part(slice(0, task.series // _PROBE))
    run = build(part)
    run()
    seconds = first_look(run)[0] * _PROBE
    if seconds > limit:
        raise Skip(f"would take about {seconds:.0f} s a call (limit {limit:.0f} s)")
    del run
    need = peak_of(contender, usage, part) * _PROBE
    if need > 0.6 * available():
        raise Skip(f"would need about {need / 2**30:.0f} GB of memory")


def _error(build: Build, result: Any, problem: Any, right: np.ndarray) -> float | None:
    if result is None:
        return None
    if problem.calls_to_check > 1:  # a stream has moved on meanwhile: start it anew
        run = build(problem)
        for _ in range(problem.calls_to_check):
            result = run()
    if isinstance(result, tuple):
        result = np.concatenate([np.asarray(r) for r in result], axis=-1)
    rows = sample(problem.task)
    return max_relative_error(problem.task, np.asarray(result[rows], dtype=np.float64), right)


def _prepare(contender: Contender, problem: Any) -> list[Entry]:
    """Usages that may be the fastest: the best three of a first look, and near ties only.

    A first look is noisy, so these all take part in the rounds, and the best median counts: a
    usage chosen by bad luck would make a peer, or the floor, look slower than it is.
    """
    looks = []
    for usage, build in contender.usages.items():
        run = build(problem)
        seconds, result = first_look(run)
        looks.append((Entry(contender, usage, run, seconds), result))
        looks.sort(key=lambda look: look[0].guess)
        del looks[3:]
    kept = [look for look in looks if look[0].guess <= 1.5 * looks[0][0].guess]
    if contender.name == "floor":
        kept = looks
    for entry, result in kept:
        entry.result = result
    return [entry for entry, _ in kept]


def run_task(
    task: Task, rounds: int, quick: bool, limit: float, only: set[str] | None, console: Console
) -> list[dict[str, Any]]:
    """Measure one task, print its table, return its rows."""
    problem = make_problem(task, quick)
    entries: dict[tuple[str, str], Entry] = {}
    skipped: dict[str, str] = {}
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        line = progress.add_task(f"{task.name}: reference in float64")

        def tick(text: str) -> None:
            progress.update(line, description=f"{task.name}: {text}")

        right = reference(problem, sample(problem.task))
        entrants = [c for c in contenders(task.kind) if only is None or c.name in only]
        for contender in entrants:
            name = contender.name
            tick(f"first calls of {name}")
            try:
                _refuse_if_hopeless(contender, problem, limit)
                found = _prepare(contender, problem)
                for entry in found:
                    build = contender.usages[entry.usage]
                    entry.error = _error(build, entry.result, problem, right)
                    entry.result = None
            except Skip as reason:
                skipped[name] = str(reason)
            except Exception as error:  # a peer that fails is told, not hidden
                skipped[name] = f"failed: {type(error).__name__}: {error}"
            else:
                entries |= {(name, entry.usage): entry for entry in found}
            gc.collect()
        medians = interleaved(
            {key: e.run for key, e in entries.items()},
            {key: e.guess for key, e in entries.items()},
            rounds,
            lambda key, r: tick(f"round {r + 1} of {rounds}, {key[0]}"),
        )
        best: dict[str, Entry] = {}
        seconds: dict[str, float] = {}
        for key in sorted(medians, key=lambda k: medians[k], reverse=True):
            best[key[0]], seconds[key[0]] = entries[key], medians[key]
        tried = {name: sum(n == name for n, _ in medians) for name in best}
        entries.clear()
        for entry in best.values():
            entry.run = lambda: None  # its buffers are not needed any more
        gc.collect()
        tick("peak memory, in a process of its own")
        chosen = {n: e.usage for n, e in best.items() if n not in _OTHER_SIZES and e.guess < 20}
        peaks, trouble = peaks_in_subprocess(task.name, quick, chosen)
        if trouble:
            skipped["peak memory"] = trouble

    def ratio(name: str, to: str) -> float | None:
        return seconds[name] / seconds[to] if to in seconds else None

    rows = [
        {
            "task": task.name,
            "contender": name,
            "seconds": seconds[name],
            "ratio_to_pysiglib": ratio(name, "pysiglib"),
            "ratio_to_floor": ratio(name, "floor"),
            "max_rel_error": best[name].error,
            "peak_mb": peaks.get(name),
        }
        for name in seconds
    ]
    says = {c.name: c.says for c in entrants}
    notes = {
        name: says[name]
        + (f"; best usage: {best[name].usage} (of {tried[name]} timed)" if best[name].usage else "")
        for name in seconds
    }
    print_task(console, problem.task.title, rows, skipped, notes)
    return rows


def _chosen_tasks(text: str | None) -> list[Task]:
    if text is None:
        return list(TASKS.values())
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in TASKS]
    if unknown:
        sys.exit(f"no such task: {', '.join(unknown)}; the tasks are {', '.join(TASKS)}")
    return [TASKS[name] for name in names]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows here")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE.md", help="write the page of the docs"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the five main tasks")
    parser.add_argument("--tasks", metavar="A,B", help="these tasks only (see --list)")
    parser.add_argument("--contenders", metavar="A,B", help="these contenders only")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (7)")
    parser.add_argument(
        "--limit", type=float, default=60.0, help="skip what takes more seconds a call (60)"
    )
    parser.add_argument("--quick", action="store_true", help="an eighth of the series, 3 rounds")
    parser.add_argument("--list", action="store_true", help="the tasks and their contenders")
    parser.add_argument(
        "--redraw", type=Path, metavar="FILE.json", help="measure nothing: tables from these rows"
    )
    parser.add_argument("--peaks", help=argparse.SUPPRESS)
    return parser


def main() -> None:
    """Parse, measure, print, write."""
    options = _parser().parse_args()
    warnings.filterwarnings("ignore", message="Detected a non-contiguous or view-based array")
    if options.peaks:
        print(json.dumps(measure_peaks(*json.loads(options.peaks))))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=110)
    if options.list:
        for task in TASKS.values():
            names = ", ".join(c.name for c in contenders(task.kind))
            console.print(f"[bold]{task.title}[/]\n  {names}", highlight=False)
        return
    rows: list[dict[str, Any]] = []
    if options.redraw:
        rows = json.loads(options.redraw.read_text())
    else:
        info = rf.engine_info()
        console.print(
            f"{platform.processor() or platform.machine()}, {threads()} processors, "
            f"engine {info['engine']} ({info.get('instruction_set', 'torch')})\n",
            highlight=False,
        )
        if options.quick:
            console.print("quick: an eighth of the series, not the sizes of the targets\n")
        only = set(options.contenders.split(",")) if options.contenders else None
        for task in _chosen_tasks(options.tasks):
            rounds = min(options.rounds, 3) if options.quick else options.rounds
            rows += run_task(task, rounds, options.quick, options.limit, only, console)
            if options.json:  # after each task: a run that is cut short leaves what it has
                options.json.write_text(json.dumps(rows, indent=1) + "\n")
    print_targets(console, rows)
    if options.plot:
        plot(rows, options.plot)
    if options.markdown:
        write_page(options.markdown, rows)


if __name__ == "__main__":
    main()
