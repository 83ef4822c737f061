"""Exporting a trained model: graph, file, check, and what the numbers mean."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from roughformer.errors import InputError
from roughformer.export.about import about_graph
from roughformer.export.checking import TOLERANCE, differences, inputs_of
from roughformer.export.formats import (
    Arrays,
    Exportable,
    Format,
    check_packages,
    open_graph,
    serialized,
)
from roughformer.export.graph import Graph
from roughformer.export.made_up import made_up_series
from roughformer.export.step import MAX_WINDOWS, StepGraph
from roughformer.export.stepping import step_differences, step_inputs
from roughformer.inference import Predictor
from roughformer.series import SeriesBatch
from roughformer.util.atomic import write_file
from roughformer.util.checks import whole_number

__all__ = ["Exported", "checked", "export_model", "export_step", "written"]

Dtype = Literal["float32", "float64"]
# (series, longest, places of padding more) of made-up batches; none has the sizes of the example.
_SIZES = ((1, 37, 0), (3, 64, 3), (3, 5, 0), (2, 1, 1))
_EXAMPLE = (2, 11)
_AT_ONCE = 8  # of the series of a user


@dataclass(frozen=True)
class Exported:
    """What was written, and how far it is from the model.

    Attributes
    ----------
    path : Path
        The file.
    about : dict
        Its description, which ``about_path`` holds.
    differences : dict of str to float
        Largest difference from the model for each output.
    n_series : int
        Number of series that it was checked on.
    """

    path: Path
    about: dict[str, Any]
    differences: dict[str, float]
    n_series: int

    @property
    def about_path(self) -> Path:
        """Path of ``about``: ``.json`` is added to the name, so that formats do not share it."""
        return self.path.with_name(f"{self.path.name}.json")

    @property
    def largest(self) -> float:
        """Largest difference over all outputs."""
        return max(self.differences.values())


def export_model(
    predictor: Predictor,
    path: str | os.PathLike[str],
    *,
    format: Format = "onnx",
    dtype: Dtype = "float64",
    data: SeriesBatch | None = None,
    version: str = "",
) -> Exported:
    """Write a model as one graph, from padded raw samples to predictions.

    The file is run before it is written, on ``data`` or on made-up series of sizes that it was not
    traced with.

    Parameters
    ----------
    predictor : Predictor
        The trained model.
    path : path
        The file to write; ``NAME.json`` beside it describes the inputs and outputs.
    format : {"onnx", "torch"}, default "onnx"
        Format of the file.
    dtype : {"float32", "float64"}, default "float64"
        Of the input ``values``.
    data : SeriesBatch, optional
        Series to check the file on; made-up ones if not given.
    version : str, default ""
        Version of roughformer, for ``NAME.json``.

    Returns
    -------
    Exported

    Raises
    ------
    InputError
        If the file differs from the model by more than 1e-5; nothing is written.
    """
    kind = checked(format, dtype)
    graph = Graph(predictor)
    example = inputs_of(graph, made_up_series(predictor, *_EXAMPLE, seed=0), kind)

    def gaps(run: Callable[[Arrays], Arrays], batch: SeriesBatch, extra: int) -> dict[str, float]:
        return differences(predictor, graph, run, batch, kind, extra)

    about = about_graph(predictor, graph, example, version)
    tried = _to_try(predictor, data)
    return written(graph, example, about, Path(path), format, tried, gaps)


def export_step(
    predictor: Predictor,
    path: str | os.PathLike[str],
    *,
    format: Format = "onnx",
    dtype: Dtype = "float64",
    data: SeriesBatch | None = None,
    version: str = "",
    max_windows: int = MAX_WINDOWS,
) -> Exported:
    """Write a causal model as one step of a stream, state in and state out (see ``StepGraph``).

    It is checked as ``export_model`` does: series go through it a few points at a time, and its
    output at the end of every window is that of the model on the whole series.

    Parameters
    ----------
    predictor : Predictor
        The trained model.
    path : path
        The file to write; ``NAME.json`` beside it describes the inputs and outputs.
    format : {"onnx", "torch"}, default "onnx"
        Format of the file.
    dtype : {"float32", "float64"}, default "float64"
        Of the input ``values``.
    data : SeriesBatch, optional
        Series to check the file on; made-up ones if not given.
    version : str, default ""
        Version of roughformer, for ``NAME.json``.
    max_windows : int, default 1024
        Windows that a stream may have, if the model has no ``context``.

    Returns
    -------
    Exported

    Raises
    ------
    InputError
        If the model cannot be run as a stream, or if the file differs from it by more than 1e-5;
        nothing is written.
    """
    kind = checked(format, dtype)
    graph = StepGraph(predictor, whole_number(max_windows, "max_windows", 1))
    batch = made_up_series(predictor, *_EXAMPLE, seed=0)
    begin, state = np.zeros(len(batch), dtype=np.int64), np.zeros((len(batch), graph.state_size))
    example = step_inputs(graph, batch, begin, 5, state, kind)

    def gaps(run: Callable[[Arrays], Arrays], batch: SeriesBatch, extra: int) -> dict[str, float]:
        return step_differences(predictor, graph, run, batch, kind, points=2 + 5 * extra)

    about = about_graph(predictor, graph, example, version)
    about["windows"] = predictor.encoder.config.windows
    about["max_windows"] = graph.max_windows
    tried = _to_try(predictor, data)
    return written(graph, example, about, Path(path), format, tried, gaps)


def checked(format: str, dtype: str) -> np.dtype[Any]:
    """The type of the values, once it is clear that the file can be made."""
    if format not in ("onnx", "torch"):
        raise InputError(f"format must be 'onnx' or 'torch', got {format!r}")
    if dtype not in ("float32", "float64"):
        raise InputError(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    if format == "onnx":
        check_packages()
    return np.dtype(dtype)


def _to_try(predictor: Predictor, data: SeriesBatch | None) -> list[tuple[SeriesBatch, int]]:
    """Series to hold a graph against, and places of padding more."""
    if data is not None:
        return [(data[i : i + _AT_ONCE], i % 3) for i in range(0, len(data), _AT_ONCE)]
    return [
        (made_up_series(predictor, n, longest, seed), extra)
        for seed, (n, longest, extra) in enumerate(_SIZES, start=1)
    ]


def written(
    graph: Exportable,
    example: Arrays,
    about: dict[str, Any],
    path: Path,
    format: Format,
    tried: list[tuple[SeriesBatch, int]],
    gaps: Callable[[Callable[[Arrays], Arrays], SeriesBatch, int], dict[str, float]],
) -> Exported:
    """The file, once it has been run: ``gaps(run, batch, extra)`` are its differences."""
    tensors = {name: torch.from_numpy(x) for name, x in example.items()}
    file = serialized(graph, tensors, format, about)
    run = open_graph(file, format, graph.outputs)
    worst: dict[str, float] = {}
    for batch, extra in tried:
        for name, gap in gaps(run, batch, extra).items():
            worst[name] = max(gap, worst.get(name, 0.0))
    result = Exported(path, about, worst, sum(len(batch) for batch, _ in tried))
    if not worst:
        raise InputError("there are no series to check the graph on; nothing was written")
    if result.largest > TOLERANCE:
        told = ", ".join(f"{name} {gap:.2g}" for name, gap in worst.items())
        raise InputError(
            f"the {format} graph differs from the model by more than {TOLERANCE:g} ({told}) on "
            f"{result.n_series} series; nothing was written. float64 values (dtype='float64') lose "
            "the least; please report it if that does not help"
        )
    write_file(path, file)
    write_file(result.about_path, (json.dumps(about, indent=2) + "\n").encode())
    return result
