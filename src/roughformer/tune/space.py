"""What is searched: choices and ranges of settings, by a TOML file or by the data.

``d_model = [32, 64]`` is a choice, ``dropout = { low = 0.0, high = 0.4 }`` a range (``log = true``:
on a log scale; ``step = 0.1``: in steps; whole numbers stay whole), and ``depth = 2`` is one value,
which is not searched.
"""

import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.signatures import word_count

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
        plain: dict[str, Any] = {"low": self.low, "high": self.high}
        plain |= {"log": True} if self.log else {}
        return plain | ({} if self.step is None else {"step": self.step})


class Space(dict[str, Choice | Range]):
    """Parameters by name."""

    def values(self, drawn: Mapping[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        """Settings of an estimator from what a study has drawn."""
        settings = {}
        for name, what in self.items():
            if name in drawn:  # a trial may have ended before
                label = drawn[name]
                if isinstance(what, Choice):
                    label = what.values[what.labels.index(label)]
                settings[name] = label
        return settings

    def place(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The way back: what a study would have drawn, for the settings that lie in the space."""
        drawn = {}
        for name, what in self.items():
            value = settings.get(name)
            if isinstance(what, Choice):
                if _label(value) in what.labels:
                    drawn[name] = _label(value)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                steps = 0.0 if what.step is None else (value - what.low) / what.step
                if what.low <= value <= what.high and math.isclose(steps, round(steps)):
                    drawn[name] = value
        return drawn

    def suggest(self, trial: Any) -> dict[str, Any]:
        """Settings of an estimator that an Optuna trial proposes."""
        drawn = {}
        for name, what in self.items():
            if isinstance(what, Choice):
                drawn[name] = trial.suggest_categorical(name, what.labels)
            elif what.whole:
                step = 1 if what.step is None else int(what.step)
                drawn[name] = trial.suggest_int(name, what.low, what.high, log=what.log, step=step)
            else:
                low, high = float(what.low), float(what.high)
                drawn[name] = trial.suggest_float(name, low, high, log=what.log, step=what.step)
        return self.values(drawn)

    def plain(self) -> dict[str, Any]:
        """As TOML and JSON have it."""
        return {name: what.plain() for name, what in self.items()}


def parse_space(table: Mapping[str, Any], check: Check) -> tuple[Space, dict[str, Any]]:
    """The space that a TOML file describes, and the values that it fixes."""
    space, fixed = Space(), {}
    for name, entry in table.items():
        if isinstance(entry, list):
            if not entry:
                raise InputError(f"{name} = [] leaves nothing to choose; name some values")
            values = tuple(check(name, value) for value in entry)
            labels = [_label(value) for value in values]
            twice = [value for i, value in enumerate(labels) if value in labels[:i]]
            if twice:
                raise InputError(f"{name} has the choice {twice[0]!r} twice; name each value once")
            space[name] = Choice(values)
        elif isinstance(entry, dict) and _WORDS & set(entry):
            space[name] = _range(name, entry, check)
        else:
            fixed[name] = check(name, entry)
    if not space:
        raise InputError(
            "the space has nothing to search: give some parameter choices, d_model = [32, 64], or "
            "a range, dropout = { low = 0.0, high = 0.4 }"
        )
    return space, fixed


def _range(name: str, entry: Mapping[str, Any], check: Check) -> Range:
    unknown = sorted(set(entry) - _WORDS)
    if unknown or not {"low", "high"} <= set(entry):
        wrong = f"has {unknown[0]!r}" if unknown else "lacks low or high"
        raise InputError(f"{name} {wrong}: a range is {{ low = ..., high = ..., log = true }}")
    low, high = entry["low"], entry["high"]
    log, step = entry.get("log", False), entry.get("step")
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
    span = Range(low, high, log, step)
    if span.whole and step is not None and step != int(step):
        raise InputError(f"{name}: whole numbers need a whole step, got {step!r}")
    for value in (low, high):
        check(name, value)
    return span


def _label(value: Any) -> Any:
    scalar = value is None or isinstance(value, bool | int | float | str)
    return value if scalar else json.dumps(value, default=str)


# The space that is searched if no other is given: for two cores and data of some thousand series.

_WINDOWS = (8, 16, 32, 64, 128)
_MOST_WORDS = 600  # of one view; more are slow to learn from little data


def default_space(
    batch: SeriesBatch, start: Mapping[str, Any], fixed: Collection[str] = ()
) -> Space:
    """For these series. ``start``: settings of the first trial, which are made part of the space;
    ``fixed``: parameters that are not searched.
    """
    causal = bool(start.get("causal"))  # a model of rates is never causal
    rates = Space(
        learning_rate=Range(3e-4, 1e-2, log=True),
        training__weight_decay=Range(1e-4, 0.1, log=True),
        model__dropout=Range(0.0, 0.4),
        model__n_layers=Range(1, 3),
    )
    choices: dict[str, list[Any]] = {
        "windows": _windows(batch, causal),
        "depth": _depths(batch, start) if "depth" in start else [],
        "views": [("global", "local"), ("local",), ("global",)],
        "tokens__basepoint": [True, False],
        "tokens__clock": ["auto", 0],
        "tokens__spectrum": ["auto", None],
        "model__d_model": [32, 64, 128],
        "model__n_heads": [2, 4, 8],
    }
    if causal:  # its spectrum would see the future, so "auto" is none
        del choices["tokens__spectrum"]
    space = Space()
    for name, values in choices.items():
        if name not in start:  # the model has no such option
            continue
        own = start[name]
        if own not in values:
            values = [own, *values]
            if all(isinstance(value, int) for value in values):
                values = sorted(values)
        if len(values) > 1:
            space[name] = Choice(tuple(values))
    for name, span in rates.items():
        assert isinstance(span, Range)
        if name not in start:
            continue
        own = start[name]
        if span.log and own <= 0:  # not on this scale
            space[name] = span
        else:
            space[name] = Range(min(span.low, own), max(span.high, own), span.log)
    return Space({name: what for name, what in space.items() if name not in fixed})


def _windows(batch: SeriesBatch, causal: bool) -> list[Any]:
    """Counts that leave a usual window two points; durations for causal models, whose windows must
    not depend on where a series ends.
    """
    points = float(np.median(batch.lengths)) if len(batch) else 0.0
    counts = [count for count in _WINDOWS if count <= points / 2]
    if not causal:
        return counts
    start, end = batch.span
    spans = (end - start)[end > start]
    usual = float(np.median(spans)) if len(spans) else 1.0
    return [{"duration": usual / count} for count in counts]


def _depths(batch: SeriesBatch, start: Mapping[str, Any]) -> list[int]:
    lags = start["tokens__lags"]
    d = max(batch.n_channels, 1) * (1 + len(lags) + bool(start["tokens__counts"]))
    d += start["tokens__time"] != "none"
    return [depth for depth in (1, 2, 3, 4) if word_count(d, depth) <= _MOST_WORDS]
