"""Predictions of a trained model for a file of series: as a table, scored, drawn."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roughformer.errors import InputError
from roughformer.inference import ClassTargets, Predictor, check_numbers
from roughformer.runs.data import Columns, SeriesData, ids_of, read_data, stamps
from roughformer.runs.run import Estimator, load_model
from roughformer.series import SeriesBatch
from roughformer.train import classification_scores, regression_scores
from roughformer.util.threads import using_threads

Array = npt.NDArray[Any]
_SPREAD = 1.96  # standard deviations of a 95 % interval


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


def prediction_columns(
    predictor: Predictor, found: dict[str, Array], names: tuple[str, ...] = (), proba: bool = True
) -> dict[str, Array]:
    """Column name -> ``(B,)``: prediction, then probabilities, std or quantiles.

    ``names``: of several targets, which give each column its end.
    """
    targets = predictor.targets
    if isinstance(targets, ClassTargets):
        p = found["probabilities"]
        columns: dict[str, Array] = {"prediction": targets.labels[p.argmax(axis=1)]}
        if proba:
            columns |= {f"p_{label}": p[:, k] for k, label in enumerate(targets.labels)}
        return columns
    columns = {}
    m = found["point"].shape[1]
    for j in range(m):
        end = "" if m == 1 else f"_{names[j] if len(names) == m else j}"
        columns[f"prediction{end}"] = found["point"][:, j]
        if "deviation" in found:
            columns[f"std{end}"] = found["deviation"][:, j]
        for q, level in enumerate(predictor.outputs.quantiles if "quantiles" in found else ()):
            columns[f"q{level:g}{end}"] = found["quantiles"][:, j, q]
    return columns


def scores_of(predictor: Predictor, found: dict[str, Array], target: Array) -> dict[str, float]:
    """Scores of predictions against targets ``(B,)`` or ``(B, m)`` of the world."""
    if isinstance(predictor.targets, ClassTargets):
        numbers = predictor.targets.numbers(_like_labels(predictor.targets, target)).numpy()
        return classification_scores(found["probabilities"], numbers)
    return regression_scores(found["point"], check_numbers(target, len(target))[0])


def _like_labels(targets: ClassTargets, y: Array) -> Array:
    """Labels of another file may be read as another kind: "1" and 1 are the same class."""
    if y.dtype.kind == targets.labels.dtype.kind:
        return y
    by_text = {str(label): label for label in targets.labels}
    return np.array([by_text.get(str(label), label) for label in y.tolist()])


def figures_of(
    predictor: Predictor, found: dict[str, Array], target: Array, part: str
) -> list[tuple[str, str, Any]]:
    """Pictures as (file name, caption, figure): confusion and calibration, or regression."""
    from roughformer import plots

    if isinstance(predictor.targets, ClassTargets):
        labels = predictor.targets.labels
        y = predictor.targets.numbers(_like_labels(predictor.targets, target)).numpy()
        p = found["probabilities"]
        matrix = np.zeros((len(labels), len(labels)), dtype=np.int64)
        np.add.at(matrix, (y, p.argmax(axis=1)), 1)
        made = [
            (
                "confusion",
                f"Truth and prediction, {part}",
                plots.plot_confusion(matrix, labels.tolist()),
            )
        ]
        if len(labels) > 1:
            figure = plots.plot_calibration(y, p)
            made.append(("calibration", f"Confidence and frequency, {part}", figure))
        return made
    y = check_numbers(target, len(target))[0]
    made = []
    for j in range(y.shape[1]):
        interval = None
        point = found["point"][:, j]
        if "deviation" in found:
            half = _SPREAD * found["deviation"][:, j]
            interval = np.stack([point - half, point + half], axis=1)
        elif "quantiles" in found and found["quantiles"].shape[2] > 1:
            interval = found["quantiles"][:, j][:, [0, -1]]
        end = "" if y.shape[1] == 1 else f"_{j}"
        figure = plots.plot_regression(y[:, j], point, interval)
        made.append((f"regression{end}", f"Truth and prediction, {part}", figure))
    return made


# From a trained model and a file to tables of predictions.


def target_of(estimator: Estimator) -> str:
    """The name of the target a model was trained on."""
    about: dict[str, Any] = estimator.predictor_.metadata.get("data", {})
    return str(about.get("target", "label"))


def chosen_target(estimator: Estimator, name: str | None) -> Any:
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
    estimator: Estimator,
    path: Path,
    given: Columns,
    *,
    target: str | None = None,
    labels: Path | None = None,
) -> SeriesData:
    """Read series as the model's training data were read, but for what is ``given`` now."""
    encoder = estimator.predictor_.encoder
    about = dict(estimator.predictor_.metadata.get("data", {}))
    known = Columns.of({k: v for k, v in about.items() if k in Columns.__dataclass_fields__})
    static = tuple(getattr(encoder, "config", encoder).static)
    own = Columns(channels=tuple(encoder.channels), static=static)
    return read_data(path, given.over(own.over(known)), target=target, labels=labels)


def evaluate_file(
    estimator: Estimator,
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
    found = predictions(predictor, batch, drop=drop, seed=seed, threads=threads)
    names = tuple(target_of(estimator).split(","))
    columns = prediction_columns(predictor, found, names, proba)
    write_columns({"series_id": ids_of(batch), **columns}, out)
    if windows_out is not None:
        thinned = batch.drop_points(drop, seed) if drop else batch
        write_columns(_of_windows(estimator, thinned, proba, names), windows_out)


def _of_windows(
    estimator: Estimator, batch: Any, proba: bool, names: tuple[str, ...]
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
