"""The demo's work: the default beside what people use, on a made-up task and on a real one."""

import json
import time
from pathlib import Path
from typing import Any

import typer

from roughformer import RFormerClassifier, SeriesBatch, write_report
from roughformer.io import write_file
from roughformer.tokens import CellEncoder
from roughformer.train import TrainConfig
from roughformer_paper.baselines import RocketClassifier, TransformerClassifier
from roughformer_paper.datasets import make_sine

__all__ = ["TITLES", "run_demo", "write_json"]

HALF = 0.5
_FOR_TRANSFORMER = 0.1  # of the budget, checked after each epoch
# An epoch of 250 sines takes 14 s of one core, and it is tested on fewer series than the others.
_TRANSFORMER_SERIES, _TRANSFORMER_TESTS = 250, 100
TITLES = {
    "rformer": "RFormer (default)",
    "minirocket": "MiniRocket, resampled",
    "boosting": "boosting on summaries",
    "transformer": "vanilla Transformer",
}


def run_demo(
    out: Path, *, seed: int, seconds: float, quick: bool, threads: int | None
) -> dict[str, Any]:
    """Fit, test, draw and report; accuracies and times of all models on both tasks."""
    started = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    small = {"n_samples": 60, "n_classes": 3, "length": 100}
    sine = (
        make_sine(**(small if quick else {"n_samples": 500}), seed=seed),
        make_sine(**(small if quick else {"n_samples": 250}), seed=seed + 1),
    )
    vowels = _spoken_vowels(every=3 if quick else 1)
    result: dict[str, Any] = {}
    fitted: dict[str, Any] = {}
    for name in TITLES:
        result[name], fitted[name] = _both(name, sine, out, seed, seconds, quick, threads)
    result["vowels"] = {
        name: _both(name, vowels, out / "vowels", seed, seconds, quick, threads)[0]
        for name in ("rformer", "minirocket", "boosting")
    }
    result["seconds"] = time.perf_counter() - started
    _report(out, result, fitted, sine, vowels, seed, quick)
    result["seconds"] = time.perf_counter() - started
    write_json(out / "metrics.json", result)
    return result


def _spoken_vowels(every: int) -> tuple[SeriesBatch, SeriesBatch]:
    """Nine speakers say a vowel: 12 channels, 7 to 29 points. It comes with aeon."""
    from aeon.datasets import load_japanese_vowels

    found = []
    for part in ("train", "test"):
        x, y = load_japanese_vowels(split=part)
        found.append(
            SeriesBatch.from_arrays([series.T for series in x[::every]], labels=y[::every])
        )
    return found[0], found[1]


def _both(
    name: str,
    data: tuple[SeriesBatch, SeriesBatch],
    out: Path,
    seed: int,
    seconds: float,
    quick: bool,
    threads: int | None,
) -> tuple[dict[str, float], Any]:
    """Accuracy with all points, and with half of them dropped in training and test; and the model
    of all points.
    """
    before = time.perf_counter()
    if name == "transformer":
        data = data[0][:_TRANSFORMER_SERIES], data[1][:_TRANSFORMER_TESTS]
    dropped = data[0].drop_points(HALF, seed), data[1].drop_points(HALF, seed + 1)
    typer.echo(f"{TITLES[name]}: {len(data[0])} series, {data[0].n_points:,} points", err=True)
    found: dict[str, Any] = {}
    first: Any = None
    for part, (train, test) in (("full", data), ("dropped", dropped)):
        # The Transformer is slow: it is trained once, with thinned series, for both.
        if first is None or name != "transformer":
            model = _model(name, out / name / part, seed, seconds, quick, threads)
            model.fit(train, train.labels)
            if hasattr(model, "save"):
                model.save(out / name / part / "model")
            first = first or model
        found[part] = float(model.score(test, test.labels))
    return found | {"seconds": time.perf_counter() - before}, first


def _model(
    name: str,
    run_dir: Path,
    seed: int,
    seconds: float,
    quick: bool,
    threads: int | None,
) -> Any:
    if name == "rformer":
        return RFormerClassifier(random_state=seed, n_jobs=threads)
    if name == "minirocket":
        return RocketClassifier(random_state=seed)
    if name == "boosting":
        return _Boosting(seed, few=quick)
    training = TrainConfig(calibrate=False, max_seconds=_FOR_TRANSFORMER * seconds)
    return TransformerClassifier(
        epochs=3 if quick else 20, n_jobs=threads, random_state=seed, run_dir=run_dir, verbose=1,
        validation=0.0, drop=(0.0, HALF), training=training,
    )  # fmt: skip


class _Boosting:
    """Gradient boosting on a few numbers of each channel."""

    def __init__(self, seed: int, few: bool) -> None:
        from sklearn.ensemble import HistGradientBoostingClassifier

        self.model = HistGradientBoostingClassifier(
            max_iter=5 if few else 30, learning_rate=0.2, min_samples_leaf=3, random_state=seed
        )

    def fit(self, batch: SeriesBatch, labels: Any) -> "_Boosting":
        from threadpoolctl import threadpool_limits

        self.encoder = CellEncoder.fit(batch)
        with threadpool_limits(1, user_api="openmp"):  # two would wait for each other
            self.model.fit(self.encoder.encode(batch)["summary"].numpy(), labels)
        return self

    def score(self, batch: SeriesBatch, labels: Any) -> float:
        table = self.encoder.encode(batch)["summary"].numpy()
        return float(self.model.score(table, labels))


def _report(
    out: Path,
    result: dict[str, Any],
    fitted: dict[str, Any],
    sine: tuple[SeriesBatch, SeriesBatch],
    vowels: tuple[SeriesBatch, SeriesBatch],
    seed: int,
    quick: bool,
) -> None:
    from roughformer_paper.demo_figures import demo_figures

    figures = demo_figures(result, fitted, sine[1], seed)
    note = (
        "A small task, to see that all works: it compares nothing."
        if quick
        else "The vanilla Transformer attends over all samples and has 15 seconds: it shows "
        "what that buys, not what it reaches when trained to the end. It learns from "
        f"{_TRANSFORMER_SERIES} of the training series and is tested on {_TRANSFORMER_TESTS} of "
        "the test series."
    )
    for name, _, figure in figures:
        (out / "plots").mkdir(exist_ok=True)
        figure.savefig(out / "plots" / f"{name}.png", dpi=130)
    facts = {
        "sines": f"{len(sine[0])} for training, {len(sine[1])} for testing",
        "points of a sine": int(sine[1].lengths[0]),
        "spoken vowels": f"{len(vowels[0])} for training, {len(vowels[1])} for testing",
        "seconds": result["seconds"],
    }
    rows = {TITLES[name]: result[name] for name in TITLES}
    spoken = {f"{TITLES[name]}, vowels": row for name, row in result["vowels"].items()}
    write_report(
        out / "report.html",
        title="roughformer demo: the default beside what people use",
        facts=facts,
        metrics={
            title: {
                "accuracy, all points": row["full"],
                "accuracy, 50 % dropped": row["dropped"],
                "seconds": row["seconds"],
            }
            for title, row in (rows | spoken).items()
        },
        figures=[(caption, figure) for _, caption, figure in figures],
        config={"rformer": fitted["rformer"].get_params()},
        notes=[note],
        command="roughformer demo",
    )


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write results; a reader finds the old ones or all of the new."""
    write_file(path, (json.dumps(data, indent=2) + "\n").encode())
