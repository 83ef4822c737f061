"""Heart rate from PPG and ECG (BIDMC): random and patient protocol, full and 50 % dropped.

Patient: whole recordings are held out, for validation and for test; a model of rates
(``RateRegressor``) that commutes with tempo. Random: the paper's protocol, in which test windows
overlap training windows of the same patient; an ordinary model, which may recognise patients.
Run: ROUGHFORMER_DATA=... python experiments/heart_rate.py
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from _results import ROOT, Results, show

import roughformer as rf
from roughformer_paper.datasets import heart_rate_split, load_heart_rate

TEMPO: dict[str, Any] = {
    "rate_unit": 1 / 60, "drop": (0.0, 0.5), "epochs": 8, "learning_rate": 3e-3,
    "training": rf.TrainConfig(batch_size=64, warp=0.26, draws=2),
}  # fmt: skip
DENSE: dict[str, Any] = {
    "drop": (0.0, 0.5), "epochs": 30, "views": ("local",),
    "tokens": rf.TokenConfig(basepoint=False), "model": rf.ModelConfig(d_model=128),
    "training": rf.TrainConfig(batch_size=64, draws=3),
}  # fmt: skip
RECIPES = {"patient": (rf.RateRegressor, TEMPO), "random": (rf.RFormerRegressor, DENSE)}
LEVELS = (0.0, 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "heart_rate.json")
    parser.add_argument("--data", type=Path, default=None, help="directory with bidmc/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--protocols", nargs="*", default=list(RECIPES), choices=list(RECIPES))
    parser.add_argument("--again", action="store_true", help="forget rows already measured")
    args = parser.parse_args()
    results = Results(args.out, args.again)
    batch = load_heart_rate(args.data)
    recording = batch.static[:, 0].astype(int)
    for protocol in args.protocols:
        kind, options = RECIPES[protocol]
        parts = heart_rate_split(protocol)
        train, valid, test = (batch[parts[k]] for k in ("train", "validation", "test"))
        for seed in range(args.seeds):
            if results.get(protocol=protocol, seed=seed):
                continue
            start = time.perf_counter()
            model = kind(**options, random_state=seed, verbose=1)
            model.fit(train, validation_data=(valid, valid.labels))
            row: dict[str, Any] = {"protocol": protocol, "seed": seed, "rmse": {}, "median": {}}
            row["seconds"] = time.perf_counter() - start
            row["validation"] = min(r["valid_metric"] for r in model.history_)
            row["recordings"] = {}
            for level in LEVELS:
                series = test.drop_points(level, 1000 + seed) if level else test
                error = model.predict(series) - test.labels
                row["rmse"][str(level)] = float(np.sqrt((error**2).mean()))
                row["median"][str(level)] = float(np.median(np.abs(error)))
                if protocol == "patient":
                    row["recordings"][str(level)] = {
                        str(r): float(np.sqrt((error[recording[parts["test"]] == r] ** 2).mean()))
                        for r in np.unique(recording[parts["test"]])
                    }
            results.add(row)
    rows = []
    for protocol in args.protocols:
        found = [r for r in results.rows if r["protocol"] == protocol]
        cells = [
            f"{np.mean(x):.2f} ± {np.std(x):.2f}"
            for x in ([r["rmse"][str(level)] for r in found] for level in LEVELS)
        ]
        medians = [float(np.mean([r["median"][str(level)] for r in found])) for level in LEVELS]
        rows.append([protocol, *cells, *medians])
    show(
        f"heart rate: test RMSE over {args.seeds} seeds, and median absolute error, bpm",
        ["protocol", "full", "50 % dropped", "median full", "median dropped"],
        rows,
    )
    carried = [r for r in results.rows if r["protocol"] == "patient"]
    if carried:
        names = sorted(
            carried[0]["recordings"]["0.0"],
            key=lambda n: -np.mean([r["recordings"]["0.0"][n] for r in carried]),
        )
        show(
            "test recordings, worst first (patient protocol)",
            ["recording", "full", "50 % dropped"],
            [
                [
                    n,
                    *(
                        float(np.mean([r["recordings"][str(x)][n] for r in carried]))
                        for x in LEVELS
                    ),
                ]
                for n in names
            ],
        )


if __name__ == "__main__":
    main()
