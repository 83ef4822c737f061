"""``roughformer demo``."""

from pathlib import Path
from typing import Annotated, Any

import typer

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
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads (default: as torch chooses).")
    ] = None,
) -> None:
    """The default beside MiniRocket, boosting on summaries and a Transformer, in minutes.

    Which frequency has a noisy sine (1000 series of 2000 points in 100 classes), and who says a
    vowel (270 ragged series of 12 channels, which come with aeon)? Accuracy on test series, with
    all points, and with half of them left out in training and test.
    """
    from roughformer import InputError
    from roughformer_paper.demo import run_demo, write_json

    if json_file is not None and not json_file.parent.is_dir():
        raise InputError(f"--json: there is no directory {str(json_file.parent)!r}; make it first")
    result = run_demo(out, seed=seed, seconds=seconds, quick=quick, threads=threads)
    _print(result)
    typer.echo(f"run: {out}\nreport: {out / 'report.html'}")
    if json_file is not None:
        write_json(json_file, _short(result))
        typer.echo(f"wrote {json_file}")


def _short(result: dict[str, Any]) -> dict[str, Any]:
    """Accuracies of all models, and the seconds in all."""
    found: dict[str, Any] = {"seconds": result["seconds"]}
    for name, row in result.items():
        if name == "vowels":
            found[name] = {model: _accuracies(r) for model, r in row.items()}
        elif isinstance(row, dict):
            found[name] = _accuracies(row)
    return found


def _accuracies(row: dict[str, float]) -> dict[str, float]:
    return {part: row[part] for part in ("full", "dropped")}


def _print(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from roughformer_paper.demo import TITLES

    tasks = {"Which frequency has a noisy sine?": result}
    if "vowels" in result:
        tasks["Who says the vowel?"] = result["vowels"]
    for title, rows in tasks.items():
        table = Table(title=f"{title} Test accuracy")
        table.add_column("")
        for heading in ("all points", "50 % dropped", "seconds"):
            table.add_column(heading, justify="right")
        for name in TITLES:
            if name in rows:
                row = rows[name]
                numbers = (f"{row['full']:.3f}", f"{row['dropped']:.3f}", f"{row['seconds']:.0f}")
                table.add_row(TITLES[name], *numbers)
        Console().print(table)
    typer.echo(f"{result['seconds']:.0f} s in all")
