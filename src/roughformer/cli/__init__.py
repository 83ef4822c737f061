"""The command line: parsing and printing only; the work is done by the package's functions.

Heavy modules are imported inside the commands, so that ``roughformer --help`` answers at once.
"""

import json
import platform
import sys
import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Annotated, Any

import typer

from roughformer.cli.common import Interrupted, describe, option
from roughformer.cli.export import export
from roughformer.cli.features import features
from roughformer.cli.predict import evaluate, explain, forecast, predict
from roughformer.cli.serve import serve
from roughformer.cli.train import train, tune

_PACKAGES = (
    "numpy", "torch", "safetensors", "scikit-learn", "pyarrow", "pandas", "polars",
    "wfdb", "pyedflib", "matplotlib", "tensorboard", "aeon", "optuna", "onnxruntime", "fastapi",
    "ray",
)  # fmt: skip


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def collect() -> dict[str, Any]:
    """Everything ``info`` tells, as plain data."""
    from roughformer.signatures import engine_info

    return {
        "roughformer": version("roughformer"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "engine": engine_info(),
        "packages": {name: _installed(name) for name in _PACKAGES},
    }


def info(
    as_json: Annotated[bool, option("Print JSON instead of a table.", "--json")] = False,
) -> None:
    """Versions, and which signature engine serves on this machine."""
    facts = collect()
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"roughformer {facts['roughformer']}", show_header=False)
    table.add_row("python", facts["python"])
    table.add_row("machine", facts["machine"])
    for key, value in facts["engine"].items():
        shown = ", ".join(value) if isinstance(value, list) else str(value)
        table.add_row(key.replace("_", " "), shown)
    for key, value in facts["packages"].items():
        table.add_row(key, value)
    Console().print(table)


_EXIT_CODES = (
    "Exit codes: 0 done, 1 error in the input or the data, 2 wrong usage, 130 interrupted. "
    "An error is one line on stderr; --debug shows its traceback."
)
app = typer.Typer(
    name="roughformer",
    help="Learning from long, irregular, multichannel time series.",
    epilog=_EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    train, tune, predict, evaluate, explain, export, features, forecast, serve, info,
):  # fmt: skip
    app.command(epilog=_EXIT_CODES)(command)
# Other packages bring commands by entry points: a name, and a function as typer takes it.
for entry in sorted(entry_points(group="roughformer.commands")):
    try:
        app.command(entry.name, epilog=_EXIT_CODES)(entry.load())
    except ImportError as error:
        typer.echo(f"note: the command {entry.name!r} cannot be loaded: {error}", err=True)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"roughformer {version('roughformer')}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[
        bool, option("Show the traceback of an error; may stand anywhere.", "--debug")
    ] = False,
    version: Annotated[
        bool, option("Print the version.", "--version", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options of every command."""


def _warnings_once() -> Callable[..., None]:
    """Show each warning once, as a line for people: where it arose does not help them."""

    @cache
    def say(text: str) -> None:
        typer.echo(f"note: {text}", err=True)

    return lambda message, *_, **__: say(" ".join(str(message).split()))


def main() -> None:
    """Run a command. Exit codes: 0 done, 1 error in the input or data, 2 wrong usage, 130
    interrupted.
    """
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warnings_once()
            code = app(arguments or ["--help"], prog_name="roughformer", standalone_mode=False)
        if code == 130:  # what typer makes of Ctrl-C
            raise Interrupted("interrupted")
    except Exception as error:
        if debug and not isinstance(error, Interrupted):
            raise
        line, code = describe(error)
        typer.echo(f"roughformer: {line}", err=True)
        raise SystemExit(code) from None
    raise SystemExit(code if isinstance(code, int) else 0)
