"""Training on data larger than memory: its speed beside that of training in memory.

    .venv/bin/python benchmarks/scale_training.py --json results/scale_training.json

A store is made whose numbers are ``--times`` (10) times as many bytes as the memory that a training
may take beyond what an idle process with the same model has. That limit is set on the process
(RLIMIT_DATA: the system refuses more). Beside it, without a limit, the same training on as many of
the series as fit. Both for stored tokens and for stored series of which half of the points are
dropped anew in each epoch.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

LENGTH, CHANNELS, CLASSES = 1000, 3, 4
MODEL = {
    "d_model": 64, "n_heads": 4, "n_layers": 1, "epochs": 1000, "batch_size": 32, "n_jobs": 1,
    "validation": 0.0, "random_state": 0, "patience": None, "dropout": 0.0,
}  # fmt: skip
# One thread; and no memory that is reserved without being used, which a limit would not see.
ALONE = {"OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
WAYS = {"tokens": {}, "series, half dropped": {"drop": 0.5}}


def write_data(path: Path, n: int) -> None:
    """Random walks with a drift that tells their class, sorted by series and time."""
    rng = np.random.default_rng(0)
    each = 1000
    writer = None
    for first in range(0, n, each):
        count = min(each, n - first)
        label = rng.integers(0, CLASSES, count)
        steps = rng.normal(size=(count, LENGTH, CHANNELS)).astype(np.float32)
        values = np.cumsum(steps + 0.05 * label[:, None, None].astype(np.float32), axis=1)
        times = np.cumsum(rng.exponential(size=(count, LENGTH)), axis=1)
        columns = {"series_id": np.repeat(np.arange(first, first + count), LENGTH),
                   "time": times.ravel(), "label": np.repeat(label, LENGTH)}  # fmt: skip
        columns |= {f"x{c}": values[:, :, c].ravel() for c in range(CHANNELS)}
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def status_mb(name: str) -> float:
    """Of this process: VmData (what RLIMIT_DATA counts), VmRSS (in memory), VmHWM (its peak)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def trained(wish: dict[str, Any]) -> dict[str, Any]:
    """One training, in a process of its own."""
    import roughformer as rf
    from roughformer.store.stored import StoredSeries

    stored = StoredSeries.open(wish["store"])
    options = MODEL | wish["options"] | {"max_seconds": wish["seconds"]}
    # What an idle process has: everything is loaded, and a model of this size has been trained.
    make = partial(rf.RFormerClassifier.from_preset, "default")
    make(**(options | {"max_seconds": 3.0})).fit(stored.part(np.arange(64)))
    idle, resident = status_mb("VmData"), status_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    series: Any = stored
    if wish["limit_mb"] is None:
        series = stored[: wish["in_memory"]]
    else:
        limit = int((idle + wish["limit_mb"]) * 2**20)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    model = make(**options, num_workers=wish["readers"])
    before = time.perf_counter()
    model.fit(series, series.labels)
    # The first epoch of a training in memory makes the tokens: it is no measure of what follows.
    records = model.history_[1:] if len(model.history_) > 1 else model.history_
    count = sum(r["samples_per_second"] * r["seconds"] for r in records)
    return {
        "series_per_second": count / sum(r["seconds"] for r in records),
        "wait_share": sum(r["wait_seconds"] for r in records) / sum(r["seconds"] for r in records),
        "seconds": time.perf_counter() - before, "epochs": len(model.history_),
        "rise_mb": status_mb("VmHWM") - resident, "idle_mb": resident,
    }  # fmt: skip


def in_process(wish: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--one", json.dumps(wish)],
        capture_output=True, text=True, check=False, env=os.environ | ALONE,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(place: Path, wish: argparse.Namespace) -> dict[str, Any]:
    import roughformer as rf
    from roughformer.store.build import build_store
    from roughformer.store.dataset import TableColumns

    names = tuple(f"x{c}" for c in range(CHANNELS))
    columns = TableColumns(series_id="series_id", time="time", channels=names, label="label")
    each = LENGTH * (8 + 4 * CHANNELS)  # bytes of the numbers of a series
    n = int(wish.times * wish.limit_mb * 2**20 / each)
    data = place / "data.parquet"
    write_data(data, n)
    tokens = {"windows": 75, "depth": 2, "clock": 0, "spectrum": None, "basepoint": False}
    rows = []
    for way, options in WAYS.items():
        store = place / way.split(",")[0]
        config = None if options else rf.TokenConfig(windows=75, depth=2)
        build_store([data], store, columns, config, series=True)
        size = sum(file.stat().st_size for file in store.glob("shard-*"))
        base = {"store": str(store), "seconds": wish.seconds, "in_memory": min(n, 4000)}
        more = options | (tokens if options else {})
        memory = in_process(base | {"options": more | tokens, "limit_mb": None, "readers": 0})
        for readers in (0, 1):
            limited = in_process(
                base | {"options": more, "limit_mb": wish.limit_mb, "readers": readers}
            )
            rows.append(
                {
                    "stored": way, "readers": readers, "series": n, "store_mb": size / 2**20,
                    "numbers_mb": n * each / 2**20, "limit_mb": wish.limit_mb,
                    "series_per_second": limited["series_per_second"],
                    "in_memory": memory["series_per_second"],
                    "ratio": limited["series_per_second"] / memory["series_per_second"],
                    "wait_share": limited["wait_share"],
                    "rise_mb": limited["rise_mb"], "idle_mb": limited["idle_mb"],
                }
            )  # fmt: skip
    return {"rows": rows}


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="training from a store beside training in memory")
    for column in rows[0]:
        table.add_column(column)
    for row in rows:
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()))
    Console(width=200).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=float, default=10.0, help="numbers : memory")
    parser.add_argument("--limit-mb", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=40.0, help="of each training")
    parser.add_argument("--place", type=Path, help="directory for data and stores")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    wish = parser.parse_args()
    if wish.one:
        print(json.dumps(trained(json.loads(wish.one))))
        return
    if wish.quick:
        wish.limit_mb, wish.times, wish.seconds = 60.0, 1.0, 6.0
    with tempfile.TemporaryDirectory(dir=wish.place) as place:
        results = measured(Path(place), wish)
    results["environment"] = {
        "date": time.strftime("%Y-%m-%d"), "python": platform.python_version(),
        "machine": platform.machine(), "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
    }  # fmt: skip
    show(results["rows"])
    if wish.json:
        wish.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
