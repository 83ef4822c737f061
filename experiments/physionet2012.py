"""ICU mortality (PhysioNet 2012): real timestamps, 37 channels mostly missing, static covariates.

Train on sets a and b, test on c: AUROC and AUPRC. Single models hold a fifth of a + b out for
validation; the committee has five members, each validated on another fifth. Yardsticks without a
sequence model on the same training part: logistic regression and gradient boosting on the mean,
min, max, first, last and number of each channel, and the static covariates.
Run: ROUGHFORMER_DATA=... python experiments/physionet2012.py
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from _results import ROOT, Results, show
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score

import roughformer as rf
from roughformer_paper.datasets import load_physionet2012, physionet2012_subset

STATIC = ("Age", "Gender", "Height", "ICUType")
RECIPE: dict[str, Any] = {
    "windows": np.arange(0.0, 49.0, 4.0), "static": STATIC, "epochs": 10,
    "learning_rate": 1e-3, "training": rf.TrainConfig(batch_size=256, weight_decay=0.05),
    "model": rf.ModelConfig(dropout=0.3, input_dropout=0.2),
}  # fmt: skip


def summaries(batch: rf.SeriesBatch) -> np.ndarray:
    """Mean, min, max, first, last (NaN if never seen) and number of each channel, and static."""
    found = np.full((len(batch), batch.n_channels, 6), np.nan)
    found[..., 5] = 0
    for b in range(len(batch)):
        _, x = batch.series(b)
        for c in np.flatnonzero(~np.isnan(x).all(axis=0)):
            seen = x[~np.isnan(x[:, c]), c]
            found[b, c] = (seen.mean(), seen.min(), seen.max(), seen[0], seen[-1], len(seen))
    assert batch.static is not None
    return np.concatenate([found.reshape(len(batch), -1), batch.static], axis=1)


def logistic(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Clipped to 0.1-99.9 %, standardised, missing = mean."""
    low, high = np.nanquantile(x, [0.001, 0.999], axis=0)
    mean, scale = np.nanmean(x.clip(low, high), axis=0), np.nanstd(x.clip(low, high), axis=0)

    def scaled(z: np.ndarray) -> np.ndarray:
        return np.nan_to_num((z.clip(low, high) - mean) / np.where(scale > 0, scale, 1))

    model = LogisticRegression(C=0.01, max_iter=1000).fit(scaled(x), y)
    return model.predict_proba(scaled(new))[:, 1]


def boosting(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """scikit-learn's, with settings fixed beforehand."""
    model = HistGradientBoostingClassifier(
        learning_rate=0.05, max_iter=250, max_leaf_nodes=15, l2_regularization=1.0,
        min_samples_leaf=30, random_state=0,
    )  # fmt: skip
    return model.fit(x, y).predict_proba(new)[:, 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "physionet2012.json")
    parser.add_argument("--data", type=Path, default=None, help="directory with physionet2012/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--again", action="store_true", help="forget rows already measured")
    args = parser.parse_args()
    results = Results(args.out, args.again)
    batch = load_physionet2012(args.data)
    subset = physionet2012_subset(batch.ids)
    train, test = batch[subset != "c"], batch[subset == "c"]

    def measure(model: str, seed: int, work: Any) -> None:
        if results.get(model=model, seed=seed):
            return
        start = time.perf_counter()
        risk = work()
        results.add(
            {
                "model": model,
                "seed": seed,
                "auroc": float(roc_auc_score(test.labels, risk)),
                "auprc": float(average_precision_score(test.labels, risk)),
                "seconds": time.perf_counter() - start,
            }
        )

    def ours(seed: int, members: int) -> np.ndarray:
        model = rf.RFormerClassifier(**RECIPE, random_state=seed, verbose=1)
        model.set_params(training__n_estimators=members)
        return model.fit(train).predict_proba(test)[:, 1]

    for seed in range(args.seeds):
        measure("RFormer", seed, lambda seed=seed: ours(seed, 1))
    for seed in range(args.seeds):
        name = f"RFormer, committee of {args.members}"
        measure(name, seed, lambda seed=seed: ours(seed, args.members))
    x, new = summaries(train), summaries(test)
    measure("logistic regression", 0, lambda: logistic(x, train.labels, new))
    measure("gradient boosting", 0, lambda: boosting(x, train.labels, new))
    rows = []
    for name in dict.fromkeys(r["model"] for r in results.rows):
        found = [r for r in results.rows if r["model"] == name]
        cells = [
            f"{np.mean(v):.4f} ± {np.std(v):.4f}"
            for v in ([r[k] for r in found] for k in ("auroc", "auprc"))
        ]
        rows.append([name, len(found), *cells, float(np.mean([r["seconds"] for r in found]))])
    show("PhysioNet 2012, test set c", ["model", "runs", "AUROC", "AUPRC", "seconds"], rows)


if __name__ == "__main__":
    main()
