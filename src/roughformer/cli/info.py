"""``roughformer info``."""

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer

__all__ = ["collect", "info"]

_PACKAGES = (
    "numpy", "torch", "safetensors", "scikit-learn", "pyarrow", "pandas", "polars",
    "wfdb", "pyedflib", "matplotlib", "tensorboard", "aeon", "optuna", "onnxruntime", "fastapi",
    "ray",
)  # fmt: skip


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def collect() -> dict[str, Any]:
    """Everything ``info`` tells, as plain data."""
    import roughformer

    return {
        "roughformer": roughformer.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "engine": roughformer.engine_info(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def info(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
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
