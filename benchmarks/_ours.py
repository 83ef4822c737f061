"""roughformer and its torch twin, and the physical floor: memcpy(input) + fill(output)."""

from functools import partial
from typing import Any

import numpy as np
import torch
from _contender import Contender, Run, pool, threads
from _tasks import SEED, Problem, StreamProblem

import roughformer as rf

__all__ = ["contenders", "floors"]


def _options(problem: Problem) -> dict[str, Any]:
    transform = "logsignature" if problem.task.kind == "logsig" else "signature"
    options = {"windows": problem.cuts, "depth": problem.task.depth, "transform": transform}
    if problem.keep is not None:
        options |= {"drop": 0.5, "seed": SEED}  # the points of problem.keep
    return options


def _call(problem: Problem, batch: Any = None, reuse: bool = True, **more: Any) -> Run:
    batch = problem.batch if batch is None else batch
    options = _options(problem) | more
    if reuse:
        options["out"] = problem.new_out()
    return lambda: rf.multiview_signature(batch, **options)


def _fresh(problem: Problem) -> Run:
    """As in a user's loop: the last result is still held while the next one is computed."""
    call = _call(problem, reuse=False)
    tokens = None

    def run() -> Any:
        nonlocal tokens
        tokens = call()
        return tokens

    return run


def _plain_signature(problem: Problem) -> Run:
    """Of a log-signature task, for comparison: nothing to check."""
    options = _options(problem) | {"transform": "signature"}
    shape = (problem.task.series, len(problem.cuts) - 1, 2 * problem.task.words)
    out = np.empty(shape, np.float32)

    def run() -> None:
        rf.multiview_signature(problem.batch, out=out, **options)

    return run


def _masked(problem: Problem) -> Run:
    assert problem.keep is not None
    return _call(problem, drop=0.0, keep=problem.keep.reshape(-1))


def _compacted(problem: Problem) -> Run:
    return _call(problem, batch=problem.thinned, drop=0.0)


def _unequal(problem: Problem) -> Run:
    """As many points as in the compacted batch, but series of 0.2 to 0.8 of the full length."""
    rng = np.random.default_rng(SEED + 2)
    n, points = problem.x.shape[:2]
    rate = np.linspace(0.2, 0.8, n)[rng.permutation(n)]
    keep = rng.random((n, points)) < rate[:, None]
    keep[:, 0] = keep[:, -1] = True
    batch = problem.batch.drop_points(mask=keep.reshape(-1))
    run = _call(problem, batch=batch, drop=0.0)

    def unchecked() -> None:  # other points, another result
        run()

    return unchecked


def _regular(problem: Problem, shared: bool = False) -> Run:
    """As many points as in the compacted batch, regular; each series has times of its own, as in
    the compacted batch, or all ``shared`` one grid, which then need not be read for each.
    """
    assert problem.keep is not None
    n = int(problem.keep[0].sum())
    x = np.ascontiguousarray(problem.x[:, :n])
    times = np.arange(float(n)) if shared else np.tile(np.arange(float(n)), (len(x), 1))
    run = _call(problem, batch=rf.SeriesBatch.from_tensor(x, times), drop=0.0, windows=75)

    def unchecked() -> None:
        run()

    return unchecked


def _backward(problem: Problem, forward: bool, **options: Any) -> Run:
    x = torch.from_numpy(problem.x).requires_grad_()
    given = torch.from_numpy(problem.gradient)

    def ahead() -> torch.Tensor:
        found: torch.Tensor = rf.multiview_signature(x, problem.cuts, problem.task.depth, **options)
        return found

    if forward:
        return lambda: torch.autograd.grad(ahead(), x, given)[0]
    tokens = ahead()
    return lambda: torch.autograd.grad(tokens, x, given, retain_graph=True)[0]


def _stream(problem: StreamProblem, views: Any = ("global", "local"), **options: Any) -> Run:
    task, points = problem.task, problem.points
    running = rf.RunningSignatures(task.series, task.channels, task.depth, **options)
    running.push(points[0])
    out = running.read(views)
    at = 0

    def run() -> np.ndarray:
        nonlocal at
        at = (at + 1) % len(points)
        running.push(points[at])
        return running.read(views, out=out)

    return run


def contenders(kind: str) -> list[Contender]:
    """Rows of ours for a kind of task."""

    def row(name: str, build: Any, says: str, probe: bool = False) -> Contender:
        return Contender(name, {"": build}, says, probe)

    if kind == "stream":
        return [
            row("roughformer", _stream, "push + read of both views into out="),
            row("roughformer_global", lambda p: _stream(p, "global"), "push + read of global only"),
            row("torch", lambda p: _stream(p, engine="torch"), "the pure-torch twin"),
        ]
    if kind == "backward":
        return [
            row("roughformer", lambda p: _backward(p, False), "backward only, forward result kept"),
            row("roughformer_1_thread", lambda p: _backward(p, False, threads=1), "the same"),
            row("roughformer_step", lambda p: _backward(p, True), "forward and backward"),
            row(
                "torch", lambda p: _backward(p, False, engine="torch"), "twin, backward only", True
            ),
        ]
    rows = [
        row("roughformer", _call, "all threads, out= reused"),
        row("roughformer_1_thread", lambda p: _call(p, threads=1), "one thread, out= reused"),
        row("roughformer_fresh", _fresh, "all threads, a new result, the last one still held"),
        row("torch", lambda p: _call(p, reuse=False, engine="torch"), "the pure-torch twin", True),
    ]
    if kind == "dropped":
        rows += [
            row("roughformer_mask", _masked, "points given as a mask instead of rate and seed"),
            row("roughformer_compacted", _compacted, "ragged batch of the kept points"),
            row("roughformer_unequal", _unequal, "as many points, series of unequal length"),
            row("roughformer_regular", _regular, "as many points, regular, own times"),
            row("roughformer_grid", partial(_regular, shared=True), "the same, one shared grid"),
        ]
    if kind == "logsig":
        rows.append(row("roughformer_signature", _plain_signature, "the signature, out= reused"))
    return rows


def _arrays(problem: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Input, room for its copy, output; touched once so that their pages exist."""
    if isinstance(problem, StreamProblem):
        source = problem.points[0]
        out = np.zeros((problem.task.series, 2 * problem.task.words), np.float32)
    elif problem.task.kind == "backward":  # reads values, tokens and their gradient; writes dL/dx
        source = np.concatenate([problem.x.ravel(), problem.gradient.ravel()])
        out = np.zeros_like(problem.x)
    else:
        source, out = problem.x, problem.new_out()
    out.fill(0)
    return source, source.copy(), out


def _floor_numpy(problem: Any) -> Run:
    source, copy, out = _arrays(problem)

    def run() -> None:
        np.copyto(copy, source)
        out.fill(1)

    return run


def _floor_pool(problem: Any) -> Run:
    source, copy, out = (a.reshape(-1) for a in _arrays(problem))
    n = threads()

    def part(i: int) -> None:
        piece = slice(source.size * i // n, source.size * (i + 1) // n)
        np.copyto(copy[piece], source[piece])
        out[out.size * i // n : out.size * (i + 1) // n].fill(1)

    def run() -> None:
        list(pool().map(part, range(n)))

    return run


def _floor_torch(problem: Any) -> Run:
    source, copy, out = (torch.from_numpy(a) for a in _arrays(problem))

    def run() -> None:
        copy.copy_(source)
        out.fill_(1)

    return run


def floors() -> list[Contender]:
    """The floor: the fastest of three ways to write it."""
    ways = {
        "numpy, one thread": _floor_numpy,
        "numpy, a Python thread for each processor": _floor_pool,
        "torch, all threads": _floor_torch,
    }
    return [Contender("floor", ways, "memcpy(input) + fill(output), buffers reused")]
