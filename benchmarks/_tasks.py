"""What is measured: the tasks, and their data (float32 random walks from a seed)."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import roughformer as rf

__all__ = ["TASKS", "WINDOWS", "Problem", "StreamProblem", "Task", "make_problem"]

WINDOWS = 75
SEED = 20240531


@dataclass(frozen=True)
class Task:
    """``kind``: signature, dropped (half of the points), logsig, backward, or stream."""

    name: str
    kind: str
    series: int
    points: int
    channels: int
    depth: int

    @property
    def step(self) -> int:
        """Steps of a window of the regular tasks: all alike, only the last one may be shorter."""
        return -(-(self.points - 1) // WINDOWS)

    @property
    def words(self) -> int:
        """Numbers in one signature."""
        return sum(self.channels**k for k in range(1, self.depth + 1))

    @property
    def features(self) -> int:
        """Numbers in one view."""
        if self.kind != "logsig":
            return self.words
        return rf.feature_count(self.channels, self.depth, "local", transform="logsignature")

    @property
    def title(self) -> str:
        """Name and sizes, for people."""
        if self.kind == "stream":
            return f"{self.name}: {self.series} streams, d {self.channels}, depth {self.depth}"
        size = f"{self.series} x {self.points} x {self.channels}"
        return f"{self.name}: {size}, depth {self.depth}, {WINDOWS} windows, both views"


_SIZES = {
    "sine": (1000, 2000, 2, 2),
    "hr": (5500, 4000, 3, 4),
    "long": (181, 18000, 7, 2),
    "wide2": (256, 1500, 20, 2),
    "wide3": (64, 1500, 20, 3),
}


def _all_tasks() -> dict[str, Task]:
    tasks = [Task(name, "signature", *size) for name, size in _SIZES.items()]
    tasks += [Task(f"{name}_dropped", "dropped", *size) for name, size in _SIZES.items()]
    tasks += [Task(f"logsig_{name}", "logsig", *size) for name, size in _SIZES.items()]
    tasks += [Task(f"backward_{name}", "backward", *size) for name, size in _SIZES.items()]
    tasks += [Task(f"stream{n}", "stream", n, 33, 3, 4) for n in (1, 1000)]
    return {task.name: task for task in tasks}


TASKS = _all_tasks()


@dataclass(eq=False)
class Problem:
    """A task with its data. ``keep (B, L)``: which points are there, None = all."""

    task: Task
    x: np.ndarray
    keep: np.ndarray | None = None
    calls_to_check = 1

    def part(self, which: slice) -> "Problem":
        """The same for some of the series."""
        keep = None if self.keep is None else self.keep[which]
        x = self.x[which]
        found = Problem(replace(self.task, series=len(x)), x, keep)
        if self.task.kind == "backward":
            found.gradient = self.gradient[which]
        return found

    @cached_property
    def cuts(self) -> np.ndarray:
        """Cut times, those of all series: on observations, or between them if points are missing.

        On observations in the regular tasks, so that peers need not interpolate.
        """
        last = self.task.points - 1
        if self.task.kind == "dropped":
            return last * np.arange(WINDOWS + 1) / WINDOWS
        return np.minimum(np.arange(WINDOWS + 1) * self.task.step, last).astype(np.float64)

    @cached_property
    def batch(self) -> rf.SeriesBatch:
        """All points."""
        return rf.SeriesBatch.from_tensor(self.x)

    @cached_property
    def thinned(self) -> rf.SeriesBatch:
        """The points that are there, compacted."""
        assert self.keep is not None
        return self.batch.drop_points(mask=self.keep.reshape(-1))

    def new_out(self) -> np.ndarray:
        """Room for the result ``(B, windows, features of both views)``."""
        return np.empty((self.task.series, WINDOWS, 2 * self.task.features), np.float32)

    @cached_property
    def gradient(self) -> np.ndarray:
        """dL/d(tokens) of the backward tasks."""
        shape = (self.task.series, WINDOWS, 2 * self.task.features)
        return np.random.default_rng(SEED + 1).standard_normal(shape, dtype=np.float32)


@dataclass(eq=False)
class StreamProblem:
    """``points (steps, n_streams, d)``; one call pushes the next one and reads the result."""

    task: Task
    points: np.ndarray

    @property
    def calls_to_check(self) -> int:
        """Calls after which the result is compared: the first point is pushed beforehand."""
        return len(self.points) - 1

    def part(self, which: slice) -> "StreamProblem":
        """The same for some of the streams."""
        points = np.ascontiguousarray(self.points[:, which])
        return StreamProblem(replace(self.task, series=points.shape[1]), points)


def _walks(task: Task) -> np.ndarray:
    rng = np.random.default_rng(SEED)
    x = rng.standard_normal((task.series, task.points, task.channels), dtype=np.float32)
    x /= np.float32(np.sqrt(task.points))
    return np.cumsum(x, axis=1, out=x)


def make_problem(task: Task, quick: bool = False) -> Any:
    """The task's data; ``quick`` takes an eighth of the series."""
    if quick:
        task = replace(task, series=max(task.series // 8, 1))
    x = _walks(task)
    if task.kind == "stream":
        return StreamProblem(task, np.ascontiguousarray(x.transpose(1, 0, 2)))
    problem = Problem(task, x)
    if task.kind == "dropped":
        # The kernel draws the same points from rate and seed: times are 0, 1, 2, ...
        kept = problem.batch.drop_points(0.5, seed=SEED)
        series = np.repeat(np.arange(len(kept)), kept.lengths)
        problem.keep = np.zeros(x.shape[:2], dtype=bool)
        problem.keep[series, kept.times.astype(np.int64)] = True
    return problem
