"""Write docs/results.md and its pictures from results/*.json: no figure is typed by hand.

python docs/_results.py
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"


def load(name: str) -> dict[str, Any] | None:
    """A file of results, or None if the experiment has not been run."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows]) + "\n"


def spread(values: list[float], digits: int) -> str:
    """Mean ± deviation over seeds."""
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values):.{digits}f}"


def where(found: dict[str, Any]) -> str:
    """The machine, the days and the commits."""
    every = [row["environment"] for row in found["rows"]]
    e = every[-1]
    dates, commits = (sorted({x[k] for x in every}) for k in ("date", "commit"))
    return (
        f"*Measured {' and '.join(dates)} on {e['cores']} cores ({e['machine']}), Python "
        f"{e['python']}, torch {e['torch']}, commits {', '.join(commits)}.*\n"
    )


def sine(found: dict[str, Any]) -> str:
    """Accuracy of each recipe at each share of dropped points, and the curve."""
    rows = found["rows"]
    levels = list(rows[0]["accuracy"])
    names = list(dict.fromkeys(r["recipe"] for r in rows))
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    cells = []
    for i, name in enumerate(names):
        own = [r for r in rows if r["recipe"] == name]
        values = [[r["accuracy"][x] for r in own] for x in levels]
        style = "--" if name.startswith("paper") else "-"
        x = [100 * float(level) for level in levels]
        axes.plot(x, np.mean(values, axis=1), style, marker="o", ms=4, color=f"C{i}", label=name)
        cells.append([name, str(len(own)), *(spread(v, 3) for v in values)])
    axes.set(xlabel="points dropped at test, %", ylabel="test accuracy", ylim=(0, 1.02))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(HERE / "images" / "sine_dropping.png", dpi=130)
    dropped = [f"{100 * float(x):.0f} % dropped" for x in levels]
    head = ["trained on", "seeds", *dropped]
    return (
        "## Sine: which frequency?\n\n`python experiments/sine.py`. 100 classes, 1,000 training "
        "series of 2,000 points (a fifth for validation), 1,000 test series; dropped points are "
        "drawn anew for every test (three draws). Nothing is trained again for another share. "
        "Times are on the page of the paper's experiments: here the machine had other work.\n\n"
        f"{table(head, cells)}\n![Accuracy against points dropped](images/sine_dropping.png)\n\n"
        f"{where(found)}"
    )


def heart_rate(found: dict[str, Any]) -> str:
    """RMSE of both protocols, and the recordings that carry it."""
    rows = found["rows"]
    cells = []
    for protocol in dict.fromkeys(r["protocol"] for r in rows):
        own = [r for r in rows if r["protocol"] == protocol]
        cells.append(
            [
                protocol,
                str(len(own)),
                *(spread([r["rmse"][x] for r in own], 2) for x in ("0.0", "0.5")),
                *(spread([r["median"][x] for r in own], 2) for x in ("0.0", "0.5")),
            ]
        )
    text = (
        "## Heart rate from PPG and ECG (BIDMC)\n\n`python experiments/heart_rate.py`. Root mean "
        "squared error in beats per minute. *patient*: whole recordings are held out (the "
        "archive's split; best published 6.81 (ROCKET), counting R-peaks without learning 3.83 by "
        "the notes of the data; what our detector counts is [here](reproduced.md)). *random*: "
        "the paper's protocol, in which most test windows overlap training windows of the same "
        "patient (paper 3.04; copying the label of the nearest training window of the patient "
        "0.28): it rewards recognising patients.\n\n"
    )
    head = ["protocol", "seeds", "full", "50 % dropped", "median error, full", "dropped"]
    text += table(head, cells)
    own = [r for r in rows if r["protocol"] == "patient"]
    if own:
        error = {
            n: [np.mean([r["recordings"][x][n] for r in own]) for x in ("0.0", "0.5")]
            for n in own[0]["recordings"]["0.0"]
        }
        worst = sorted(error, key=lambda n: -error[n][0])[:6]
        text += (
            "\nThe patient-split error sits in few recordings; the six worst of sixteen:\n\n"
            + table(
                ["recording", "full", "50 % dropped"],
                [[n, *(f"{e:.2f}" for e in error[n])] for n in worst],
            )
        )
    return f"{text}\n{where(found)}"


def physionet(found: dict[str, Any]) -> str:
    """AUROC and AUPRC beside the yardsticks."""
    rows = found["rows"]
    cells = []
    for name in dict.fromkeys(r["model"] for r in rows):
        own = [r for r in rows if r["model"] == name]
        scores = [spread([r[k] for r in own], 4) for k in ("auroc", "auprc")]
        cells.append([name, str(len(own)), *scores, f"{np.mean([r['seconds'] for r in own]):.0f}"])
    return (
        "## ICU mortality (PhysioNet 2012)\n\n`python experiments/physionet2012.py`. Sets a and b "
        "for training, c for test; 12 windows of 4 hours, depth 0: words of the observations of "
        "each of 37 channels (19 a channel), four static covariates. Set c was also looked at "
        "while the recipe was being found (three times), so its figures are a little kind.\n\n"
        f"{table(['model', 'runs', 'AUROC', 'AUPRC', 'seconds'], cells)}\n{where(found)}"
    )


def small_sets(found: dict[str, Any]) -> str:
    """Accuracy on the sets that ship with aeon."""
    rows = found["rows"]
    models = list(dict.fromkeys(r["model"] for r in rows))
    sets = list(dict.fromkeys(r["set"] for r in rows))
    cells = []
    for name in sets:
        line = [name]
        for model in models:
            own = [r["accuracy"] for r in rows if r["model"] == model and r["set"] == name]
            line.append(spread(own, 3) if own else "not run")
        cells.append(line)
    return (
        "## Small public sets that ship with aeon\n\n`python experiments/aeon_small.py`. Test "
        "accuracy on the official splits, default options everywhere.\n\n"
        f"{table(['set', *models], cells)}\n{where(found)}"
    )


PARTS = {
    "sine": sine,
    "heart_rate": heart_rate,
    "physionet2012": physionet,
    "aeon": small_sets,
}


def main() -> None:
    """Write the page."""
    page = "# Results\n\nWhat the commands gave on our machine; written by `docs/_results.py`.\n\n"
    for name, part in PARTS.items():
        found = load(name)
        if found is None:
            page += f"## {name}\n\nNot run yet.\n\n"
        else:
            page += part(found) + "\n"
    (HERE / "results.md").write_text(page.rstrip() + "\n")


if __name__ == "__main__":
    main()
