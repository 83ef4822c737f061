"""Write the drawing of docs/architecture.md from the layers that import-linter enforces.

python docs/_architecture.py
"""

import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).resolve().parent
PICTURE = HERE / "images/architecture.svg"

# What each folder does, in the words of the drawing. Not drawn: __main__, which calls cli.
WORDS = {
    "cli": "commands: parse, call, print",
    "serve": "HTTP, WebSocket, the live page",
    "runs": "whole trainings and evaluations of files",
    "tune": "hyperparameter search",
    "aeon": "adapters for aeon",
    "estimators": "fit, predict: scikit-learn's classes",
    "plots": "pictures, reports",
    "explain": "what drove a prediction",
    "export": "one graph: ONNX, torch",
    "stream": "live: state and step",
    "inference": "a trained model in use: predict, calibrate",
    "train": "the loop, splits, checkpoints",
    "model": "tokens to outputs; heads, losses",
    "store": "tokens larger than memory",
    "tokens": "series to tokens: which windows, views, lifts",
    "nn": "the signature as a layer",
    "signatures": "windows, lifts, the engine (C++ and torch)",
    "io": "files to series: CSV, Parquet, .ts, WFDB, EDF",
    "series": "SeriesBatch: the one door for data, where it is checked",
    "util": "atomic files, option checks",
    "errors": "the errors users meet",
}


def layers() -> list[list[str]]:
    """Read the folders of each layer, the highest first."""
    settings = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (contract,) = (c for c in contracts if c["type"] == "layers")
    rows = [layer.split(" | ") for layer in contract["layers"]]
    rows = [[name.removeprefix("roughformer.") for name in row] for row in rows]
    return [row for row in rows if row != ["__main__"]]


def drawing() -> str:
    """Draw one row of boxes for each layer; a folder may import from the rows below it."""
    width, height, gap = 760, 40, 10
    rows = layers()
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 30} '
        f'{len(rows) * (height + gap) + 30}" font-family="sans-serif">',
        '<style>rect{fill:#eef3fb;stroke:#5b7db1}.n{font-weight:bold;font-size:14px;fill:#1b2a41}'
        ".w{font-size:12px;fill:#44546a}.a{stroke:#5b7db1;stroke-width:2;fill:none}</style>",
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="4" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#5b7db1"/></marker></defs>',
    ]  # fmt: skip
    for i, row in enumerate(rows):
        each = (width - gap * (len(row) - 1)) / len(row)
        y = i * (height + gap) + 5
        for j, name in enumerate(row):
            x = j * (each + gap) + 5
            parts.append(f'<rect x="{x:g}" y="{y}" width="{each:g}" height="{height}" rx="6"/>')
            parts.append(f'<text class="n" x="{x + 10:g}" y="{y + 17}">{escape(name)}</text>')
            parts.append(
                f'<text class="w" x="{x + 10:g}" y="{y + 32}">{escape(WORDS[name])}</text>'
            )
    bottom = len(rows) * (height + gap)
    parts.append(f'<path class="a" d="M{width + 18},{bottom - 5} V12" marker-end="url(#tip)"/>')
    parts.append(
        f'<text class="w" x="5" y="{bottom + 18}">Data go up; imports go down: a folder may import '
        "from the rows below its own, never from above or beside.</text></svg>"
    )
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(drawing())
