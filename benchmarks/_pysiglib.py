"""pySigLib, used as well as it can be.

It has neither windows nor a running product, so a usage is: cut the windows, ``sig`` of each,
``sig_combine`` from window to window for the global view, and write both views to the tokens. What
was found to matter: one window of all series at a time keeps things in cache when signatures are
large, all windows at once saves calls when they are small; its own threads (``n_jobs=-1``) or one
Python thread for each part of the series. All combinations are tried, the fastest counts. Buffers
that can be kept are kept; only the public numpy interface is used (the torch one is slower).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from _contender import Build, Contender, Run, in_parts, threads
from _cutting import Padder, regular_windows
from _tasks import WINDOWS, Problem, StreamProblem, Task

__all__ = ["contenders"]


def _finish(task: Task, n_jobs: int) -> Callable[[np.ndarray], np.ndarray]:
    """What a signature becomes before it is stored: itself, or Lyndon brackets of its logarithm."""
    import pysiglib

    if task.kind != "logsig":
        return lambda s: s
    pysiglib.prepare_log_sig(task.channels, task.depth, 2)
    d, depth = task.channels, task.depth
    return lambda s: pysiglib.sig_to_log_sig(s, d, depth, method=2, n_jobs=n_jobs)


def _window_by_window(
    window: Callable[[int], np.ndarray], out: np.ndarray, task: Task, n_jobs: int, finish: Any
) -> None:
    from pysiglib import sig, sig_combine

    d, depth, size = task.channels, task.depth, task.features
    running = np.empty(0)
    for k in range(WINDOWS):
        local = sig(window(k), depth, n_jobs=n_jobs)
        running = sig_combine(running, local, d, depth, n_jobs=n_jobs) if k else local
        out[:, k, :size] = finish(running)
        out[:, k, size:] = finish(local)


def _global_view(local: np.ndarray, out: np.ndarray, task: Task, n_jobs: int, finish: Any) -> None:
    """``local (B, windows, words)`` -> the global half of ``out``."""
    from pysiglib import sig_combine

    running = local[:, 0].copy()
    out[:, 0, : task.features] = finish(running)
    for k in range(1, WINDOWS):
        running = sig_combine(running, local[:, k].copy(), task.channels, task.depth, n_jobs=n_jobs)
        out[:, k, : task.features] = finish(running)


def _at_once(windows: np.ndarray, out: np.ndarray, task: Task, n_jobs: int, finish: Any) -> None:
    from pysiglib import sig

    local = sig(windows, task.depth, n_jobs=n_jobs)
    out[:, :, task.features :] = finish(local)
    _global_view(local, out, task, n_jobs, finish)


# Each `make` takes (problem, out, n_jobs) and returns what is measured.


def _regular_by_window(problem: Problem, out: np.ndarray, n_jobs: int) -> Run:
    x, w, finish = problem.x, problem.task.step, _finish(problem.task, n_jobs)

    def run() -> np.ndarray:
        _window_by_window(
            lambda k: x[:, k * w : (k + 1) * w + 1].copy(), out, problem.task, n_jobs, finish
        )
        return out

    return run


def _regular_at_once(problem: Problem, out: np.ndarray, n_jobs: int) -> Run:
    finish = _finish(problem.task, n_jobs)
    kept = np.empty(
        (problem.task.series, WINDOWS, problem.task.step + 1, problem.task.channels), np.float32
    )

    def run() -> np.ndarray:
        _at_once(regular_windows(problem, kept), out, problem.task, n_jobs, finish)
        return out

    return run


def _padded_by_window(problem: Problem, out: np.ndarray, n_jobs: int) -> Run:
    padder, finish = Padder(problem), _finish(problem.task, n_jobs)

    def run() -> np.ndarray:
        padder.locate()
        _window_by_window(padder.window, out, problem.task, n_jobs, finish)
        return out

    return run


def _padded_at_once(problem: Problem, out: np.ndarray, n_jobs: int) -> Run:
    padder, finish = Padder(problem), _finish(problem.task, n_jobs)

    def run() -> np.ndarray:
        padder.locate()
        _at_once(padder.all_windows(), out, problem.task, n_jobs, finish)
        return out

    return run


def _padded_in_buckets(problem: Problem, out: np.ndarray, n_jobs: int) -> Run:
    from pysiglib import sig

    padder, task = Padder(problem), problem.task
    finish = _finish(task, n_jobs)
    local = np.empty((task.series, WINDOWS, task.words), np.float32)

    def run() -> np.ndarray:
        padder.locate()
        for rows, block in padder.buckets(4):
            local.reshape(-1, task.words)[rows] = sig(block, task.depth, n_jobs=n_jobs)
        out[:, :, task.features :] = finish(local)
        _global_view(local, out, task, n_jobs, finish)
        return out

    return run


def _prepadded(problem: Problem, out: np.ndarray, n_jobs: int) -> Run:
    """The windows were padded before the clock starts."""
    padder, finish = Padder(problem), _finish(problem.task, n_jobs)
    padder.locate()
    windows = padder.all_windows()

    def run() -> np.ndarray:
        _at_once(windows, out, problem.task, n_jobs, finish)
        return out

    return run


def _padding(problem: Problem) -> Run:
    padder = Padder(problem)

    def run() -> None:
        padder.locate()
        padder.all_windows()

    return run


def _backward(problem: Problem, grad: np.ndarray, n_jobs: int, *, forward: bool) -> Run:
    """dL/dx from dL/d(tokens), window by window; with ``forward`` also the tokens before it."""
    from pysiglib import sig, sig_backprop, sig_combine, sig_combine_backprop

    task, x, given = problem.task, problem.x, problem.gradient
    w, d, depth, size = task.step, task.channels, task.depth, task.words
    paths: list[np.ndarray] = []
    local: list[np.ndarray] = []
    running: list[np.ndarray] = []
    tokens = problem.new_out() if forward else None

    def ahead() -> None:
        for kept in (paths, local, running):
            kept.clear()
        for k in range(WINDOWS):
            paths.append(x[:, k * w : (k + 1) * w + 1].copy())
            local.append(sig(paths[k], depth, n_jobs=n_jobs))
            running.append(
                sig_combine(running[-1], local[k], d, depth, n_jobs=n_jobs) if k else local[k]
            )
            if tokens is not None:
                tokens[:, k, :size], tokens[:, k, size:] = running[k], local[k]

    def back() -> None:
        grad.fill(0)
        upper = given[:, -1, :size].copy()
        for k in range(WINDOWS - 1, -1, -1):
            lower = upper
            if k:
                upper, lower = sig_combine_backprop(
                    upper, running[k - 1], local[k], d, depth, n_jobs=n_jobs
                )
                upper += given[:, k - 1, :size]
            lower = lower + given[:, k, size:]
            found = sig_backprop(paths[k], local[k], lower, depth, n_jobs=n_jobs)
            grad[:, k * w : (k + 1) * w + 1] += found

    if not forward:
        ahead()

    def run() -> np.ndarray:
        if forward:
            ahead()
        back()
        return grad

    return run


def _stream(problem: StreamProblem, n_jobs: int, *, views: int) -> Run:
    """``sig_join`` of each view; what it returns is the reading."""
    from pysiglib import sig_join

    d, depth, points = problem.task.channels, problem.task.depth, problem.points
    state = [np.zeros((problem.task.series, problem.task.words), np.float32) for _ in range(views)]
    at = 0

    def run() -> tuple[np.ndarray, ...]:
        nonlocal at, state
        now = (at + 1) % len(points)
        moved = points[now] - points[at]
        state = [sig_join(s, moved, d, depth, n_jobs=n_jobs) for s in state]
        at = now
        return tuple(state)

    return run


def _sig_stream(problem: StreamProblem, n_jobs: int) -> Run:
    from pysiglib import SigStream

    d, depth, points = problem.task.channels, problem.task.depth, problem.points
    at, stream = 0, SigStream(d, depth, n_jobs=n_jobs)
    stream.push(points[0])

    def run() -> np.ndarray:
        nonlocal at, stream
        if stream.size > 64:  # it keeps every signature it ever had
            stream = SigStream(d, depth, n_jobs=n_jobs)
            stream.push(points[at])
        at = (at + 1) % len(points)
        stream.push(points[at])
        return stream.sig(0, stream.end_index)

    return run


def _usages(styles: dict[str, Any], like: Callable[[Problem], np.ndarray]) -> dict[str, Build]:
    """Every style with the library's own threads and with Python's."""
    found: dict[str, Build] = {}
    for name, make in styles.items():
        found[f"{name}, n_jobs=-1"] = lambda p, make=make: make(p, like(p), -1)
        for parts in (threads(), 4 * threads()):
            found[f"{name}, {parts} parts, a Python thread each"] = (
                lambda p, make=make, parts=parts: in_parts(make, p, like(p), parts)
            )
    return found


def _jobs(make: Callable[..., Run], **options: Any) -> dict[str, Build]:
    return {f"n_jobs={n}": partial(_swap, make, n, options) for n in (1, -1)}


def _swap(make: Callable[..., Run], n_jobs: int, options: Any, problem: Any) -> Run:
    return make(problem, n_jobs, **options)


def contenders(kind: str) -> list[Contender]:
    """Rows of pySigLib for a kind of task."""
    if kind == "stream":
        return [
            Contender("pysiglib", _jobs(_stream, views=2), "sig_join of global and local"),
            Contender("pysiglib_global", _jobs(_stream, views=1), "sig_join of global only"),
            Contender(
                "pysiglib_sigstream", _jobs(_sig_stream), "SigStream push + sig, global only"
            ),
        ]
    if kind == "backward":

        def like_x(p: Problem) -> np.ndarray:
            return np.empty_like(p.x)

        alone = _usages({"by window": partial(_backward, forward=False)}, like_x)
        both = _usages({"by window": partial(_backward, forward=True)}, like_x)
        return [
            Contender("pysiglib", alone, "backward only, forward results kept"),
            Contender("pysiglib_step", both, "forward and backward"),
        ]
    if kind == "dropped":
        styles = {
            "padded by window": _padded_by_window,
            "padded at once": _padded_at_once,
            "padded in 4 buckets": _padded_in_buckets,
        }
        return [
            Contender("pysiglib", _usages(styles, Problem.new_out), "padding included"),
            Contender(
                "pysiglib_prepadded",
                _usages({"at once": _prepadded}, Problem.new_out),
                "windows padded before the clock starts",
            ),
            Contender("pysiglib_padding", {"": _padding}, "vectorised padding alone"),
        ]
    styles = {"by window": _regular_by_window, "at once": _regular_at_once}
    return [Contender("pysiglib", _usages(styles, Problem.new_out), "tokens buffer reused")]
