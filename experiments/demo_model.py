"""How well the model of ``roughformer serve --demo`` holds while observations are dropped.

Errors of the mean rate over 32 s, in beats a minute: on made-up pulses that it was not trained on,
half of them with a channel that is disturbed or off for a part of the time, and on pieces of the 16
test recordings of BIDMC, of a kind of signal that it has never seen.

    ROUGHFORMER_DATA=... python experiments/demo_model.py
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from _results import ROOT, Results, show

import roughformer as rf
from roughformer.serve.demo import DEMO_SPAN, train_demo_model
from roughformer.serve.pulse import make_pulse
from roughformer_paper.datasets import heart_rate_recording, heart_rate_test_recordings

DROPS = (0.0, 0.5, 0.7, 0.8, 0.9)
SERIES, PIECES, SEED = 1000, 7, 4321  # made up; of each recording


def pieces(data: Path | None) -> rf.SeriesBatch:
    """Parts of the test recordings, one after the other, with the mean of the monitor's rate."""
    values, times, truth = [], [], []
    for recording in heart_rate_test_recordings().tolist():
        t, x, beats = heart_rate_recording(recording, data)
        for k in range(PIECES):
            first, last = int(k * DEMO_SPAN), int((k + 1) * DEMO_SPAN)
            inside = (t >= first) & (t < last)
            if np.isfinite(beats[first:last]).any():
                values.append(x[inside])
                times.append(t[inside])
                truth.append(np.nanmean(beats[first:last]))
    return rf.SeriesBatch.from_arrays(
        values, times, channels=["PPG", "ECG"], labels=np.array(truth)
    )


def row_of(model: Any, name: str, batch: rf.SeriesBatch, drop: float) -> dict[str, Any]:
    thin = batch.drop_points(drop, SEED) if drop else batch
    truth = np.asarray(batch.labels)
    error = np.abs(model.predict(thin) - truth)
    lower, upper = model.predict_interval(thin, coverage=0.9)
    return {
        "signals": name, "drop": drop, "series": len(batch), "median": float(np.median(error)),
        "most_below": float(np.quantile(error, 0.95)), "within_5": float(np.mean(error <= 5)),
        "covered": float(np.mean((lower <= truth) & (truth <= upper))),
        "width": float(np.mean(upper - lower)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "demo_model.json")
    parser.add_argument("--data", type=Path, help="directory with bidmc/")
    parser.add_argument("--again", action="store_true", help="forget rows already measured")
    args = parser.parse_args()
    results = Results(args.out, args.again)
    model = train_demo_model()
    for name, batch in (
        ("made up", make_pulse(SERIES, DEMO_SPAN, seed=SEED)),
        ("BIDMC", pieces(args.data)),
    ):
        for drop in DROPS:
            if results.get(signals=name, drop=drop) is None:
                results.add(row_of(model, name, batch, drop))
    columns = ["signals", "drop", "series", "median", "most_below", "within_5"]
    columns += ["covered", "width"]
    show("the demo's model", columns, [[row[c] for c in columns] for row in results.rows])


if __name__ == "__main__":
    main()
