"""The paper's sine task: accuracy of the default recipe and of the paper's, full and dropped.

Training series: 1000 of 100 classes (a fifth of them for validation); test series: 1000 others,
drawn with another seed, looked at once per row. Run: python experiments/sine.py [--quick]
"""

import argparse
import time
from pathlib import Path

import numpy as np
from _results import ROOT, Results, show

import roughformer as rf
from roughformer_paper.datasets import make_sine

TEST_SEED = 10_000
LEVELS = (0.0, 0.3, 0.5, 0.7, 0.85)
RECIPES = {
    "default, full series": ("default", {}),
    "default, 50 % dropped every epoch": ("default", {"drop": 0.5}),
    "default, 0 to 80 % dropped": ("default", {"drop": (0.0, 0.8)}),
    "paper, full series": ("paper", {}),
    "paper, 50 % dropped every epoch": ("paper", {"drop": 0.5}),
}


def accuracy(model: rf.RFormerClassifier, test: rf.SeriesBatch, level: float) -> list[float]:
    """Under three fixed draws of dropping (one without)."""
    seeds = (1, 2, 3) if level else (1,)
    return [
        model.score(test.drop_points(level, seed) if level else test, test.labels) for seed in seeds
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "sine.json")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--recipes", nargs="*", default=list(RECIPES), choices=list(RECIPES))
    parser.add_argument("--again", action="store_true", help="forget rows already measured")
    parser.add_argument("--quick", action="store_true", help="small data, few epochs: a smoke run")
    args = parser.parse_args()
    size = {"n_samples": 100, "n_classes": 5, "length": 200} if args.quick else {}
    more = {"epochs": 3} if args.quick else {}
    results = Results(args.out, args.again)
    train, test = make_sine(**size, seed=0), make_sine(**size, seed=TEST_SEED)
    for name in args.recipes:
        preset, options = RECIPES[name]
        for seed in range(args.seeds):
            if results.get(recipe=name, seed=seed):
                continue
            start = time.perf_counter()
            model = rf.RFormerClassifier.from_preset(
                preset, **(options | more), random_state=seed, verbose=1
            ).fit(train)
            seconds = time.perf_counter() - start
            later = model.history_[1:] or model.history_
            results.add(
                {
                    "recipe": name,
                    "seed": seed,
                    "accuracy": {str(x): float(np.mean(accuracy(model, test, x))) for x in LEVELS},
                    "seconds": seconds,
                    "epochs": len(model.history_),
                    "seconds_per_epoch": float(np.mean([r["seconds"] for r in later])),
                    "signature_share": sum(r["encode_seconds"] for r in later)
                    / sum(r["seconds"] for r in later),
                }
            )
    rows = []
    for name in args.recipes:
        found = [r for r in results.rows if r["recipe"] == name]
        mean = [float(np.mean([r["accuracy"][str(x)] for r in found])) for x in LEVELS]
        share = float(np.mean([r["signature_share"] for r in found]))
        pace = float(np.mean([r["seconds_per_epoch"] for r in found]))
        rows.append([name, *mean, pace, share])
    columns = ["trained", *(f"{x:.0%} dropped" for x in LEVELS), "s/epoch", "signatures"]
    show(f"sine: test accuracy, mean of {args.seeds} seeds", columns, rows)


if __name__ == "__main__":
    main()
