"""A graph held against its model: the same series through both."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from roughformer.export.formats import Arrays
from roughformer.export.graph import Graph
from roughformer.inference import ClassTargets, NumberTargets, Predictor
from roughformer.series import SeriesBatch

__all__ = [
    "TOLERANCE",
    "differences",
    "expected_of",
    "inputs_of",
    "relative_gap",
    "static_inputs",
]

TOLERANCE = 1e-5


def inputs_of(graph: Graph, batch: SeriesBatch, dtype: Any = np.float64, extra: int = 0) -> Arrays:
    """The inputs of a graph: padded arrays, ``extra`` places longer than needed."""
    n, longest = len(batch), int(batch.lengths.max(initial=1)) + extra
    row = np.repeat(np.arange(n), batch.lengths)
    column = np.arange(batch.n_points) - np.repeat(batch.offsets[:-1], batch.lengths)
    values = np.full((n, longest, batch.n_channels), np.nan, dtype=dtype)
    times = np.zeros((n, longest))
    values[row, column], times[row, column] = batch.values, batch.times
    found: Arrays = {"values": values, "times": times, "lengths": batch.lengths.astype(np.int64)}
    return found | static_inputs(graph.static_names, batch)


def static_inputs(names: tuple[str, ...], batch: SeriesBatch) -> Arrays:
    """The input ``static``, if a graph takes covariates of these ``names``."""
    if not names:
        return {}
    assert batch.static is not None
    at = [batch.static_names.index(name) for name in names]
    return {"static": np.ascontiguousarray(batch.static[:, at], dtype=np.float64)}


def expected_of(predictor: Predictor, batch: SeriesBatch) -> Arrays:
    """What the model itself says, under the names of the graph's outputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of channels that are never observed
        output, mask = predictor.forward(batch)

    def said(what: torch.Tensor) -> Arrays:
        if isinstance(predictor.targets, ClassTargets):
            shares = (what / predictor.calibration).double().softmax(dim=-1)
            return {"probabilities": shares.numpy()}
        return dict(predictor.to_target_units(what))

    found = said(predictor.at_last_window(output, mask))
    if predictor.outputs.causal:
        found |= {f"window_{name}": x for name, x in said(output).items()}
        found["window_mask"] = mask.numpy()
    return found


def differences(
    predictor: Predictor,
    graph: Graph,
    run: Callable[[Arrays], Arrays],
    batch: SeriesBatch,
    dtype: Any = np.float64,
    extra: int = 0,
) -> dict[str, float]:
    """For each output the largest difference between graph and model: of probabilities as it is, of
    numbers relative to the spread of the targets (of rates: to the rate).
    """
    batch = batch.with_values(batch.values.astype(dtype))
    found = run(inputs_of(graph, batch, dtype, extra))
    expected = expected_of(predictor, batch)
    mask = expected.pop("window_mask", None)
    result = {}
    for name, right in expected.items():
        here = found[name]
        if name.startswith("window_"):
            assert mask is not None
            if not (found["window_mask"].sum(axis=1) == mask.sum(axis=1)).all():
                return {name: np.inf}
            here, right = here[found["window_mask"]], right[mask]
        result[name] = relative_gap(predictor, here, right)
    return result


def relative_gap(predictor: Predictor, here: npt.NDArray[Any], right: npt.NDArray[Any]) -> float:
    """The largest difference between answers ``(n, ...)``; infinite if one is not a number."""
    gap = np.abs(here - right) / _size(predictor, right)
    return float(gap.max(initial=0.0)) if not np.isnan(gap).any() else np.inf


def _size(predictor: Predictor, right: npt.NDArray[Any]) -> npt.NDArray[Any]:
    targets = predictor.targets
    if not isinstance(targets, NumberTargets):
        return np.ones(())
    if targets.log:
        return np.asarray(np.maximum(np.abs(right), 1e-300))
    scale = np.array(targets.scale)
    return scale if right.shape[-1] == len(scale) and right.ndim < 3 else scale[:, None]
