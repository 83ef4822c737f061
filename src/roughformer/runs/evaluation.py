"""A trained model on a file of series: read it, predict, score, draw, write tables."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roughformer.errors import CheckpointError, InputError
from roughformer.estimators import TrainedEstimator, estimator_class
from roughformer.inference import ClassTargets, Predictor, check_numbers
from roughformer.runs.data import Columns, SeriesData, ids_of, read_data, stamps
from roughformer.series import SeriesBatch
from roughformer.train import classification_scores, regression_scores
from roughformer.util.checkpoint import load_checkpoint
from roughformer.util.checks import using_threads

Array = npt.NDArray[Any]
_SPREAD = 1.96  # standard deviations of a 95 % interval


def model_directory(path: Path) -> Path:
    """``path`` if it is a model's directory, or the model's directory of the run ``path``."""
    if not path.is_dir():
        raise InputError(f"there is no directory {str(path)!r}; give that of a run or of a model")
    if (path / "manifest.json").exists():
        return path
    if (path / "model").is_dir():
        return path / "model"
    if (path / "state").is_dir() or (path / "config.toml").exists():
        raise InputError(
            f"the run {path} has no model yet: it is not finished; continue it with roughformer "
            "train ... --resume"
        )
    raise CheckpointError(f"{path} holds neither a run nor a model; give the --out of a training")


def is_forecaster(path: Path) -> bool:
    """Whether a directory holds a forecaster."""
    return load_checkpoint(model_directory(path)).config.get("kind") == "forecaster"


def load_model(path: Path, threads: int | None = None, device: str = "cpu") -> TrainedEstimator:
    """The estimator of a run or of a model's directory."""
    directory = model_directory(path)
    config = load_checkpoint(directory).config
    if config.get("kind") == "forecaster":
        raise InputError(
            f"{directory} holds a forecaster: roughformer forecast DATA --model {directory}"
        )
    task = config.get("facts", {}).get("task")
    if task not in ("classification", "regression"):
        raise CheckpointError(
            f"{directory} is a checkpoint, but not of a trained model; give the model of a run"
        )
    estimator = estimator_class(task, config["kind"]).load(directory, device)
    estimator.set_params(n_jobs=threads)
    return estimator


def target_of(estimator: TrainedEstimator) -> str:
    """The name of the target a model was trained on."""
    about: dict[str, Any] = estimator.predictor_.metadata.get("data", {})
    return str(about.get("target", "label"))


def chosen_target(estimator: TrainedEstimator, name: str | None) -> Any:
    """What ``--target`` names, as ``inference.explain`` takes it: a class, or the number of a
    target, which may be told by its name in training; None: not said, and none of several.
    """
    targets = estimator.predictor_.targets
    if name is None and (
        isinstance(targets, ClassTargets) or estimator.predictor_.outputs.n_outputs == 1
    ):
        return None
    if isinstance(targets, ClassTargets):
        known = {str(label): label for label in targets.labels.tolist()}
    else:
        n = estimator.predictor_.outputs.n_outputs
        names = [name.strip() for name in target_of(estimator).split(",")]
        known = {str(k): k for k in range(n)}
        known |= {name: k for k, name in enumerate(names)} if len(names) == n else {}
    if name is None:
        raise InputError(
            f"the model predicts several targets: name one with --target, of {', '.join(known)}"
        )
    if name not in known:
        what = "classes" if isinstance(targets, ClassTargets) else "targets"
        raise InputError(f"--target: the model's {what} are {', '.join(known)}; got {name!r}")
    return known[name]


def read_for(
    estimator: TrainedEstimator,
    path: Path,
    given: Columns,
    *,
    target: str | None = None,
    labels: Path | None = None,
) -> SeriesData:
    """Read series as the model's training data were read, but for what is ``given`` now."""
    predictor = estimator.predictor_
    about = dict(predictor.metadata.get("data", {}))
    known = Columns.of({k: v for k, v in about.items() if k in Columns.__dataclass_fields__})
    own = Columns(channels=tuple(predictor.encoder.channels), static=predictor.static_names)
    return read_data(path, given.over(own.over(known)), target=target, labels=labels)


def evaluate_file(
    estimator: TrainedEstimator,
    path: Path,
    given: Columns | None = None,
    *,
    target: str | None = None,
    labels: Path | None = None,
    drop: Sequence[float] = (0.0,),
    seeds: int = 1,
) -> dict[str, Any]:
    """Score a model on a file of labelled series, with shares ``drop`` of the points left out.

    ``series``: their number; ``notes``; ``scores``: for each share the mean of each score over
    ``seeds`` draws of dropped points, and ``std``.
    """
    wanted = target or target_of(estimator)
    read = read_for(estimator, path, given or Columns(), target=wanted, labels=labels)
    assert read.target is not None
    if len(read.batch) == 0:
        raise InputError(f"{path} holds no series to evaluate on")
    predictor, threads = estimator.predictor_, estimator.get_params()["n_jobs"]
    rows: list[dict[str, Any]] = []
    for share in drop:
        draws = [
            scores_of(
                predictor,
                predictions(predictor, read.batch, drop=share, seed=seed, threads=threads),
                read.target,
            )
            for seed in range(seeds if share > 0 else 1)
        ]
        mean = {name: float(np.mean([draw[name] for draw in draws])) for name in draws[0]}
        std = {name: float(np.std([draw[name] for draw in draws])) for name in draws[0]}
        rows.append({"drop": share, "seeds": len(draws), **mean, "std": std})
    return {"series": len(read.batch), "notes": read.notes, "scores": rows}


def predict_file(
    run: Path,
    path: Path,
    given: Columns,
    *,
    out: Path | None,
    proba: bool,
    windows_out: Path | None,
    drop: float,
    seed: int,
    threads: int | None,
    device: str,
) -> None:
    """Write a row for each series to ``out`` (None: CSV on stdout), and for each window of a causal
    model to ``windows_out``.
    """
    for file in (out, windows_out):
        check_ending(file)
    estimator = load_model(run, threads, device)
    predictor = estimator.predictor_
    if windows_out is not None and not predictor.outputs.causal:
        raise InputError(
            "--windows-out: only a causal model predicts at every window; train with --causal"
        )
    batch = read_for(estimator, path, given).batch
    predicted = predictions(predictor, batch, drop=drop, seed=seed, threads=threads)
    names = tuple(target_of(estimator).split(","))
    columns = prediction_columns(predictor, predicted, names, proba)
    write_columns({"series_id": ids_of(batch), **columns}, out)
    if windows_out is not None:
        thinned = batch.drop_points(drop, seed) if drop else batch
        write_columns(_of_windows(estimator, thinned, proba, names), windows_out)


def prediction_columns(
    predictor: Predictor,
    predicted: dict[str, Array],
    names: tuple[str, ...] = (),
    proba: bool = True,
) -> dict[str, Array]:
    """Column name -> ``(B,)``: prediction, then probabilities, std or quantiles.

    ``names``: of several targets, which give each column its end.
    """
    targets = predictor.targets
    if isinstance(targets, ClassTargets):
        p = predicted["probabilities"]
        columns: dict[str, Array] = {"prediction": targets.labels[p.argmax(axis=1)]}
        if proba:
            columns |= {f"p_{label}": p[:, k] for k, label in enumerate(targets.labels)}
        return columns
    columns = {}
    m = predicted["point"].shape[1]
    for j in range(m):
        end = "" if m == 1 else f"_{names[j] if len(names) == m else j}"
        columns[f"prediction{end}"] = predicted["point"][:, j]
        if "deviation" in predicted:
            columns[f"std{end}"] = predicted["deviation"][:, j]
        for q, level in enumerate(predictor.outputs.quantiles if "quantiles" in predicted else ()):
            columns[f"q{level:g}{end}"] = predicted["quantiles"][:, j, q]
    return columns


def _of_windows(
    estimator: TrainedEstimator, batch: Any, proba: bool, names: tuple[str, ...]
) -> dict[str, Array]:
    rows = estimator.predict_windows(batch)
    ids = ids_of(batch)
    counts = [len(ends) for ends, _ in rows]
    columns: dict[str, Array] = {
        "series_id": np.repeat(ids, counts),
        "window": np.concatenate([np.arange(n) for n in counts] or [np.arange(0)]),
        "end": stamps(batch, np.concatenate([ends for ends, _ in rows] or [np.zeros(0)])),
    }
    values = np.concatenate([v for _, v in rows]) if rows else np.zeros((0, 1))
    values = values[:, None] if values.ndim == 1 else values
    key = "probabilities" if isinstance(estimator.predictor_.targets, ClassTargets) else "point"
    return columns | prediction_columns(estimator.predictor_, {key: values}, names, proba)


def check_ending(path: Path | None) -> None:
    """``InputError`` unless the name says what to write."""
    if path is not None and path.suffix.lower() not in (".csv", ".parquet", ".pq"):
        raise InputError(f"cannot write {path}: the name must end in .csv or .parquet")


def write_columns(columns: dict[str, Array], path: Path | None) -> None:
    """CSV or Parquet by the name's ending, or CSV on stdout."""
    import pyarrow.csv as pv

    table = pa.table({name: pa.array(column) for name, column in columns.items()})
    plain = pv.WriteOptions(quoting_style="needed")
    if path is None:
        sys.stdout.flush()
        with pa.BufferOutputStream() as buffer:
            pv.write_csv(table, buffer, plain)
            text = buffer.getvalue().to_pybytes().decode()
        sys.stdout.write(text)
        return
    check_ending(path)
    try:
        if path.suffix.lower() == ".csv":
            with pa.output_stream(str(path)) as stream:
                pv.write_csv(table, stream, plain)
        else:
            import pyarrow.parquet as pq

            pq.write_table(table, path)
    except OSError as error:  # pyarrow's do not know the file's name
        raise InputError(
            f"cannot write {path}: {error.strerror or ' '.join(str(error).split())}; choose "
            "another place"
        ) from None


# Predictions against the truth: scores, and pictures.


def predictions(
    predictor: Predictor,
    batch: SeriesBatch,
    *,
    drop: float = 0.0,
    seed: int = 0,
    threads: int | None = None,
) -> dict[str, Array]:
    """``probabilities (B, K)``, or ``point (B, m)`` with ``deviation`` or ``quantiles``."""
    with using_threads(threads):
        if isinstance(predictor.targets, ClassTargets):
            return {"probabilities": predictor.probabilities(batch, drop=drop, seed=seed)}
        return dict(predictor.predict(batch, drop=drop, seed=seed))


def scores_of(predictor: Predictor, predicted: dict[str, Array], target: Array) -> dict[str, float]:
    """Scores of predictions against targets ``(B,)`` or ``(B, m)`` of the world."""
    if isinstance(predictor.targets, ClassTargets):
        return classification_scores(predicted["probabilities"], _classes(predictor, target))
    return regression_scores(predicted["point"], check_numbers(target, len(target))[0])


def _classes(predictor: Predictor, target: Array) -> npt.NDArray[np.int64]:
    """Numbers of the classes. Labels of another file may be read as another kind: "1" and 1 are
    the same class.
    """
    assert isinstance(predictor.targets, ClassTargets)
    labels = predictor.targets.labels
    if target.dtype.kind != labels.dtype.kind:
        by_text = {str(label): label for label in labels}
        target = np.array([by_text.get(str(label), label) for label in target.tolist()])
    return predictor.targets.numbers(target).numpy()


def figures_of(
    predictor: Predictor, predicted: dict[str, Array], target: Array, part: str
) -> list[tuple[str, str, Any]]:
    """Pictures as (file name, caption, figure): confusion and calibration, or regression."""
    from roughformer import plots

    caption = f"Truth and prediction, {part}"
    if isinstance(predictor.targets, ClassTargets):
        labels, y = predictor.targets.labels, _classes(predictor, target)
        p = predicted["probabilities"]
        matrix = np.zeros((len(labels), len(labels)), dtype=np.int64)
        np.add.at(matrix, (y, p.argmax(axis=1)), 1)
        figures = [("confusion", caption, plots.plot_confusion(matrix, labels.tolist()))]
        if len(labels) > 1:
            title = f"Confidence and frequency, {part}"
            figures.append(("calibration", title, plots.plot_calibration(y, p)))
        return figures
    y = check_numbers(target, len(target))[0]
    figures = []
    for j in range(y.shape[1]):
        point, interval = predicted["point"][:, j], None
        if "deviation" in predicted:
            half = _SPREAD * predicted["deviation"][:, j]
            interval = np.stack([point - half, point + half], axis=1)
        elif "quantiles" in predicted and predicted["quantiles"].shape[2] > 1:
            interval = predicted["quantiles"][:, j][:, [0, -1]]
        name = "regression" if y.shape[1] == 1 else f"regression_{j}"
        figures.append((name, caption, plots.plot_regression(y[:, j], point, interval)))
    return figures
