"""Write trained models as ONNX files or torch.export programs, once they have been checked."""

import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from roughformer.errors import InputError
from roughformer.export.check import (
    TOLERANCE,
    Arrays,
    Run,
    differences,
    padded_inputs,
    step_differences,
    synthetic_inputs,
)
from roughformer.export.forecast import (
    ForecastGraph,
    forecast_description,
    forecast_differences,
    query_inputs,
    synthetic_series,
)
from roughformer.export.graphs import MAX_WINDOWS, Exportable, Graph, StepGraph
from roughformer.inference import ClassTargets, ForecastPredictor, Predictor
from roughformer.series import SeriesBatch
from roughformer.util.atomic import write_file
from roughformer.util.checks import optional, whole_number

Format = Literal["onnx", "torch"]
Dtype = Literal["float32", "float64"]
# (series, longest, extra padding) of synthetic batches; none has the sizes of the example.
_SIZES = ((1, 37, 0), (3, 64, 3), (3, 5, 0), (2, 1, 1))
_EXAMPLE = (2, 11)
_AT_ONCE = 8  # series of the user in a batch
_OPSET = 20  # what torch's exporter is written in; onnxruntime takes it from 1.17 on
_ABOUT = "about.json"


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
    predictor: Predictor | ForecastPredictor,
    path: str | os.PathLike[str],
    *,
    format: Format = "onnx",
    dtype: Dtype = "float64",
    data: SeriesBatch | None = None,
) -> Exported:
    """Write a model as one graph, from padded raw samples to predictions.

    The graph of a forecaster has the times to forecast as an input. The file is run before it is
    written, on ``data`` or on synthetic series of sizes that it was not traced with.

    Parameters
    ----------
    predictor : Predictor or ForecastPredictor
        The trained model: ``predictor_`` of a fitted estimator.
    path : path
        The file to write; ``NAME.json`` beside it describes the inputs and outputs.
    format : {"onnx", "torch"}, default "onnx"
        Format of the file.
    dtype : {"float32", "float64"}, default "float64"
        Of the input ``values``.
    data : SeriesBatch, optional
        Series to check the file on; synthetic ones if not given.

    Returns
    -------
    Exported

    Raises
    ------
    InputError
        If the file differs from the model by more than 1e-5 (of a forecaster: of a channel's
        spread); nothing is written.
    """
    kind = _value_type(format, dtype)
    if isinstance(predictor, ForecastPredictor):
        forecasts = ForecastGraph(predictor)
        synthesize = partial(synthetic_series, predictor)
        return _export(
            forecasts,
            query_inputs(forecasts, synthesize(*_EXAMPLE, 0), kind, extra=0, n_times=4),
            forecast_description(predictor),
            Path(path),
            format,
            partial(forecast_differences, predictor, forecasts, kind),
            synthesize,
            data,
        )
    graph = Graph(predictor)
    synthesize = partial(synthetic_inputs, predictor)
    return _export(
        graph,
        padded_inputs(graph, synthesize(*_EXAMPLE, 0), kind),
        _description(predictor),
        Path(path),
        format,
        lambda run, batch, extra: differences(predictor, graph, run, batch, kind, extra),
        synthesize,
        data,
    )


def export_step(
    predictor: Predictor,
    path: str | os.PathLike[str],
    *,
    format: Format = "onnx",
    dtype: Dtype = "float64",
    data: SeriesBatch | None = None,
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
        As in ``export_model``.
    dtype : {"float32", "float64"}, default "float64"
        As in ``export_model``.
    data : SeriesBatch, optional
        As in ``export_model``.
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
    kind = _value_type(format, dtype)
    graph = StepGraph(predictor, whole_number(max_windows, "max_windows", 1))
    synthesize = partial(synthetic_inputs, predictor)
    example = padded_inputs(graph, synthesize(*_EXAMPLE, 0), kind, points=5)
    example["state"] = np.zeros((_EXAMPLE[0], graph.state_size))
    about = _description(predictor)
    about |= {"windows": predictor.encoder.config.windows, "max_windows": graph.max_windows}

    def compare(run: Run, batch: SeriesBatch, extra: int) -> dict[str, float]:
        return step_differences(predictor, graph, run, batch, kind, points=2 + 5 * extra)

    return _export(graph, example, about, Path(path), format, compare, synthesize, data)


def _value_type(format: str, dtype: str) -> np.dtype[Any]:
    """The type of the input ``values``; raises if the file cannot be written here."""
    if format not in ("onnx", "torch"):
        raise InputError(f"format must be 'onnx' or 'torch', got {format!r}")
    if dtype not in ("float32", "float64"):
        raise InputError(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    for module in ("onnx", "onnxscript", "onnxruntime") if format == "onnx" else ():
        optional(module, "export")
    return np.dtype(dtype)


def _description(predictor: Predictor) -> dict[str, Any]:
    """What the numbers of a model mean, as plain data."""
    about: dict[str, Any] = {
        "task": predictor.outputs.task,
        "channels": list(predictor.encoder.channels),
        "static": list(predictor.static_names),
        "calibration": predictor.calibration,
        "causal": predictor.outputs.causal,
    }
    if isinstance(predictor.targets, ClassTargets):
        about["classes"] = list(predictor.targets.classes)
    target = predictor.metadata.get("data", {}).get("target")
    if target is not None:
        about["target"] = target
    if predictor.outputs.uncertainty == "quantile":
        about["quantiles"] = list(predictor.outputs.quantiles)
    return about


def _export(
    graph: Exportable,
    example: Arrays,
    about: dict[str, Any],
    path: Path,
    format: Format,
    compare: Callable[[Run, SeriesBatch, int], dict[str, float]],
    synthesize: Callable[[int, int, int], SeriesBatch],
    data: SeriesBatch | None,
) -> Exported:
    """Trace a graph with ``example``, compare the file with the model, and write it.

    ``compare(run, batch, extra)`` gives the difference of each output, with ``extra`` places of
    padding; the series are ``data`` or those of ``synthesize(n, longest, seed)``.
    """
    if data is None:
        batches = [(synthesize(n, m, k), extra) for k, (n, m, extra) in enumerate(_SIZES, start=1)]
    else:
        batches = [(data[i : i + _AT_ONCE], i % 3) for i in range(0, len(data), _AT_ONCE)]
    inputs = {
        name: {
            "type": str(x.dtype),
            "shape": [graph.dynamic[name].get(axis, size) for axis, size in enumerate(x.shape)],
        }
        for name, x in example.items()
    }
    made_by = f"roughformer {version('roughformer')}"
    about = {"made_by": made_by, **about, "inputs": inputs, "outputs": list(graph.outputs)}
    tensors = {name: torch.from_numpy(example[name]) for name in graph.inputs}  # in this order
    file = serialized(graph, tensors, format, about)
    run = open_graph(file, format, graph.outputs)
    worst: dict[str, float] = {}
    for batch, extra in batches:
        for name, gap in compare(run, batch, extra).items():
            worst[name] = max(gap, worst.get(name, 0.0))
    result = Exported(path, about, worst, sum(len(batch) for batch, _ in batches))
    if not worst:
        raise InputError("there are no series to check the graph on; nothing was written")
    if result.largest > TOLERANCE:
        listed = ", ".join(f"{name} {gap:.2g}" for name, gap in worst.items())
        raise InputError(
            f"the {format} graph differs from the model by more than {TOLERANCE:g} ({listed}) on "
            f"{result.n_series} series; nothing was written. float64 values (dtype='float64') lose "
            "the least; please report it if that does not help"
        )
    write_file(path, file)
    write_file(result.about_path, (json.dumps(about, indent=2) + "\n").encode())
    return result


def serialized(graph: Exportable, example: dict[str, Tensor], format: Format, about: Any) -> bytes:
    """The bytes of a graph with dynamic sizes, traced with ``example``; ``about`` goes with it."""
    sizes: dict[str, Any] = {}
    shapes = {
        name: {
            axis: sizes.setdefault(size, torch.export.Dim(size, min=1))
            for axis, size in axes.items()
        }
        for name, axes in graph.dynamic.items()
    }
    with _quiet(), torch.no_grad():
        program = torch.export.export(graph, (), example, dynamic_shapes=shapes, strict=False)
        if format == "torch":
            file = io.BytesIO()
            torch.export.save(program, file, extra_files={_ABOUT: json.dumps(about)})
            return file.getvalue()
        return _onnx(graph, program, example, about)


def _onnx(graph: Exportable, program: Any, example: dict[str, Tensor], about: Any) -> bytes:
    made = torch.onnx.export(
        program,
        (),
        kwargs=example,
        input_names=list(graph.inputs),
        output_names=list(graph.outputs),
        dynamic_shapes=graph.dynamic,  # so that sizes have their names
        opset_version=_OPSET,
        dynamo=True,
        verbose=False,
        custom_translation_table={torch.ops.aten.sort.stable: _stable_sort()},
    )
    assert made is not None
    proto = made.model_proto
    plain = {key: x if isinstance(x, str) else json.dumps(x) for key, x in about.items()}
    optional("onnx", "export").helper.set_model_props(proto, plain)
    data: bytes = proto.SerializeToString()
    return data


def _stable_sort() -> Callable[..., Any]:
    """torch's stable sort in ONNX: TopK of all, which keeps equal entries in their order."""
    script = optional("onnxscript", "export")
    op = script.opset20

    def sort(x: Any, stable: bool = True, dim: int = -1, descending: bool = False) -> Any:
        size = op.Shape(x, start=dim, end=dim + 1)
        return op.TopK(x, size, axis=dim, largest=int(descending), sorted=1)

    return sort


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the logs and warnings of torch's exporters."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export")]
    before = [log.level for log in loggers]
    for log in loggers:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(loggers, before, strict=True):
            log.setLevel(level)


def open_graph(data: bytes, format: Format, outputs: tuple[str, ...]) -> Run:
    """A function from inputs to outputs, by name: the file as its users will run it."""
    if format == "onnx":
        runtime = optional("onnxruntime", "export")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

        def run_session(inputs: Arrays) -> Arrays:
            return dict(zip(outputs, session.run(list(outputs), inputs), strict=True))

        return run_session
    module = torch.export.load(io.BytesIO(data)).module()

    def run_module(inputs: Arrays) -> Arrays:
        tensors = {name: torch.from_numpy(np.ascontiguousarray(x)) for name, x in inputs.items()}
        with torch.no_grad():
            return dict(zip(outputs, (x.numpy() for x in module(**tensors)), strict=True))

    return run_module
