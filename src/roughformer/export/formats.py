"""Graphs as files: ONNX, and torch's own exported programs; written, and opened to be run."""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from roughformer.util.checks import optional

__all__ = ["Arrays", "Exportable", "Format", "check_packages", "open_graph", "serialized"]

Format = Literal["onnx", "torch"]
Arrays = dict[str, npt.NDArray[Any]]
_OPSET = 20  # what torch's exporter is written in; onnxruntime takes it from 1.17 on
_ABOUT = "about.json"


class Exportable(Protocol):
    """A module that knows what its inputs and outputs are called."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arguments of ``forward``."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of what it returns."""

    @property
    def dynamic(self) -> dict[str, dict[int, str]]:
        """For each input the axes that may have any size, by the name of the size."""


def check_packages() -> None:
    """``InputError`` that says what to install if a package is missing that ONNX needs."""
    for module in ("onnx", "onnxscript", "onnxruntime"):
        optional(module, "export")


def serialized(graph: Exportable, example: dict[str, Tensor], format: Format, about: Any) -> bytes:
    """The file of a graph with dynamic sizes; ``example`` has sizes of no meaning, ``about`` is
    plain data that goes with it.
    """
    assert isinstance(graph, nn.Module)
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
    """torch's exporters tell what they miss and do to whoever listens; nobody should have to."""
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


def open_graph(data: bytes, format: Format, outputs: tuple[str, ...]) -> Callable[[Arrays], Arrays]:
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
