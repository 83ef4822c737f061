"""The default, with no option set, on tasks that others have published figures for.

- ``eeg``: SelfRegulationSCP1, SCP2 and MotorImagery, both parts of the archive merged and split
  70/15/15 at random with five seeds; fitted on the first two parts, accuracy on the third.
- ``icu``: in-hospital death (PhysioNet 2012), the five splits of the Raindrop paper (fitted on
  their training parts), and sets a and b against c; AUROC and AUPRC.
- ``heart-rate``: BIDMC32HR by patient (recordings as ``groups``) and by the paper's random split;
  RMSE, with all points and with half of them dropped in training and test.

Run: ROUGHFORMER_DATA=... python experiments/default.py; a row that is there is not measured again.
``--page`` writes docs/default.md from the rows, with the published figures beside them.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _results import ROOT, Results, show
from sklearn.metrics import average_precision_score, roc_auc_score

import roughformer as rf
from roughformer_paper.datasets import (
    heart_rate_split,
    load_heart_rate,
    load_physionet2012,
    physionet2012_subset,
)

EEG = ("SelfRegulationSCP1", "SelfRegulationSCP2", "MotorImagery")
EEG_SEEDS = (2345, 3456, 4567, 5678, 6789)
STATIC = ("Age", "Gender", "Height", "ICUType")
Job = tuple[dict[str, Any], Callable[[], dict[str, float]]]


def eeg(data: Path) -> Iterator[Job]:
    """Accuracy on 15 % of the series."""
    for name in EEG:
        for seed in EEG_SEEDS:

            def work(name: str = name, seed: int = seed) -> dict[str, float]:
                with np.load(data / "archive" / f"{name}.npz") as held:
                    offsets, y, values = held["offsets"], held["y"], held["values"]
                times = np.concatenate([np.arange(n, dtype=float) for n in np.diff(offsets)])
                batch = rf.SeriesBatch(times, values, offsets)
                order = np.random.RandomState(seed).permutation(len(y))
                cut = round(0.85 * len(y))
                train, test = order[:cut], order[cut:]
                model = rf.RFormerClassifier(random_state=0).fit(batch[train], y[train])
                return {"accuracy": float(model.score(batch[test], y[test]))}

            yield {"task": name, "seed": seed}, work


def icu(data: Path) -> Iterator[Job]:
    """Ranking of risks."""
    batch = load_physionet2012(data)
    held = np.load(data / "physionet2012" / "raindrop_splits.npz")
    ids = np.asarray(batch.ids).astype(np.int64)
    subset = physionet2012_subset(batch.ids)
    splits: dict[str, tuple[Any, Any]] = {
        f"Raindrop {k}": tuple(np.isin(ids, held[f"{part}{k}"]) for part in ("train", "test"))
        for k in range(1, 6)
    }
    splits["a + b to c"] = (subset != "c", subset == "c")
    for name, (train, test) in splits.items():

        def work(train: Any = train, test: Any = test) -> dict[str, float]:
            model = rf.RFormerClassifier(static=STATIC, random_state=0).fit(batch[train])
            risk, died = model.predict_proba(batch[test])[:, 1], batch[test].labels
            return {
                "auroc": float(roc_auc_score(died, risk)),
                "auprc": float(average_precision_score(died, risk)),
            }

        yield {"task": "PhysioNet 2012", "split": name}, work


def heart_rate(data: Path) -> Iterator[Job]:
    """Beats a minute."""
    batch = load_heart_rate(data)
    assert batch.static is not None
    recording = batch.static[:, 0].astype(int)
    for protocol in ("patient", "random"):
        parts = heart_rate_split(protocol)
        train = np.sort(np.concatenate([parts["train"], parts["validation"]]))
        test = parts["test"]
        if protocol == "random":
            train = parts["train"]
        for drop in (0.0, 0.5):

            def work(
                train: Any = train, test: Any = test, drop: float = drop, by: str = protocol
            ) -> dict[str, float]:
                series = [batch[part] for part in (train, test)]
                if drop:
                    series = [part.drop_points(drop, 1000) for part in series]
                groups = recording[train] if by == "patient" else None
                model = rf.RFormerRegressor(random_state=0).fit(series[0], groups=groups)
                error = model.predict(series[1]) - series[1].labels
                kept = recording[test] != 41
                return {
                    "rmse": float(np.sqrt((error**2).mean())),
                    "rmse_without_41": float(np.sqrt((error[kept] ** 2).mean())),
                    "median": float(np.median(np.abs(error))),
                }

            yield {"task": f"heart rate by {protocol}", "drop": drop}, work


# Published: (model, a figure for each column of the task's table), and where they are from.
PUBLISHED_EEG = [
    ("D-LinOSS, with a search for each set", "88.9", "58.6", "61.1"),
    ("LogSig-SSM, with a search for each set", "88.4", "58.5", "59.9"),
    ("LogSig-SSM, without one", "85.5", "51.9", "49.7"),
    ("Log-NCDE, with a search for each set", "83.1", "53.7", "53.7"),
    ("RFormer of the follow-up paper", "81.2", "52.3", "55.8"),
]
PUBLISHED_ICU = [
    ("MTM", "0.880 ± 0.010", "0.586 ± 0.041"),
    ("boosting on summaries, measured on these splits", "0.879 ± 0.006", "0.581 ± 0.028"),
    ("GraFITi", "0.866", "0.548"),
    ("Warpformer", "0.865", "0.543"),
    ("ViTST", "0.851", "0.511"),
    ("mTAND", "0.842", "0.482"),
    ("Raindrop", "0.828", "0.440"),
]
PUBLISHED_RATE = [
    ("ROCKET", "6.81", "0.444"),
    ("InceptionTime", "7.22", "0.349"),
    ("MultiROCKET", "8.56", ""),
    ("S4", "", "0.332"),
    ("Liquid-S4", "", "0.303"),
    ("Rough Transformer (the paper)", "", "3.04"),
]


def page(rows: list[dict[str, Any]]) -> str:
    """docs/default.md."""

    def cell(name: str, score: str, drop: float = 0.0, digits: int = 3, factor: float = 1) -> str:
        x = [
            factor * r["scores"][score]
            for r in rows
            if r["task"] == name and r.get("drop", 0.0) == drop and r.get("split") != "a + b to c"
        ]
        if not x:
            return "not run"
        spread = f" ± {np.std(x):.{digits}f}" if len(x) > 1 else ""
        return f"{np.mean(x):.{digits}f}{spread}" + (f" ({len(x)} runs)" if len(x) > 1 else "")

    def table(head: list[str], own: list[list[str]], others: list[tuple[str, ...]]) -> list[str]:
        body = [[f"**{name}**", *cells] for name, *cells in own] + [list(row) for row in others]
        return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body)]

    whole = [r["scores"] for r in rows if r.get("split") == "a + b to c"]
    risks = [[cell("PhysioNet 2012", score) for score in ("auroc", "auprc")]]
    beats = [
        [f"roughformer{label}", *(
            cell(f"heart rate by {split}", "rmse", drop, 2) for split in ("patient", "random")
        )]
        for label, drop in (("", 0.0), (", half of the points dropped", 0.5))
    ]  # fmt: skip
    lines = [
        "# Beside published figures",
        "",
        "<!-- written by experiments/default.py --page; do not edit -->",
        "",
        "The default, with no option set and no search, on tasks that papers report. Figures of",
        "others are as published, unless the row says otherwise.",
        "",
        "## EEG: accuracy in per cent",
        "",
        "Both parts of each archive set merged, 85 % of the series for fitting, 15 % for testing,",
        "five seeds. A test part has 57 to 84 series: five points are noise.",
        "",
        *table(
            ["", *EEG],
            [["roughformer", *(cell(name, "accuracy", digits=1, factor=100) for name in EEG)]],
            PUBLISHED_EEG,
        ),
        "",
        "## PhysioNet 2012: in-hospital death",
        "",
        "The five splits of the Raindrop paper, fitted on their training parts.",
        "",
        *table(["", "AUROC", "AUPRC"], [["roughformer", *part] for part in risks], PUBLISHED_ICU),
        "",
    ]
    if whole:
        lines += [
            f"Trained on sets a and b, tested on c: {whole[0]['auroc']:.3f} and "
            f"{whole[0]['auprc']:.3f} (boosting on summaries: 0.879 and 0.574).",
            "",
        ]
    return "\n".join(
        [
            *lines,
            "## Heart rate (BIDMC32HR): RMSE in beats a minute",
            "",
            "By patient, test recordings are of people not seen in training; by the random split,",
            "nearly every test window overlaps a training window of the same person: copying",
            "the label of the nearest one gives 0.28.",
            "",
            *table(["", "by patient", "at random"], beats, PUBLISHED_RATE),
            "",
        ]
    )


TASKS = {"eeg": eeg, "icu": icu, "heart-rate": heart_rate}


def main() -> None:
    """Measure what is missing and show all rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("ROUGHFORMER_DATA"))
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "default.json")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--again", action="store_true", help="forget rows already measured")
    parser.add_argument("--page", action="store_true", help="write docs/default.md, run nothing")
    args = parser.parse_args()
    if args.page:
        (ROOT / "docs" / "default.md").write_text(page(Results(args.out).rows))
        return
    if args.data is None:
        parser.error("give --data or set ROUGHFORMER_DATA to the directory of the data sets")
    results = Results(args.out, args.again)
    for task in args.tasks:
        for key, work in TASKS[task](Path(args.data)):
            if results.get(**key):
                continue
            start = time.process_time()
            scores = work()
            results.add(key | {"scores": scores, "seconds": time.process_time() - start})
            print(key, {k: round(v, 4) for k, v in scores.items()}, flush=True)
    rows = []
    for name in dict.fromkeys(r["task"] for r in results.rows):
        for drop in (0.0, 0.5):
            found = [r for r in results.rows if r["task"] == name and r.get("drop", 0.0) == drop]
            for score in found[0]["scores"] if found else ():
                x = [r["scores"][score] for r in found if r.get("split") != "a + b to c"]
                rows.append([name, drop, score, len(x), f"{np.mean(x):.4f} ± {np.std(x):.4f}"])
    show("the default", ["task", "dropped", "score", "runs", "mean and deviation"], rows)


if __name__ == "__main__":
    main()
