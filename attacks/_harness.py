"""What every attack shares: a registry, a count of attempts, and a deadline."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ATTACKS: dict[str, "Attack"] = {}
_MOST_REPORTED = 20


@dataclass(frozen=True)
class Attack:
    """``run(target)``; ``promise``: what must hold, for the page."""

    name: str
    promise: str
    share: float  # of the time of all attacks, relative to the others
    run: Callable[["Target"], None]


@dataclass
class Target:
    """What an attack gets: a generator, a folder of its own, and where to report."""

    rng: np.random.Generator
    folder: Path
    seconds: float
    shared: Path  # a folder that all attacks of a run have
    began: float | None = None
    tried: int = 0
    failures: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def until(self) -> float:
        """When the last attempt should begin; the clock starts with the first one."""
        if self.began is None:
            self.began = time.monotonic()
        return self.began + self.seconds

    @property
    def time_left(self) -> bool:
        """Whether another attempt should begin."""
        return self.until > time.monotonic()

    def check(self, holds: bool, what: str) -> None:
        """Count one attempt, and a failure unless it ``holds``."""
        self.tried += 1
        if not holds and len(self.failures) < _MOST_REPORTED:
            self.failures.append(what[:400])

    def expect(
        self, work: Callable[[], object], allowed: tuple[type[BaseException], ...], what: str
    ) -> object | None:
        """The result of ``work``, or None if it refused with one of the ``allowed`` errors; any
        other error is a failure.
        """
        try:
            found = work()
        except allowed as error:
            self.check(bool(str(error)), f"{what}: {type(error).__name__} without words")
            return None
        except Exception as error:
            self.check(False, f"{what}: {type(error).__name__}: {error}")
            return None
        self.check(True, what)
        return found


def slowdown(seconds: float = 0.2) -> float:
    """How much longer than its processor time a loop of so many seconds takes, at least 1."""
    began, used = time.monotonic(), time.process_time()
    while time.process_time() < used + seconds:
        pass
    return max((time.monotonic() - began) / (time.process_time() - used), 1.0)


def attack(name: str, promise: str, share: float = 1.0):
    """Register an attack."""

    def register(run: Callable[[Target], None]) -> Callable[[Target], None]:
        ATTACKS[name] = Attack(name, promise, share, run)
        return run

    return register


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """The same bytes with a few of them flipped, cut, repeated or replaced."""
    found = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        if not found:
            break
        at = int(rng.integers(len(found)))
        size = int(rng.integers(1, 9))
        kind = rng.integers(5)
        if kind == 0:
            found[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del found[at : at + size]
        elif kind == 2:
            found[at:at] = rng.bytes(size)
        elif kind == 3:
            found[at:at] = found[at : at + 64]
        else:
            signs = rng.choice([b"-", b"9999999999", b"1e999", b"nan", b"\0", b"\xff", b",", b"\n"])
            found[at : at + len(signs)] = signs
    return bytes(found[: int(rng.integers(len(found) + 1))] if rng.random() < 0.1 else found)
