"""The measured rows as a page of the documentation; figures there are never typed by hand."""

import platform
from datetime import date
from pathlib import Path
from typing import Any

from _report import targets
from _tasks import TASKS

import roughformer as rf

__all__ = ["write_page"]

Row = dict[str, Any]
_MAIN = ("sine", "hr", "long", "wide2", "wide3")
_TITLES = {
    "roughformer": "roughformer",
    "roughformer_fresh": "roughformer, new result each call",
    "roughformer_1_thread": "roughformer, one thread",
    "torch": "its pure-torch twin",
    "pysiglib": "pySigLib",
    "signax": "signax",
    "iisignature": "iisignature",
    "floor": "floor: memcpy(input) + fill(output)",
}


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _main_table(rows: list[Row]) -> list[str]:
    found = {(r["task"], r["contender"]): r for r in rows}
    tasks = [t for t in _MAIN if any(task == t for task, _ in found)]
    head = ["", *(TASKS[t].title.split(",")[0] + f", depth {TASKS[t].depth}" for t in tasks)]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name, title in _TITLES.items():
        cells = []
        for task in tasks:
            row = found.get((task, name))
            if row is None or row["ratio_to_pysiglib"] is None:
                cells.append("–")
            else:
                cells.append(f"{row['ratio_to_pysiglib']:.3f} ({1e3 * row['seconds']:.3g} ms)")
        if any(c != "–" for c in cells):
            lines.append("| " + " | ".join([title, *cells]) + " |")
    return lines


def write_page(path: Path, rows: list[Row]) -> None:
    """Write the tables and the targets below the page's introduction."""
    engine = rf.engine_info()
    lines = [
        "# Benchmarks",
        "",
        "<!-- written by benchmarks/signature.py --markdown; do not edit -->",
        "",
        "`make bench` measures this on your machine. All contenders compute the same tokens, take",
        "turns, and the median counts; peers are used in the fastest way we found, with their",
        "buffers reused (`benchmarks/_pysiglib.py`, `benchmarks/_peers.py`). Different tasks may",
        "come from different runs; the rows of one task never do.",
        "",
        f"Here: {_processor()}, {engine['threads']} threads, {engine.get('instruction_set')}, "
        f"{date.today().isoformat()}.",
        "",
        "## Multi-view signatures, 75 windows, both views, float32",
        "",
        "Time relative to pySigLib, smaller is better; in brackets the time itself.",
        "",
        *_main_table(rows),
        "",
        "![Time relative to pySigLib](images/signature_speed.png)",
        "",
        "## What we set out to reach",
        "",
        "| target | measured | met |",
        "|---|---|---|",
        *(f"| {t} | {m} | {'yes' if ok else 'no'} |" for t, m, ok in targets(rows)),
        "",
        "`compacted`: half of the points of each series dropped at random beforehand, so each",
        "series has its own times. `unequal`: with lengths that differ as well. `dropped in the",
        "kernel`: the full arrays are read and half of the points skipped on the way, compared",
        "with a batch that has only as many points as are kept.",
        "",
        "## Tried, and did not help",
        "",
        "- Non-temporal stores of the result, staged per series: no difference with one thread or",
        "  two (the processor already avoids reading lines that are overwritten whole).",
        "- Keeping the global view as Lyndon words and rebuilding it each window: hardly faster,",
        "  and a larger rounding error in float32.",
        "- Straight-line code at depth 5 and 6: rebuilding long words costs digits in float32.",
        "- Joining 128-bit pieces while loading instead of shuffling: faster with AVX2,",
        "  slower with AVX-512, so only AVX2 does it.",
    ]
    path.write_text("\n".join(lines) + "\n")
