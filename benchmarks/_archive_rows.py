"""Rows of the archive: one JSON object a line, a run may have several of which the last counts."""

import json
from pathlib import Path
from typing import Any

__all__ = ["Key", "Row", "key_of", "read_rows"]

Row = dict[str, Any]
Key = tuple[str, str, float, int]  # set, model, share of dropped points, seed


def key_of(row: Row) -> Key:
    """What makes two rows the same run."""
    return row["set"], row["model"], float(row["drop"]), int(row["seed"])


def read_rows(path: Path) -> dict[Key, Row]:
    """The last row of each run; none if there is no file."""
    if not path.exists():
        return {}
    rows = (json.loads(line) for line in path.read_text().splitlines() if line.strip())
    return {key_of(row): row for row in rows}
