"""Write docs/scaled.md from results/{scale,scale_training}.json.

python docs/_scaled.py
"""

import json
from pathlib import Path
from typing import Any

from _results import table

from roughformer.store.dataset import Sizes

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
CORES, PETABYTE = 10_000, 1e15
# What a plan needs and a measurement here cannot give; said on the page.
DOLLARS_A_CORE_HOUR, DOLLARS_A_GB_MONTH = 0.04, 0.02
FOOTER_SECONDS, FILE_BYTES = 0.02, 1e9
ROW_BYTES, MANIFEST_BYTES = 40, 110  # in memory; of a shard's entry


def stores(found: dict[str, Any]) -> str:
    """From Parquet to tokens."""
    text = (
        "## From Parquet to tokens\n\n`python benchmarks/scale.py`. "
        f"{found['observations']:,} observations of three channels, series of "
        f"{found['length']:,} points, {found['windows']} windows, depth 2, both views. Reading: "
        "pyarrow, as it comes, decodes the same columns in as many processes, without threads of "
        "its own, and throws them away (our workers map files into memory and keep what they "
        "have allocated, which would make it faster, too); there: share of the speed of the same "
        "reading as tasks of the same "
        "engine.\n\n"
    )
    rows = []
    for run in found["runs"]:
        for name, one in run.items():
            if not isinstance(one, dict) or name.startswith("read"):
                continue
            engine, workers = name.split()
            stages = one["seconds_per_million"]
            rows.append(
                [
                    run["order"], engine, workers, f"{one['speed'] / 1e6:.1f}",
                    f"{run[f'read {workers}']['speed'] / 1e6:.1f}", f"{one['of_reading']:.0%}",
                    f"{one['of_reading_there']:.0%}",
                    f"{one['peak_bytes'] / 1e9:.2f}", f"{one['seconds']:.0f}",
                    *(f"{stages[s]:.3f}" if s in stages else "–"
                      for s in ("shuffle", "read", "tokens", "write")),
                ]
            )  # fmt: skip
    head = [
        "rows", "engine", "processes", "M obs/s", "reading alone", "share", "there", "peak GB",
        "s in all", "shuffle", "read", "tokens", "write",
    ]  # fmt: skip
    text += table(head, rows)
    gains = "; ".join(
        f"{run['order']}, {name.split()[1]} {run[name]:.2f} (reading alone "
        f"{run['read 2']['speed'] / run['read 1']['speed']:.2f})"
        for run in found["runs"]
        for name in run
        if name.startswith("speedup")
    )
    sizes = found["runs"][0]
    written = next(v for k, v in sizes.items() if k.endswith(" 1") and not k.startswith("read"))
    return text + (
        "\nThe last four columns are seconds of all processes per million observations. One "
        f"process to two: {gains} times. A million observations are "
        f"{sizes['input_bytes_per_million'] / 1e6:.1f} MB of Parquet and become "
        f"{written['bytes_per_million'] / 1e6:.2f} MB of tokens.\n\n"
    )


def training(found: dict[str, Any]) -> str:
    """Training from a store beside training in memory."""
    cells = [
        [
            r["stored"], str(r["readers"]), f"{r['series']:,}", f"{r['numbers_mb']:,.0f}",
            f"{r['limit_mb']:.0f}", f"{r['series_per_second']:.0f}", f"{r['in_memory']:.0f}",
            f"{r['ratio']:.0%}", f"{r['wait_share']:.1%}", f"{r['rise_mb']:.0f}",
        ]
        for r in found["rows"]
    ]  # fmt: skip
    head = [
        "stored", "readers", "series", "numbers, MB", "memory for data, MB", "series / s",
        "in memory", "ratio", "waited", "rise, MB",
    ]  # fmt: skip
    return (
        "## Training on data larger than memory\n\n`python benchmarks/scale_training.py`. The "
        "memory for data is a limit that the system enforces on the process (beyond what it has "
        "when idle); waited: share of the time in which the model waited for batches; rise: "
        "of the resident memory while training.\n\n"
        + table(head, cells) + "\n"
    )  # fmt: skip


def plan(found: dict[str, Any]) -> str:
    """A petabyte on 10,000 cores, from the figures above."""
    runs = {run["order"]: run for run in found["runs"]}
    one, mixed = runs["sorted"]["local 1"], runs["shuffled"]["local 1"]
    observations = PETABYTE / (runs["sorted"]["input_bytes_per_million"] / 1e6)
    hours, slow = (observations / run["speed"] / 3600 for run in (one, mixed))
    rate = PETABYTE / (hours / CORES * 3600)  # bytes a second
    out = observations / 1e6 * one["bytes_per_million"]
    files, units = PETABYTE / FILE_BYTES, observations * ROW_BYTES / Sizes().rows
    return (HERE / "_scaled_plan.txt").read_text().format(
        observations=f"{observations:.1e}",
        hours=f"{hours:,.0f}",
        clock=f"{60 * hours / CORES:.0f}",
        slow_hours=f"{slow:,.0f}",
        slow_clock=f"{60 * slow / CORES:.0f}",
        rate=f"{rate / 1e9:,.0f}",
        rate_each=f"{rate / CORES / 1e6:.0f}",
        files=f"{files:,.0f}",
        planning=f"{files * FOOTER_SECONDS / 3600:.1f}",
        units=f"{units:,.0f}",
        manifest=f"{units * MANIFEST_BYTES / 1e6:,.0f}",
        out_tb=f"{out / 1e12:.0f}",
        price=f"{DOLLARS_A_CORE_HOUR:.2f}",
        dollars=f"{hours * DOLLARS_A_CORE_HOUR:,.0f}",
        keeping=f"{out / 1e9 * DOLLARS_A_GB_MONTH:,.0f}",
        storage=f"{DOLLARS_A_GB_MONTH:.2f}",
        archive=f"{PETABYTE / 1e9 * DOLLARS_A_GB_MONTH:,.0f}",
    )  # fmt: skip


PARTS = {"scale": (stores, plan), "scale_training": (training,)}


def page() -> str:
    """All of it: measurements first, then the plan."""
    text = "# Scaling, measured\n\nWritten by `docs/_scaled.py` from `results/`.\n\n"
    last = ""
    for name, parts in PARTS.items():
        path = RESULTS / f"{name}.json"
        if not path.exists():
            text += f"## {name}\n\nNot run yet.\n\n"
            continue
        found = json.loads(path.read_text())
        text += parts[0](found)
        last += "".join(part(found) for part in parts[1:])
    return (text + last).rstrip() + "\n"


if __name__ == "__main__":
    (HERE / "scaled.md").write_text(page())
