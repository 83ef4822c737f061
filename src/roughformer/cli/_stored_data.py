"""A feature store as the data of a command."""

import re
from pathlib import Path
from typing import Any

import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.store import MANIFEST, MARKER, StoredSeries

__all__ = ["place_of", "stored_at", "stored_target"]

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")  # two letters at least: C:/ is a path


def place_of(path: Path) -> str | None:
    """The URI that was given as a path, which leaves one of its slashes; None: it is a path."""
    found = _URI.match(str(path))
    if found is None:
        return None
    slashes = ":///" if found[1].lower() == "file" else "://"
    return found[1] + slashes + str(path)[found.end() :]


def stored_at(path: Path) -> StoredSeries | None:
    """The store at a path or URI; None if something else is there."""
    uri = place_of(path)
    if uri is not None:
        return StoredSeries.open(uri)
    if (path / MARKER).is_file():
        raise InputError(
            f"the store {path} is not finished; run the command roughformer features that makes it "
            "again, it goes on where it was"
        )
    return StoredSeries.open(path) if (path / MANIFEST).is_file() else None


def stored_target(stored: StoredSeries, names: tuple[str, ...], place: Path) -> npt.NDArray[Any]:
    """The labels of a store, whichever way they are named."""
    label = stored.manifest.options.get("columns", {}).get("label")
    if stored.labels is None:
        raise InputError(
            f"the store {place} has no labels; make it with roughformer features --label, or "
            "--labels"
        )
    if len(names) != 1 or names[0] not in ("label", label):
        known = "label" if label in (None, "label") else f"label (column {label!r})"
        raise InputError(f"the store {place} has one target, {known}; got {', '.join(names)}")
    return stored.labels
