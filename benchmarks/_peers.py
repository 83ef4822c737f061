"""signax and iisignature: windows cut or padded as for pySigLib, then one call for all of them."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from _contender import Contender, Run, Skip
from _cutting import Padder, regular_windows
from _tasks import WINDOWS, Problem, StreamProblem, Task

__all__ = ["contenders"]


def _windows(problem: Problem) -> Callable[[], np.ndarray]:
    """The measured cutting or padding."""
    if problem.keep is None:
        shape = (problem.task.series, WINDOWS, problem.task.step + 1, problem.task.channels)
        kept = np.empty(shape, np.float32)
        return lambda: regular_windows(problem, kept)
    padder = Padder(problem)

    def pad() -> np.ndarray:
        padder.locate()
        return padder.all_windows()

    return pad


def _need(module: str, how: str) -> None:
    if find_spec(module) is None:
        raise Skip(f"not installed: {how}")


def _signax_tokens(task: Task, product: str) -> Callable[[Any], Any]:
    """``(B, windows, P, d)`` -> tokens, to be compiled."""
    import jax
    import jax.numpy as jnp
    import signax

    one = partial(signax.signature, depth=task.depth, flatten=False)
    combine = jax.vmap(signax.signature_combine)

    def flat(levels: list[Any]) -> Any:
        if task.kind == "logsig":
            levels = jax.vmap(jax.vmap(signax.signature_to_logsignature))(levels)
        return [v.reshape(*v.shape[:2], -1) for v in levels]

    def tokens(windows: Any) -> Any:
        local = jax.vmap(jax.vmap(one))(windows)
        if product == "scan":
            first, rest = [v[:, 0] for v in local], [jnp.moveaxis(v[:, 1:], 1, 0) for v in local]

            def step(before: list[Any], now: list[Any]) -> tuple[list[Any], list[Any]]:
                after = combine(before, now)
                return after, after

            _, later = jax.lax.scan(step, first, rest)
            running = [
                jnp.concatenate([f[:, None], jnp.moveaxis(v, 0, 1)], axis=1)
                for f, v in zip(first, later, strict=True)
            ]
        else:
            running = jax.lax.associative_scan(jax.vmap(combine), local, axis=1)
        return jnp.concatenate([*flat(running), *flat(local)], axis=-1)

    return tokens


def _signax(problem: Problem, product: str) -> Run:
    _need("signax", "pip install signax")
    import jax
    import jax.numpy as jnp

    tokens = _signax_tokens(problem.task, product)
    if problem.keep is not None:
        cut, compiled = _windows(problem), jax.jit(tokens)
        return lambda: compiled(cut()).block_until_ready()
    w = problem.task.step
    index = np.minimum(np.arange(WINDOWS)[:, None] * w + np.arange(w + 1), problem.task.points - 1)
    x = jnp.asarray(problem.x)
    compiled = jax.jit(lambda x: tokens(x[:, index]))
    return lambda: compiled(x).block_until_ready()


def _signax_step(problem: Problem) -> Run:
    _need("signax", "pip install signax")
    import jax
    import jax.numpy as jnp

    tokens = _signax_tokens(problem.task, "scan")
    w = problem.task.step
    index = np.minimum(np.arange(WINDOWS)[:, None] * w + np.arange(w + 1), problem.task.points - 1)
    x, given = jnp.asarray(problem.x), jnp.asarray(problem.gradient)

    @jax.jit
    def both(x: Any, given: Any) -> Any:
        found, pull = jax.vjp(lambda x: tokens(x[:, index]), x)
        return found, pull(given)[0]

    return lambda: jax.block_until_ready(both(x, given))[1]


def _signax_stream(problem: StreamProblem) -> Run:
    _need("signax", "pip install signax")
    import jax
    import jax.numpy as jnp
    from signax.tensor_ops import mult_fused_restricted_exp

    d, n = problem.task.channels, problem.task.series
    points = [jnp.asarray(p) for p in problem.points]
    state = [[jnp.zeros((n, *[d] * k)) for k in range(1, problem.task.depth + 1)]] * 2

    @jax.jit
    def push(state: Any, before: Any, now: Any) -> Any:
        join = jax.vmap(mult_fused_restricted_exp)
        state = [join(now - before, view) for view in state]
        return state, jnp.concatenate([v.reshape(n, -1) for view in state for v in view], axis=1)

    at = 0

    def run() -> Any:
        nonlocal at, state
        now = (at + 1) % len(points)
        state, read = push(state, points[at], points[now])
        at = now
        return read.block_until_ready()

    return run


_HOW = "pip install --no-build-isolation iisignature (its build needs numpy and setuptools)"


def _iisignature(problem: Problem) -> Run:
    _need("iisignature", _HOW)
    import iisignature

    task, cut, out = problem.task, _windows(problem), problem.new_out()
    if task.kind == "logsig":
        raise Skip("iisignature has no logarithm of a signature, which the global view needs")
    if task.kind == "backward":
        raise Skip("iisignature has no backward of sigcombine, which the global view needs")

    def run() -> np.ndarray:
        local = iisignature.sig(cut(), task.depth)
        out[:, :, task.words :] = local
        running = local[:, 0]
        out[:, 0, : task.words] = running
        for k in range(1, WINDOWS):
            running = iisignature.sigcombine(running, local[:, k], task.channels, task.depth)
            out[:, k, : task.words] = running
        return out

    return run


def _iisignature_stream(problem: StreamProblem) -> Run:
    _need("iisignature", _HOW)
    import iisignature

    points, depth = problem.points, problem.task.depth
    state = [np.zeros((problem.task.series, problem.task.words), np.float32)] * 2
    at = 0

    def run() -> tuple[np.ndarray, ...]:
        nonlocal at, state
        now = (at + 1) % len(points)
        moved = points[now] - points[at]
        state = [iisignature.sigjoin(s, moved, depth) for s in state]
        at = now
        return tuple(state)

    return run


def contenders(kind: str) -> list[Contender]:
    """Rows of signax and iisignature for a kind of task."""
    single = "one thread (it has no more)"
    if kind == "stream":
        return [
            Contender("signax", {"": _signax_stream}, "jit, both views"),
            Contender("iisignature", {"": _iisignature_stream}, single),
        ]
    if kind == "backward":
        return [
            Contender("signax_step", {"": _signax_step}, "jit, forward and backward", True),
            Contender("iisignature", {"": _iisignature}, single, True),
        ]
    products = {f"{how} for the global view": how for how in ("scan", "associative_scan")}
    usages = {name: partial(_signax, product=how) for name, how in products.items()}
    basis = "; Lyndon words, not brackets" if kind == "logsig" else ""
    return [
        Contender("signax", usages, f"jit, all threads{basis}", True),
        Contender("iisignature", {"": _iisignature}, single, True),
    ]
