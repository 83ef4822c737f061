"""``roughformer ...``: the commands."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from roughformer.errors import CapacityError, CheckpointError, InputError, MissingDataError

__all__ = ["app", "main"]

app = typer.Typer(
    name="roughformer",
    help="Learning from long, irregular, multichannel time series.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_USER_ERRORS = (InputError, MissingDataError, CapacityError, CheckpointError)


@app.callback()
def _root(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error instead of one line.")
    ] = False,
) -> None:
    """Options of every command."""


@app.command()
def info(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Versions, and which signature engine serves on this machine."""
    from roughformer.cli.info import print_info

    print_info(as_json)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Directory for the picture.")] = Path("runs/demo"),
    series: Annotated[int, typer.Option(min=1, help="How many series.")] = 1000,
    length: Annotated[int, typer.Option(min=10, help="Points of each series.")] = 2000,
    windows: Annotated[int, typer.Option(min=1, help="Windows of each series.")] = 75,
    depth: Annotated[int, typer.Option(min=1, max=6, help="Depth of the signatures.")] = 2,
    drop: Annotated[float, typer.Option(min=0, max=0.95, help="Fraction of points dropped.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Seed of the data and of the dropping.")] = 0,
) -> None:
    """Multi-view signatures of sine series, full and with points dropped: times and a picture."""
    from roughformer.cli.demo import run_demo

    run_demo(out, series, length, windows, depth, drop, seed)


def main() -> None:
    """Run a command. Exit codes: 0 done, 1 error in the input or data, 2 wrong usage."""
    if "--debug" in sys.argv:
        app()
    try:
        app()
    except _USER_ERRORS as error:
        typer.echo(f"roughformer: {error}", err=True)
        raise SystemExit(1) from None
