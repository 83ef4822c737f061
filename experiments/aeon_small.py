"""The small public sets that ship inside aeon: RFormer against aeon's ROCKET family.

    python experiments/aeon_small.py                                    # everything, 3 seeds
    python experiments/aeon_small.py --sets GunPoint --limit 20 --epochs 2   # does it run?

Every model is trained on the official training part with its default options and looked at once on
the official test part; RFormer holds out a share of the training part to choose its weights. No
set is downloaded. The deep model beside RFormer is our vanilla Transformer: aeon's own deep models
need TensorFlow. JapaneseVowels and PickupGestureWiimoteZ have series of unequal length: ours take
them as they are, aeon's models (marked *) the archive's equal-length version, which is padded.

Results are written after each run, and runs that are in the file already are not done again.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aeon
import numpy as np
import torch
from _results import ROOT, Results, show
from aeon.classification.convolution_based import MiniRocketClassifier, RocketClassifier
from aeon.classification.distance_based import KNeighborsTimeSeriesClassifier
from aeon.datasets import load_from_ts_file
from sklearn.dummy import DummyClassifier

import roughformer as rf
from roughformer_paper.baselines import TransformerClassifier

DATA = Path(aeon.__file__).parent / "datasets" / "data"
SETS = (
    "ACSF1", "ArrowHead", "BasicMotions", "GunPoint", "ItalyPowerDemand", "JapaneseVowels",
    "OSULeaf", "PickupGestureWiimoteZ", "UnitTest",
)  # fmt: skip


def ours(kind: type) -> Callable[[argparse.Namespace, int], Any]:
    def make(options: argparse.Namespace, seed: int) -> Any:
        return kind(
            epochs=options.epochs, random_state=seed, n_jobs=options.threads,
            training=rf.TrainConfig(max_seconds=options.seconds),
        )  # fmt: skip

    return make


def majority(options: argparse.Namespace, seed: int) -> Any:
    return DummyClassifier()


def neighbour(options: argparse.Namespace, seed: int) -> Any:
    return KNeighborsTimeSeriesClassifier(distance="euclidean", n_jobs=options.threads)


def rocket(kind: type) -> Callable[[argparse.Namespace, int], Any]:
    return lambda options, seed: kind(random_state=seed, n_jobs=options.threads)


# name -> (how it is made, whether it takes unequal lengths)
MODELS: dict[str, tuple[Callable[[argparse.Namespace, int], Any], bool]] = {
    "majority": (majority, False),
    "1-NN": (neighbour, False),
    "Rocket": (rocket(RocketClassifier), False),
    "MiniRocket": (rocket(MiniRocketClassifier), False),
    "Transformer": (ours(TransformerClassifier), True),
    "RFormer": (ours(rf.RFormerClassifier), True),
}
WITHOUT_LUCK = ("majority", "1-NN")  # one seed is enough


def load(name: str, part: str, limit: int | None, unequal: bool) -> tuple[Any, np.ndarray, bool]:
    """Series, labels, and whether this is the equal-length version of an unequal set."""
    padded = DATA / name / f"{name}_eq_{part}.ts"
    use_padded = padded.exists() and not unequal
    x, y = load_from_ts_file(str(padded if use_padded else DATA / name / f"{name}_{part}.ts"))
    if limit is not None and limit < len(y):
        # Every class of a smoke run has its share: files are sorted by class.
        chosen = np.unique(np.linspace(0, len(y) - 1, limit).astype(int))
        x, y = [x[i] for i in chosen], y[chosen]
        x = np.stack(x) if len({one.shape for one in x}) == 1 else x
    return x, y, use_padded


def run(name: str, model: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    make, unequal = MODELS[model]
    x, y, padded = load(name, "TRAIN", options.limit, unequal)
    x_test, y_test, _ = load(name, "TEST", options.limit, unequal)
    if unequal:  # ours
        x, x_test = (rf.SeriesBatch.of(part, layout="channels_first") for part in (x, x_test))
    estimator = make(options, seed)
    if model == "majority":
        x, x_test = np.zeros((len(y), 1)), np.zeros((len(y_test), 1))
    start = time.perf_counter()
    estimator.fit(x, y)
    fitted = time.perf_counter()
    predicted = estimator.predict(x_test)
    done = time.perf_counter()
    recall = [(predicted[y_test == label] == label).mean() for label in np.unique(y_test)]
    return {
        "padded": padded, "train": len(y), "test": len(y_test), "classes": len(np.unique(y)),
        "threads": options.threads, "aeon": aeon.__version__,
        "accuracy": float((predicted == y_test).mean()),
        "balanced_accuracy": float(np.mean(recall)),
        "fit_seconds": fitted - start, "predict_seconds": done - fitted,
    }  # fmt: skip


def warm_up(models: list[str], options: argparse.Namespace) -> None:
    """aeon's models compile themselves at first use: that is not their training time."""
    rng = np.random.default_rng(0)
    for channels in (1, 2):
        x, y = rng.normal(size=(6, channels, 20)), np.arange(6) % 2
        for model in models:
            if model != "majority" and not MODELS[model][1]:
                MODELS[model][0](options, 0).fit(x, y).predict(x)


def table(rows: list[dict[str, Any]], models: list[str]) -> list[list[str]]:
    """Mean test accuracy over the seeds, ± half their range where there are several."""
    lines = []
    means: dict[str, list[float]] = {m: [] for m in models}
    for name in dict.fromkeys(r["set"] for r in rows):
        cells = []
        for model in models:
            of = [r for r in rows if (r["set"], r["model"]) == (name, model)]
            scores = [r["accuracy"] for r in of]
            means[model].append(float(np.mean(scores)))
            half = f" ± {(max(scores) - min(scores)) / 2:.3f}" if len(scores) > 1 else ""
            cells.append(f"{np.mean(scores):.3f}{half}{'*' if of[0]['padded'] else ''}")
        lines.append([name, *cells])
    lines.append(["mean", *(f"{np.mean(means[m]):.3f}" for m in models)])
    for what in ("fit", "predict"):
        of_model = ([r[f"{what}_seconds"] for r in rows if r["model"] == m] for m in models)
        lines.append([f"seconds to {what}, per run", *(f"{np.mean(s):.1f}" for s in of_model)])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", type=int, default=3, help="runs of each model")
    parser.add_argument("--limit", type=int, help="series of each part, for a quick look")
    parser.add_argument("--epochs", type=int, help="of our models, for a quick look")
    parser.add_argument("--seconds", type=float, default=180.0, help="budget of a training of ours")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="forget runs already in the file")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "aeon.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", message=".*very little variation.*")
    warnings.filterwarnings("ignore", message=".*unsafe cast.*")

    results = Results(options.out, options.again)
    jobs = [
        {"set": name, "model": model, "seed": seed}
        | {"limit": options.limit, "epochs": options.epochs, "budget": options.seconds}
        for name in options.sets
        for model in options.models
        for seed in range(1 if model in WITHOUT_LUCK else options.seeds)
    ]
    if any(results.get(**job) is None for job in jobs):
        warm_up(options.models, options)
    start = time.perf_counter()
    rows = []
    for i, job in enumerate(jobs, start=1):
        found = results.get(**job)
        if found is None:
            found = job | run(job["set"], job["model"], job["seed"], options)
            results.add(found)
        rows.append(found)
        print(
            f"[{i}/{len(jobs)}] {job['set']}, {job['model']}, seed {job['seed']}: accuracy "
            f"{found['accuracy']:.3f} (fit {found['fit_seconds']:.1f} s; "
            f"{time.perf_counter() - start:.0f} s so far)",
            flush=True,
        )
    title = "Test accuracy, mean over seeds ± half their range; * on the equal-length version"
    show(title, ["set", *options.models], table(rows, options.models))
    print(f"written: {options.out}")


if __name__ == "__main__":
    main()
