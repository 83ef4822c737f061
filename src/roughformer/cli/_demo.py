"""The demo's work: two models on the paper's sine task, with the same budget of time."""

import time
from pathlib import Path
from typing import Any

from roughformer.cli._options import say
from roughformer.cli._runs import prepare_run, write_json
from roughformer.cli._scores import predictions, scores_of
from roughformer.errors import InputError
from roughformer.estimators import RFormerClassifier, TransformerClassifier
from roughformer.io import make_sine
from roughformer.predictor import Predictor
from roughformer.report import write_report
from roughformer.series import SeriesBatch
from roughformer.train import TrainConfig

__all__ = ["run_demo"]

_RATES = (0.0, 0.3, 0.5, 0.7)
_HALF = 0.5
# Shares of the budget. What is left of it goes to the tests of the Transformer, which are slow.
_FOR_EACH = 0.3
_TITLES = {"rformer": "RFormer", "transformer": "vanilla Transformer"}
_CLASSES = {"rformer": RFormerClassifier, "transformer": TransformerClassifier}


def run_demo(
    out: Path, *, seed: int, seconds: float, quick: bool, threads: int | None
) -> dict[str, Any]:
    """Train, test, draw and report; accuracies and times of both models."""
    started = time.perf_counter()
    prepare_run(out, resume=False, force=True)
    size = {"n_samples": 60, "n_classes": 3, "length": 100} if quick else {}
    train = make_sine(**size, seed=seed)
    test = make_sine(**(size or {"n_samples": 500}), seed=seed + 1)
    result: dict[str, Any] = {}
    models: dict[str, Any] = {}
    for name in ("rformer", "transformer"):
        say(f"{_TITLES[name]}: {len(train)} series, {train.n_points:,} points, at most "
            f"{_FOR_EACH * seconds:.0f} s")  # fmt: skip
        # Both have the same width, layers, heads, batches, schedule and thinning of the series.
        model = _CLASSES[name](
            epochs=3 if quick else 20,
            batch_size=32,
            drop=(0.0, 0.7),
            validation=0.1,
            n_jobs=threads,
            random_state=seed,
            run_dir=out / name,
            verbose=1,
            training=TrainConfig(patience=8, calibrate=False, max_seconds=_FOR_EACH * seconds),
        )
        before = time.perf_counter()
        model.fit(train)
        spent = time.perf_counter() - before
        model.save(out / name / "model")
        rates = _RATES if name == "rformer" else (0.0, _HALF)
        curve = {r: _accuracy(model.predictor_, test, r, seed, threads) for r in rates}
        result[name] = {
            "full": curve[0.0],
            "dropped": curve[_HALF],
            "curve": {f"{rate:g}": accuracy for rate, accuracy in curve.items()},
            "seconds": spent,
            "epochs": len(model.history_),
            **_progress(model.history_),
        }
        models[name] = model
    result["seconds"] = time.perf_counter() - started
    _report(out, result, models, train, test, seed, quick)
    result["seconds"] = time.perf_counter() - started
    write_json(out / "metrics.json", result)
    return result


def _progress(history: list[dict[str, Any]]) -> dict[str, float]:
    """How many series were trained on, counted again in each epoch (the last one may have been cut
    short), and how many a second.
    """
    seconds = sum(record["seconds"] for record in history)
    seen = sum(record["samples_per_second"] * record["seconds"] for record in history)
    return {"series_seen": round(seen), "series_per_second": float(seen / max(seconds, 1e-9))}


def _accuracy(
    predictor: Predictor, test: SeriesBatch, drop: float, seed: int, threads: int | None
) -> float:
    assert test.labels is not None
    found = predictions(predictor, test, drop=drop, seed=seed, threads=threads)
    return scores_of(predictor, found, test.labels)["accuracy"]


def _report(
    out: Path,
    result: dict[str, Any],
    models: dict[str, Any],
    train: SeriesBatch,
    test: SeriesBatch,
    seed: int,
    quick: bool,
) -> None:
    figures: list[tuple[str, str, Any]] = []
    notes = [
        f"The vanilla Transformer attends over all {int(test.lengths[0]):,} samples. It saw "
        f"{result['transformer']['series_seen']:,} series in its time, RFormer "
        f"{result['rformer']['series_seen']:,}: this compares what a given time buys, not what "
        "either model reaches when trained to the end."
    ]
    if quick:
        notes = ["A small task of a few epochs, to see that all works: it compares nothing."]
    try:
        from roughformer.cli._demo_figures import demo_figures

        figures = demo_figures(result, models, test, seed)
    except InputError as error:
        notes.append(f"No pictures: {error}")
    for name, _, figure in figures:
        (out / "plots").mkdir(exist_ok=True)
        figure.savefig(out / "plots" / f"{name}.png", dpi=130)
    config = {name: model.get_params() for name, model in models.items()}
    write_report(
        out / "report.html",
        title="roughformer demo: which frequency has a noisy sine?",
        facts={
            "training series": len(train),
            "test series": len(test),
            "points of a series": int(test.lengths[0]),
            "seconds": result["seconds"],
        },
        metrics={
            _TITLES[name]: {
                "accuracy, all points": row["full"],
                "accuracy, 50 % dropped": row["dropped"],
                "training seconds": row["seconds"],
                "epochs": row["epochs"],
                "series seen": row["series_seen"],
                "series per second": row["series_per_second"],
            }
            for name, row in result.items()
            if name in _TITLES
        },
        figures=[(caption, figure) for _, caption, figure in figures],
        config=config,
        notes=notes,
        command="roughformer demo",
    )
