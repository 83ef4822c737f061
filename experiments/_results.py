"""Results of experiments as JSON: every number with its seed, configuration and machine."""

import json
import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def environment() -> dict[str, Any]:
    """Where and with what the numbers were measured."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "torch": version("torch"),
        "roughformer": version("roughformer"),
        "commit": commit,
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
    }


class Results:
    """Rows of one experiment, written after each; a row that is there is not measured again."""

    def __init__(self, path: Path, again: bool = False) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        if path.exists() and not again:
            self.rows = json.loads(path.read_text())["rows"]

    def get(self, **key: Any) -> dict[str, Any] | None:
        """The row with that key."""
        return next((r for r in self.rows if all(r.get(k) == v for k, v in key.items())), None)

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row with where and when it was measured, and write all of them."""
        self.rows.append(row | {"environment": environment()})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        aside = self.path.with_suffix(".tmp")
        aside.write_text(json.dumps({"rows": self.rows}, indent=1) + "\n")
        os.replace(aside, self.path)


def show(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """A table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*(f"{x:.4g}" if isinstance(x, float) else str(x) for x in row))
    Console().print(table)
