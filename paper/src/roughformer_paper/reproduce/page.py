"""The page of an experiment: on the terminal, as pictures, and as one self-contained HTML file."""

from pathlib import Path
from typing import Any

from roughformer import InputError, write_report
from roughformer_paper.reproduce.experiment import Experiment, Page, Row, Table
from roughformer_paper.reproduce.results import machines_of
from roughformer_paper.reproduce.selection import Selection

__all__ = ["print_table", "write_page"]


def write_page(experiment: Experiment, chosen: Selection, out: Path, command: str) -> Page:
    """Tables, pictures (PNG and SVG in ``plots/``) and ``report.html`` from the rows so far."""
    good, notes = chosen.rows, chosen.notes
    try:
        page = experiment.show(good, True)
    except InputError as error:  # matplotlib is an extra
        page = experiment.show(good, False)
        notes.append(f"No pictures: {error}")
    plots = out / "plots"
    for name, _, figure in page.figures:
        plots.mkdir(parents=True, exist_ok=True)
        figure.savefig(plots / f"{name}.png", dpi=130)
        figure.savefig(plots / f"{name}.svg", metadata={"Date": None})
    write_report(
        out / "report.html",
        title=experiment.title,
        facts=_facts(good),
        metrics={},
        tables=[(t.title, t.columns, t.rows, t.note) for t in page.tables],
        figures=[(caption, figure) for _, caption, figure in page.figures],
        config={"jobs": [row["job"] for row in good]},
        notes=[experiment.about, *page.notes, *notes],
        command=command,
    )
    return page


def _facts(rows: list[Row]) -> dict[str, Any]:
    if not rows:
        return {}
    newest = rows[-1]["environment"]
    dates = sorted({row["environment"]["date"] for row in rows})
    return {
        "runs": len(rows),
        "measured": dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}",
        "machines": machines_of(rows),
        "torch": newest["torch"],
        "commits": sorted({str(row["environment"]["commit"]) for row in rows}),
        "hours of work": sum(row["seconds"] for row in rows) / 3600,
    }


def print_table(table: Table) -> None:
    """A table on the terminal; one that is too wide in several parts, each with its first column.

    Nothing is cut off.
    """
    from rich.console import Console
    from rich.table import Table as Drawn

    console = Console()
    parts = _parts(table, console.width)
    for number, columns in enumerate(parts):
        last = number == len(parts) - 1
        drawn = Drawn(
            title=table.title if number == 0 else f"{table.title} ({number + 1})",
            caption=table.note or None if last else None,
        )
        for i in columns:
            drawn.add_column(
                str(table.columns[i]), justify="left" if i == 0 else "right", overflow="fold"
            )
        for row in table.rows:
            drawn.add_row(*(cell_text(row[i]) for i in columns))
        console.print(drawn)


def _parts(table: Table, width: int) -> list[list[int]]:
    """Numbers of the columns that fit beside the first one and each other."""
    needed = []
    for i, column in enumerate(table.columns):
        cells = [len(cell_text(row[i])) for row in table.rows]
        # Titles may be broken between words, cells are not. 3: a border and two spaces.
        needed.append(3 + max([len(word) for word in str(column).split()] + cells, default=0))
    parts: list[list[int]] = [[0]] if needed else []
    room = width - 1 - sum(needed[:1])
    for i in range(1, len(needed)):
        if len(parts[-1]) > 1 and needed[i] > room:
            parts.append([0])
            room = width - 1 - needed[0]
        parts[-1].append(i)
        room -= needed[i]
    return parts


def cell_text(cell: Any) -> str:
    """Numbers to four digits; None is a dash."""
    if cell is None:
        return "–"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
