"""Time in turns: every contender in every round, so that a noisy minute hits all alike."""

import gc
import time
from collections.abc import Callable
from statistics import median

from _contender import Run

__all__ = ["first_look", "interleaved"]

Key = tuple[str, str]  # contender, usage

_SAMPLE = 2e-3  # a shorter call is repeated within a sample: clocks and loops cost something too
_SLOW = 10.0
_TURN_SECONDS, _TURN_SAMPLES = 0.12, 5


def _sample(run: Run, number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        run()
    return (time.perf_counter() - start) / number


def _turn(run: Run, number: int, pick: Callable[[list[float]], float] = median) -> float:
    """Median of a few samples after one that only warms up (caches, sleeping threads)."""
    gc.collect()
    gc.disable()
    try:
        first = _sample(run, number)
        if first * number > 2 * _TURN_SECONDS:
            return first
        found, end = [], time.perf_counter() + _TURN_SECONDS
        while not found or (len(found) < _TURN_SAMPLES and time.perf_counter() < end):
            found.append(_sample(run, number))
        return pick(found)
    finally:
        gc.enable()


def _number(seconds: float) -> int:
    return max(1, min(10_000, int(_SAMPLE / max(seconds, 1e-9)) + 1))


def first_look(run: Run) -> tuple[float, object]:
    """Seconds a call takes at best, and what it returned; slow ones are called only once."""
    start = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - start
    if seconds > _SLOW:
        return seconds, result
    return _turn(run, _number(_sample(run, 1)), min), result


def interleaved(
    runs: dict[Key, Run], guess: dict[Key, float], rounds: int, tick: Callable[[Key, int], None]
) -> dict[Key, float]:
    """Median over the rounds of each contender's turn; slow ones take part in fewer rounds."""
    found: dict[Key, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for r in range(rounds):
        for name in names[r % len(names) :] + names[: r % len(names)]:
            wanted = rounds if guess[name] < 1 else min(rounds, 3 if guess[name] < 5 else 1)
            if r < wanted:
                tick(name, r)
                found[name].append(_turn(runs[name], _number(guess[name])))
    return {name: median(times) for name, times in found.items()}
