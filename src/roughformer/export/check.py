"""Compare a graph with its model on the same series: the user's or synthetic ones."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.export.graphs import Graph, StepGraph, output_names
from roughformer.inference import NumberTargets, Predictor
from roughformer.series import SeriesBatch
from roughformer.tokens import CellEncoder, TempoEncoder, Tokenizer

TOLERANCE = 1e-5
_MISSING = 0.2  # of the values of synthetic series
Arrays = dict[str, npt.NDArray[Any]]
Run = Callable[[Arrays], Arrays]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def padded(
    batch: SeriesBatch,
    dtype: Any = np.float64,
    points: int | None = None,
    first: Ints | int = 0,
    extra: int = 0,
) -> Arrays:
    """Padded series: up to ``points`` points of each (None: all) from number ``first (B,)`` on, in
    arrays ``extra`` places longer than needed.
    """
    longest = int(batch.lengths.max(initial=1)) if points is None else points
    lengths = np.minimum(batch.lengths - first, longest)
    row = np.repeat(np.arange(len(batch)), lengths)
    column = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    source = (batch.offsets[:-1] + first)[row] + column
    values = np.full((len(batch), longest + extra, batch.n_channels), np.nan, dtype=dtype)
    times = np.zeros((len(batch), longest + extra))
    values[row, column], times[row, column] = batch.values[source], batch.times[source]
    return {"values": values, "times": times, "lengths": lengths.astype(np.int64)}


def padded_inputs(graph: Graph | StepGraph, batch: SeriesBatch, *how: Any, **more: Any) -> Arrays:
    """The inputs of a graph: ``padded`` series, and their covariates."""
    inputs = padded(batch, *how, **more)
    if graph.static_names:
        assert batch.static is not None
        at = [batch.static_names.index(name) for name in graph.static_names]
        inputs["static"] = np.ascontiguousarray(batch.static[:, at], dtype=np.float64)
    return inputs


def expected_of(predictor: Predictor, batch: SeriesBatch) -> Arrays:
    """What the model itself says, under the names of the graph's outputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of channels that are never observed
        output, mask = predictor.forward(batch)

    answers = predictor.answers(predictor.at_last_window(output, mask))
    if predictor.outputs.causal:
        answers |= {f"window_{name}": x for name, x in predictor.answers(output).items()}
        answers["window_mask"] = mask
    return {name: x.numpy() for name, x in answers.items()}


def differences(
    predictor: Predictor,
    graph: Graph,
    run: Run,
    batch: SeriesBatch,
    dtype: Any = np.float64,
    extra: int = 0,
) -> dict[str, float]:
    """For each output the largest difference between graph and model: of probabilities as it is, of
    numbers relative to the spread of the targets (of rates: to the rate).
    """
    batch = batch.with_values(batch.values.astype(dtype))
    answers = run(padded_inputs(graph, batch, dtype, extra=extra))
    expected = expected_of(predictor, batch)
    mask = expected.pop("window_mask", None)
    result = {}
    for name, right in expected.items():
        here = answers[name]
        if name.startswith("window_"):
            assert mask is not None
            if not (answers["window_mask"].sum(axis=1) == mask.sum(axis=1)).all():
                return {name: np.inf}
            here, right = here[answers["window_mask"]], right[mask]
        result[name] = relative_gap(predictor, here, right)
    return result


def relative_gap(predictor: Predictor, here: npt.NDArray[Any], right: npt.NDArray[Any]) -> float:
    """The largest difference between answers ``(n, ...)``; infinite if one is not a number."""
    targets, size = predictor.targets, np.ones(())
    if isinstance(targets, NumberTargets):
        size = np.array(targets.scale)
        if targets.log:
            size = np.maximum(np.abs(right), 1e-300)
        elif right.shape[-1] != len(size) or right.ndim >= 3:
            size = size[:, None]
    gap = np.abs(here - right) / size
    return float(gap.max(initial=0.0)) if not np.isnan(gap).any() else np.inf


def run_stream(
    graph: StepGraph, run: Run, batch: SeriesBatch, points: int, dtype: Any = np.float64
) -> list[list[Arrays]]:
    """For each series what the step says at the end of each window, and last of all where the
    series ends; ``points``: of a series that are given to one call.
    """
    at = np.zeros(len(batch), dtype=np.int64)
    state = np.zeros((len(batch), graph.state_size))
    answers: list[list[Arrays]] = [[] for _ in range(len(batch))]
    opened = np.ones(len(batch), dtype=bool)  # whether something came after the last window's end
    while (at < batch.lengths).any():
        outputs = run(padded_inputs(graph, batch, dtype, points, at) | {"state": state})
        taken, ended, state = outputs["taken"], outputs["ended"], outputs["next_state"]
        if ((at < batch.lengths) & (taken == 0) & ~ended).any():
            return [[] for _ in answers]  # it does not go on: nothing to compare
        at, opened = at + taken, np.where(ended, False, opened | (taken > 0))
        for b in np.flatnonzero(ended):
            answers[b].append({name: x[b] for name, x in outputs.items()})
    # Without new points a stream says again what it says now.
    outputs = run(padded_inputs(graph, batch, dtype, points, at) | {"state": state})
    for b in np.flatnonzero(opened):
        answers[b].append({name: x[b] for name, x in outputs.items()})
    return answers


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
    answers = run_stream(graph, run, batch, points, dtype)
    expected = expected_of(predictor, batch)
    counts = expected["window_mask"].sum(axis=1)
    result = dict.fromkeys(output_names(predictor), 0.0)
    for b, of_series in enumerate(answers):
        if len(of_series) != counts[b]:
            return dict.fromkeys(result, np.inf)
        windows = of_series[: graph.max_windows]
        for name in result:
            here = np.stack([answer[name] for answer in windows])
            right = expected[f"window_{name}"][b, : len(windows)]
            result[name] = max(result[name], relative_gap(predictor, here, right))
    return result


def synthetic_inputs(predictor: Predictor, n: int, longest: int, seed: int) -> SeriesBatch:
    """``n`` series of up to ``longest`` points at irregular times, about a fifth of the values
    missing; about as long and as lively as the series that the model was trained on.
    """
    rng = np.random.default_rng(seed)
    encoder = predictor.encoder
    begin, span = _span(encoder)
    # Windows of a few points are straight lines, whose spectrum is rounding and nothing else.
    fewest = 48 if isinstance(encoder, TempoEncoder) else min(2, longest)
    longest = max(longest, fewest)
    lengths = rng.integers(fewest, longest + 1, n)
    lengths[-1] = longest
    times, values = [], []
    level, size = _sizes(predictor)
    for m in lengths:
        gaps = np.cumsum(rng.uniform(0.2, 1.0, m))
        t = begin + span * rng.uniform(0.6, 1.4) * (gaps - gaps[0]) / max(gaps[-1], 1e-12)
        x = rng.standard_normal((m, len(level))).cumsum(axis=0) / np.sqrt(m)
        if isinstance(encoder, TempoEncoder):
            rate = encoder.low * np.exp(encoder.step * encoder.n_rates * rng.uniform(0.3, 0.7))
            x = 0.3 * x + np.sin(2 * np.pi * rate * t[:, None] + rng.uniform(0, 6, len(level)))
        x = level + size * x
        x[rng.random(x.shape) < _MISSING] = np.nan
        times.append(t)
        values.append(x)
    columns = _static(predictor, n, rng)
    extras: dict[str, Any] = {"channels": list(encoder.channels)}
    if columns:
        extras |= {"static": np.stack([*columns.values()], axis=1), "static_names": [*columns]}
    return SeriesBatch.from_arrays(values, times, **extras)


def _span(encoder: Any) -> tuple[float, float]:
    """When series begin and how long they last, about."""
    if isinstance(encoder, TempoEncoder):
        return 1000.0, 16.0 / encoder.low  # turns of the slowest rate
    if isinstance(encoder, Tokenizer) and encoder.config.rule.rule == "explicit":
        cuts = encoder.config.rule.cuts[0].astype(np.float64)
        whole = max(float(cuts[-1] - cuts[0]), 1e-9)
        return float(cuts[0]) - 0.05 * whole, whole
    return 1000.0, float(encoder.time_unit)


def _sizes(predictor: Predictor) -> tuple[Floats, Floats]:
    """Level and size ``(C,)`` of the channels, as far as the model's scaling tells them."""
    encoder = predictor.encoder
    count = len(encoder.channels)
    level, size = np.zeros(count), np.ones(count)
    scale = getattr(getattr(predictor.members[0], "standardize", None), "scale", None)
    known = list(getattr(encoder, "names", ()))
    for c, channel in enumerate(encoder.channels):
        # The word of one letter is the channel's increment; a sample is the value itself.
        words = [f"{view}:{word}" for view in ("global", "local") for word in
                 (channel, f"[{channel}]")]  # fmt: skip
        at = next((known.index(name) for name in [*words, channel] if name in known), None)
        if scale is not None and at is not None:
            size[c] = float(scale[at])
    value_range = getattr(encoder, "value_range", None)
    if value_range is not None:
        level, size = np.array(value_range.mean), np.array(value_range.scale)
    return (np.array(encoder.centre) if getattr(encoder, "centre", ()) else level), size


def _static(predictor: Predictor, n: int, rng: np.random.Generator) -> dict[str, Floats]:
    """Static covariates ``(n,)`` by name."""
    encoder = predictor.encoder
    covariates: dict[str, Floats] = {}
    if isinstance(encoder, Tokenizer | CellEncoder):
        for column in encoder.static_encoder.columns:
            if column.levels:
                covariates[column.name] = rng.choice(column.levels, n)
            else:
                covariates[column.name] = rng.uniform(column.low, column.high, n)
    else:
        scaling: Any = getattr(predictor.members[0], "standardize_static", None)
        for i, name in enumerate(encoder.static):
            mean, spread = float(scaling.mean[i]), float(scaling.scale[i])
            covariates[name] = mean + spread * rng.standard_normal(n)
    for column_values in covariates.values():
        column_values[rng.random(n) < _MISSING] = np.nan
    return covariates
