"""What "auto" means: token options chosen from the sizes of the training series."""

from typing import Any

import numpy as np

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.tokens import SpectrumConfig, TokenConfig
from roughformer.words import word_count

__all__ = ["token_config"]

_MOST_WORDS = 600  # features of one view's signature; more are slow to learn from little data
_MOST_POWERS = 4096  # channels x frequencies of a spectrum
_MOST_CLOCKS = 512  # clock words of a token
_SPARSE = 0.5  # share of missing values above which frequencies mean little


def token_config(batch: SeriesBatch, options: dict[str, Any], causal: bool) -> TokenConfig:
    """``options`` of an estimator with every "auto" replaced.

    Series whose values are mostly missing get 12 windows and words of their observations, and no
    signature of the path between them. For others, windows: 75, but at least two points in each.
    depth: 2, or 1 where that would be more than 600 words a view. clock: up to 16 per window, as
    many as its points can tell apart. spectrum: 1024 frequencies; none for series of fewer than
    16 points, and none for causal models, because it is of the whole path.
    """
    chosen = dict(options)
    channels = max(batch.n_channels, 1)
    median = float(np.median(batch.lengths)) if len(batch) else 0.0
    missing = float(np.isnan(batch.values).mean()) if batch.values.size else 0.0
    sparse = missing > _SPARSE
    if chosen["observations"] == "auto":
        chosen["observations"] = sparse
    if isinstance(chosen["windows"], str):
        if chosen["windows"] != "auto":
            raise InputError(
                "windows must be 'auto', a number of windows, cut times or a rf.Windows; got "
                f"{chosen['windows']!r}"
            )
        chosen["windows"] = int(np.clip(median // 2, 2, 12 if sparse else 75))
    dimension = channels * (1 + len(chosen["lags"]) + bool(chosen["counts"]))
    dimension += chosen["time"] != "none"
    if chosen["depth"] == "auto":
        chosen["depth"] = 2 if word_count(dimension, 2) <= _MOST_WORDS else 1
        if sparse and chosen["observations"]:
            chosen["depth"] = 0
    if chosen["clock"] == "auto":
        wish = 0
        if "local" in chosen["views"] and not sparse:
            points = median / _n_windows(chosen["windows"], batch)
            wish = min(16, int(points // 2), _MOST_CLOCKS // (2 * channels))
        chosen["clock"] = wish
    spectrum = chosen["spectrum"]
    if isinstance(spectrum, str):
        if spectrum not in ("auto", "linear", "log"):
            raise InputError(
                f"spectrum must be 'auto', 'linear', 'log', None or its options, got {spectrum!r}"
            )
        if spectrum == "auto" and (sparse or causal or median < 16):
            chosen["spectrum"] = None
        else:
            axis = "linear" if spectrum == "auto" else spectrum
            count = min(1024 if axis == "linear" else 256, max(_MOST_POWERS // channels, 16))
            chosen["spectrum"] = SpectrumConfig(axis=axis, count=count)
    chosen["hold"] = causal
    if causal and chosen["time"] == "span":
        raise InputError(
            "a causal model cannot tell time as a share of the series' span, which is not known "
            "before its end; use time='unit'"
        )
    if causal and chosen["spectrum"] is not None:
        raise InputError(
            "a causal model cannot use the spectrum of the whole path, which sees the future; "
            "leave spectrum= out"
        )
    return TokenConfig(**chosen)


def _n_windows(windows: Any, batch: SeriesBatch) -> float:
    counts = TokenConfig(windows=windows).rule.place(batch).n_windows
    return max(float(np.median(counts)), 1.0) if len(counts) else 1.0
