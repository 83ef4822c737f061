"""The right answer in float64, for a few series: the readable algebra, or the twin's gradient."""

from typing import Any

import numpy as np
import torch
from _tasks import WINDOWS, Problem, StreamProblem, Task

import roughformer as rf
from roughformer.signatures import lyndon_words
from roughformer.signatures.algebra import exponential, logarithm, lyndon_brackets, multiply

__all__ = ["max_relative_error", "reference", "sample"]


def sample(task: Task) -> np.ndarray:
    """Numbers of the series that are compared: first, last and two between."""
    return np.unique(np.linspace(0, task.series - 1, 4).astype(int))


def _windows(problem: Problem, rows: np.ndarray) -> np.ndarray:
    """``(rows, windows, P, d)`` in float64, padded with the last point."""
    x = problem.x[rows].astype(np.float64)
    n, points, d = x.shape
    grid = np.arange(points, dtype=np.float64)
    kept = np.ones((n, points), bool) if problem.keep is None else problem.keep[rows]
    found: list[list[np.ndarray]] = []
    for b in range(n):
        t, v = grid[kept[b]], x[b, kept[b]]
        found.append([])
        for start, end in zip(problem.cuts, problem.cuts[1:], strict=False):
            when = np.concatenate([[start], t[(t > start) & (t < end)], [end]])
            path = np.stack([np.interp(when, t, v[:, c]) for c in range(d)], axis=1)
            found[b].append(path)
    most = max(len(path) for series in found for path in series)
    out = np.empty((n, WINDOWS, most, d))
    for b, series in enumerate(found):
        for k, path in enumerate(series):
            out[b, k, : len(path)], out[b, k, len(path) :] = path, path[-1]
    return out


def _signature(paths: np.ndarray, depth: int) -> np.ndarray:
    """``(..., P, d)`` -> ``(..., words)``."""
    d = paths.shape[-1]
    steps = np.moveaxis(np.diff(paths, axis=-2), -2, 0)
    total = exponential(steps[0], d, depth)
    for step in steps[1:]:
        total = multiply(total, exponential(step, d, depth), d, depth)
    return total


def reference(problem: Any, rows: np.ndarray) -> np.ndarray:
    """What every contender must return for the series ``rows``."""
    task = problem.task
    d, depth = task.channels, task.depth
    if isinstance(problem, StreamProblem):
        one = _signature(problem.points[:, rows].astype(np.float64).transpose(1, 0, 2), depth)
        return np.concatenate([one, one], axis=-1)  # no window was closed: local = global
    if task.kind == "backward":
        x = torch.tensor(problem.x[rows], dtype=torch.float64, requires_grad=True)
        tokens = rf.multiview_signature(x, problem.cuts, depth, engine="torch")
        grad = torch.tensor(problem.gradient[rows], dtype=torch.float64)
        return np.asarray(torch.autograd.grad(tokens, x, grad)[0].numpy())
    local = _signature(_windows(problem, rows), depth)
    running = [local[:, 0]]
    for k in range(1, WINDOWS):
        running.append(multiply(running[-1], local[:, k], d, depth))
    views = [np.stack(running, axis=1), local]
    if task.kind == "logsig":
        views = [lyndon_brackets(logarithm(v, d, depth), d, depth) for v in views]
    return np.concatenate(views, axis=-1)


def _level_sizes(task: Task) -> list[int]:
    if task.kind == "logsig":
        lengths = [len(w) for w in lyndon_words(task.channels, task.depth)]
        return [lengths.count(k) for k in range(1, task.depth + 1)]
    return [task.channels**k for k in range(1, task.depth + 1)]


def max_relative_error(task: Task, found: np.ndarray, right: np.ndarray) -> float:
    """Largest deviation relative to the largest number of its level (of dL/dx: of all)."""
    if task.kind == "backward":
        return float(np.abs(found - right).max() / np.abs(right).max())
    right = right[..., : found.shape[-1]]  # some stream contenders have the global view only
    sizes = _level_sizes(task)
    worst, at = 0.0, 0
    for size in sizes * (right.shape[-1] // sum(sizes)):
        level = slice(at, at + size)
        scale = np.abs(right[..., level]).max()
        worst = max(worst, float(np.abs(found[..., level] - right[..., level]).max() / scale))
        at += size
    return worst
