"""Live streams: throughput, latency and memory, and that none of them depends on history.

    .venv/bin/python benchmarks/streaming.py --json results/streaming.json

1. in process: 1000 streams of two channels at 125 observations a second each, windows of a second.
2. over WebSocket: the same, sent by a second process to ``roughformer serve``.
3. cost of an observation after 10³ and after 10⁶ observations of a stream.
4. beside the naive way (the offline model on the whole history at each window's end), and for the
   signatures alone beside pySigLib's ``SigStream``.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import roughformer as rf
from roughformer.serve.pulse import make_pulse

RATE = 125.0  # observations a second


def trained_model() -> rf.RFormerRegressor:
    """A causal model of the usual size; one epoch, as its answers do not matter here."""
    train = make_pulse(24, 32.0, seed=0, disturbed=0.0)
    model = rf.RFormerRegressor(
        causal=True, windows=rf.Windows.by_duration(1.0), tokens=rf.TokenConfig(context=32),
        epochs=1, random_state=0, uncertainty="gaussian", validation=0.0,
    )  # fmt: skip
    return model.fit(train, train.labels)


def in_process(model: Any, n: int, seconds: float, per_tick: int) -> dict[str, float]:
    """``n`` streams with phases of their own, ``per_tick`` observations of each in a call."""
    streams = rf.StreamBatch(model, n)
    rng = np.random.default_rng(0)
    phase, who = rng.random(n), np.repeat(np.arange(n), per_tick)
    ticks = int(seconds * RATE / per_tick)
    noise = rng.normal(size=(16, n * per_tick, 2))
    spent, n_events = [], 0
    for k in range(ticks + 1):
        t = (k * per_tick + np.arange(per_tick)) / RATE
        times = np.tile(t, n) + phase[who]
        before = time.perf_counter()
        events = streams.push(who, times, noise[k % 16])
        if k:  # the first call begins the streams
            spent.append(time.perf_counter() - before)
            n_events += len(events)
    return {
        "streams": n, "rows_a_call": n * per_tick, "seconds_of_data": seconds,
        "times_real_time": ticks * per_tick / RATE / sum(spent), "predictions": n_events,
        "p50_ms": 1e3 * float(np.median(spent)), "p99_ms": 1e3 * float(np.quantile(spent, 0.99)),
        "busy_share_of_a_core": sum(spent) / seconds, "bytes_a_stream": int(streams.nbytes(0)[0]),
    }  # fmt: skip


def history(model: Any, rounds: int, chunk: int = 12_500) -> dict[str, float]:
    """Seconds an observation of a young and of an old stream, taken in turns."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(chunk, 2))
    old = rf.Stream(model)
    t = np.arange(chunk) / RATE
    for k in range(1_000_000 // chunk):
        old.push(k * chunk / RATE + t, x)
    young_times, old_times = [], []
    at = old.count / RATE
    for _ in range(rounds):
        young = rf.Stream(model)
        young.push(np.arange(1000) / RATE, x[:1000])
        before = time.perf_counter()
        young.push(1000 / RATE + t, x)
        young_times.append(time.perf_counter() - before)
        before = time.perf_counter()
        old.push(at + t, x)
        old_times.append(time.perf_counter() - before)
        at += chunk / RATE
    a, b = float(np.median(young_times)) / chunk, float(np.median(old_times)) / chunk
    return {
        "after_1e3_us": 1e6 * a, "after_1e6_us": 1e6 * b, "ratio": b / a,
        "bytes_after_1e3": young.nbytes, "bytes_after_1e6": old.nbytes,
    }  # fmt: skip


def naive(model: Any, sizes: tuple[int, ...]) -> list[dict[str, float]]:
    """One window of a second more after so many observations: streamed, and all of it again."""
    rng = np.random.default_rng(0)
    found = []
    for size in sizes:
        t, x = np.arange(size) / RATE, rng.normal(size=(size, 2))
        batch = rf.SeriesBatch(t, x, [0, size], channels=("PPG", "ECG"))
        again = []
        for _ in range(3):
            before = time.perf_counter()
            model.predictor_.predict(batch)
            again.append(time.perf_counter() - before)
        stream = rf.Stream(model)
        stream.push(t, x)
        streamed = []
        for k in range(20):
            new = t[-1] + (k * 125 + 1 + np.arange(125)) / RATE
            before = time.perf_counter()
            stream.push(new, x[:125])
            streamed.append(time.perf_counter() - before)
        a, b = float(np.median(again)), float(np.median(streamed))
        found.append(
            {"observations": size, "again_ms": 1e3 * a, "stream_ms": 1e3 * b, "ratio": a / b}
        )
    return found


def signatures(n: int = 1000, dim: int = 3, depth: int = 4, steps: int = 50) -> dict[str, Any]:
    """One point more of ``n`` running signatures, and reading them: beside pySigLib."""
    rng = np.random.default_rng(0)
    path = rng.normal(size=(steps + 1, n, dim)).astype(np.float32)
    running = rf.RunningSignatures(n, dim, depth)
    running.push(path[0])
    ours = []
    for k in range(1, steps + 1):
        before = time.perf_counter()
        running.push(path[k])
        running.read("global")
        ours.append(time.perf_counter() - before)
    found: dict[str, Any] = {"ours_us": 1e6 * float(np.median(ours))}
    try:
        import pysiglib
    except ImportError:
        return found | {"pysiglib_us": None}
    theirs, stream = [], pysiglib.SigStream(dim, depth)
    stream.push(path[0])
    for k in range(1, steps + 1):
        before = time.perf_counter()
        stream.push(path[k])
        stream.sig(0, k)
        theirs.append(time.perf_counter() - before)
    return found | {
        "pysiglib_us": 1e6 * float(np.median(theirs)),
        "ratio": float(np.median(theirs) / np.median(ours)),
    }


def over_websocket(model: Any, n: int, seconds: float) -> dict[str, float]:
    """A second process sends rows of ``n`` streams in real time; how late predictions come."""
    with tempfile.TemporaryDirectory() as place:
        model.save(Path(place) / "model")
        client = Path(__file__).with_name("_stream_client.py")
        done = subprocess.run(
            [sys.executable, str(client), place, str(n), str(seconds)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def show(results: dict[str, Any]) -> None:
    console = Console()
    for name, part in results.items():
        rows = part if isinstance(part, list) else [part]
        if not isinstance(rows[0], dict):
            continue
        table = Table(title=name)
        for column in rows[0]:
            table.add_column(column)
        for row in rows:
            table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()))
        console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0, help="of data, for 1 and 2")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    wish = parser.parse_args()
    n, seconds = (50, 3.0) if wish.quick else (wish.streams, wish.seconds)
    model = trained_model()
    torch.set_num_threads(1)
    results: dict[str, Any] = {
        "in process": [in_process(model, n, seconds, tick) for tick in (1, 5, 25)],
        "over WebSocket": over_websocket(model, n, seconds),
        "history": history(model, 3 if wish.quick else 200),
        "naive": naive(model, (1000, 10_000) if wish.quick else (1000, 10_000, 100_000)),
        "signatures": signatures(n),
        "environment": {
            "date": time.strftime("%Y-%m-%d"), "python": platform.python_version(),
            "torch": torch.__version__, "roughformer": rf.__version__,
            "machine": platform.machine(), "cores": len(os.sched_getaffinity(0)),
            "load": os.getloadavg()[0],
        },
    }  # fmt: skip
    show(results)
    if wish.json:
        wish.json.parent.mkdir(parents=True, exist_ok=True)
        wish.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
