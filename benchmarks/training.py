"""Seconds per epoch and peak memory: RFormer beside a vanilla Transformer of the same shape.

Same width, blocks, heads, batch size and loop, one process each, one after the other. Tasks: sine
(1000 x 2000 points) and heart-rate-like series (500 x 4000 points, 2 channels, made up), full and
with half the points dropped every epoch. Run: python benchmarks/training.py [--epochs 2]
"""

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np


def sine():
    from roughformer.io import make_sine

    batch = make_sine(seed=0)
    return batch, batch.labels


def pulse():
    """Two noisy channels with a common rate: the sizes of the heart-rate task, a part of it."""
    import roughformer as rf

    rng = np.random.default_rng(0)
    t = np.arange(4000) / 125.0
    rate = rng.uniform(0.9, 2.0, 500)
    angle = 2 * np.pi * rate[:, None] * t + rng.uniform(0, 6, (500, 1))
    x = np.stack([np.sin(angle) ** 9, np.sin(angle + 1)], axis=1)
    x += 0.2 * rng.standard_normal(x.shape)
    return rf.SeriesBatch.from_numpy3d(x.astype(np.float32), times=t), 60 * rate


TASKS = {"sine": sine, "pulse": pulse}


def measure(task: str, model: str, drop: float, epochs: int) -> dict:
    import roughformer as rf

    batch, y = TASKS[task]()
    kind = rf.RFormerClassifier if task == "sine" else rf.RFormerRegressor
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    estimator = kind(
        model=model, epochs=epochs, drop=drop, validation=0.0, patience=None, batch_size=32,
        random_state=0, max_seconds=600.0,
    ).fit(batch, y)  # fmt: skip
    # The first epoch has the tokens of fixed sampling in it: all later ones do without.
    steady = estimator.history_[1:] or estimator.history_
    seconds = float(np.median([r["seconds"] for r in steady]))
    return {
        "task": task,
        "model": model,
        "drop": drop,
        "seconds_per_epoch": seconds,
        "first_epoch": estimator.history_[0]["seconds"],
        "encode_share": float(np.median([r["encode_seconds"] for r in steady])) / seconds,
        "peak_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--drops", nargs="*", type=float, default=[0.0, 0.5])
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--one", nargs=3, metavar=("TASK", "MODEL", "DROP"), help="used inside")
    args = parser.parse_args()
    if args.one:
        task, model, drop = args.one
        print(json.dumps(measure(task, model, float(drop), args.epochs)))
        return
    rows = []
    for task in args.tasks:
        for drop in args.drops:
            for model in ("rformer", "transformer"):
                epochs = str(args.epochs if model == "rformer" else 2)
                done = subprocess.run(
                    [sys.executable, __file__, "--epochs", epochs, "--one", task, model, str(drop)],
                    check=True,
                    capture_output=True,
                    text=True,
                )
                rows.append(json.loads(done.stdout.splitlines()[-1]))
                print(rows[-1], file=sys.stderr, flush=True)
    print(f"{'task':8}{'drop':>6}{'rformer s':>12}{'transf. s':>12}{'ratio':>8}", end="")
    print(f"{'MB':>8}{'MB':>8}{'tokens':>9}")
    for ours, theirs in zip(rows[::2], rows[1::2], strict=True):
        ratio = theirs["seconds_per_epoch"] / ours["seconds_per_epoch"]
        print(
            f"{ours['task']:8}{ours['drop']:6.0%}{ours['seconds_per_epoch']:12.2f}"
            f"{theirs['seconds_per_epoch']:12.2f}{ratio:7.1f}x{ours['peak_mb']:8.0f}"
            f"{theirs['peak_mb']:8.0f}{ours['encode_share']:9.1%}"
        )
    if args.json:
        sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
        from _results import environment

        found = {"environment": environment(), "rows": rows}
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
