"""``roughformer demo``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from roughformer.cli._options import Threads, check_place

__all__ = ["demo"]


def demo(
    out: Annotated[Path, typer.Option(help="Directory of the demo; replaced.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Seed of the data and of the trainings.")] = 0,
    seconds: Annotated[float, typer.Option(min=1, help="Budget of time for all the work.")] = 150.0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the accuracies to this file.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small task in seconds, to see that all works.")
    ] = False,
    threads: Threads = None,
) -> None:
    """Which frequency has a noisy sine? RFormer beside a vanilla Transformer, in the same time.

    1000 series of 2000 points in 100 classes; accuracy on test series as they are and with half of
    their points left out.
    """
    from roughformer.cli._demo import run_demo
    from roughformer.cli._runs import write_json

    check_place(json_file, "--json")
    result = run_demo(out, seed=seed, seconds=seconds, quick=quick, threads=threads)
    _print(result, quick)
    typer.echo(f"run: {out}\nreport: {out / 'report.html'}")
    if json_file is not None:
        short = {
            name: {part: result[name][part] for part in ("full", "dropped")}
            for name in ("rformer", "transformer")
        }
        write_json(json_file, {**short, "seconds": result["seconds"]})
        typer.echo(f"wrote {json_file}")


def _print(result: dict[str, Any], quick: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    same = "as many epochs" if quick else "same time"  # a small task is over before the time is
    table = Table(title=f"test accuracy: RFormer and a vanilla Transformer, {same}")
    table.add_column("")
    for heading in ("all points", "50 % dropped", "seconds", "series seen", "series/s"):
        table.add_column(heading, justify="right")
    for name, title in (("rformer", "RFormer"), ("transformer", "Transformer")):
        row = result[name]
        table.add_row(
            title, f"{row['full']:.3f}", f"{row['dropped']:.3f}", f"{row['seconds']:.0f}",
            f"{row['series_seen']:,}", f"{row['series_per_second']:,.0f}",
        )  # fmt: skip
    Console().print(table)
    typer.echo(f"{result['seconds']:.0f} s in all")
