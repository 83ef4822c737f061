"""What one must know to use an exported file, as plain data."""

from typing import Any

from roughformer.export.formats import Arrays, Exportable
from roughformer.export.graph import static_names
from roughformer.inference import ClassTargets, Predictor

__all__ = ["about_graph"]


def about_graph(
    predictor: Predictor, graph: Exportable, example: Arrays, version: str
) -> dict[str, Any]:
    """Inputs and outputs of a graph, and what its numbers mean; ``example``: inputs of it."""
    about: dict[str, Any] = {
        "made_by": f"roughformer {version}".strip(),
        "task": predictor.outputs.task,
        "channels": list(predictor.encoder.channels),
        "static": list(static_names(predictor)),
        "inputs": {
            name: {"type": str(x.dtype), "shape": _shape(x.shape, graph.dynamic[name])}
            for name, x in example.items()
        },
        "outputs": list(graph.outputs),
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


def _shape(shape: tuple[int, ...], axes: dict[int, str]) -> list[int | str]:
    return [axes.get(axis, size) for axis, size in enumerate(shape)]
