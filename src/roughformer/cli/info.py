"""``roughformer info``."""

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import roughformer

__all__ = ["collect", "print_info"]

_PACKAGES = ("numpy", "torch", "pyarrow", "wfdb", "pyedflib", "pandas", "polars", "matplotlib")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def collect() -> dict[str, Any]:
    """Everything ``info`` tells, as plain data."""
    return {
        "roughformer": roughformer.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "engine": roughformer.engine_info(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def print_info(as_json: bool) -> None:
    """Print a table, or JSON."""
    facts = collect()
    if as_json:
        print(json.dumps(facts, indent=2))
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
