"""Write docs/reproduced.md and its pictures from results/reproduce/*.json: nothing is typed.

python docs/_reproduced.py
"""

import json
import re
from pathlib import Path
from typing import Any

from roughformer_paper.reproduce import NAMES, Selection, Wishes, experiment_of, selected
from roughformer_paper.reproduce.page import cell_text
from roughformer_paper.reproduce.results import machines_of
from roughformer_paper.reproduce.selection import budget_of

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "reproduce"
IMAGES = HERE / "images" / "reproduce"


def chosen_rows(name: str) -> Selection:
    """The rows of the preset ``full``, one budget of time a line; none if it was not run."""
    path = RESULTS / f"{name}.json"
    found = json.loads(path.read_text())["rows"] if path.exists() else []
    return selected(experiment_of(name), Wishes("full"), found)


def where(rows: list[dict[str, Any]]) -> str:
    """The machine, the days, the commits and the work."""
    e = rows[-1]["environment"]
    dates = sorted({row["environment"]["date"] for row in rows})
    commits = sorted({str(row["environment"]["commit"]) for row in rows})
    threads = sorted({row["environment"]["threads"] for row in rows})
    return (
        f"*{len(rows)} runs, {sum(row['seconds'] for row in rows) / 3600:.1f} hours of work, "
        f"{' and '.join(dates)}; {', '.join(machines_of(rows))}; "
        f"{' or '.join(map(str, threads))} threads a run; torch {e['torch']}; commits "
        f"{', '.join(commits)}.{clocks(rows)}*\n"
    )


def clocks(rows: list[dict[str, Any]]) -> str:
    """Of which clock the seconds of epochs are, where rows have both."""
    wall = sum("clock" not in row["environment"] for row in rows if row.get("history"))
    trained = sum(bool(row.get("history")) for row in rows)
    if wall in (0, trained):
        return ""
    return f" Seconds of epochs and budgets: of the wall in {wall} runs, else of the processor."


def budgets(name: str, rows: list[dict[str, Any]]) -> str:
    """With which ``--seconds`` rows were run, where that is not the preset's."""
    experiment = experiment_of(name)
    if experiment.timed:  # no training is cut short
        return ""
    usual = {budget_of(job) for job in experiment.jobs(Wishes("full"))} - {0.0}
    others = sorted({budget_of(row["job"]) for row in rows} - {0.0} - usual)
    if not others:
        return ""
    return (
        f" A training of the preset may take {' or '.join(f'{s:g}' for s in sorted(usual))} s of "
        f"the processor; rows here were also run with `--seconds` "
        f"{' or '.join(f'{s:g}' for s in others)}, as the notes below the tables tell."
    )


def not_run(missing: list[str]) -> list[str]:
    """Lines that were not run: those of a model, or of a part of a search, together."""
    alike: dict[str, list[str]] = {}
    for words in missing:
        model = re.search(r"model ([^,(]+)", words)
        search = re.match(r"task .+?, part \w+", words) or re.match(r"task [^,(]+", words)
        name = model.group(1).strip() if model else search.group(0) if search else ""
        alike.setdefault(name, []).append(words)
    told = []
    for name, lines in alike.items():
        if name and len(lines) > 1:
            runs = sum(int(found) for w in lines for found in re.findall(r"\((\d+) runs?\)", w))
            told.append(f"not run: {len(lines)} lines of {name} ({runs} runs)")
        else:
            told += [f"not run: {words}" for words in lines]
    return told


def part(name: str) -> str:
    """The section of one experiment."""
    experiment, chosen = experiment_of(name), chosen_rows(name)
    rows = chosen.rows
    text = f"## {experiment.title}\n\n`roughformer reproduce {name} --preset full`. "
    text += f"{experiment.about}{budgets(name, rows)}\n\n"
    if not rows:
        notes = "".join(f"\n- {note}" for note in chosen.notes)
        return f"{text}Not run yet.\n" + (f"{notes}\n" if notes else "")
    page = experiment.show(rows, True)
    for table in page.tables:
        if not table.rows:
            continue
        lines = [f"| {' | '.join(table.columns)} |", f"|{'---|' * len(table.columns)}"]
        lines += [f"| {' | '.join(cell_text(cell) for cell in row)} |" for row in table.rows]
        text += f"**{table.title}**\n\n" + "\n".join(lines) + "\n\n"
        text += f"{table.note}\n\n" if table.note else ""
    for file, caption, figure in page.figures:
        IMAGES.mkdir(parents=True, exist_ok=True)
        figure.savefig(IMAGES / f"{file}.png", dpi=130)
        text += f"![{caption}](images/reproduce/{file}.png)\n\n*{caption}*\n\n"
    notes = [*page.notes, *chosen.notes, *not_run(chosen.missing)]
    text += "".join(f"- {note}\n" for note in notes)
    return f"{text}\n{where(rows)}"


def main() -> None:
    """Write the page."""
    page = (
        "# The paper, measured\n\nEvery experiment of the paper as a command, and what it gave "
        "here. Written by `docs/_reproduced.py` from `results/reproduce/`.\n\n"
    )
    page += "\n".join(part(name) for name in NAMES)
    (HERE / "reproduced.md").write_text(page.rstrip() + "\n")


if __name__ == "__main__":
    main()
