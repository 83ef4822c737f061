"""What is searched: for each parameter of an estimator some choices or a range.

In a TOML file: ``d_model = [32, 64]`` are choices, ``dropout = { low = 0.0, high = 0.4 }`` a range
(``log = true``: on a log scale; ``step = 0.1``: in steps; whole numbers stay whole), and
``depth = 2`` is one value, which is not searched.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from roughformer.errors import InputError

__all__ = ["Choice", "Range", "Space", "parse_space"]

Check = Callable[[str, Any], Any]  # (name, value) -> the value as the estimator takes it, or raises
_WORDS = {"low", "high", "log", "step"}


@dataclass(frozen=True)
class Choice:
    """One of some values of any kind."""

    values: tuple[Any, ...]

    @property
    def labels(self) -> tuple[Any, ...]:
        """What stands for the values in a study, which knows scalars only."""
        return tuple(_label(value) for value in self.values)

    def plain(self) -> Any:
        """As TOML and JSON have it."""
        return [list(v) if isinstance(v, tuple) else v for v in self.values]


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; whole if both are whole."""

    low: float
    high: float
    log: bool = False
    step: float | None = None

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def plain(self) -> Any:
        """As TOML and JSON have it."""
        found: dict[str, Any] = {"low": self.low, "high": self.high}
        found |= {"log": True} if self.log else {}
        return found | ({} if self.step is None else {"step": self.step})


class Space(dict[str, Choice | Range]):
    """Parameters by name."""

    def values(self, drawn: Mapping[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        """Settings of an estimator from what a study has drawn."""
        found = {}
        for name, what in self.items():
            mark = drawn[name]
            if isinstance(what, Choice):
                found[name] = what.values[what.labels.index(mark)]
            else:
                found[name] = mark
        return found

    def place(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The way back: what a study would have drawn, for the settings that lie in the space."""
        found = {}
        for name, what in self.items():
            value = settings.get(name)
            if isinstance(what, Choice):
                if _label(value) in what.labels:
                    found[name] = _label(value)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                steps = 0.0 if what.step is None else (value - what.low) / what.step
                if what.low <= value <= what.high and math.isclose(steps, round(steps)):
                    found[name] = value
        return found

    def distributions(self, optuna: Any) -> dict[str, Any]:
        """As Optuna has it."""
        kinds = optuna.distributions
        found = {}
        for name, what in self.items():
            if isinstance(what, Choice):
                found[name] = kinds.CategoricalDistribution(what.labels)
            elif what.whole:
                step = 1 if what.step is None else int(what.step)
                found[name] = kinds.IntDistribution(what.low, what.high, log=what.log, step=step)
            else:
                low, high = float(what.low), float(what.high)
                found[name] = kinds.FloatDistribution(low, high, log=what.log, step=what.step)
        return found

    def plain(self) -> dict[str, Any]:
        """As TOML and JSON have it."""
        return {name: what.plain() for name, what in self.items()}


def parse_space(table: Mapping[str, Any], check: Check) -> tuple[Space, dict[str, Any]]:
    """The space that a TOML file describes, and the values that it fixes."""
    space, fixed = Space(), {}
    for name, said in table.items():
        if isinstance(said, list):
            if not said:
                raise InputError(f"{name} = [] leaves nothing to choose; name some values")
            values = tuple(check(name, value) for value in said)
            labels = [_label(value) for value in values]
            twice = [value for i, value in enumerate(labels) if value in labels[:i]]
            if twice:
                raise InputError(f"{name} has the choice {twice[0]!r} twice; name each value once")
            space[name] = Choice(values)
        elif isinstance(said, dict) and _WORDS & set(said):
            space[name] = _range(name, said, check)
        else:
            fixed[name] = check(name, said)
    if not space:
        raise InputError(
            "the space has nothing to search: give some parameter choices, d_model = [32, 64], or "
            "a range, dropout = { low = 0.0, high = 0.4 }"
        )
    return space, fixed


def _range(name: str, said: Mapping[str, Any], check: Check) -> Range:
    unknown = sorted(set(said) - _WORDS)
    if unknown or not {"low", "high"} <= set(said):
        wrong = f"has {unknown[0]!r}" if unknown else "lacks low or high"
        raise InputError(f"{name} {wrong}: a range is {{ low = ..., high = ..., log = true }}")
    low, high = said["low"], said["high"]
    log, step = said.get("log", False), said.get("step")
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in (low, high)):
        raise InputError(f"{name}: low and high must be numbers, got {low!r} and {high!r}")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"{name}: low must be below high, got {low!r} and {high!r}")
    if not isinstance(log, bool):
        raise InputError(f"{name}: log must be true or false, got {log!r}")
    if log and (low <= 0 or step is not None):
        raise InputError(f"{name}: a log scale starts above 0 and has no step")
    if step is not None and (not isinstance(step, int | float) or not step > 0):
        raise InputError(f"{name}: step must be a number above 0, got {step!r}")
    found = Range(low, high, log, step)
    if found.whole and step is not None and step != int(step):
        raise InputError(f"{name}: whole numbers need a whole step, got {step!r}")
    for value in (low, high):
        check(name, value)
    return found


def _label(value: Any) -> Any:
    scalar = value is None or isinstance(value, bool | int | float | str)
    return value if scalar else json.dumps(value, default=str)
