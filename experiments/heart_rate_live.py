"""Heart rate live: whole recordings of patients that the model has not seen, second by second.

A model of rates, trained on the training recordings of BIDMC (patient protocol), follows each of
the 16 test recordings as a stream: every second it says the rate over the last 32 s, from all
samples or from those that are left when half, or four in five, of them are dropped at random. The
truth is the monitor's rate, averaged over the same 32 s. Then alarms: hearts that are made up jump
from below to above 100 beats a minute; how long after that does the stream's alarm ring?

    ROUGHFORMER_DATA=... python experiments/heart_rate_live.py --plot picture.png
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from _results import ROOT, Results, show
from heart_rate import TEMPO

import roughformer as rf
from roughformer.inference import Alarm, AlarmState, time_to_detection
from roughformer.serve.pulse import pulse_signal
from roughformer_paper.datasets import (
    heart_rate_recording,
    heart_rate_split,
    heart_rate_test_recordings,
    load_heart_rate,
)

SPAN = 32.0
DROPS = (0.0, 0.5, 0.8)
CHUNK = 125  # samples that are pushed together: one second


def trained(directory: Path, data: Path | None) -> rf.RateRegressor:
    """The model of the patient protocol, from ``directory`` if it is there."""
    if (directory / "config.json").exists():
        return rf.RateRegressor.load(directory)
    batch = load_heart_rate(data)
    parts = heart_rate_split("patient")
    train, valid = batch[parts["train"]], batch[parts["validation"]]
    model = rf.RateRegressor(**TEMPO, random_state=1, verbose=1)
    model.fit(train, validation_data=(valid, valid.labels)).save(directory)
    return model


def followed(model: Any, recording: int, drop: float, data: Path | None) -> dict[str, Any]:
    """Times, what the stream said with its deviation, and the truth where it is known."""
    times, values, beats = heart_rate_recording(recording, data)
    rng = np.random.default_rng(recording)
    kept = np.flatnonzero(rng.random(len(times)) >= drop)
    stream = rf.Stream(model, span=SPAN, every=1.0)
    said, spent = [], 0.0
    for i in range(0, len(kept), CHUNK):
        rows = kept[i : i + CHUNK]
        before = time.perf_counter()
        events = stream.push(times[rows], values[rows])
        spent += time.perf_counter() - before
        said += [
            (e.time, float(e.answer.point[0, 0]), float(e.answer.deviation[0, 0])) for e in events
        ]
    when, point, deviation = np.array(said).T
    truth = np.full(len(when), np.nan)
    for i, t in enumerate(when):
        last = round(t)
        window = beats[max(last - int(SPAN), 0) : last]
        if last >= SPAN and np.isfinite(window).any():
            truth[i] = np.nanmean(window)
    return {
        "time": when, "point": point, "deviation": deviation, "truth": truth,
        "ms_each": 1e3 * spent / max(len(said), 1),
    }  # fmt: skip


def row_of(recording: int, drop: float, found: dict[str, Any]) -> dict[str, Any]:
    error = found["point"] - found["truth"]
    known = np.isfinite(error)
    return {
        "recording": recording, "drop": drop, "seconds": len(error),
        "rmse": float(np.sqrt(np.mean(error[known] ** 2))),
        "median": float(np.median(np.abs(error[known]))),
        "ms_each": found["ms_each"],
        # every fifth second: enough for the picture
        "time": found["time"][::5].round(2).tolist(),
        "error": [None if np.isnan(e) else round(float(e), 3) for e in error[::5]],
        "deviation": found["deviation"][::5].round(3).tolist(),
    }  # fmt: skip


def jumps(model: Any, drop: float, n: int = 12, seconds: float = 120.0) -> dict[str, Any]:
    """Hearts that jump from 60 ... 90 to 110 ... 150 beats a minute at a random moment: how long
    until the alarm above 100, for three seconds, rings.
    """
    alarm = Alarm(100.0, release=95.0, after=3.0)  # the first seconds of a stream say little
    delays, false = [], 0
    for seed in range(n):
        rng = np.random.default_rng(seed)
        at = float(rng.uniform(50, 70))
        times = np.arange(0, seconds, 1 / 125)
        low, high = rng.uniform(60, 90), rng.uniform(110, 150)
        values = pulse_signal(times, np.where(times < at, low, high), seed)
        kept = rng.random(len(times)) >= drop
        streams = rf.StreamBatch(model, 1, span=SPAN, every=1.0)
        state = AlarmState(alarm, 1)
        which = np.zeros(int(kept.sum()), dtype=np.int64)
        events = streams.push(which, times[kept], values[kept])
        assert events.answers.point is not None
        done = state.update(events.slot, events.time, events.answers.point[:, 0])
        found = time_to_detection([at], events.time[done == 1], seconds)
        delays += found.delays.tolist()
        false += found.false_alarms
    known = np.array([d for d in delays if np.isfinite(d)])
    return {
        "kind": "jumps", "drop": drop, "hearts": n, "missed": n - len(known), "false": false,
        "median_delay": float(np.median(known)), "longest_delay": float(known.max()),
    }  # fmt: skip


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Absolute error over time: the median over recordings, its quartiles, and the worst one."""
    from roughformer.plots.figure import BLUE, GREY, ORANGE, new_figure, styled, tidy

    with styled() as matplotlib:
        figure = new_figure(matplotlib, 9.0, 3.6)
        axes = figure.subplots()
        for drop, colour in zip(DROPS, (BLUE, ORANGE, GREY), strict=True):
            own = [r for r in rows if r["drop"] == drop]
            length = min(len(r["error"]) for r in own)
            error = np.array(
                [[np.nan if e is None else e for e in r["error"][:length]] for r in own]
            )
            size = np.abs(error)
            t = np.array(own[0]["time"][:length]) / 60
            known = np.isfinite(size).any(axis=0)
            t, size = t[known], size[:, known]
            middle, low, high = np.nanquantile(size, [0.5, 0.25, 0.75], axis=0)
            axes.plot(t, middle, color=colour, label=f"{drop:.0%} dropped")
            axes.fill_between(t, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set_yscale("log")
        axes.set_xlabel("minutes since the stream began")
        axes.set_ylabel("error, beats a minute")
        axes.legend(loc="upper right", ncols=3)
        tidy(axes)
        figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "heart_rate_live.json")
    parser.add_argument("--model", type=Path, default=ROOT / "runs" / "heart_rate_live" / "model")
    parser.add_argument("--data", type=Path, default=None, help="directory with bidmc/")
    parser.add_argument("--plot", type=Path, default=None)
    parser.add_argument("--again", action="store_true", help="forget rows already measured")
    args = parser.parse_args()
    results = Results(args.out, args.again)
    recordings = heart_rate_test_recordings().tolist()
    todo = [(r, d) for r in recordings for d in DROPS if not results.get(recording=r, drop=d)]
    ring = [d for d in DROPS if not results.get(kind="jumps", drop=d)]
    if todo or ring:
        model = trained(args.model, args.data)
        for recording, drop in todo:
            results.add(row_of(recording, drop, followed(model, recording, drop, args.data)))
            print(f"recording {recording}, {drop:.0%} dropped", flush=True)
        for drop in ring:
            results.add(jumps(model, drop))
    followed_rows = [r for r in results.rows if "recording" in r]
    table = []
    for drop in DROPS:
        own = [r for r in followed_rows if r["drop"] == drop]
        square = [r["rmse"] ** 2 for r in own]
        table.append(
            [
                f"{drop:.0%}",
                float(np.sqrt(np.mean(square))),
                float(np.median([r["rmse"] for r in own])),
                float(np.median([r["median"] for r in own])),
                float(np.median([r["ms_each"] for r in own])),
            ]
        )
    show(
        f"heart rate live, {len(recordings)} test recordings, beats a minute",
        ["dropped", "RMSE", "median recording's RMSE", "median error", "ms a prediction"],
        table,
    )
    show(
        "alarm above 100 beats a minute after a jump, seconds",
        ["dropped", "median delay", "longest", "missed", "false"],
        [
            [f"{r['drop']:.0%}", r["median_delay"], r["longest_delay"], r["missed"], r["false"]]
            for r in results.rows
            if r.get("kind") == "jumps"
        ],
    )
    if args.plot:
        plot(followed_rows, args.plot)


if __name__ == "__main__":
    main()
