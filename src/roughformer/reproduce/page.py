"""The page of an experiment: on the terminal, as pictures, and as one self-contained HTML file."""

from pathlib import Path
from typing import Any

from roughformer.errors import InputError
from roughformer.report import write_report
from roughformer.reproduce.experiment import Experiment, Page, Row, Table

__all__ = ["print_table", "write_page"]


def write_page(experiment: Experiment, rows: list[Row], out: Path, command: str) -> Page:
    """Tables, pictures (PNG and SVG in ``plots/``) and ``report.html`` from the rows so far."""
    good = [row for row in rows if "failed" not in row]
    notes = [f"not run: {_told(row['job'])}: {row['failed']}" for row in rows if "failed" in row]
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


def _told(job: dict[str, Any]) -> str:
    return ", ".join(f"{k} {v}" for k, v in job.items() if isinstance(v, str | int | float))


def _facts(rows: list[Row]) -> dict[str, Any]:
    if not rows:
        return {}
    newest = rows[-1]["environment"]
    dates = sorted({row["environment"]["date"] for row in rows})
    return {
        "runs": len(rows),
        "measured": dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}",
        "processor": newest["machine"],
        "cores": newest["cores"],
        "torch": newest["torch"],
        "commits": sorted({str(row["environment"]["commit"]) for row in rows}),
        "hours of work": sum(row["seconds"] for row in rows) / 3600,
    }


def print_table(table: Table) -> None:
    """A table on the terminal."""
    from rich.console import Console
    from rich.table import Table as Drawn

    drawn = Drawn(title=table.title, caption=table.note or None)
    for i, column in enumerate(table.columns):
        drawn.add_column(str(column), justify="left" if i == 0 else "right")
    for row in table.rows:
        drawn.add_row(*(cell_text(cell) for cell in row))
    Console().print(drawn)


def cell_text(cell: Any) -> str:
    """Numbers to four digits; None is a dash."""
    if cell is None:
        return "–"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
