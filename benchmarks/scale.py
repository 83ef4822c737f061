"""From Parquet to tokens, larger than memory: speed beside that of reading alone, and memory.

    .venv/bin/python benchmarks/scale.py --json results/scale.json

Data of (id, time, three channels) are generated once, sorted by series or with series spread over
all row groups. Then, each in a process of its own:

1. reading: pyarrow, as it comes, decodes the five columns and throws them away, with 1 and 2
   processes;
2. ``roughformer features`` at depth 2 with 1 and 2 processes, and on Ray with ``--engines``.

Speeds are steady ones: rows between the end of the first unit of work and the end of the last one,
so the start of processes does not count (``seconds`` has all of it; Ray's workers have made a few
shards before). Each run stands between two of reading, whose mean it is compared with; one on Ray
stands also beside tasks of Ray that only read ("there"). Of several rounds the medians are told.
Peak memory is the sum over all processes of a run. Bytes and seconds per million observations are
of all processes, by stage.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from _scale_data import COLUMNS, decode, make_table
from rich.console import Console
from rich.table import Table

STAGES = ("read", "shuffle", "tokens", "write")


class Steady:
    """Rows a second between the end of the first unit and the end of the last one."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, int]] = []

    def mark(self, rows: int) -> None:
        self.marks.append((time.perf_counter(), rows))

    def speed(self, workers: int) -> float:
        marks = self.marks
        # The first units of all workers end at about the same time.
        first, last = marks[min(workers - 1, max(len(marks) - 2, 0))], marks[-1]
        return (last[1] - first[1]) / max(last[0] - first[0], 1e-9)


def read(data: str, workers: int, engine: str = "local") -> dict[str, Any]:
    units = []
    for path in sorted(Path(data).glob("*.parquet")):
        count = pq.ParquetFile(path).num_row_groups
        units += [(str(path), list(range(k, min(k + 4, count)))) for k in range(0, count, 4)]
    steady, done = Steady(), 0

    def tell(rows: int) -> None:
        nonlocal done
        done += rows
        steady.mark(done)

    if engine == "ray":
        from roughformer.store.workers import run_units

        _cluster(workers)
        run_units(units[: 4 * workers], decode, engine="ray", workers=workers)
        start = time.perf_counter()
        run_units(units, decode, engine="ray", workers=workers, progress=tell)
    else:
        start = time.perf_counter()
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            # One process reads by itself; that it need not be started does not count.
            for rows in map(decode, units) if workers == 1 else pool.map(decode, units):
                tell(rows)
    return {"seconds": time.perf_counter() - start, "speed": steady.speed(workers), "rows": done}


def build(data: str, out: str, workers: int, engine: str, windows: Any) -> dict[str, Any]:
    from roughformer.store import TableColumns, build_store
    from roughformer.tokens import TokenConfig

    columns, config = TableColumns("id", "time", COLUMNS[2:]), TokenConfig(windows=windows, depth=2)
    if engine == "ray":
        _warm(data, f"{out}-warm", columns, config, workers)
    stages: dict[str, Steady] = {}

    def tell(stage: str, done: int, total: int) -> None:
        if stage in stages:
            stages[stage].mark(done)
        stages.setdefault(stage, Steady())

    start = time.perf_counter()
    built = build_store(
        [data], out, columns, config, workers=workers, engine=engine,  # type: ignore[arg-type]
        progress=tell,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    totals, shards = built.manifest.totals, built.manifest.shards
    speeds = {stage: steady.speed(workers) for stage, steady in stages.items()}
    millions = totals.points / 1e6
    return {
        "seconds": seconds,
        "speed": 1 / sum(1 / speed for speed in speeds.values()),
        "rows": totals.points,
        "series": totals.series,
        "shards": len(shards),
        "bytes_per_million": sum(s.bytes for s in shards) / millions,
        "seconds_per_million": {
            k: built.seconds[k] / millions for k in STAGES if k in built.seconds
        },
        "torch": "torch" in sys.modules,
    }


def _cluster(workers: int) -> None:
    """One of as many processors on this machine."""
    import ray

    quiet = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}
    ray.init(address="local", num_cpus=workers, **quiet)


def _warm(data: str, out: str, columns: Any, config: Any, workers: int) -> None:
    """A cluster on this machine, whose workers have started: that takes seconds each, one after the
    other, which would hide the speed of a build of as many seconds.
    """
    from roughformer.store import build_store

    _cluster(workers)
    some = sorted(Path(data).glob("*.parquet"))[:4]
    build_store(some, out, columns, config, workers=workers, engine="ray")
    shutil.rmtree(out)


def in_process(**job: Any) -> dict[str, Any]:
    """A run in a process of its own, with the peak of the memory of it and all its children."""
    command = [sys.executable, os.path.abspath(__file__), "--run", json.dumps(job)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    peak, tree, looked = 0, [run.pid], 0.0
    while run.poll() is None:
        # Processes are looked for once a second: Ray has a thousand threads to ask for children,
        # and that, often, would take part of a core from those that are measured.
        if time.perf_counter() - looked > 1:
            tree, looked = _below(run.pid), time.perf_counter()
        peak = max(peak, sum(map(_resident, tree)))
        time.sleep(0.1)
    assert run.stdout is not None
    text = run.stdout.read()
    if run.returncode:
        raise SystemExit(f"failed: {job}")
    return {**json.loads(text.splitlines()[-1]), "peak_bytes": peak}


def _below(root: int) -> list[int]:
    """A process and all below it."""
    found = [root]
    with suppress(OSError):  # it has ended
        for task in os.listdir(f"/proc/{root}/task"):
            with suppress(OSError):
                text = Path(f"/proc/{root}/task/{task}/children").read_text()
                for child in text.split():
                    found += _below(int(child))
    return found


def _resident(process: int) -> int:
    """Bytes in memory of a process; 0 if it has ended."""
    with suppress(OSError):
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def measure(options: argparse.Namespace, order: str, console: Console) -> dict[str, Any]:
    rows = int(options.observations)
    data = make_table(
        options.where / f"{order}-{rows}-{options.length}", rows, options.length, order
    )
    size = sum(file.stat().st_size for file in data.glob("*.parquet"))
    found: dict[str, Any] = {
        "order": order,
        "rounds": options.rounds,
        "input_bytes_per_million": size / (rows / 1e6),
    }
    heads = ("M obs/s", "of reading", "there", "seconds", "peak MB")
    table = Table("", *heads, *(f"{s} s/M" for s in STAGES))
    for workers in (1, 2):
        runs = {"read": [in_process(kind="read", data=str(data), workers=workers)]}
        for _ in range(options.rounds):
            # Reading before and after: a machine may be faster at one time than at another.
            for engine in options.engines:
                out = options.where / f"store-{order}"
                shutil.rmtree(out, ignore_errors=True)
                run = in_process(kind="build", data=str(data), out=str(out), engine=engine,
                                 workers=workers, windows=options.windows)  # fmt: skip
                shutil.rmtree(out, ignore_errors=True)
                runs["read"].append(in_process(kind="read", data=str(data), workers=workers))
                around = [r["speed"] for r in runs["read"][-2:]]
                run["of_reading"] = run["of_reading_there"] = run["speed"] / statistics.mean(around)
                runs.setdefault(engine, []).append(run)
                if engine == "ray":
                    there = in_process(kind="read", data=str(data), workers=workers, engine=engine)
                    run["of_reading_there"] = run["speed"] / there["speed"]
                    runs.setdefault("read on ray", []).append(there)
        for name, several in runs.items():
            middle = sorted(several, key=lambda run: run["speed"])[len(several) // 2]
            found[f"{name} {workers}"] = middle
            cells = [f"{name}, {workers}", f"{middle['speed'] / 1e6:.2f}"]
            for share in ("of_reading", "of_reading_there"):
                if share in middle:
                    middle[share] = statistics.median(run[share] for run in several)
                cells.append(f"{middle[share]:.0%}" if share in middle else "")
            stages = middle.get("seconds_per_million", {})
            table.add_row(*cells, f"{middle['seconds']:.1f}", f"{middle['peak_bytes'] / 1e6:.0f}",
                          *(f"{stages[s]:.3f}" if s in stages else "" for s in STAGES))  # fmt: skip
    for engine in options.engines:
        found[f"speedup {engine}"] = found[f"{engine} 2"]["speed"] / found[f"{engine} 1"]["speed"]
    console.print(f"{order}: {rows:,} observations, {size / 1e9:.2f} GB of Parquet")
    console.print(table)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--observations", type=float, default=1e8)
    parser.add_argument("--length", type=int, default=10_000, help="points of a series")
    parser.add_argument("--windows", type=json.loads, default=75, help='75 or {"duration": 60}')
    parser.add_argument("--orders", nargs="+", default=["sorted", "shuffled"])
    parser.add_argument("--engines", nargs="+", default=["local"], help="local, ray")
    parser.add_argument("--rounds", type=int, default=3, help="of which the middle one counts")
    parser.add_argument("--where", type=Path, default=Path("/tmp/roughformer-scale"))
    parser.add_argument("--quick", action="store_true", help="4 million observations")
    parser.add_argument("--keep", action="store_true", help="do not delete the generated data")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--run", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        kind = options.run.pop("kind")
        print(json.dumps({"read": read, "build": build}[kind](**options.run)))
        return
    if options.quick:
        options.observations = 4e6
    console = Console()
    found = [measure(options, order, console) for order in options.orders]
    if options.json:
        about = {"machine": platform.platform(), "cores": os.cpu_count(), "load": os.getloadavg(),
                 "observations": int(options.observations), "length": options.length,
                 "windows": options.windows}  # fmt: skip
        options.json.write_text(json.dumps({**about, "runs": found}, indent=1))
    if not options.keep:
        shutil.rmtree(options.where, ignore_errors=True)


if __name__ == "__main__":
    main()
