"""The space that is searched if no other is given: for two cores and data of some thousand series.

Tokens: windows, depth, views, lifts (clock, basepoint, spectrum); model: width, heads, layers,
dropout; training: learning rate, weight decay. What costs much (depth 4 of many channels, windows
without points in them) is left out by the sizes of the series.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from roughformer.series import SeriesBatch
from roughformer.tune.space import Choice, Range, Space
from roughformer.words import word_count

__all__ = ["default_space"]

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
    found = Space()
    for name, values in choices.items():
        if name not in start:  # the model has no such option
            continue
        own = start[name]
        if own not in values:
            values = [own, *values]
            if all(isinstance(value, int) for value in values):
                values = sorted(values)
        if len(values) > 1:
            found[name] = Choice(tuple(values))
    for name, span in rates.items():
        assert isinstance(span, Range)
        if name not in start:
            continue
        own = start[name]
        if span.log and own <= 0:  # not on this scale
            found[name] = span
        else:
            found[name] = Range(min(span.low, own), max(span.high, own), span.log)
    return Space({name: what for name, what in found.items() if name not in fixed})


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
