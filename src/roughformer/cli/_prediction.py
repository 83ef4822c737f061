"""From a trained model and a file to tables of predictions."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roughformer.cli._columns import Columns
from roughformer.cli._data import Data, ids_of, read_data, stamps
from roughformer.cli._options import check_place
from roughformer.cli._runs import Estimator, load_model
from roughformer.cli._scores import prediction_columns, predictions
from roughformer.errors import InputError
from roughformer.targets import ClassTargets

__all__ = [
    "check_ending",
    "chosen_target",
    "predict_file",
    "read_for",
    "target_of",
    "write_columns",
]

Array = npt.NDArray[Any]


def target_of(estimator: Estimator) -> str:
    """The name of the target a model was trained on."""
    about: dict[str, Any] = estimator.predictor_.facts.get("data", {})
    return str(about.get("target", "label"))


def chosen_target(estimator: Estimator, wish: str | None) -> Any:
    """What ``--target`` names, as ``roughformer.explain`` takes it: a class, or the number of a
    target, which may be told by its name in training; None: not said, and none of several.
    """
    targets = estimator.predictor_.targets
    if wish is None and (
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
    if wish is None:
        raise InputError(
            f"the model predicts several targets: name one with --target, of {', '.join(known)}"
        )
    if wish not in known:
        what = "classes" if isinstance(targets, ClassTargets) else "targets"
        raise InputError(f"--target: the model's {what} are {', '.join(known)}; got {wish!r}")
    return known[wish]


def read_for(
    estimator: Estimator,
    path: Path,
    given: Columns,
    *,
    target: str | None = None,
    labels: Path | None = None,
) -> Data:
    """Read series as the model's training data were read, but for what is ``given`` now."""
    encoder = estimator.predictor_.encoder
    about = dict(estimator.predictor_.facts.get("data", {}))
    known = Columns.of({k: v for k, v in about.items() if k in Columns.__dataclass_fields__})
    static = tuple(getattr(encoder, "config", encoder).static)
    own = Columns(channels=tuple(encoder.channels), static=static)
    return read_data(path, given.over(own.over(known)), target=target, labels=labels)


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
    for file, option in ((out, "--out"), (windows_out, "--windows-out")):
        check_ending(file)
        check_place(file, option)
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
