"""What an experiment is: jobs, each a plain dictionary, and how their results are shown."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = [
    "Experiment",
    "Job",
    "Page",
    "Preset",
    "Row",
    "Table",
    "Wishes",
    "key_of",
    "known",
    "mean_of",
    "spread",
]

Preset = Literal["tiny", "quick", "full"]
Job = dict[str, Any]  # JSON: everything that decides the result
Row = dict[str, Any]  # JSON: the job, and what was found


@dataclass(frozen=True)
class Wishes:
    """What the user asks for; None: as the preset has it."""

    preset: Preset = "quick"
    seeds: int | None = None
    models: tuple[str, ...] | None = None
    seconds: float | None = None  # budget of one training


@dataclass(frozen=True)
class Table:
    """Cells are text or numbers; None is a dash."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


@dataclass(frozen=True)
class Page:
    """What is shown of an experiment: tables, figures as (file name, caption, figure), notes."""

    tables: Sequence[Table] = ()
    figures: Sequence[tuple[str, str, Any]] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper, or beyond it.

    ``jobs(wishes)`` lists what is to be run; ``run(job, where)`` runs one, may use the directory
    ``where`` to continue a training that was killed, and returns what it found; ``show(rows)``
    makes the page from all rows there are, drawn or not (``figures=False``).

    ``needs_data(job)``: whether it reads BIDMC. ``shared(job)``: the name of a directory beside
    ``where`` in which several jobs tell each other something. ``timed``: its numbers are times,
    which other work on the machine would spoil.
    """

    name: str
    title: str
    about: str
    jobs: Callable[[Wishes], list[Job]]
    run: Callable[[Job, Path], Row]
    show: Callable[[list[Row], bool], Page]
    models: tuple[str, ...] = field(default=())
    needs_data: Callable[[Job], bool] = lambda job: False
    shared: Callable[[Job], str | None] = lambda job: None
    timed: bool = False


def key_of(job: Job) -> str:
    """A short hash of a job: the same configuration has the same key everywhere."""
    text = json.dumps(job, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def known(values: Iterable[float | None]) -> list[float]:
    """Those that are numbers: a score that was not finite is None in results.json."""
    return [value for value in values if value is not None]


def mean_of(values: Iterable[float | None]) -> float | None:
    """Mean of those that are numbers; None if there are none."""
    found = known(values)
    return sum(found) / len(found) if found else None


def spread(values: Iterable[float | None], digits: int) -> str | None:
    """Mean ± standard deviation over seeds as text; None without numbers."""
    found = known(values)
    if not found:
        return None
    mean = sum(found) / len(found)
    if len(found) == 1:
        return f"{mean:.{digits}f}"
    deviation = (sum((v - mean) ** 2 for v in found) / (len(found) - 1)) ** 0.5
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}"
