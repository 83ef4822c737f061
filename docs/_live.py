"""Write docs/live.md from results/{streaming,serving,heart_rate_live,demo_model}.json.

python docs/_live.py
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from _results import table

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"


def figure(x: float) -> str:
    """Three digits."""
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"


def streaming(found: dict[str, Any]) -> str:
    """Throughput, latency, history, the naive way, signatures."""
    inside, socket, old = found["in process"], found["over WebSocket"], found["history"]
    rows = [
        [
            figure(r["rows_a_call"]), figure(r["times_real_time"]), figure(r["p50_ms"]),
            figure(r["p99_ms"]), figure(r["busy_share_of_a_core"]),
        ]
        for r in inside
    ]  # fmt: skip
    text = (
        "## Streams\n\n`python benchmarks/streaming.py`. "
        f"{inside[0]['streams']:,} streams of two channels at 125 observations a second each, "
        "windows of a second, a causal model with a context of 32 windows: a prediction with "
        f"its uncertainty for each stream every second. A stream takes "
        f"{figure(inside[0]['bytes_a_stream'] / 1024)} kB.\n\n**In process**, by rows in a call\n\n"
    )
    head = ["rows a call", "times real time", "p50 of a call, ms", "p99", "cores busy"]
    text += table(head, rows)
    text += "\n**Over WebSocket**, sent by a second process in real time\n\n"
    text += table(
        [name.replace("_", " ") for name in socket],
        [[v if isinstance(v, str) else figure(v) for v in socket.values()]],
    )
    text += (
        "\n**Age.** An observation costs "
        f"{figure(old['after_1e3_us'])} µs after 10³ observations of a stream and "
        f"{figure(old['after_1e6_us'])} µs after 10⁶ (ratio {old['ratio']:.3f}); a stream has "
        f"{old['bytes_after_1e3']:,} and {old['bytes_after_1e6']:,} bytes.\n\n"
        "**Beside the naive way**, the offline model on the whole history at each window's end\n\n"
    )
    cells = [
        [figure(r["observations"]), figure(r["stream_ms"]), figure(r["again_ms"]),
         f"{r['ratio']:.1f}"]
        for r in found["naive"]
    ]  # fmt: skip
    text += table(["observations so far", "stream, ms a window", "again, ms", "ratio"], cells)
    signatures = found["signatures"]
    if signatures.get("pysiglib_us") is not None:
        text += (
            "\n**Signatures alone**: one point more of 1,000 running signatures of depth 4 takes "
            f"{figure(signatures['ours_us'])} µs, pySigLib's `SigStream` "
            f"{figure(signatures['pysiglib_us'])} µs ({signatures['ratio']:.1f} times).\n"
        )
    e = found["environment"]
    return text + (
        f"\n*Measured {e['date']} on {e['cores']} cores, Python {e['python']}, torch "
        f"{e['torch']}.*\n\n"
    )


def serving(found: dict[str, Any]) -> str:
    """What a service does at and above its capacity."""
    rows = []
    for name, load in found["loads"].items():
        answers = load["answers"]
        shed = sum(n for code, n in answers.items() if code in ("429", "503"))
        rows.append(
            [
                name, figure(load["offered_per_second"]), figure(load["throughput"]),
                figure(1e3 * load["p50"]), figure(1e3 * load["p99"]),
                f"{100 * shed / load['asked']:.1f} %",
                "–" if load["shed_p99"] is None else figure(1e3 * load["shed_p99"]),
                str(load["lost"] + load["wrong"]),
            ]
        )  # fmt: skip
    head = [
        "load", "asked / s", "answered / s", "p50, ms", "p99, ms", "shed", "p99 of a refusal, ms",
        "lost or wrong",
    ]  # fmt: skip
    request = found["request"]
    return (
        "## The service under load\n\n`python benchmarks/serving.py`. A request has "
        f"{request['series']} series of {request['points']} points; times are of admitted ones; "
        "load and service share the cores.\n\n" + table(head, rows) + "\n"
        f"*{found['environment']['processor']}, {found['environment']['cores']} cores.*\n\n"
    )


def heart_rate(found: dict[str, Any]) -> str:
    """Error over the test recordings, and the alarm."""
    rows = [row for row in found["rows"] if row.get("kind") != "jumps"]
    cells = []
    for drop in sorted({row["drop"] for row in rows}):
        own = [row for row in rows if row["drop"] == drop]
        square = sum(row["seconds"] * row["rmse"] ** 2 for row in own)
        cells.append(
            [
                f"{drop:.0%}", f"{np.sqrt(square / sum(r['seconds'] for r in own)):.2f}",
                f"{np.median([r['rmse'] for r in own]):.2f}",
                f"{np.median([r['median'] for r in own]):.2f}",
            ]
        )  # fmt: skip
    jumps = [
        [
            f"{row['drop']:.0%}", f"{row['median_delay']:.1f}", f"{row['longest_delay']:.1f}",
            f"{row['missed']} of {row['hearts']}", str(row["false"]),
        ]
        for row in found["rows"]
        if row.get("kind") == "jumps"
    ]  # fmt: skip
    return (
        "## Heart rate live\n\n`python experiments/heart_rate_live.py`. The 16 test recordings of "
        "BIDMC (patients that the model has not seen) as streams: every second, the rate over the "
        "last 32 s, in beats a minute.\n\n"
        + table(["dropped", "RMSE", "RMSE, median recording", "median error"], cells)
        + "\n![Error over time](images/heart_rate_live.png)\n\n*Absolute error over time: median "
        "and quartiles over the recordings.*\n\n**Alarm.** Hearts that are made up jump from 60 to "
        "90 to 110 to 150 beats a minute; seconds until an alarm above 100 for 3 s rings. A mean "
        "over 32 s must first be past 100.\n\n"
        + table(["dropped", "median", "longest", "missed", "false alarms"], jumps)
        + "\n"
    )


def demo_model(found: dict[str, Any]) -> str:
    """How well the demo's model holds."""
    cells = [
        [
            row["signals"], str(row["series"]), f"{row['drop']:.0%}", f"{row['median']:.2f}",
            f"{row['most_below']:.1f}", f"{row['within_5']:.1%}",
            f"{row['covered']:.0%}", f"{row['width']:.1f}",
        ]
        for row in found["rows"]
    ]  # fmt: skip
    head = [
        "signals", "series", "dropped", "median error", "95 % are below", "within 5",
        "inside the 90 % interval", "its mean width",
    ]  # fmt: skip
    return (
        "## The demo's model\n\n`python experiments/demo_model.py`. Errors of the mean rate over "
        "32 s, in beats a minute: on made-up pulses that it was not trained on, half of them "
        "disturbed for a part of the time, and on pieces of the 16 test recordings of BIDMC.\n\n"
        + table(head, cells)
        + "\n"
    )


PARTS = {
    "streaming": streaming,
    "serving": serving,
    "heart_rate_live": heart_rate,
    "demo_model": demo_model,
}


def page() -> str:
    """All of it."""
    text = "# Live, measured\n\nWritten by `docs/_live.py` from `results/`.\n\n"
    for name, part in PARTS.items():
        path = RESULTS / f"{name}.json"
        if path.exists():
            text += part(json.loads(path.read_text()))
        else:
            text += f"## {name}\n\nNot run yet.\n\n"
    return text.rstrip() + "\n"


if __name__ == "__main__":
    (HERE / "live.md").write_text(page())
