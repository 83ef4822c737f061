"""Series run through a step graph, some points at a time, and held against the model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.export.checking import expected_of, relative_gap, static_inputs
from roughformer.export.formats import Arrays
from roughformer.export.graph import names_of
from roughformer.export.step import StepGraph
from roughformer.inference import Predictor
from roughformer.series import SeriesBatch

__all__ = ["run_stream", "step_differences", "step_inputs"]

Ints = npt.NDArray[np.int64]
Run = Callable[[Arrays], Arrays]


def step_inputs(
    graph: StepGraph,
    batch: SeriesBatch,
    at: Ints,
    points: int,
    state: npt.NDArray[np.float64],
    dtype: Any = np.float64,
) -> Arrays:
    """The inputs of one call: up to ``points`` points of each series from number ``at (B,)`` on."""
    lengths = np.minimum(batch.lengths - at, points)
    row = np.repeat(np.arange(len(batch)), lengths)
    column = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    source = (batch.offsets[:-1] + at)[row] + column
    values = np.full((len(batch), points, batch.n_channels), np.nan, dtype=dtype)
    times = np.zeros((len(batch), points))
    values[row, column], times[row, column] = batch.values[source], batch.times[source]
    found: Arrays = {"values": values, "times": times, "lengths": lengths.astype(np.int64)}
    return found | {"state": state} | static_inputs(graph.static_names, batch)


def run_stream(
    graph: StepGraph, run: Run, batch: SeriesBatch, points: int, dtype: Any = np.float64
) -> list[list[Arrays]]:
    """For each series what the step says at the end of each window, and last of all where the
    series ends; ``points``: of a series that are given to one call.
    """
    at = np.zeros(len(batch), dtype=np.int64)
    state = np.zeros((len(batch), graph.state_size))
    said: list[list[Arrays]] = [[] for _ in range(len(batch))]
    opened = np.ones(len(batch), dtype=bool)  # whether something came after the last window's end
    while (at < batch.lengths).any():
        found = run(step_inputs(graph, batch, at, points, state, dtype))
        taken, ended, state = found["taken"], found["ended"], found["next_state"]
        if ((at < batch.lengths) & (taken == 0) & ~ended).any():
            return [[] for _ in said]  # it does not go on: nothing to compare
        at, opened = at + taken, np.where(ended, False, opened | (taken > 0))
        for b in np.flatnonzero(ended):
            said[b].append({name: x[b] for name, x in found.items()})
    # Without new points a stream says again what it says now.
    found = run(step_inputs(graph, batch, at, points, state, dtype))
    for b in np.flatnonzero(opened):
        said[b].append({name: x[b] for name, x in found.items()})
    return said


def step_differences(
    predictor: Predictor,
    graph: StepGraph,
    run: Run,
    batch: SeriesBatch,
    dtype: Any = np.float64,
    points: int = 4,
) -> dict[str, float]:
    """For each output the largest difference between the step and the model over all windows; as
    ``differences``.
    """
    batch = batch.with_values(batch.values.astype(dtype))
    said = run_stream(graph, run, batch, points, dtype)
    expected = expected_of(predictor, batch)
    counts = expected["window_mask"].sum(axis=1)
    result = dict.fromkeys(names_of(predictor), 0.0)
    for b, answers in enumerate(said):
        if len(answers) != counts[b]:
            return dict.fromkeys(result, np.inf)
        some = answers[: graph.max_windows]
        for name in result:
            here = np.stack([answer[name] for answer in some])
            right = expected[f"window_{name}"][b, : len(some)]
            result[name] = max(result[name], relative_gap(predictor, here, right))
    return result
